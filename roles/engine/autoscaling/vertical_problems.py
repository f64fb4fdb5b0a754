"""What keeps a VerticalPodAutoscaler from working, or makes it harmful. Pure.

The table is rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from roles.engine.autoscaling.created import range_rules
from roles.engine.autoscaling.model import ODD
from roles.engine.autoscaling.problems import not_judged
from roles.engine.autoscaling.rules import ScalingRule
from roles.engine.autoscaling.vertical import IN_PLACE, PROVIDED, Outlook, Vertical, VerticalScene, outlook, shown
from roles.engine.bounds import span
from roles.engine.findings import Finding, Severity, worst_first
from roles.engine.kube import amounts
from roles.engine.kube.fields import pod_template, spec_of

#: The first minor of Kubernetes that resizes pods in place by default (KEP-1287).
IN_PLACE_MINOR = 33
#: A recommender looks once a minute, and needs samples first.
NEW = span(5 * 60)


@dataclass(frozen=True)
class JudgedVertical:
    """One VerticalPodAutoscaler. `problems`: the worst first."""

    scene: VerticalScene
    outlook: Outlook
    problems: tuple[Finding, ...]

    @property
    def vertical(self) -> Vertical:
        return self.scene.vertical

    @property
    def works(self) -> bool:
        return all(one.severity is not Severity.critical for one in self.problems)


def judge_vertical(scene: VerticalScene, now: datetime) -> JudgedVertical:
    """Raises nothing: one with a value that cannot be read has the problem not-judged."""
    try:
        return _judged(scene, now)
    except ODD as error:
        problem = not_judged(str(scene.vertical), error)
        return JudgedVertical(scene, Outlook("waits", problem.why), (problem,))


def _judged(scene: VerticalScene, now: datetime) -> JudgedVertical:
    seen = outlook(scene, now)
    found = [*_workload(scene), *_two(scene), *_horizontal(scene), *_bounds(scene), *_in_place(scene), *_advised(scene, now)]
    if seen.state == "waits" and scene.vertical.advice is not None:
        found.append(ScalingRule.UPDATER_WAITS.found((str(scene.vertical),), seen.text, _way_on(scene, seen)))
    return JudgedVertical(scene, seen, tuple(worst_first(found)))


def _way_on(scene: VerticalScene, seen: Outlook) -> str:
    if "min_replicas" in seen.text:
        return "set min_replicas to 1 if one pod may be changed while it is the only one, or run more"
    if "lease" in seen.text:
        return "see why the VPA's admission controller does not run: kubectl get lease -n kube-system vpa-admission-controller"
    return f"see the pods: kubectl describe pods -n {scene.vertical.namespace}"


def _workload(scene: VerticalScene) -> Iterator[Finding]:
    item = scene.vertical
    if scene.problem:
        yield ScalingRule.NO_TARGET.found(
            (str(scene.vertical), item.workload), f"its workload {item.workload} cannot be read: {scene.problem}",
            f"correct targetRef, create {item.workload}, or remove it",
        )  # fmt: skip


def _two(scene: VerticalScene) -> Iterator[Finding]:
    if not scene.others:
        return
    first = min((scene.vertical, *scene.others), key=lambda one: one.age)
    names = ", ".join(sorted(one.key for one in scene.others))
    mine = first.key == scene.vertical.key
    yield ScalingRule.TWO_VERTICAL.found(
        (str(scene.vertical), *(str(one) for one in scene.others)),
        f"{names} {'is' if len(scene.others) == 1 else 'are'} for the same pods of {scene.vertical.workload}: only the oldest counts, "
        f"{first.key}",
        f"keep one: kubectl delete vpa -n {scene.vertical.namespace} "
        f"{scene.vertical.name if not mine else scene.others[0].name}",
        Severity.warning if mine else Severity.critical,
    )  # fmt: skip


def _horizontal(scene: VerticalScene) -> Iterator[Finding]:
    for one in scene.autoscalers:
        if text := scene.vertical.counted_by(one):
            yield ScalingRule.VERTICAL.found(
                (str(scene.vertical), str(one)),
                f"{one} scales the same pods by a percentage of their {text} request, which this one changes (mode {scene.vertical.mode}). "
                "So each change of the request changes the count, and the other way round",
                f"set its mode to Off, or its resources to others than {text}, or scale by another metric",
            )  # fmt: skip


# ---- bounds, and the namespace's LimitRanges


def _bounds(scene: VerticalScene) -> Iterator[Finding]:
    """What the bounds force is not lowered to a LimitRange (capping.go: the policy is applied last), and the API server then refuses the
    pod: one that was evicted does not come back."""
    item = scene.vertical
    severity = Severity.critical if item.mode != "Off" else Severity.warning
    for policy in item.policies:
        if policy.get("mode") == "Off":
            continue
        who = "each container" if policy.get("containerName") == "*" else f"container {policy.get('containerName')}"
        try:
            least, most = amounts.listed(policy.get("minAllowed")), amounts.listed(policy.get("maxAllowed"))
            for rule in range_rules(scene.limit_ranges, item.namespace):
                for one, why in _beyond(least, most, rule.most, rule.least) if rule.type == "Container" else ():
                    yield ScalingRule.LIMIT_RANGE.found(
                        (str(scene.vertical), rule.place),
                        f"{why} for {who}, and {rule.place} {one}: the API server refuses such a pod, so an evicted one does not come back",
                        "change the bounds, or the LimitRange", severity,
                    )  # fmt: skip
        except ValueError:
            continue


_Amounts = Mapping[str, Fraction]


def _beyond(least: _Amounts, most: _Amounts, high: _Amounts, low: _Amounts) -> Iterator[tuple[str, str]]:
    for resource, amount in sorted(least.items()):
        if resource in high and amount > high[resource]:
            yield f"allows at most {shown(resource, high[resource])}", f"the bound min is {resource} {shown(resource, amount)}"
    for resource, amount in sorted(most.items()):
        if resource in low and amount < low[resource]:
            yield f"needs at least {shown(resource, low[resource])}", f"the bound max is {resource} {shown(resource, amount)}"


# ---- in place, and the recommender


def _in_place(scene: VerticalScene) -> Iterator[Finding]:
    item = scene.vertical
    if item.mode != IN_PLACE:
        return
    if scene.minor < IN_PLACE_MINOR:
        yield ScalingRule.NO_IN_PLACE.found(
            (str(scene.vertical),),
            f"mode {IN_PLACE} needs Kubernetes 1.{IN_PLACE_MINOR} or later, and this is 1.{scene.minor}: it evicts pods instead",
            "mode Initial or Recreate, or upgrade the cluster",
        )  # fmt: skip
    template = spec_of(pod_template(scene.item or {}))
    restarted = sorted(
        {
            str(one.get("name"))
            for one in template.get("containers") or ()
            for rule in one.get("resizePolicy") or ()
            if rule.get("restartPolicy") == "RestartContainer"
        }
    )
    if restarted:
        yield ScalingRule.NO_IN_PLACE.found(
            (str(scene.vertical), item.workload), f"a resize restarts {', '.join(restarted)} (resizePolicy RestartContainer)",
            "resizePolicy NotRequired, if the program reads its limits while it runs", Severity.note,
        )  # fmt: skip


def _advised(scene: VerticalScene, now: datetime) -> Iterator[Finding]:
    item = scene.vertical
    found = item.condition(PROVIDED)
    if scene.problem or (item.advice is not None and found is not None and found.status):
        return
    severity = Severity.note if item.created is None or now - item.created < NEW else Severity.critical
    if not scene.pods:
        why, way_out, severity = "there is no pod to recommend for", f"scale {item.workload} up", Severity.warning
    elif not item.conditions:
        why = "no recommender has looked at it"
        way_out = "a recommender needs a minute; else see the pod vpa-recommender: its log, and whether the metrics API serves"
    else:
        said = "; ".join(f"{one}{f': {one.message}' if one.message else ''}" for one in item.conditions)
        why = f"the recommender has no recommendation ({said})"
        way_out = f"new pods need two minutes; else see kubectl top pods -n {item.namespace}"
    yield ScalingRule.NO_RECOMMENDATION.found((str(scene.vertical), item.workload), why, way_out, severity)
