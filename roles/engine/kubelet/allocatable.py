"""Pure: what a node has left for pods under a KubeletConfiguration, and which of its pods a restarted kubelet would reject.

Sources (Kubernetes 1.36): pkg/kubelet/cm/node_container_manager_linux.go (GetNodeAllocatableReservation, validateNodeAllocatable),
pkg/kubelet/cm/helpers.go (hardEvictionReservation), pkg/kubelet/nodestatus/setters.go (MachineInfo), cmd/kubelet/app/server.go
(parseResourceList, run), pkg/kubelet/cm/memorymanager/memory_manager.go (validateReservedMemory), pkg/kubelet/cm/cpumanager/cpu_manager.go
(NewManager), pkg/kubelet/kubelet.go (HandlePodAdditions), pkg/kubelet/preemption/preemption.go,
pkg/scheduler/framework/plugins/noderesources/fit.go (fitsRequest), k8s.io/component-helpers/resource/helpers.go (PodRequests; KEP-753).

The kubelet's own validation (enforceNodeAllocatable against cgroup names and the like) is not repeated here: daytwo asks the binary for it.
This module has the checks that a kubelet makes only later, when it starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from roles.engine.kubelet.thresholds import MEMORY, NODEFS, parse_quantity, parse_threshold, whole
from roles.engine.transaction import Refusal

# A node's resource -> how much of it: cpu in thousandths, all others whole (bytes, pods, devices).
Amounts = Mapping[str, int]
PodRequests = Mapping[str, Any]

_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
_EVICTION = {"memory": MEMORY, "ephemeral-storage": NODEFS}
_HUGE_PAGES = "hugepages-"
_MAX_PODS = 110
_CRITICAL = 2_000_000_000
_MIRROR = "kubernetes.io/config.mirror"
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


def shown(resource: str, amount: int) -> str:
    """An amount for an operator: 1500m of cpu, 512.0Mi of memory, storage and huge pages, anything else unchanged."""
    if resource == "cpu":
        return f"{amount}m"
    in_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith(_HUGE_PAGES)
    return f"{amount / 2**20:.1f}Mi" if in_bytes and amount >= 2**20 else str(amount)


def allocatable(configuration: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, int]:
    """The node's status.allocatable under `configuration` (as /configz shows it). `node` is the API's Node.

    Resources of device plugins and the like are not kubelet settings, and stay as they are. Raises ValueError if the configuration
    cannot be parsed; over-reservation results in 0 here, and `problems` refuses it.
    """
    capacity, reserved = _capacity(node), reservation(configuration, node)
    result: dict[str, int] = {}
    now = node["status"].get("allocatable") or {}
    for resource, amount in capacity.items():
        if resource == "pods":
            result[resource] = _pods(configuration, capacity)
        elif resource in reserved:
            result[resource] = _units(resource, max(Fraction(0), amount - reserved[resource]))
        else:
            result[resource] = _units(resource, parse_quantity(str(now.get(resource, node["status"]["capacity"][resource]))))
    for resource, amount in capacity.items():
        # Huge pages are memory that nothing else can use.
        if resource.startswith(_HUGE_PAGES) and "memory" in result:
            result["memory"] = max(0, result["memory"] - whole(amount))
    return result


def reservation(configuration: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Fraction]:
    """How much of the node's cpu (cores), memory, ephemeral-storage and huge pages (bytes) pods cannot use. Raises ValueError."""
    return {resource: _total(parts) for resource, parts in _parts(configuration, _capacity(node)).items()}


def problems(host: str, configuration: Mapping[str, Any], node: Mapping[str, Any], max_pids: int | None = None) -> list[Refusal]:
    """Why a kubelet with `configuration` would not start on this node, or could not run pods; [] if it can do both.

    `max_pids`: how many processes the node can have (node.rlimit.maxpid in /stats/summary), if known.
    """
    try:
        capacity = _capacity(node)
        parts = _parts(configuration, capacity)
        reserved = _reserved(configuration)
        memory = _memory_manager(configuration, parts)
    except ValueError as error:
        return [Refusal(host, f"{error}; the kubelet would not start", "correct the value")]
    found = [
        Refusal(
            host,
            f"{resource}: {' + '.join(f'{name} {_exact(amount)}' for name, amount in entries)} = {_exact(total)} are reserved, but the node"
            f" has {_exact(capacity[resource])}; the kubelet would not start (invalid Node Allocatable configuration)",
            "reserve less",
        )
        for resource, entries in parts.items()
        if (total := _total(entries)) > capacity[resource]
    ]
    if configuration.get("cpuManagerPolicy") == "static" and not any(amount for _, amount in parts.get("cpu", ())):
        found.append(
            Refusal(
                host,
                "cpuManagerPolicy static needs reserved cpu, and none is reserved; the kubelet would not start",
                "reserve some in kubeReserved, systemReserved or reservedSystemCPUs, such as kubeReserved cpu=500m",
            )
        )
    pids = sum((amounts["pid"] for _, amounts in reserved if "pid" in amounts), Fraction(0))
    if max_pids is not None and pids >= max_pids:
        found.append(
            Refusal(host, f"pid: {_exact(pids)} are reserved, but the node has {max_pids}; pods could not start a process", "reserve fewer")
        )
    return found + [Refusal(host, message, way_out) for message, way_out in memory]


def which_no_longer_fit(pods: Iterable[PodRequests], before: Amounts, after: Amounts) -> tuple[Unfit, ...]:
    """The node's pods (raw JSON) that a starting kubelet would admit with the allocatable `before`, but not with `after`, in its order.

    A kubelet may admit its pods before its first status update. Then it judges them by the old values of its Node, and rejects them at
    its next start.
    """
    pods = list(pods)
    known = {unfit.pod for unfit in unfit_pods(pods, before)}
    return tuple(unfit for unfit in unfit_pods(pods, after) if unfit.pod not in known)


def unfit_pods(pods: Iterable[PodRequests], room: Amounts) -> tuple[Unfit, ...]:
    """The pods that a kubelet with this allocatable would reject when it starts.

    Static pods come first, because they do not wait for the API; then the oldest. A critical pod that does not fit preempts others.
    """
    admitted: dict[str, PodRequests] = {}
    found: list[Unfit] = []
    for pod in sorted(pods, key=lambda pod: (not _static(pod), pod["metadata"].get("creationTimestamp") or "")):
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        name = _name(pod)
        lacks = _lacks(pod, admitted.values(), room)
        if lacks and _critical(pod):
            victims = _preempted(pod, list(admitted.values()), lacks)
            if victims is not None:
                for victim in victims:
                    del admitted[_name(victim)]
                    found.append(Unfit(_name(victim), lacks, name))
                lacks = ()
        if lacks:
            found.append(Unfit(name, lacks))
        else:
            admitted[name] = pod
    return tuple(found)


def requests(pod: PodRequests, *, actuated: bool = False) -> dict[str, Fraction]:
    """What a pod requests of each resource: containers and sidecars together, or an init container if that is more; pod-level
    requests instead if it has some; and the overhead of its runtime class.

    For a resized container, the kubelet's allocation counts, not the spec. `actuated`: but not less than what the container runs with.
    """
    return _sum(_own(pod, actuated) | _pod_level(pod, "requests"), _overhead(pod))


def _own(pod: PodRequests, actuated: bool = False) -> dict[str, Fraction]:
    spec = pod["spec"]
    status = pod.get("status") or {}
    states = {state["name"]: state for key in ("containerStatuses", "initContainerStatuses") for state in status.get(key) or ()}

    def of(container: Mapping[str, Any]) -> dict[str, Fraction]:
        state = states.get(container["name"], {})
        requested = _list((container.get("resources") or {}).get("requests")) | _list(state.get("allocatedResources"))
        return _most(requested, _list((state.get("resources") or {}).get("requests"))) if actuated else requested

    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        total = _sum(total, of(container))
    sidecars: dict[str, Fraction] = {}
    start: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, of(container))
            total = _sum(total, of(container))
            start = _most(start, sidecars)
        else:
            start = _most(start, _sum(sidecars, _list((container.get("resources") or {}).get("requests"))))
    return _most(total, start)


def _overhead(pod: PodRequests) -> dict[str, Fraction]:
    return _list(pod["spec"].get("overhead"))


def _pod_level(pod: PodRequests, kind: str) -> dict[str, Fraction]:
    """The pod-level requests or limits, of the resources that they can be for (KEP-2837)."""
    found = _list((pod["spec"].get("resources") or {}).get(kind))
    return {resource: amount for resource, amount in found.items() if resource in ("cpu", "memory") or resource.startswith(_HUGE_PAGES)}


def _list(resources: Mapping[str, Any] | None) -> dict[str, Fraction]:
    return {resource: parse_quantity(str(amount)) for resource, amount in (resources or {}).items()}


def _sum(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {key: one.get(key, Fraction(0)) + other.get(key, Fraction(0)) for key in {**one, **other}}


def _most(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {key: max(one.get(key, Fraction(0)), other.get(key, Fraction(0))) for key in {**one, **other}}


def _units(resource: str, amount: Fraction) -> int:
    return whole(amount * 1000) if resource == "cpu" else whole(amount)


def _exact(amount: Fraction) -> str:
    """In the largest binary unit that is exact, as operators write it; small numbers stay as they are."""
    if amount.denominator != 1:
        return f"{float(amount):g}"
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if amount.numerator >= 2**20 and amount.numerator % 2**power == 0:
            return f"{amount.numerator >> power}{unit}"
    return str(amount.numerator)


def _capacity(node: Mapping[str, Any]) -> dict[str, Fraction]:
    return _list(node["status"]["capacity"])


def _touched(resource: str) -> bool:
    return resource in ("cpu", "memory", "ephemeral-storage") or resource.startswith(_HUGE_PAGES)


def _pods(configuration: Mapping[str, Any], capacity: Mapping[str, Fraction]) -> int:
    most = int(configuration.get("maxPods") or _MAX_PODS)
    per_core = int(configuration.get("podsPerCore") or 0)
    return min(most, math.floor(capacity["cpu"]) * per_core) if per_core > 0 else most


def _reserved(configuration: Mapping[str, Any]) -> list[tuple[str, dict[str, Fraction]]]:
    """systemReserved and kubeReserved as the kubelet reads them. Raises ValueError."""
    found = []
    for field in ("kubeReserved", "systemReserved"):
        amounts: dict[str, Fraction] = {}
        for resource, text in (configuration.get(field) or {}).items():
            if resource not in _RESERVABLE:
                raise ValueError(f"{field}: {resource} cannot be reserved (only {', '.join(_RESERVABLE)} can)")
            try:
                amounts[resource] = parse_quantity(str(text))
            except ValueError as error:
                raise ValueError(f"{field}: {resource}: {error}") from None
            if amounts[resource] < 0:
                raise ValueError(f"{field}: {resource}: {text} is negative")
        found.append((field, amounts))
    if cpus := configuration.get("reservedSystemCPUs"):
        # They replace the cpu of both.
        for _, amounts in found:
            amounts.pop("cpu", None)
        found.append(("reservedSystemCPUs", {"cpu": Fraction(len(_cpus(str(cpus))))}))
    return found


def reserved_cpus(configuration: Mapping[str, Any]) -> tuple[int, frozenset[int]]:
    """How many whole CPUs the static CPU manager keeps for the system, and which, if that is set (else the kubelet chooses). Raises
    ValueError."""
    amounts = [amounts["cpu"] for _, amounts in _reserved(configuration) if "cpu" in amounts]
    return math.ceil(sum(amounts, Fraction(0))), _cpus(str(configuration.get("reservedSystemCPUs") or ""))


def _cpus(text: str) -> frozenset[int]:
    """The CPUs of a list such as 0-3,8. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        ends = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part)
        if ends is None or int(ends.group(1)) > int(ends.group(2) or ends.group(1)):
            raise ValueError(f"reservedSystemCPUs: {text!r} is not a list of CPUs")
        found.update(range(int(ends.group(1)), int(ends.group(2) or ends.group(1)) + 1))
    return frozenset(found)


def _parts(configuration: Mapping[str, Any], capacity: Mapping[str, Fraction]) -> dict[str, list[tuple[str, Fraction]]]:
    """How much each field reserves of each of the node's resources. Raises ValueError."""
    reserved = _reserved(configuration)
    found: dict[str, list[tuple[str, Fraction]]] = {}
    for resource in capacity:
        if not _touched(resource):
            continue
        parts = [(field, amounts[resource]) for field, amounts in reserved if resource in amounts]
        signal = _EVICTION.get(resource)
        if signal and (text := (configuration.get("evictionHard") or {}).get(signal)) is not None:
            threshold = parse_threshold(signal, str(text))
            if threshold is not None:
                parts.append((f"evictionHard {signal}", Fraction(threshold.of(whole(capacity[resource])))))
        found[resource] = parts
    return found


def _total(parts: Iterable[tuple[str, Fraction]]) -> Fraction:
    return sum((amount for _, amount in parts), Fraction(0))


def _memory_manager(configuration: Mapping[str, Any], parts: Mapping[str, Sequence[tuple[str, Fraction]]]) -> list[tuple[str, str]]:
    """With memoryManagerPolicy Static, reservedMemory must be exactly what the other fields reserve. Raises ValueError."""
    if configuration.get("memoryManagerPolicy") != "Static":
        return []
    by_numa: dict[str, Fraction] = {}
    for entry in configuration.get("reservedMemory") or ():
        by_numa = _sum(by_numa, _list(entry.get("limits")))
    found = []
    for resource in dict.fromkeys(["memory", *by_numa]):
        given = by_numa.get(resource, Fraction(0))
        needed = _total(parts.get(resource, ()))
        if given != needed:
            found.append(
                (
                    f"memoryManagerPolicy Static: reservedMemory has {_exact(given)} of {resource}, but"
                    f" {' + '.join(f'{name} {_exact(amount)}' for name, amount in parts.get(resource, ())) or 'other fields'}"
                    f" come to {_exact(needed)}; the kubelet would not start",
                    f"set them together, in one run of deploys/kubelet_config.py: reservedMemory of {_exact(needed)} of {resource} in total"
                    " over all NUMA nodes (with it that deploy also takes evictionHard.memory.available)",
                )
            )
    return found


def _name(pod: PodRequests) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def _static(pod: PodRequests) -> bool:
    return _MIRROR in (pod["metadata"].get("annotations") or {})


def _priority(pod: PodRequests) -> int:
    return int(pod["spec"].get("priority") or 0)


def _critical(pod: PodRequests) -> bool:
    return _static(pod) or _priority(pod) >= _CRITICAL


def _lacks(pod: PodRequests, others: Iterable[PodRequests], room: Amounts) -> tuple[Lack, ...]:
    others = list(others)
    found = []
    if len(others) + 1 > room.get("pods", 0):
        found.append(Lack("pods", 1, len(others), room.get("pods", 0)))
    used: dict[str, Fraction] = {}
    for other in others:
        used = _sum(used, requests(other, actuated=True))
    requested = requests(pod)
    first = ("cpu", "memory", "ephemeral-storage")
    for resource in (*(name for name in first if name in requested), *sorted(requested.keys() - {*first})):
        extended = "/" in resource
        if extended and resource not in room:
            continue
        amount, taken = _units(resource, requested[resource]), _units(resource, used.get(resource, Fraction(0)))
        if amount > 0 and amount > room.get(resource, 0) - taken:
            found.append(Lack(resource, amount, taken, room.get(resource, 0)))
    return tuple(found)


def _preempted(pod: PodRequests, admitted: Sequence[PodRequests], lacks: Sequence[Lack]) -> list[PodRequests] | None:
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


def _preemptable(pod: PodRequests, other: PodRequests) -> bool:
    return not _critical(other) or _priority(pod) > _priority(other)


def _freed(pod: PodRequests, resource: str) -> int:
    """What a preempted pod frees. The kubelet ignores its containers' requests here if the pod has pod-level ones, and its overhead of
    a resource that it does not request (pkg/api/v1/resource/helpers.go, GetResourceRequestQuantity)."""
    if resource == "pods":
        return 1
    as_a_whole = _pod_level(pod, "requests") or _pod_level(pod, "limits")
    own = (_pod_level(pod, "requests") if as_a_whole else _own(pod)).get(resource, Fraction(0))
    return _units(resource, own + _overhead(pod).get(resource, Fraction(0)) if own else own)


def _left(needed: Mapping[str, int], victims: Iterable[PodRequests]) -> dict[str, int]:
    victims = list(victims)
    left = {resource: amount - sum(_freed(victim, resource) for victim in victims) for resource, amount in needed.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}


def _nearest(pods: Iterable[PodRequests], needed: Mapping[str, int]) -> list[PodRequests]:
    """Chooses pods one by one: each time the pod after which the least is still needed, then the smallest; the kubelet chooses any of
    equal ones."""
    pods, chosen = list(pods), list[PodRequests]()
    while needed:
        best = min(pods, key=lambda pod: (_distance(pod, needed), _freed(pod, "memory"), _freed(pod, "cpu")))
        pods.remove(best)
        chosen.append(best)
        needed = _left(needed, [best])
    return chosen


def _distance(pod: PodRequests, needed: Mapping[str, int]) -> float:
    rests = ((amount - _freed(pod, resource)) / amount for resource, amount in needed.items())
    return sum(rest**2 for rest in rests if rest > 0)
