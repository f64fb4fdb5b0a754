"""One decision of a pass, and the limits that it keeps. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from roles.consolidation import hours

#: `finish`: end what a killed loop has left; `wake`, `consolidate`: change the cluster; `hold`: nothing is to be done; `stop`: too much is
#: wrong to decide anything.
Kind = Literal["finish", "wake", "consolidate", "hold", "stop"]
KINDS: tuple[Kind, ...] = ("finish", "wake", "consolidate", "hold", "stop")
#: What all pods request together, by resource, in its units; `pods`: how many there are.
Load = Mapping[str, int]

#: cluster-autoscaler: max-total-unready-percentage and ok-total-unready-count.
UNREADY_SHARE, UNREADY_COUNT = 0.45, 3


@dataclass(frozen=True)
class Limits:
    """`idle`: seconds that a node must not have been needed; `cool_down`: seconds without a consolidation after a wake, and before what
    failed is tried again, twice as long after each further failure; `at_once`: nodes that one consolidation takes away; `spare`: nodes that
    may fail afterwards; `hours`: when a consolidation may begin, None: at any time."""

    idle: float = 1800.0
    cool_down: float = 600.0
    at_once: int = 1
    spare: int = 1
    hours: hours.Hours | None = None


@dataclass(frozen=True)
class Decision:
    """What to do now, and why, in one line. `nodes`: to wake, to take away, or to finish; `pods`: those that machines are woken for.
    `nowhere`: pods that no machine can take, with the reason. `not_needed`: since when each node could go."""

    kind: Kind
    why: str
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    nowhere: Mapping[str, str] = field(default_factory=dict)
    not_needed: Mapping[str, float] = field(default_factory=dict)

    @property
    def acts(self) -> bool:
        return self.kind in ("finish", "wake", "consolidate")

    @property
    def wakes(self) -> bool:
        return self.kind in ("finish", "wake")

    @property
    def line(self) -> str:
        """For people."""
        return f"{' '.join([self.kind, ', '.join(self.nodes)]).rstrip()}: {self.why}"
