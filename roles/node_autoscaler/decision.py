"""One decision of a pass, and the limits that it keeps. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

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
    hours: Hours | None = None


@dataclass(frozen=True)
class Hours:
    """From `begin` to `end`, minutes of the day (UTC); `end` may be of the next day. `days`: of the week, 0 is Monday, by the day on which
    the hours begin."""

    begin: int
    end: int
    days: frozenset[int] = frozenset(range(7))
    text: str = ""

    def has(self, at: datetime) -> bool:
        minute, day = at.hour * 60 + at.minute, at.weekday()
        if self.begin < self.end:
            return self.begin <= minute < self.end and day in self.days
        return (minute >= self.begin and day in self.days) or (minute < self.end and (day - 1) % 7 in self.days)


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
