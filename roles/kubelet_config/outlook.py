"""What a configuration would come to on a node as it is now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.change.refusal import Refusal
from roles.kubelet import allocatable
from roles.kubelet_config.state import State


@dataclass(frozen=True)
class Outlook:
    """What an operator should see before, in `lines`; and in `evicts` why pods would have to go, which needs consent."""

    lines: tuple[str, ...] = ()
    evicts: tuple[str, ...] = ()

    def text(self) -> str:
        """Indented for the plan."""
        return "\n".join(f"    {line}" for line in (*self.lines, *(f"EVICTS: {reason}" for reason in self.evicts)))


def allocatable_outlook(state: State, after: Mapping[str, Any]) -> Outlook:
    """What becomes of the node's Allocatable, and which of its pods the kubelet would not take back. Raises Refusal where it would
    not start."""
    max_pids = ((state.summary.get("node") or {}).get("rlimit") or {}).get("maxpid")
    if problems := allocatable.problems(state.host, after, state.node, max_pids):
        raise Refusal(state.host, "; ".join(str(problem).removeprefix(f"{state.host}: ") for problem in problems))
    try:
        before, then = (allocatable.allocatable(configuration, state.node) for configuration in (state.configuration, after))
        unfit = allocatable.which_no_longer_fit(state.pods, before, then)
    except ValueError as error:
        raise Refusal(state.host, f"what becomes of Allocatable cannot be told: {error}") from None
    changes = [
        f"{resource} {allocatable.shown(resource, amount)} -> {allocatable.shown(resource, then[resource])}"
        for resource, amount in before.items()
        if then.get(resource, amount) != amount
    ]
    lines = (f"Allocatable: {', '.join(changes)}",) if changes else ("Allocatable stays as it is",)
    return Outlook(lines, tuple(f"no longer fits: {pod}" for pod in unfit))
