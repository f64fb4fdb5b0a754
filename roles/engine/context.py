"""The steps of a run, and what a run gives to each of them, so that a step knows no run: its name, its lock, its journal, whether it
halts, and its voice.

Lock, Journal, Say and Together are ports. On the operator's machine these implement them: the cluster's lock, the record of the run, the
terminal, and gevent (roles/engine/runs/locked_run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

T = TypeVar("T")

#: The fields of an API object that a write will change: {"path": [...], "before": ..., "after": ...}, None if there is no value.
Fields = Sequence[Mapping[str, Any]]
Say = Callable[[str], None]
#: The events of an earlier run, by its name; () if nothing is known of it.
Records = Callable[[str], Sequence[Mapping[str, Any]]]
#: By host, of the schedulers that run with --config: their configuration (/configz); None if it could not be read.
Schedulers = Callable[[], Mapping[str, Mapping[str, Any] | None]]

#: How a change ended. A change of a node ends as `confirmed`, one of an API object as `done`; both are proven.
Outcome = Literal[
    "confirmed", "done", "reverted", "revert-failed", "refused", "foreign", "gone", "unknown", "failed", "skipped", "not started"
]  # fmt: skip


class OutOfReach(Exception):
    """What a port needs cannot be reached: a host, or its connection. Says which."""


class Skipped(Exception):
    """A step is not wanted any more, or must not be made now: it was not made, and the run goes on. Says why."""

    outcome: ClassVar[Outcome] = "skipped"


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


@dataclass
class ClusterStep:
    """A change of an API object.

    `write` makes the change and returns how it was proven; right before it writes, it calls `begin` of its context with the current
    fields. If it raises an error with an attribute `outcome`, that is the outcome; otherwise the step has failed. `diff` is for the plan;
    `lost` says what is missing, and what to do, if the write fails or does not begin; `undoes` is the change that this one undoes.
    `action` is the kind of change, in a word; `about` is recorded with the fields; `planned` is its record, once it has begun.
    """

    name: str
    summary: str
    diff: str
    write: Callable[[StepContext], str]
    lost: str
    undoes: str = ""
    action: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    outcome: Outcome = "not started"
    why: str = ""
    how: str = ""
    seconds: float = 0.0
    planned: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Stage(Generic[T]):
    """Steps that run `at_once` at a time. They begin in order, each as soon as another is over."""

    steps: tuple[T, ...]
    at_once: int = 1
    canary: bool = False
