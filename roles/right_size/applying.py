"""What a run changes: from the advice to the resources of workloads and the targets of their autoscalers, and whether nodes have room for
it. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roles.autoscalers import KINDS
from roles.engine import placement
from roles.engine.autoscaling import HPA
from roles.engine.kube import Object, resources, uid
from roles.engine.kube.fields import meta_of, name_of, spec_of, status_of
from roles.engine.kube.names import RESOURCES_OF_KINDS
from roles.engine.kube.pods import is_over, node_of
from roles.engine.kube.resources import View
from roles.engine.objects import workload_rollout
from roles.engine.placement import ClusterView
from roles.pod_resize import PodStep, Resources, WorkloadResize
from roles.right_size.autoscaling import UtilizationTarget, corrected, utilization_targets
from roles.right_size.judged import JudgedContainer
from roles.right_size.quantities import cpu_text, memory_text
from roles.right_size.quotas import STARTS_FIRST, grown, units
from roles.right_size.recommend import Advice
from roles.right_size.watching import UseBefore
from roles.right_size.workloads import Amounts, SizedWorkload

_TEXT = {"cpu": cpu_text, "memory": memory_text}
#: The namespace of the cluster's own workloads.
SYSTEM = "kube-system"
# kube-controller-manager's --horizontal-pod-autoscaler-downscale-stabilization, if it is not set.
_WINDOW = 300.0
# Decisions that change nothing, though something may be wrong.
_NOT_YET = ("wait", "fix", "unknown")


SCALER = KINDS[HPA]


@dataclass(frozen=True)
class WantedResources:
    """A workload to change: the new resources of its containers, without what stays."""

    workload: SizedWorkload
    resources: Mapping[str, Resources]
    judged: Sequence[JudgedContainer]


@dataclass(frozen=True)
class TargetChange:
    """The metrics of a HorizontalPodAutoscaler before and after. `text`: what changes, for people; `window`: seconds for which it waits
    before it removes pods."""

    name: str
    path: str
    uid: str
    before: Sequence[Any]
    after: Sequence[Any]
    text: str
    window: float = _WINDOW

    def patch(self, metrics: Sequence[Any], version: str) -> dict[str, Any]:
        """A strategic merge patch, which replaces this list; UID and resourceVersion are preconditions."""
        return {"metadata": {"uid": self.uid, "resourceVersion": version}, "spec": {"metrics": list(metrics)}}

    @property
    def rises(self) -> bool:
        """A percentage gets higher: pods that still have the old request then look idle to it."""
        return self.meanwhile != list(self.after)

    def wrote(self, metrics: Sequence[Any]) -> bool:
        """Whether an autoscaler with these metrics is as it was before this change, or as this change made it."""
        return list(metrics) in (list(self.before), self.meanwhile, list(self.after))

    @property
    def meanwhile(self) -> list[Any]:
        """The metrics while some pods have the old requests and some the new ones: of each metric the lower percentage, so that an
        autoscaler never wants fewer pods than before. `before` if these are other metrics."""
        before, after = list(self.before), list(self.after)
        if [_with_percent(metric, 0) for metric in before] != [_with_percent(metric, 0) for metric in after]:
            return before
        return [new if _percent(new) < _percent(old) else old for old, new in zip(before, after, strict=True)]


def _source(metric: Any) -> Any:
    """The part of a metric that has a utilization; empty if it keeps none."""
    key = "containerResource" if metric.get("type") == "ContainerResource" else "resource"
    return metric.get(key) or {}


def _percent(metric: Any) -> int:
    """The utilization that a metric keeps; 0: it keeps none."""
    return int((_source(metric).get("target") or {}).get("averageUtilization") or 0)


def _with_percent(metric: Any, percent: int) -> Any:
    """The same metric with another utilization; as it is if it keeps none."""
    if not _percent(metric):
        return metric
    changed = copy.deepcopy(dict(metric))
    _source(changed)["target"]["averageUtilization"] = percent
    return changed


def wanted(
    found: Iterable[JudgedContainer], *, system: bool = True
) -> tuple[list[WantedResources], list[tuple[str, str]], list[tuple[str, str]]]:
    """The workloads whose containers should change, those in danger first; those that this run leaves, with the reason; and those of which
    too little is known, or which leak, so that nothing changes. `system`: also those of SYSTEM."""
    by_workload: dict[SizedWorkload, list[JudgedContainer]] = {}
    for one in found:
        by_workload.setdefault(one.workload, []).append(one)
    changes, left, waiting = [], [], []
    for workload, ones in by_workload.items():
        resources = {one.container: new for one in ones if (new := new_resources(one))}
        if not resources:
            if why := "; ".join(_not_yet(ones)):
                waiting.append((str(workload), why))
            continue
        why = "" if system or workload.namespace != SYSTEM else f"the cluster's own: name it if you mean it: --data namespaces={SYSTEM}"
        if why := why or _why_left(workload, [one for one in ones if one.container in resources]):
            left.append((str(workload), why))
        else:
            changes.append(WantedResources(workload, resources, ones))
    return changes, left, waiting


def _not_yet(ones: Iterable[JudgedContainer]) -> Iterator[str]:
    for one in ones:
        for advice in one.advices:
            if advice.decision in _NOT_YET:
                yield f"{one.container} {advice.resource}: {advice.why}"


def new_resources(one: JudgedContainer) -> dict[str, dict[str, str]]:
    """The values of a container that its advice changes; empty if it changes none."""
    new: dict[str, dict[str, str]] = {}
    for advice in one.advices:
        if advice.decision not in ("raise", "lower"):
            continue
        for kind, now, then in (("requests", one.now.requests, advice.request), ("limits", one.now.limits, advice.limit)):
            if then is not None and then != getattr(now, advice.resource):
                new.setdefault(kind, {})[advice.resource] = _TEXT[advice.resource](then)
    return new


def _why_left(workload: SizedWorkload, ones: Sequence[JudgedContainer]) -> str:
    if workload.kind not in RESOURCES_OF_KINDS:
        return f"daytwo changes Deployments, StatefulSets and DaemonSets; change the template of this {workload.kind} by hand"
    if sidecars := [one.container for one in ones if one.sidecar]:
        return f"{', '.join(sidecars)} is a sidecar, which no resize in place changes; set it in the template by hand"
    vpa = next((one.vpa for one in ones if one.vpa is not None and one.vpa.mode != "Off"), None)
    if vpa is not None:
        return f"the VerticalPodAutoscaler {vpa.name} ({vpa.mode}) sets its requests; set its updateMode to Off first"
    return ""


def target_changes(of: WantedResources, items: Iterable[Object]) -> list[TargetChange]:
    """The autoscalers of a workload whose utilization targets have to change with its requests."""
    before = {one.container: one.now.requests for one in of.judged}
    after = {one.container: _requests(one) for one in of.judged}
    found = []
    for item in items:
        if not utilization_targets([item]).get(of.workload):
            continue
        metrics = list(spec_of(item).get("metrics") or ())
        new = [_corrected(metric, before, after) for metric in metrics]
        texts = [text for _, text in new if text]
        if texts:
            name = name_of(item)
            path = SCALER.path_of(of.workload.namespace, name)
            written = [metric for metric, _ in new]
            found.append(TargetChange(name, path, uid(item), metrics, written, ", ".join(texts), _window(item)))
    return found


def _window(item: Object) -> float:
    rules = (spec_of(item).get("behavior") or {}).get("scaleDown") or {}
    found = rules.get("stabilizationWindowSeconds")
    return _WINDOW if found is None else float(found)


def _requests(one: JudgedContainer) -> Amounts:
    def of(advice: Advice) -> int | None:
        return advice.request if advice.decision in ("raise", "lower") else getattr(one.now.requests, advice.resource)

    return Amounts(of(one.cpu), of(one.memory))


def use_before(one: JudgedContainer) -> UseBefore:
    """What its samples say, to compare the watch with."""
    has, becomes = one.now.requests.cpu, _requests(one).cpu
    falls = has is not None and becomes is not None and becomes < has
    return UseBefore(one.found.throttled or 0.0, one.found.cpu_pressure if falls else None)


def _corrected(metric: Object, before: Mapping[str, Amounts], after: Mapping[str, Amounts]) -> tuple[Any, str]:
    """A metric with its new percentage, and what changes; as it is, and "", if it is no utilization or stays."""
    source = _source(metric)
    percent, resource = (source.get("target") or {}).get("averageUtilization"), source.get("name")
    if percent is None or resource not in ("cpu", "memory"):
        return metric, ""
    counted = [name for name in before if metric.get("type") != "ContainerResource" or name == source.get("container")]
    amounts = [[getattr(side[name], resource) for name in counted] for side in (before, after)]
    if not counted or any(amount is None for side in amounts for amount in side):
        return metric, ""
    was, becomes = sum(amounts[0]), sum(amounts[1])
    target = UtilizationTarget("", resource, int(percent))
    new = corrected(target, was, becomes) if was != becomes and becomes else int(percent)
    if new == percent:
        return metric, ""
    return _with_percent(metric, new), f"{resource} {percent} % -> {new} %"


def changed_since(planned: WorkloadResize, now: WorkloadResize) -> Iterator[str]:
    """What someone else has changed between two plans of one resize, in words."""
    if uid(planned.item) != uid(now.item):
        yield "it was deleted and created again"
        return
    # No template: it has the new resources.
    if now.template is not None and (planned.template is None or now.template.before != planned.template.before):
        yield "its template got other resources"
    before = {step.uid: step for step in planned.steps}
    for step in now.steps:
        known = before.get(step.uid)
        if known is not None and {name: one.before for name, one in step.changes.items()} != {
            name: one.before for name, one in known.changes.items()
        }:
            yield f"the pod {step.where} got other resources"


# ---- room


def node_problems(steps: Iterable[PodStep], nodes: Iterable[Object], pods: Iterable[Object]) -> Iterator[str]:
    """Nodes that have no room for all of these steps together. `pods`: all of the cluster."""
    more: dict[str, dict[str, int]] = {}
    for step in steps:
        for resource, amount in grown(step).items():
            if not resource.startswith("limits."):
                found = more.setdefault(step.node, {})
                found[resource] = found.get(resource, 0) + amount
    held: dict[str, dict[str, int]] = {}
    for pod in pods:
        node = node_of(pod)
        if node in more and not is_over(pod):
            requests = resources.requests(pod, View.RUNNING)
            found = held.setdefault(node, {"cpu": 0, "memory": 0})
            found["cpu"] += int(requests.get("cpu", 0) * 1000)
            found["memory"] += int(requests.get("memory", 0))
    for item in nodes:
        name = name_of(item)
        room = status_of(item).get("allocatable") or {}
        for resource, amount in more.get(name, {}).items():
            total, has = units(resource, str(room.get(resource, "0"))), held.get(name, {}).get(resource, 0)
            if amount > 0 and has + amount > total:
                text = _TEXT[resource]
                yield f"{name} has {text(total)} of {resource} for pods, they request {text(has)}, and this would add {text(amount)}"


def rollout_problems(
    kind: str, item: Object, pods: Sequence[Object], resources: Mapping[str, Resources], view: ClusterView
) -> Iterator[str]:
    """Pods of a workload that could run nowhere if they are recreated with the new resources; and if its roll-out starts a pod before it
    ends one, that one. `view` has its pods as they are before."""
    new = [with_resources(pod, resources) for pod in pods]
    for found in placement.place_all(new, view):
        if found.outcome == "nowhere":
            yield f"recreated with the new resources, {found}"
    if not new or workload_rollout.unavailable(kind, item):
        return
    own = {uid(pod) for pod in new}
    resized = [*new, *(pod for pod in view.pods if uid(pod) not in own)]
    more = [_one_more(pod) for pod in (new if kind == "DaemonSet" else new[:1])]
    for found in placement.place_all(more, replace(view, pods=resized)):
        if found.outcome == "nowhere":
            yield f"{STARTS_FIRST}: {found}; make room on a node, or set template=keep"


def _one_more(pod: Object) -> Object:
    meta = {key: value for key, value in meta_of(pod).items() if key != "uid"}
    return {**pod, "metadata": {**meta, "name": f"{name_of(pod)}-new"}}


def with_resources(pod: Object, resources: Mapping[str, Resources]) -> Object:
    """The pod as it is created again with the new resources of its containers."""
    changed: Any = copy.deepcopy({key: value for key, value in pod.items() if key != "status"})
    for one in changed["spec"].get("containers") or ():
        new = resources.get(str(one.get("name"))) or {}
        old = one.get("resources") or {}
        one["resources"] = {**old, **{kind: {**(old.get(kind) or {}), **values} for kind, values in new.items()}}
    return changed  # type: ignore[no-any-return]
