"""Pure: the pods that a kubelet kills to admit a critical one.

Source (Kubernetes 1.36): pkg/kubelet/preemption/preemption.go, pkg/api/v1/resource/helpers.go (GetResourceRequestQuantity).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roles.engine.kube import Object, pods, resources
from roles.engine.kube.amounts import units
from roles.engine.kube.fields import status_of

_QOS_ORDER = ("BestEffort", "Burstable", "Guaranteed")


@dataclass(frozen=True)
class Victims:
    """The pods that are killed. `any_of_equals`: others are as good, and the kubelet kills any of them."""

    pods: tuple[Object, ...]
    any_of_equals: bool


def can_preempt(pod: Object, other: Object) -> bool:
    return not pods.is_critical(other) or pods.priority(pod) > pods.priority(other)


def victims(pod: Object, admitted: Sequence[Object], needed: Mapping[str, int]) -> Victims | None:
    """The victims for a critical pod that lacks `needed`, by resource; None if all of them together would not free enough."""
    best_effort, burstable, guaranteed = (
        [other for other in admitted if status_of(other).get("qosClass") == qos and can_preempt(pod, other)] for qos in _QOS_ORDER
    )
    if _left(needed, [*best_effort, *burstable, *guaranteed]):
        return None
    # A higher class only frees what all pods of the lower classes cannot.
    from_guaranteed, equal_guaranteed = _nearest(guaranteed, _left(needed, [*best_effort, *burstable]))
    from_burstable, equal_burstable = _nearest(burstable, _left(needed, [*best_effort, *from_guaranteed]))
    from_best_effort, equal = _nearest(best_effort, _left(needed, [*from_burstable, *from_guaranteed]))
    return Victims((*from_best_effort, *from_burstable, *from_guaranteed), equal or equal_burstable or equal_guaranteed)


def _freed(pod: Object, resource: str) -> int:
    """What a preempted pod frees, as the kubelet counts it."""
    if resource == "pods":
        return 1
    return units(resource, resources.ranked(pod, resource))


def _left(needed: Mapping[str, int], gone: Iterable[Object]) -> dict[str, int]:
    gone = list(gone)
    left = {resource: amount - sum(_freed(victim, resource) for victim in gone) for resource, amount in needed.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}


def _nearest(of: Iterable[Object], needed: Mapping[str, int]) -> tuple[list[Object], bool]:
    """Chooses pods one by one: each time the pod after which the least is still needed, then the smallest. True: any of equal ones."""
    left, chosen, equal = list(of), list[Object](), False
    while needed:
        ranked = sorted(left, key=lambda pod: _rank(pod, needed))
        best = ranked[0]
        equal = equal or (len(ranked) > 1 and _rank(ranked[1], needed) == _rank(best, needed))
        left.remove(best)
        chosen.append(best)
        needed = _left(needed, [best])
    return chosen, equal


def _rank(pod: Object, needed: Mapping[str, int]) -> tuple[float, int, int]:
    rests = ((amount - _freed(pod, resource)) / amount for resource, amount in needed.items())
    return sum(rest**2 for rest in rests if rest > 0), _freed(pod, "memory"), _freed(pod, "cpu")
