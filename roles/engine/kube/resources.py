"""What a pod requests, and its limits. cpu in cores, all others in whole units, unless a function says otherwise. Pure.

Sources (Kubernetes 1.36): k8s.io/component-helpers/resource/helpers.go (PodRequests, PodLimits; KEP-753, KEP-1287, KEP-2837),
pkg/api/v1/resource/helpers.go (GetResourceRequestQuantity).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from fractions import Fraction

from roles.engine.kube import amounts
from roles.engine.kube.amounts import Amounts
from roles.engine.kube.fields import status_of
from roles.engine.kube.objects import Object, condition
from roles.engine.kube.pods import container_states, is_sidecar

Resources = dict[str, Fraction]
_RESIZE_PENDING = "PodResizePending"
_CONTAINERS = ("containers", "initContainers")
_OF_STATUS = ("nodeAllocatableResourceClaimStatuses", "allocatedResources", "resources")


class View(Enum):
    """Which requests of a pod count. They differ for a pod that is, or was, resized in place."""

    #: As written: a pod that is to be created, a HorizontalPodAutoscaler, a LimitRange (PodRequests without UseStatusResources).
    SPEC = "spec"
    #: What the kubelet has allocated, instead of the spec: its ranks and its preemption (allocation_manager.go: UpdatePodFromAllocation).
    ALLOCATED = "allocated"
    #: The same, but not less than what the containers run with: a starting kubelet, which has a pod to admit again.
    RUNNING = "running"
    #: The most of spec, allocation and what runs; without the spec of an infeasible resize: the scheduler, and a quota for pods that exist
    #: (determineEffectiveRequests).
    SCHEDULED = "scheduled"


#: What pods request that ask for the same, by all that is read of them. A cluster has few different pods.
_KNOWN: dict[tuple[View, str], Amounts] = {}
_MOST_KNOWN = 4096


def in_units(pod: Object, view: View) -> Amounts:
    """As `requests`, in whole numbers: cpu in thousandths, all others in whole units. Raises ValueError."""
    key = view, _asks(pod, view)
    found = _KNOWN.get(key)
    if found is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[key] = {resource: amounts.units(resource, amount) for resource, amount in requests(pod, view).items()}
    return found


def _asks(pod: Object, view: View) -> str:
    """All that `requests` reads of a pod, as text."""
    spec, status = pod["spec"], status_of(pod)
    found: list[object] = [spec.get("overhead"), spec.get("resources")]
    for part in _CONTAINERS:
        for one in spec.get(part) or ():
            found.append((part, one.get("name"), one.get("resources"), one.get("restartPolicy")))
    for one in container_states(pod) if view is not View.SPEC else ():
        found.append((one.get("name"), one.get("allocatedResources"), one.get("resources")))
    if view is View.SCHEDULED:
        found += [(part, status[part]) for part in _OF_STATUS if part in status]
        found.append(_is_infeasible(pod))
    return repr(found)


def requests(pod: Object, view: View, *, with_overhead: bool = True) -> Resources:
    """What a pod requests of each resource: containers and sidecars together, or an init container if that is more; pod-level requests
    instead if it has some; and the overhead of its runtime class. Raises ValueError."""
    total, level = of_containers(pod, view), pod_level(pod, "requests")
    if view is View.SCHEDULED:
        status = status_of(pod)
        for claim in status.get("nodeAllocatableResourceClaimStatuses") or ():
            total = amounts.added(total, amounts.listed(claim.get("resources")))
        for found in (status.get("allocatedResources"), (status.get("resources") or {}).get("requests")):
            level = amounts.largest(level, {key: amount for key, amount in amounts.listed(found).items() if key in level})
    return amounts.added(total | level, overhead(pod) if with_overhead else {})


def limits(pod: Object, *, with_overhead: bool = True) -> Resources:
    """The limits of a pod, of its spec: counted as requests are; the overhead is added where there is a limit. Raises ValueError."""
    found = _together(pod, lambda container, _: _written(container, "limits")) | pod_level(pod, "limits")
    more = overhead(pod) if with_overhead else {}
    return {resource: amount + more.get(resource, 0) if amount else amount for resource, amount in found.items()}


def ranked(pod: Object, resource: str) -> Fraction:
    """The request that counts where the kubelet ranks pods, and what it takes a preempted pod to free: if the pod has pod-level resources,
    those of its containers do not count; nor does the overhead of a resource that it does not request. Raises ValueError."""
    as_a_whole = pod_level(pod, "requests") or pod_level(pod, "limits")
    own = (pod_level(pod, "requests") if as_a_whole else of_containers(pod, View.ALLOCATED)).get(resource, Fraction(0))
    return own + overhead(pod).get(resource, Fraction(0)) if own else own


def of_containers(pod: Object, view: View) -> Resources:
    """What its containers request together. Raises ValueError."""
    states = {str(state.get("name")): state for state in container_states(pod)}
    infeasible = view is View.SCHEDULED and _is_infeasible(pod)

    def of(container: Object, ends: bool) -> Resources:
        # An init container that ends is never resized.
        seen = View.SPEC if ends and view is not View.ALLOCATED else view
        return _seen(container, states.get(str(container.get("name")), {}), seen, infeasible)

    return _together(pod, of)


def of_container(pod: Object, container: Object, view: View) -> Resources:
    """What one of its containers requests. Raises ValueError."""
    state = next((one for one in container_states(pod) if one.get("name") == container.get("name")), {})
    return _seen(container, state, view, view is View.SCHEDULED and _is_infeasible(pod))


def overhead(pod: Object) -> Resources:
    return amounts.listed(pod["spec"].get("overhead"))


def pod_level(pod: Object, kind: str) -> Resources:
    """The pod-level requests or limits, of the resources that they can be for (KEP-2837)."""
    found = amounts.listed((pod["spec"].get("resources") or {}).get(kind))
    return {
        resource: amount for resource, amount in found.items() if resource in ("cpu", "memory") or resource.startswith(amounts.HUGE_PAGES)
    }


def _together(pod: Object, of: Callable[[Object, bool], Resources]) -> Resources:
    """KEP-753: an init container needs its own amounts and those of the sidecars before it. `of`: the amounts of a container, which may end
    before the others start."""
    total: Resources = {}
    for container in pod["spec"].get("containers") or ():
        total = amounts.added(total, of(container, False))
    sidecars: Resources = {}
    start: Resources = {}
    for container in pod["spec"].get("initContainers") or ():
        if is_sidecar(container):
            own = of(container, False)
            total, sidecars = amounts.added(total, own), amounts.added(sidecars, own)
            start = amounts.largest(start, sidecars)
        else:
            start = amounts.largest(start, amounts.added(sidecars, of(container, True)))
    return amounts.largest(total, start)


def _seen(container: Object, state: Object, view: View, infeasible: bool) -> Resources:
    written = _written(container, "requests")
    if view is View.SPEC:
        return written
    allocated, running = amounts.listed(state.get("allocatedResources")), amounts.listed((state.get("resources") or {}).get("requests"))
    if view is View.ALLOCATED:
        return written | allocated
    if view is View.RUNNING:
        return amounts.largest(written | allocated, running)
    if state.get("resources") is None:
        return written
    found = amounts.largest(running, allocated)
    return found if infeasible else amounts.largest(found, written)


def _written(container: Object, kind: str) -> Resources:
    return amounts.listed((container.get("resources") or {}).get(kind))


def _is_infeasible(pod: Object) -> bool:
    pending = condition(pod, _RESIZE_PENDING)
    return pending.get("reason") == "Infeasible" if pending else status_of(pod).get("resize") == "Infeasible"
