"""Pure: which of a node's pods a starting kubelet admits again: the re-admission forecast.

A starting kubelet admits all pods of its node again, static ones first, then the oldest; a pod that it rejects has failed for good. What
the forecast cannot judge counts as "may be lost": it never says "stays" for a pod that may go.

Sources (Kubernetes 1.36, 1.32): pkg/kubelet/kubelet.go (HandlePodAdditions), pkg/kubelet/allocation/allocation_manager.go (AddPod,
canAdmitPod), pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/preemption/preemption.go, pkg/kubelet/kubelet_nodecache.go,
pkg/scheduler/framework/plugins/noderesources/fit.go (fitsRequest).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from roles.engine.kube import Object, full_name, is_ending, pods, resources
from roles.engine.kube.amounts import Amounts, listed, shown, units
from roles.engine.kube.fields import created_of, status_of
from roles.engine.kube.resources import View
from roles.engine.kubelet.allocatable import allocatable
from roles.engine.placement import preemption
from roles.engine.placement.admission import Objection, after_room, before_room, pressures_of, under_pressure

Outcome = Literal["stays", "may be lost", "lost"]
_FIRST = ("pods", "cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True)
class Lack:
    """A resource of which a pod requests more than is left: the pods admitted before it use `used` of `allocatable`."""

    resource: str
    requested: int
    used: int
    allocatable: int

    def __str__(self) -> str:
        left = max(0, self.allocatable - self.used)
        return f"{self.resource}: {shown(self.resource, self.requested)} requested, {shown(self.resource, left)} left"

    @property
    def needed(self) -> int:
        return self.requested - (self.allocatable - self.used)


@dataclass(frozen=True)
class Readmission:
    """What becomes of one pod (NAMESPACE/NAME). `reason`: as the pod's status would have it, such as OutOfcpu; `why`: for people."""

    pod: str
    outcome: Outcome
    reason: str = ""
    why: str = ""

    def __str__(self) -> str:
        unsure = "perhaps " if self.outcome == "may be lost" else ""
        return f"{self.pod} ({unsure}{self.reason}: {self.why})" if self.reason else self.pod


@dataclass(frozen=True)
class Forecast:
    """All pods of a node, in the order in which they are admitted."""

    pods: tuple[Readmission, ...]

    @property
    def losers(self) -> tuple[Readmission, ...]:
        """Those that are lost, and those that may be."""
        return tuple(one for one in self.pods if one.outcome != "stays")


def forecast(
    of: Iterable[Object],
    node: Object,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    pressures: Collection[str] | None = None,
) -> Forecast:
    """What a restart of the node's kubelet does to its pods (raw JSON), if it then runs with the configuration `after`; `before` is the one
    that it runs with, both as /configz shows them. `pressures`: the node's pressure conditions then, if they are predicted.

    A kubelet may admit its pods before its first status update, and then judges them by the old values of its Node; so a pod stays only
    if it fits by both. Raises ValueError if an amount cannot be read.
    """
    of = list(of)
    holds = {full_name(pod): resources.in_units(pod, View.RUNNING) for pod in of}
    new = allocatable(after, node)
    under = pressures_of(node) if pressures is None else pressures
    now = {name: units(name, amount) for name, amount in listed(status_of(node).get("allocatable")).items()}
    then = _Kubelet(node, before, after, under, new, holds).admit(of)
    as_it_is = then if now == new else _Kubelet(node, before, after, under, now, holds).admit(of)
    return Forecast(tuple(_worse(*both) for both in zip(then, as_it_is, strict=True)))


def _worse(then: Readmission, as_it_is: Readmission) -> Readmission:
    if then.outcome != "stays" or as_it_is.outcome == "stays":
        return then
    return Readmission(then.pod, "may be lost", as_it_is.reason, f"{as_it_is.why}, by the present values of its Node")


@dataclass
class _Kubelet:
    """A starting kubelet. `sure`: the pods that it has admitted for sure; `maybe`: those that it may have admitted, too; `holds`: what
    each pod holds, by its name."""

    node: Object
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    pressures: Collection[str]
    room: Amounts
    holds: Mapping[str, Mapping[str, int]]
    sure: list[Object] = field(default_factory=list)
    maybe: list[Object] = field(default_factory=list)
    found: dict[str, Readmission] = field(default_factory=dict)

    def admit(self, of: Sequence[Object]) -> tuple[Readmission, ...]:
        """All pods, in order; those of the same second in any order (the kubelet's sort is not stable)."""
        live = sorted((pod for pod in of if not pods.is_over(pod)), key=_order)
        for _, group in groupby(live, key=_order):
            together = list(group)
            base = list(self.sure)
            for pod in together:
                at_least = [one for one in base if _among(one, self.sure)]
                more = [one for one in (*self.sure, *self.maybe, *together) if one is not pod and not _among(one, at_least)]
                at_most = [*at_least, *{full_name(one): one for one in more}.values()]
                self._admit(pod, at_least, at_most)
        return tuple(self.found[full_name(pod)] for pod in live if not is_ending(pod))

    def _admit(self, pod: Object, at_least: Sequence[Object], at_most: Sequence[Object]) -> None:
        lacks, surely = self._lacking(pod, at_most), self._lacking(pod, at_least)
        early = [*under_pressure(pod, self.pressures), *before_room(pod, self.node, self.before, self.after)]
        late = [*after_room(pod, self.node, self.before, self.after)]
        late += _ports(pod, at_least, at_most)
        of_room = [Objection(f"OutOf{lack.resource}", str(lack), bool(surely)) for lack in (surely or lacks)[:1]]
        if lacks and pods.is_critical(pod) and not any(one.sure for one in (*early, *late)):
            of_room = self._preempt(pod, at_most, lacks, exact=len(at_most) == len(at_least))
        objections = [*early, *of_room, *late]
        objection = next((one for one in objections if one.sure), next(iter(objections), None))
        known = self.found.get(full_name(pod), _STAYS).outcome == "stays"
        if objection is None and known and not is_ending(pod):
            self.sure.append(pod)
        elif objection is None or not objection.sure:
            self.maybe.append(pod)  # one that is terminating holds its room until it has ended
        self._note(pod, objection)

    def _lacking(self, pod: Object, others: Iterable[Object]) -> tuple[Lack, ...]:
        """What the node lacks for a pod beside `others`, in the kubelet's order."""
        used: dict[str, int] = {"pods": 0}
        for other in others:
            used["pods"] += 1
            for resource, amount in self.holds[full_name(other)].items():
                used[resource] = used.get(resource, 0) + amount
        requested = {"pods": 1, **_asked(pod)}
        found = []
        for resource in (*(name for name in _FIRST if name in requested), *sorted(requested.keys() - {*_FIRST})):
            if "/" in resource and resource not in self.room:
                continue  # an extended resource that the node does not know is not asked of it
            if 0 < requested[resource] > self.room.get(resource, 0) - used.get(resource, 0):
                found.append(Lack(resource, requested[resource], used.get(resource, 0), self.room.get(resource, 0)))
        return tuple(found)

    def _note(self, pod: Object, objection: Objection | None) -> None:
        name = full_name(pod)
        if objection is None:
            self.found.setdefault(name, Readmission(name, "stays"))
        else:
            self.found[name] = Readmission(name, "lost" if objection.sure else "may be lost", objection.reason, objection.why)

    def _preempt(self, pod: Object, admitted: Sequence[Object], lacks: Sequence[Lack], *, exact: bool) -> list[Objection]:
        """A critical pod preempts others; if it is not known which, all that it can preempt may be lost. A preempted pod that does not end
        within the time that the kubelet waits for it (10 s at least) holds its room while the next pods are judged (preemption.go:
        evictPodsToFreeRequests)."""
        text = ", ".join(map(str, lacks))
        why = f"{full_name(pod)}, which is critical, preempts it: {text}"
        killed = preemption.victims(pod, admitted, {lack.resource: lack.needed for lack in lacks})
        known = exact and killed is not None and not killed.any_of_equals
        for other in killed.pods if killed is not None and known else ():
            self.sure = [one for one in self.sure if one is not other]
            self.maybe.append(other)
            self._note(other, Objection("Preempting", why))
        for other in () if known else admitted:
            if not preemption.can_preempt(pod, other):
                continue
            if _among(other, self.sure):
                self.sure = [one for one in self.sure if one is not other]
                self.maybe.append(other)
            if self.found.get(full_name(other), _STAYS).outcome == "stays":
                self._note(other, Objection("Preempting", why, False))
        if killed is not None:
            return []
        return [Objection("UnexpectedAdmissionError", f"it is critical, and there are not enough pods that it may preempt: {text}", exact)]


_STAYS = Readmission("", "stays")


def _among(pod: Object, of: Iterable[Object]) -> bool:
    return any(one is pod for one in of)


def _order(pod: Object) -> tuple[bool, str]:
    """Static pods do not wait for the API."""
    return not pods.is_static(pod), "" if pods.is_static(pod) else created_of(pod)


def _ports(pod: Object, at_least: Iterable[Object], at_most: Iterable[Object]) -> list[Objection]:
    mine = pods.host_ports(pod)
    if not mine:
        return []
    for others, sure in ((at_least, True), (at_most, False)):
        for other in others:
            if (port := pods.shared_port(mine, pods.host_ports(other))) is not None:
                return [Objection("NodePorts", f"port {port[2]}/{port[1]} of the host is held by {full_name(other)}", sure)]
    return []


def _asked(pod: Object) -> Amounts:
    """What a starting kubelet asks room for: the pod's allocation. If its status does not have that, the most of spec and what its
    containers run with. Raises ValueError."""
    known = all("allocatedResources" in state for state in pods.container_states(pod) if "resources" in state)
    return resources.in_units(pod, View.ALLOCATED if known else View.RUNNING)
