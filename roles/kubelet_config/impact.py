"""The effect of a configuration on a node in its current state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.kube import amounts, full_name
from roles.engine.kube.fields import meta_of, status_of
from roles.engine.kubelet import KubeletState, allocatable, thresholds
from roles.engine.transaction import Refusal
from roles.kubelet_config import swap


@dataclass(frozen=True)
class Impact:
    """The prediction for an operator: `lines` to show; `evicts`: why pods would be evicted, which needs consent; `may_be_evicted`: the pods
    (NAMESPACE/NAME) that may be evicted; `pressures`: the node's pressure conditions then (None: not predicted). Which pods a starting
    kubelet does not admit again is the re-admission forecast of every restart (roles/engine/node_changes/readmission.py), and not here."""

    lines: tuple[str, ...] = ()
    evicts: tuple[str, ...] = ()
    may_be_evicted: frozenset[str] = frozenset()
    pressures: tuple[str, ...] | None = None

    def text(self) -> str:
        """Indented for the plan."""
        return "\n".join(f"    {line}" for line in (*self.lines, *(f"EVICTS: {reason}" for reason in self.evicts)))


def allocatable_impact(state: KubeletState, after: Mapping[str, Any]) -> Impact:
    """The node's new Allocatable, and whether its pods use more than they may then. Raises Refusal if the kubelet would not start."""
    check_node(state)
    swap.check(state, after)
    max_pids = ((state.summary.get("node") or {}).get("rlimit") or {}).get("maxpid")
    if problems := allocatable.problems(state.host, after, state.node, max_pids):
        raise Refusal.of(state.host, problems)
    try:
        before, then = (allocatable.allocatable(configuration, state.node) for configuration in (state.configuration, after))
        crowded = list(_crowded(state, after))
    except ValueError as error:
        raise Refusal(state.host, f"the new Allocatable cannot be predicted: {error}") from None
    changes = [
        f"{resource} {amounts.shown(resource, amount)} -> {amounts.shown(resource, then[resource])}"
        for resource, amount in before.items()
        if then.get(resource, amount) != amount
    ]
    lines = (f"Allocatable: {', '.join(changes)}",) if changes else ("Allocatable stays as it is",)
    return Impact(lines, tuple(crowded), pod_names(state) if crowded else frozenset())


def check_node(state: KubeletState) -> None:
    """Raises Refusal if the node has not reported its capacity yet: nothing can be predicted then."""
    capacity = status_of(state.node).get("capacity") or {}
    if missing := [resource for resource in ("cpu", "memory", "pods") if resource not in capacity]:
        raise Refusal(
            state.host,
            f"its Node object in the API has no capacity of {', '.join(missing)}: its kubelet has not reported what the node has",
            f"check why: kubectl describe node {meta_of(state.node).get('name', '')}".rstrip(),
        )


def pod_names(state: KubeletState) -> frozenset[str]:
    """All pods of the node, as NAMESPACE/NAME."""
    return frozenset(full_name(pod) for pod in state.pods)


def _crowded(state: KubeletState, after: Mapping[str, Any]) -> Iterator[str]:
    """All pods together may use the capacity minus reservations (pkg/kubelet/cm: enforceNodeAllocatableCgroups). If they use more now, the
    kernel kills some; close to the limit the kubelet evicts (allocatableMemory.available)."""
    if "pods" not in (after.get("enforceNodeAllocatable") or ()):
        return
    containers = (state.summary.get("node") or {}).get("systemContainers") or ()
    memory: Mapping[str, Any] = next((entry.get("memory") or {} for entry in containers if entry.get("name") == "pods"), {})
    used = memory.get("workingSetBytes")
    if used is None:
        return
    # Hard eviction thresholds do not lower the limit, only Allocatable.
    was, will = (_limit(state, configuration) for configuration in (state.configuration, after))
    text = (after.get("evictionHard") or {}).get(thresholds.MEMORY)
    threshold = thresholds.parse_threshold(thresholds.MEMORY, str(text)) if text is not None else None
    kept = threshold.of(will) if threshold else 0
    if will < was and will - int(used) < kept:
        shown = [amounts.shown("memory", amount) for amount in (int(used), will, kept)]
        yield (
            f"pods use {shown[0]} of memory; after the change they may use {shown[1]}, and {shown[2]} of that must stay free"
            " (allocatableMemory.available). The kubelet will evict some, or the kernel will kill them"
        )


def _limit(state: KubeletState, configuration: Mapping[str, Any]) -> int:
    return allocatable.allocatable({**configuration, "evictionHard": {}}, state.node)["memory"]
