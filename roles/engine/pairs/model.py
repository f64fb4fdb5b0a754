"""A pair of settings that must fit each other, and what is wrong with one. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roles.engine.findings import Severity
from roles.engine.pairs.picture import Side
from roles.engine.pairs.relations import NotKnown, Relation


@dataclass(frozen=True)
class Pair:
    """`must`: the relation in words; `own`: both sides are of the same node, else each is compared with each; `unset`: the relation decides
    also if a side is not set; `severity`: a plan refuses `critical`, and warns of the others; `one_way`: only a change of `here` is judged,
    and no state; `found`: its severity as an audit finds it, if nothing is wrong yet. `broken`: what happens then; `source`: the file or
    document of Kubernetes."""

    name: str
    here: Side
    there: Side
    must: str
    relation: Relation
    severity: Severity
    broken: str
    way_out: str
    source: str
    own: bool = False
    unset: bool = False
    one_way: bool = False
    found: Severity | None = None


@dataclass(frozen=True)
class Judged:
    """A pair that daytwo judges in another place, where it knows more than two settings. `where`: what judges it."""

    name: str
    here: str
    there: str
    must: str
    broken: str
    source: str
    where: str


@dataclass(frozen=True)
class Mismatch:
    """A pair whose sides do not fit, or of which that is not known (`is_known`). `here` and `there`: the hosts (or nodes) that have them;
    `touched`: the change makes one of the two another value."""

    pair: Pair
    here: tuple[str, ...]
    there: tuple[str, ...]
    values: tuple[Any, Any]
    why: str
    touched: bool = False

    @property
    def is_known(self) -> bool:
        return not isinstance(self.why, NotKnown)
