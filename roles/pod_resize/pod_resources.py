"""CPU and memory of pods, requested and actual, their QoS class, and the progress of a resize. Pure, from the API's raw JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from roles.engine.kube import Object, condition, holds
from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.fields import containers_of, generation_of, spec_of, status_of

Qos = Literal["Guaranteed", "Burstable", "BestEffort"]
#: The resources of a container, by kind (requests, limits) and resource: quantities as written.
Resources = Mapping[str, Mapping[str, str]]

RESOURCES = ("cpu", "memory")
KINDS = ("requests", "limits")
#: The resize subresource exists from this minor on; before, the pod itself is patched (KEP-1287).
SUBRESOURCE_SINCE = 32
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
NO_RESTART, RESTART = "NotRequired", "RestartContainer"

#: The state of a resize, from the pod's status; "": no resize is pending or in progress.
ResizeState = Literal["", "Proposed", "Deferred", "Infeasible", "InProgress", "Error"]


@dataclass(frozen=True)
class ResizeProgress:
    """The progress of a resize; `message` is the kubelet's own."""

    state: ResizeState
    message: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.message}" if self.message else self.state


@dataclass(frozen=True)
class Identity:
    """The fields of a container that a restart changes. `started` as the API writes it; "" if the container does not run."""

    container_id: str
    restarts: int
    started: str

    def __str__(self) -> str:
        return f"{self.container_id.rpartition('/')[2][:12]}, {self.restarts} restarts, started {self.started or 'never'}"


def quantity(text: object) -> Fraction:
    """Raises ValueError."""
    return parse_quantity(str(text))


def same(one: object, other: object) -> bool:
    """True if two quantities are equal; None: not set."""
    if one is None or other is None:
        return one is other
    return quantity(one) == quantity(other)


def of(container: Object) -> dict[str, dict[str, str]]:
    """CPU and memory in a container's `resources`, of a spec or a status."""
    found = container.get("resources") or {}
    return {
        kind: {name: str(value) for name, value in (found.get(kind) or {}).items() if name in RESOURCES}
        for kind in KINDS
        if found.get(kind)
    }


def alike(one: Resources, other: Resources) -> bool:
    return not differences(one, other)


def differences(one: Resources, other: Resources) -> list[str]:
    """The values that differ: `limits.memory 200Mi, not 600Mi`."""
    found = []
    for kind in KINDS:
        for name in RESOURCES:
            had, wanted = (one.get(kind) or {}).get(name), (other.get(kind) or {}).get(name)
            if not same(had, wanted):
                found.append(f"{kind}.{name} {had or 'not set'}, not {wanted or 'unset'}")
    return found


def resources_text(resources: Resources) -> str:
    """The resources as text: `cpu 100m/200m, memory 200Mi/300Mi` (request/limit)."""
    parts = []
    for name in RESOURCES:
        request, limit = ((resources.get(kind) or {}).get(name) for kind in KINDS)
        if request or limit:
            parts.append(f"{name} {request or '-'}/{limit or '-'}")
    return ", ".join(parts) or "nothing"


def container(pod: Object, name: str) -> Object | None:
    return next((one for one in containers_of(pod) if one.get("name") == name), None)


def state_of(pod: Object, name: str) -> Object:
    """The container's status; empty if it has none yet."""
    return next((one for one in status_of(pod).get("containerStatuses") or () if one.get("name") == name), {})


def identity(pod: Object, name: str) -> Identity:
    found = state_of(pod, name)
    running = (found.get("state") or {}).get("running") or {}
    return Identity(str(found.get("containerID") or ""), int(found.get("restartCount") or 0), str(running.get("startedAt") or ""))


def policy(spec: Object, resource: str) -> str:
    """resizePolicy of a container for one resource (core/v1: NotRequired by default)."""
    entries = spec.get("resizePolicy") or ()
    return next((str(one.get("restartPolicy")) for one in entries if one.get("resourceName") == resource), NO_RESTART)


def restarts(spec: Object, before: Resources, after: Resources) -> bool:
    """True if the container's resizePolicy requires a restart for this change."""
    return any(policy(spec, name) == RESTART for name in changed(before, after))


def changed(before: Resources, after: Resources) -> list[str]:
    """The resources whose request or limit differs."""
    return [
        name for name in RESOURCES if any(not same((before.get(kind) or {}).get(name), (after.get(kind) or {}).get(name)) for kind in KINDS)
    ]


def patch_of(changes: Iterable[tuple[str, Resources, Resources]]) -> list[dict[str, Any]]:
    """The containers of a strategic merge patch, from their names and their resources before and after; None removes a value."""
    entries = []
    for name, before, after in changes:
        values: dict[str, dict[str, str | None]] = {}
        for kind in KINDS:
            for resource in RESOURCES:
                old, new = ((side.get(kind) or {}).get(resource) for side in (before, after))
                if not same(old, new):
                    values.setdefault(kind, {})[resource] = new
        if values:
            entries.append({"name": name, "resources": values})
    return entries


def qos(all_containers: Iterable[Resources]) -> Qos:
    """The QoS class (pkg/apis/core/v1/helper/qos/qos.go: ComputePodQOS, without pod-level resources). Zero counts as not set."""
    requests: set[str] = set()
    limits: set[str] = set()
    guaranteed = True
    for one in all_containers:
        request, limit = (
            {name: amount for name, value in (one.get(kind) or {}).items() if (amount := quantity(value)) > 0} for kind in KINDS
        )
        requests |= set(request)
        limits |= set(limit)
        guaranteed = guaranteed and set(limit) == set(RESOURCES) and all(request.get(name) == limit[name] for name in RESOURCES)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def qos_of(pod: Object, changes: Mapping[str, Resources] | None = None) -> Qos:
    """The pod's QoS class after `changes` of its containers."""
    new = changes or {}
    return qos(new.get(str(one.get("name")), of(one)) for one in (*containers_of(pod), *(spec_of(pod).get("initContainers") or ())))


def merged(before: Resources, changes: Resources) -> dict[str, dict[str, str]]:
    """A container's resources after a strategic merge patch: fields that are not named stay."""
    return {kind: {**(before.get(kind) or {}), **(changes.get(kind) or {})} for kind in KINDS if before.get(kind) or changes.get(kind)}


def progress(pod: Object) -> ResizeProgress:
    """The kubelet's progress with a resize: from conditions (1.33 and later), or from status.resize (before).

    PodResizePending has priority over PodResizeInProgress: it is about the newest request.
    """
    if holds(pod, PENDING):
        found = condition(pod, PENDING)
        reason = str(found.get("reason") or "")
        # For later versions: an unknown reason counts as Deferred (KEP-1287).
        return ResizeProgress("Infeasible" if reason == "Infeasible" else "Deferred", str(found.get("message") or ""))
    if holds(pod, IN_PROGRESS):
        found = condition(pod, IN_PROGRESS)
        return ResizeProgress("Error" if found.get("reason") == "Error" else "InProgress", str(found.get("message") or ""))
    reported = str(status_of(pod).get("resize") or "")
    return ResizeProgress(next((state for state in get_args(ResizeState) if state == reported), "Deferred"))


def seen_by_kubelet(pod: Object) -> bool:
    """status.observedGeneration (1.34 and later; alpha in 1.33) is that of the spec; True if the pod has none."""
    return _is_current(pod, status_of(pod).get("observedGeneration")) is not False


def is_of_this_spec(pod: Object) -> bool | None:
    """True if the state from `progress` is about the current spec, and not about an earlier request; None if the kubelet reports no
    generation (before 1.34), so that only time can show it.

    The condition's own generation has priority over that of the status: pkg/kubelet/allocation/allocation_manager.go sets it when it
    decides.
    """
    observed = condition(pod, PENDING).get("observedGeneration")
    return _is_current(pod, observed or status_of(pod).get("observedGeneration"))


def _is_current(pod: Object, observed: int | None) -> bool | None:
    return None if observed is None else int(observed) >= generation_of(pod)


def unlike(pod: Object, wanted: Mapping[str, Resources]) -> list[str]:
    """The differences from `wanted` in the containers' statuses: resources, and the kubelet's allocations."""
    found = []
    for name, resources in wanted.items():
        state = state_of(pod, name)
        found += [f"{name}: {one}" for one in differences(of(state), resources)]
        allocated = {key: str(value) for key, value in (state.get("allocatedResources") or {}).items() if key in RESOURCES}
        if allocated:
            found += [
                f"{name}: allocated {one}" for one in differences({"requests": allocated}, {"requests": resources.get("requests") or {}})
            ]
    return found


def is_windows(pod: Object, windows_nodes: Collection[str] = ()) -> bool:
    spec = spec_of(pod)
    return (
        ((spec.get("os") or {}).get("name")) == "windows"
        or (spec.get("nodeSelector") or {}).get("kubernetes.io/os") == "windows"
        or spec.get("nodeName") in windows_nodes
    )
