"""What a configuration would come to on a node as it is now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.kubelet import allocatable, thresholds
from roles.engine.transaction import Refusal
from roles.kubelet_config.state import KubeletState

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True)
class Outlook:
    """What an operator should see before, in `lines`; in `evicts` why pods would have to go, which needs consent; and `may_go`, which
    pods (NAMESPACE/NAME) those are."""

    lines: tuple[str, ...] = ()
    evicts: tuple[str, ...] = ()
    may_go: frozenset[str] = frozenset()

    def text(self) -> str:
        """Indented for the plan."""
        return "\n".join(f"    {line}" for line in (*self.lines, *(f"EVICTS: {reason}" for reason in self.evicts)))


def restart_outlook(state: KubeletState, after: Mapping[str, Any]) -> Outlook:
    """As allocatable_outlook; and what the restart itself may do to the pods of a node that is short of something already."""
    made = allocatable_outlook(state, after)
    conditions = (state.node.get("status") or {}).get("conditions") or ()
    short = [str(one.get("type")) for one in conditions if one.get("type") in _PRESSURES and one.get("status") == "True"]
    if not short:
        return made
    why = f"the node has {', '.join(short)} now: a kubelet that starts anew under it may refuse to take its pods back"
    return Outlook(made.lines, (*made.evicts, why), made.may_go | pod_names(state))


def allocatable_outlook(state: KubeletState, after: Mapping[str, Any]) -> Outlook:
    """What becomes of the node's Allocatable, and which of its pods the kubelet would not take back. Raises Refusal where it would
    not start."""
    check_node(state)
    max_pids = ((state.summary.get("node") or {}).get("rlimit") or {}).get("maxpid")
    if problems := allocatable.problems(state.host, after, state.node, max_pids):
        raise Refusal(state.host, "; ".join(str(problem).removeprefix(f"{state.host}: ") for problem in problems))
    try:
        before, then = (allocatable.allocatable(configuration, state.node) for configuration in (state.configuration, after))
        unfit = allocatable.which_no_longer_fit(state.pods, before, then)
        crowded = list(_crowded(state, after))
    except ValueError as error:
        raise Refusal(state.host, f"what becomes of Allocatable cannot be told: {error}") from None
    changes = [
        f"{resource} {allocatable.shown(resource, amount)} -> {allocatable.shown(resource, then[resource])}"
        for resource, amount in before.items()
        if then.get(resource, amount) != amount
    ]
    lines = (f"Allocatable: {', '.join(changes)}",) if changes else ("Allocatable stays as it is",)
    may_go = frozenset(pod.pod for pod in unfit) | (pod_names(state) if crowded else frozenset())
    return Outlook(lines, (*(f"no longer fits: {pod}" for pod in unfit), *crowded), may_go)


def check_node(state: KubeletState) -> None:
    """Raises Refusal where the node has not told what it has yet, so that nothing can be foreseen."""
    capacity = (state.node.get("status") or {}).get("capacity") or {}
    if missing := [resource for resource in ("cpu", "memory", "pods") if resource not in capacity]:
        raise Refusal(
            state.host,
            f"the API's Node object of it has no capacity of {', '.join(missing)}: its kubelet has not told yet what the node has",
            f"see that it does: kubectl describe node {(state.node.get('metadata') or {}).get('name', '')}".rstrip(),
        )


def pod_names(state: KubeletState) -> frozenset[str]:
    """All pods of the node, as NAMESPACE/NAME."""
    return frozenset(f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}" for pod in state.pods)


def _crowded(state: KubeletState, after: Mapping[str, Any]) -> Iterator[str]:
    """All pods together may use capacity without what is reserved (pkg/kubelet/cm: enforceNodeAllocatableCgroups); where they use more
    now, the kernel kills some, and close to it the kubelet evicts (allocatableMemory.available)."""
    if "pods" not in (after.get("enforceNodeAllocatable") or ()):
        return
    containers = (state.summary.get("node") or {}).get("systemContainers") or ()
    memory: Mapping[str, Any] = next((entry.get("memory") or {} for entry in containers if entry.get("name") == "pods"), {})
    used = memory.get("workingSetBytes")
    if used is None:
        return
    # Hard eviction is no part of the limit, only of Allocatable.
    was, will = (_limit(state, configuration) for configuration in (state.configuration, after))
    text = (after.get("evictionHard") or {}).get(thresholds.MEMORY)
    threshold = thresholds.parse_threshold(thresholds.MEMORY, str(text)) if text is not None else None
    kept = threshold.of(will) if threshold else 0
    if will < was and will - int(used) < kept:
        shown = [allocatable.shown("memory", amount) for amount in (int(used), will, kept)]
        yield (
            f"pods use {shown[0]} of memory, and all of them together may then use {shown[1]}, of which {shown[2]} must stay free"
            " (allocatableMemory.available): the kubelet evicts some, or the kernel kills their processes"
        )


def _limit(state: KubeletState, configuration: Mapping[str, Any]) -> int:
    return allocatable.allocatable({**configuration, "evictionHard": {}}, state.node)["memory"]
