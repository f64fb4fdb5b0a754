"""What a run changes: from the advice to the new resources of workloads, and whether someone else has changed them since. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roles.engine.kube import Object, uid
from roles.engine.kube.names import RESOURCES_OF_KINDS
from roles.pod_resize import Resources, WorkloadResize
from roles.right_size.judged import JudgedContainer
from roles.right_size.quantities import text_of
from roles.right_size.recommend import Advice
from roles.right_size.targets import TargetChange, target_changes
from roles.right_size.watching import UseBefore
from roles.right_size.workloads import Amounts, SizedWorkload

#: The namespace of the cluster's own workloads.
SYSTEM = "kube-system"
# Decisions that change nothing, though something may be wrong.
_NOT_YET = ("wait", "fix", "unknown")


@dataclass(frozen=True)
class WantedResources:
    """A workload to change: the new resources of its containers, without what stays."""

    workload: SizedWorkload
    resources: Mapping[str, Resources]
    judged: Sequence[JudgedContainer]

    def targets(self, items: Iterable[Object]) -> list[TargetChange]:
        """Its autoscalers, of `items`, whose utilization targets have to change with its requests."""
        before = {one.container: one.now.requests for one in self.judged}
        return target_changes(self.workload, before, {one.container: _requests(one) for one in self.judged}, items)


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
        for kind, now, then in (("requests", one.now.requests, advice.request), ("limits", one.now.limits, advice.limit)):
            if advice.changes and then is not None and then != now.of_resource(advice.resource):
                new.setdefault(kind, {})[advice.resource] = text_of(advice.resource, then)
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


def _requests(one: JudgedContainer) -> Amounts:
    def of(advice: Advice) -> int | None:
        return advice.request if advice.changes else one.now.requests.of_resource(advice.resource)

    return Amounts(of(one.cpu), of(one.memory))


def use_before(one: JudgedContainer) -> UseBefore:
    """What its samples say, to compare the watch with."""
    has, becomes = one.now.requests.cpu, _requests(one).cpu
    falls = has is not None and becomes is not None and becomes < has
    return UseBefore(one.found.throttled or 0.0, one.found.cpu_pressure if falls else None)


def changed_since(planned: WorkloadResize, now: WorkloadResize) -> Iterator[str]:
    """What someone else has changed between two plans of one resize, in words."""
    if uid(planned.item) != uid(now.item):
        yield "it was deleted and created again"
        return
    # No template: it has the new resources.
    if now.template is not None and (planned.template is None or now.template.before != planned.template.before):
        yield "its template got other resources"
    before = {step.uid: {name: one.before for name, one in step.changes.items()} for step in planned.steps}
    for step in now.steps:
        if before.get(step.uid, found := {name: one.before for name, one in step.changes.items()}) != found:
            yield f"the pod {step.where} got other resources"
