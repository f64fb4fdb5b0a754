"""What a pod requests of a node. cpu in cores, all others in whole units, unless a function says otherwise. Pure.

Sources (Kubernetes 1.36): k8s.io/component-helpers/resource/helpers.go (PodRequests; KEP-753, KEP-1287, KEP-2837).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from roles.engine.kube import amounts
from roles.engine.kube.objects import Object
from roles.engine.kube.pods import is_sidecar

RESIZE_PENDING = "PodResizePending"


def requests(pod: Object, *, actuated: bool = False) -> dict[str, Fraction]:
    """What a pod requests of each resource: containers and sidecars together, or an init container if that is more; pod-level
    requests instead if it has some; and the overhead of its runtime class. cpu in cores, all others in whole units.

    For a resized container, the kubelet's allocation counts, not the spec. `actuated`: but not less than what the container runs with.
    Raises ValueError.
    """
    return amounts.added(own(pod, actuated) | pod_level(pod, "requests"), overhead(pod))


def new_requests(pod: Object) -> dict[str, int]:
    """What a pod requests that is created as this one is written, without a status: cpu in thousandths. Raises ValueError."""
    return _in_units(requests({"spec": pod["spec"]}))


def held(pod: Object) -> dict[str, int]:
    """What the scheduler counts for a pod on a node: of the spec, the allocation and what its containers run with, the most; without the
    spec if the kubelet has found its resize infeasible. cpu in thousandths. Raises ValueError."""
    total = _most_of(pod, _is_infeasible(pod))
    level = pod_level(pod, "requests")
    status = pod.get("status") or {}
    if level and (allocated := status.get("allocatedResources")):
        level = amounts.largest(level, {key: amount for key, amount in amounts.listed(allocated).items() if key in level})
    if level and (running := (status.get("resources") or {}).get("requests")):
        level = amounts.largest(level, {key: amount for key, amount in amounts.listed(running).items() if key in level})
    for claim in status.get("nodeAllocatableResourceClaimStatuses") or ():
        total = amounts.added(total, amounts.listed(claim.get("resources")))
    return _in_units(amounts.added(total | level, overhead(pod)))


def asked_again(pod: Object) -> dict[str, int]:
    """What a starting kubelet asks room for: the pod's allocation. If its status does not have that, the most of spec and what its
    containers run with. cpu in thousandths. Raises ValueError."""
    known = all("allocatedResources" in state for state in _states(pod).values() if "resources" in state)
    return _in_units(requests(pod, actuated=not known))


def held_again(pod: Object) -> dict[str, int]:
    """What a starting kubelet counts for a pod that it has admitted. cpu in thousandths. Raises ValueError."""
    return _in_units(requests(pod, actuated=True))


def own(pod: Object, actuated: bool = False) -> dict[str, Fraction]:
    """What its containers request."""
    states = _states(pod)

    def of(container: Object) -> dict[str, Fraction]:
        state = states.get(str(container.get("name")), {})
        requested = container_requests(container) | amounts.listed(state.get("allocatedResources"))
        return amounts.largest(requested, amounts.listed((state.get("resources") or {}).get("requests"))) if actuated else requested

    return _of_containers(pod["spec"], of)


def _most_of(pod: Object, infeasible: bool) -> dict[str, Fraction]:
    states = _states(pod)

    def of(container: Object) -> dict[str, Fraction]:
        state = states.get(str(container.get("name")), {})
        if state.get("resources") is None:
            return container_requests(container)
        found = amounts.largest(
            amounts.listed((state.get("resources") or {}).get("requests")), amounts.listed(state.get("allocatedResources"))
        )
        return found if infeasible else amounts.largest(found, container_requests(container))

    return _of_containers(pod["spec"], of)


def _of_containers(spec: Object, of: Any) -> dict[str, Fraction]:
    """KEP-753: an init container needs its own requests and those of the sidecars before it."""
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        total = amounts.added(total, of(container))
    sidecars: dict[str, Fraction] = {}
    start: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        if is_sidecar(container):
            sidecars = amounts.added(sidecars, of(container))
            total = amounts.added(total, of(container))
            start = amounts.largest(start, sidecars)
        else:
            start = amounts.largest(start, amounts.added(sidecars, container_requests(container)))
    return amounts.largest(total, start)


def _states(pod: Object) -> dict[str, Object]:
    status = pod.get("status") or {}
    return {str(state.get("name")): state for key in ("containerStatuses", "initContainerStatuses") for state in status.get(key) or ()}


def container_requests(container: Object) -> dict[str, Fraction]:
    return amounts.listed((container.get("resources") or {}).get("requests"))


def _is_infeasible(pod: Object) -> bool:
    status = pod.get("status") or {}
    pending = next((one for one in status.get("conditions") or () if one.get("type") == RESIZE_PENDING), None)
    return pending.get("reason") == "Infeasible" if pending is not None else status.get("resize") == "Infeasible"


def _in_units(found: Mapping[str, Fraction]) -> dict[str, int]:
    return {resource: amounts.units(resource, amount) for resource, amount in found.items()}


def overhead(pod: Object) -> dict[str, Fraction]:
    return amounts.listed(pod["spec"].get("overhead"))


def pod_level(pod: Object, kind: str) -> dict[str, Fraction]:
    """The pod-level requests or limits, of the resources that they can be for (KEP-2837)."""
    found = amounts.listed((pod["spec"].get("resources") or {}).get(kind))
    return {
        resource: amount for resource, amount in found.items() if resource in ("cpu", "memory") or resource.startswith(amounts.HUGE_PAGES)
    }
