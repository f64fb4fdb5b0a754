"""What a run gives to each of its steps, so that a step knows no run: its name, its lock, its journal, whether it halts, and its voice.

Lock, Journal, Say and Together are ports. On the operator's machine these implement them: the cluster's lock, the record of the run, the
terminal, and gevent (roles/engine/runs/locked_run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: The fields of an API object that a write will change: {"path": [...], "before": ..., "after": ...}, None if there is no value.
Fields = Sequence[Mapping[str, Any]]
Say = Callable[[str], None]
#: The events of an earlier run, by its name; () if nothing is known of it.
Records = Callable[[str], Sequence[Mapping[str, Any]]]


class OutOfReach(Exception):
    """What a port needs cannot be reached: a host, or its connection. Says which."""


class Lock(Protocol):
    def ensure(self) -> None:
        """This run still has the lock. Raises an error if another one has taken it, or if that cannot be read."""


class Journal(Protocol):
    def write(self, event: Mapping[str, Any]) -> None:
        """Keep an event. Raises an error if it cannot be kept."""


class Together(Protocol):
    def __call__(self, work: Callable[[T], object], items: Sequence[T]) -> None:
        """Work on all items at the same time, until all have ended. Raises the first error then."""


def _recorded(fields: Fields) -> None:
    """For writes that are recorded already."""


@dataclass(frozen=True)
class StepContext:
    """The context of one step. `run`: the name of the run. `begin(fields)` records the step with its current fields, right before it
    writes. `stopped()` says why nothing more may begin, "" if it may; `interrupted()`: the operator wants what runs to end too, and not
    only what has not begun. `say` shows a line. `together`: what a step does at once."""

    run: str
    lock: Lock
    journal: Journal
    stopped: Callable[[], str]
    interrupted: Callable[[], bool]
    say: Say
    together: Together
    begin: Callable[[Fields], None] = _recorded

    def hold(self) -> None:
        """Right before something that cannot be undone: no other run has taken the lock meanwhile. Raises as Lock."""
        self.lock.ensure()

    def note(self, event: Mapping[str, Any]) -> None:
        """Record what follows, right before it is done, while this run still has the lock. Raises as Journal and Lock."""
        self.journal.write(event)
        self.lock.ensure()

    def beginning(self, begin: Callable[[Fields], None] = _recorded) -> StepContext:
        """The same context for a part of the step: recorded by `begin`, or recorded already."""
        return replace(self, begin=begin)
