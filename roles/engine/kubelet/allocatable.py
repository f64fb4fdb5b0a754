"""Pure: what a node has left for pods under a KubeletConfiguration.

Sources (Kubernetes 1.36): pkg/kubelet/cm/node_container_manager_linux.go (GetNodeAllocatableReservation, validateNodeAllocatable),
pkg/kubelet/cm/helpers.go (hardEvictionReservation), pkg/kubelet/nodestatus/setters.go (MachineInfo), cmd/kubelet/app/server.go
(parseResourceList, run), pkg/kubelet/cm/memorymanager/memory_manager.go (validateReservedMemory), pkg/kubelet/cm/cpumanager/cpu_manager.go
(NewManager).

The kubelet's own validation (enforceNodeAllocatable against cgroup names and the like) is not repeated here: daytwo asks the binary for it.
This module has the checks that a kubelet makes only later, when it starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from roles.engine.kube.amounts import HUGE_PAGES, added, listed, parse_quantity, units, whole
from roles.engine.kube.fields import status_of
from roles.engine.kubelet.thresholds import MEMORY, NODEFS, parse_threshold
from roles.engine.transaction import Refusal

_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
_EVICTION = {"memory": MEMORY, "ephemeral-storage": NODEFS}
_MAX_PODS = 110


def allocatable(configuration: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, int]:
    """The node's status.allocatable under `configuration` (as /configz shows it). `node` is the API's Node.

    Resources of device plugins and the like are not kubelet settings, and stay as they are. Raises ValueError if the configuration
    cannot be parsed; over-reservation results in 0 here, and `problems` refuses it.
    """
    capacity, reserved = _capacity(node), reservation(configuration, node)
    result: dict[str, int] = {}
    now = status_of(node).get("allocatable") or {}
    for resource, amount in capacity.items():
        if resource == "pods":
            result[resource] = _pods(configuration, capacity)
        elif resource in reserved:
            result[resource] = units(resource, max(Fraction(0), amount - reserved[resource]))
        else:
            result[resource] = units(resource, parse_quantity(str(now.get(resource, status_of(node)["capacity"][resource]))))
    for resource, amount in capacity.items():
        # Huge pages are memory that nothing else can use.
        if resource.startswith(HUGE_PAGES) and "memory" in result:
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


def _exact(amount: Fraction) -> str:
    """In the largest binary unit that is exact, as operators write it; small numbers stay as they are."""
    if amount.denominator != 1:
        return f"{float(amount):g}"
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if amount.numerator >= 2**20 and amount.numerator % 2**power == 0:
            return f"{amount.numerator >> power}{unit}"
    return str(amount.numerator)


def _capacity(node: Mapping[str, Any]) -> dict[str, Fraction]:
    return listed(status_of(node)["capacity"])


def _touched(resource: str) -> bool:
    return resource in ("cpu", "memory", "ephemeral-storage") or resource.startswith(HUGE_PAGES)


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
        found.append(("reservedSystemCPUs", {"cpu": Fraction(len(cpu_set(str(cpus))))}))
    return found


def reserved_cpus(configuration: Mapping[str, Any]) -> tuple[int, frozenset[int]]:
    """How many whole CPUs the static CPU manager keeps for the system, and which, if that is set (else the kubelet chooses). Raises
    ValueError."""
    amounts = [amounts["cpu"] for _, amounts in _reserved(configuration) if "cpu" in amounts]
    return math.ceil(sum(amounts, Fraction(0))), cpu_set(str(configuration.get("reservedSystemCPUs") or ""))


def cpu_set(text: str) -> frozenset[int]:
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
        by_numa = added(by_numa, listed(entry.get("limits")))
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
