"""The order of the changes of a run, and how many run at the same time. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from roles.engine.context import Stage

S = TypeVar("S")


@dataclass(frozen=True)
class Pace:
    """`max_unavailable`: how many workers may change at the same time, a number or a percentage of the workers of the run;
    `soak`: seconds to watch the first one before it counts as proven."""

    max_unavailable: str = "1"
    soak: int = 0

    def at_once(self, workers: int) -> int:
        """Rounded down, as a Deployment rounds its maxUnavailable, but at least one: a run must make progress."""
        if found := re.fullmatch(r"([0-9]+)%", self.max_unavailable):
            return max(1, workers * int(found.group(1)) // 100)
        return max(1, int(self.max_unavailable))


def parse_max_unavailable(value: object) -> str:
    """A number or a percentage. Raises ValueError."""
    text = str(value).strip()
    if not re.fullmatch(r"[1-9][0-9]*|[1-9][0-9]?%|100%", text):
        raise ValueError(f"max_unavailable: {value!r} must be a number of nodes (1, 2, ...) or a percentage (1% to 100%)")
    return text


def stages(control_plane: Sequence[S], workers: Sequence[S], own_kubelets: Sequence[S], pace: Pace, on: bool) -> list[Stage[S]]:
    """The stages of a run. On: first the control plane's components one by one, then the workers' kubelets, the first one alone, then the
    control-plane nodes' own kubelets one by one. Off: the components last."""
    components = [Stage((step,)) for step in control_plane]
    kubelets = [*stages_of_workers(workers, pace), *(Stage((step,)) for step in own_kubelets)]
    return components + kubelets if on else kubelets + components


def stages_of_workers(workers: Sequence[S], pace: Pace) -> list[Stage[S]]:
    """A canary alone, then the others at the pace."""
    rest = [Stage(tuple(workers[1:]), at_once=pace.at_once(len(workers)))] if workers[1:] else []
    return [*(Stage((step,), canary=True) for step in workers[:1]), *rest]
