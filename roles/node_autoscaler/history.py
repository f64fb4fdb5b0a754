"""What the loop remembers from pass to pass, and after a restart: its decisions, and what follows from them. Pure, and one JSON file.

All times are seconds since the epoch, by the API server's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from roles.engine.bounds import read_json
from roles.node_autoscaler.decision import Decision, Load

FORMAT = 1
#: Decisions that are kept, the newest ones.
MOST_DECISIONS = 500
#: Of a machine that fails again and again.
_MOST_FAILURES = 1000
T = TypeVar("T")


@dataclass(frozen=True)
class Woken:
    """A machine that the loop woke for pods: the load then, and the nodes that were on afterwards."""

    at: float
    load: Mapping[str, int]
    on: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """`count` in a row, the last one at `at`."""

    count: int
    at: float


@dataclass(frozen=True)
class Begun:
    """What was begun and has not ended, as far as is known. `run`: the name of its run, "" if none has said it."""

    kind: str
    nodes: tuple[str, ...]
    run: str = ""


@dataclass(frozen=True)
class Entry:
    """A decision, as it is kept. `term`: who decided it (roles/engine/lease). `times`: how often in a row it was the same."""

    kind: str
    nodes: tuple[str, ...]
    why: str
    at: float
    state: str = "decided"
    result: str = ""
    term: str = ""
    times: int = 1


@dataclass(frozen=True)
class History:
    """`not_needed`: since when a node could go, by its name; `failed` by node, "" for a consolidation."""

    passed: float = 0.0
    woken_at: float = 0.0
    not_needed: Mapping[str, float] = field(default_factory=dict)
    woken: Mapping[str, Woken] = field(default_factory=dict)
    failed: Mapping[str, Failed] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    begun: Begun | None = None
    decisions: tuple[Entry, ...] = ()

    # ---- one pass

    def decided(self, decision: Decision, now: float, term: str = "") -> History:
        """With this decision, which is not carried out yet. The same reason to hold again is counted, and not kept twice."""
        last, counts = self.decisions[-1] if self.decisions else None, {**self.counts, decision.kind: self.counts.get(decision.kind, 0) + 1}
        same = last is not None and not decision.acts and (last.kind, last.why) == (decision.kind, decision.why)
        if same and last is not None:
            kept: Sequence[Entry] = (*self.decisions[:-1], replace(last, at=now, times=last.times + 1))
        else:
            kept = (*self.decisions, Entry(decision.kind, decision.nodes, decision.why, now, term=term))
        return replace(self, passed=now, not_needed=decision.not_needed, counts=counts, decisions=tuple(kept)[-MOST_DECISIONS:])

    def begins(self, decision: Decision) -> History:
        """It is about to be carried out. What it finishes may hold the cluster's lock under the name of its own run."""
        kept = self.begun.run if self.begun is not None and decision.kind == "finish" else ""
        kind = self.begun.kind if self.begun is not None and decision.kind == "finish" else decision.kind
        return replace(self._last("begun", ""), begun=Begun(kind, decision.nodes, kept))

    def named(self, run: str) -> History:
        """What is carried out is a run of this name."""
        return self if self.begun is None else replace(self, begun=replace(self.begun, run=run))

    def closed(self) -> History:
        """Nothing is left of what was begun."""
        return replace(self, begun=None)

    def succeeded(self, decision: Decision, now: float, result: str, on: Sequence[str], load: Load) -> History:
        """It was carried out and proven. `on`: the nodes that were on before."""
        found, nodes = self._last("done", result).closed(), set(decision.nodes)
        failed = {name: one for name, one in self.failed.items() if name not in (nodes if decision.wakes else {""})}
        if not decision.wakes:
            woken = {name: one for name, one in self.woken.items() if name not in nodes}
            left = {name: since for name, since in self.not_needed.items() if name not in nodes}
            return replace(found, failed=failed, woken=woken, not_needed=left)
        # A machine that was woken for another reason than pods goes again when it is not needed.
        kept = Woken(now, dict(load), tuple(sorted({*on, *nodes})))
        woken = {**self.woken, **dict.fromkeys(decision.nodes, kept)} if decision.pods else dict(self.woken)
        return replace(found, failed=failed, woken=woken, woken_at=now)

    def failing(self, decision: Decision, now: float, result: str) -> History:
        """It was begun, and failed."""
        failed = dict(self.failed)
        for name in decision.nodes if decision.wakes else ("",):
            before = failed.get(name, Failed(0, 0.0))
            failed[name] = Failed(min(before.count + 1, _MOST_FAILURES), now)
        return replace(self._last("failed", result).closed(), failed=failed, failures=self.failures + 1)

    def put_off(self, result: str, before: Begun | None) -> History:
        """It was not begun: no failure, and what was begun `before` is still to be finished."""
        return replace(self._last("put off", result), begun=before)

    def _last(self, state: str, result: str) -> History:
        if not self.decisions:
            return self
        return replace(self, decisions=(*self.decisions[:-1], replace(self.decisions[-1], state=state, result=result)))

    # ---- the file

    def text(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"


def read_history(text: str) -> History:
    """Raises ValueError for a file that is none of a loop's."""
    found: Any = read_json(text)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"it is no record of decisions in format {FORMAT}")
    try:
        return History(
            passed=float(found["passed"]),
            woken_at=float(found["woken_at"]),
            not_needed=_map(found["not_needed"], float),
            woken=_map(found["woken"], lambda one: Woken(float(one["at"]), _map(one["load"], int), tuple(map(str, one["on"])))),
            failed=_map(found["failed"], lambda one: Failed(int(one["count"]), float(one["at"]))),
            counts=_map(found["counts"], int),
            failures=int(found["failures"]),
            begun=None if (one := found["begun"]) is None else Begun(str(one["kind"]), tuple(map(str, one["nodes"])), str(one["run"])),
            decisions=tuple(Entry(**{**one, "nodes": tuple(map(str, one["nodes"]))}) for one in found["decisions"])[-MOST_DECISIONS:],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no record of decisions in format {FORMAT}: {type(error).__name__} {error}") from None


def _map(found: Mapping[str, Any], read: Callable[[Any], T]) -> dict[str, T]:
    return {str(name): read(one) for name, one in found.items()}
