"""Pure: which of a node's pods a starting kubelet admits again.

Sources (Kubernetes 1.36): pkg/kubelet/kubelet.go (HandlePodAdditions), pkg/kubelet/preemption/preemption.go,
pkg/scheduler/framework/plugins/noderesources/fit.go (fitsRequest).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from roles.engine.kubelet.amounts import Amounts, added, shown, units
from roles.engine.placement import pods
from roles.engine.placement.pods import Object, requests

_QOS_ORDER = ("BestEffort", "Burstable", "Guaranteed")


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


@dataclass(frozen=True)
class Unfit:
    """A pod (namespace/name) that a starting kubelet rejects, and why.

    If `preempted_by` is set, the pod itself fits, but is preempted by this critical pod, which lacks the resources in `lacks`.
    """

    pod: str
    lacks: tuple[Lack, ...]
    preempted_by: str = ""

    def __str__(self) -> str:
        why = ", ".join(map(str, self.lacks))
        return f"{self.pod} is preempted by {self.preempted_by} ({why})" if self.preempted_by else f"{self.pod} ({why})"


def which_no_longer_fit(of: Iterable[Object], before: Amounts, after: Amounts) -> tuple[Unfit, ...]:
    """The node's pods (raw JSON) that a starting kubelet would admit with the allocatable `before`, but not with `after`, in its order.

    A kubelet may admit its pods before its first status update. Then it judges them by the old values of its Node, and rejects them at
    its next start.
    """
    of = list(of)
    known = {unfit.pod for unfit in unfit_pods(of, before)}
    return tuple(unfit for unfit in unfit_pods(of, after) if unfit.pod not in known)


def unfit_pods(of: Iterable[Object], room: Amounts) -> tuple[Unfit, ...]:
    """The pods that a kubelet with this allocatable would reject when it starts.

    Static pods come first, because they do not wait for the API; then the oldest. A critical pod that does not fit preempts others.
    """
    admitted: dict[str, Object] = {}
    found: list[Unfit] = []
    for pod in sorted(of, key=lambda pod: (not pods.is_static(pod), pod["metadata"].get("creationTimestamp") or "")):
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        name = pods.name(pod)
        lacks = _lacks(pod, admitted.values(), room)
        if lacks and pods.is_critical(pod):
            victims = _preempted(pod, list(admitted.values()), lacks)
            if victims is not None:
                for victim in victims:
                    del admitted[pods.name(victim)]
                    found.append(Unfit(pods.name(victim), lacks, name))
                lacks = ()
        if lacks:
            found.append(Unfit(name, lacks))
        else:
            admitted[name] = pod
    return tuple(found)


def _lacks(pod: Object, others: Iterable[Object], room: Amounts) -> tuple[Lack, ...]:
    others = list(others)
    found = []
    if len(others) + 1 > room.get("pods", 0):
        found.append(Lack("pods", 1, len(others), room.get("pods", 0)))
    used: dict[str, Fraction] = {}
    for other in others:
        used = added(used, requests(other, actuated=True))
    requested = requests(pod)
    first = ("cpu", "memory", "ephemeral-storage")
    for resource in (*(name for name in first if name in requested), *sorted(requested.keys() - {*first})):
        extended = "/" in resource
        if extended and resource not in room:
            continue
        amount, taken = units(resource, requested[resource]), units(resource, used.get(resource, Fraction(0)))
        if amount > 0 and amount > room.get(resource, 0) - taken:
            found.append(Lack(resource, amount, taken, room.get(resource, 0)))
    return tuple(found)


def _preempted(pod: Object, admitted: Sequence[Object], lacks: Sequence[Lack]) -> list[Object] | None:
    """The pods that the kubelet kills to admit a critical one; None if all of them together would not free enough."""
    needed = {lack.resource: lack.requested - (lack.allocatable - lack.used) for lack in lacks}
    classes = {
        qos: [other for other in admitted if (other.get("status") or {}).get("qosClass") == qos and _preemptable(pod, other)]
        for qos in _QOS_ORDER
    }
    best_effort, burstable, guaranteed = classes.values()
    if _left(needed, [*best_effort, *burstable, *guaranteed]):
        return None
    # A higher class only frees what all pods of the lower classes cannot.
    from_guaranteed = _nearest(guaranteed, _left(needed, [*best_effort, *burstable]))
    from_burstable = _nearest(burstable, _left(needed, [*best_effort, *from_guaranteed]))
    return [*_nearest(best_effort, _left(needed, [*from_burstable, *from_guaranteed])), *from_burstable, *from_guaranteed]


def _preemptable(pod: Object, other: Object) -> bool:
    return not pods.is_critical(other) or pods.priority(pod) > pods.priority(other)


def _freed(pod: Object, resource: str) -> int:
    """What a preempted pod frees. The kubelet ignores its containers' requests here if the pod has pod-level ones, and its overhead of
    a resource that it does not request (pkg/api/v1/resource/helpers.go, GetResourceRequestQuantity)."""
    if resource == "pods":
        return 1
    as_a_whole = pods.pod_level(pod, "requests") or pods.pod_level(pod, "limits")
    own = (pods.pod_level(pod, "requests") if as_a_whole else pods.own(pod)).get(resource, Fraction(0))
    return units(resource, own + pods.overhead(pod).get(resource, Fraction(0)) if own else own)


def _left(needed: Mapping[str, int], victims: Iterable[Object]) -> dict[str, int]:
    victims = list(victims)
    left = {resource: amount - sum(_freed(victim, resource) for victim in victims) for resource, amount in needed.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}


def _nearest(of: Iterable[Object], needed: Mapping[str, int]) -> list[Object]:
    """Chooses pods one by one: each time the pod after which the least is still needed, then the smallest; the kubelet chooses any of
    equal ones."""
    left, chosen = list(of), list[Object]()
    while needed:
        best = min(left, key=lambda pod: (_distance(pod, needed), _freed(pod, "memory"), _freed(pod, "cpu")))
        left.remove(best)
        chosen.append(best)
        needed = _left(needed, [best])
    return chosen


def _distance(pod: Object, needed: Mapping[str, int]) -> float:
    rests = ((amount - _freed(pod, resource)) / amount for resource, amount in needed.items())
    return sum(rest**2 for rest in rests if rest > 0)
