"""What every run is made of, on nodes and on API objects: the cluster's lock, its number, the record, the halt, Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

from roles.engine.bridge import Event, Fleet, Pool, RemoteError, Task, on_interrupt, show, spawn
from roles.engine.rollout.lock import ClusterLock, Locked
from roles.engine.rollout.number import run_number
from roles.engine.rollout.pace import Stage
from roles.engine.timeouts import patient
from roles.engine.transaction import RunInfo, RunRecord, Unrecorded, keep_script

S = TypeVar("S")

#: How a change ended. `confirmed` is a node's word, `done` that of an API object; both are proven.
Outcome = Literal[
    "confirmed", "done", "reverted", "revert-failed", "refused", "foreign", "gone", "unknown", "failed", "not started"
]  # fmt: skip

# A node may be rebooting or its network away; what runs there goes on without us.
RECONNECT_SECONDS = 120
CONFIRM_SECONDS = 60

# Errors that no cluster causes.
_OWN = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)


class Interrupted(Exception):
    """The operator asked to halt."""


#: The fields of an API object that a write is about to change: {"path": [...], "before": ..., "after": ...}, None where there is none.
Fields = Sequence[Mapping[str, Any]]


@dataclass
class ClusterStep:
    """A change of an API object, which is no node's.

    `write` carries it out and returns how that was proven; right before it writes it calls what it is given with the fields as they are.
    An error that it raises may say how it ended in an attribute `outcome`; without one the step has failed. `diff` is for the plan; `lost`
    says what is not so, and what to do, where the write fails or is not begun; `undoes` is the change that it undoes. `action` is what is
    done, in a word; `about` is recorded beside the fields.
    """

    name: str
    summary: str
    diff: str
    write: Callable[[Callable[[Fields], None]], str]
    lost: str
    undoes: str = ""
    action: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    outcome: Outcome = "not started"
    why: str = ""
    how: str = ""
    seconds: float = 0.0


class LockedRun:
    """Holds the cluster's lock, and is carried out once, whoever asks first; the first failure halts it."""

    #: How a ClusterStep of such a run ends that was carried out and proven.
    success: ClassVar[Outcome] = "confirmed"
    #: What the first Ctrl-C says of a second one.
    at_once: ClassVar[str] = ""

    def __init__(self, info: RunInfo, fleet: Fleet, take_over: str, finish: Callable[[], None]) -> None:
        self.info = info
        self.record = RunRecord(info)
        self.halted = ""
        self.interrupted = False
        self._keeper = fleet.lock_host
        self._lock = ClusterLock(fleet.lock_host, info.holder, take_over)
        self._finish = finish
        self._started = False
        self._ended = Event()
        self._waiting: set[Task[..., None]] = set()
        self._failing = False  # one is being put back: nothing more is begun

    # ---- what kind of run it is

    def involves(self, host: str) -> bool:
        """True for a host that has something to wait for."""
        raise NotImplementedError

    def result(self, host: str) -> bool:
        """Wait for what a host answers for; True when all of it is done and proven. The first host to ask starts the run."""
        raise NotImplementedError

    def _begin(self) -> Mapping[str, Any]:
        """For the record, when the run has the lock and its number."""
        raise NotImplementedError

    def _work(self) -> None:
        """All there is to do; to halt is to set `halted`."""
        raise NotImplementedError

    def _outcomes(self) -> dict[str, str]:
        """How each change ended, for the record."""
        raise NotImplementedError

    def _leaving(self) -> str:
        """What to know when it is left at once."""
        raise NotImplementedError

    def _planned(self, step: ClusterStep, order: int, fields: Fields) -> dict[str, Any]:
        """What is recorded before a step is begun."""
        raise NotImplementedError

    def _end(self, step: ClusterStep) -> dict[str, Any]:
        """What is recorded of its end."""
        raise NotImplementedError

    def _keep_step(self, step: ClusterStep, planned: Mapping[str, Any], ended: Mapping[str, Any] | None) -> None:
        """The lock's host keeps both: `planned` before the write, and again with how it `ended`. Raises RemoteError."""
        raise NotImplementedError

    # ---- the run

    def start(self) -> None:
        if not self._started:
            self._started = True
            on_interrupt(self.interrupt)
            # Ctrl-C must not end the greenlet that undoes what was begun.
            spawn(self._drive)

    def interrupt(self) -> None:
        """Ctrl-C: nothing more is begun, what is in progress finishes; a second time: out at once."""
        if self.interrupted:
            show(f"\nleaving at once; {self._leaving()}")
            raise SystemExit(130)
        self.interrupted = True
        self.halted = self.halted or "interrupted by the operator"
        show(f"\nhalting: changes in progress finish; press Ctrl-C again to quit now{self.at_once}")
        for greenlet in self._waiting:
            greenlet.kill(Interrupted("interrupted by the operator"), block=False)

    def _drive(self) -> None:
        try:
            try:
                self._lock.ensure()
                self.info = replace(self.info, number=run_number(self._keeper).recorded)
                self._note({"event": "begin", "number": self.info.number, **self._begin()})
            except (Locked, RemoteError, Unrecorded) as error:
                self.halted = str(error)
                show(f"\nnot begun: {error}")
            else:
                self._work()
                self._note_done({"event": "end-of-run", "halted": self.halted, "outcomes": self._outcomes()})
            self._finish()
        except Exception as error:
            self.halted = self.halted or repr(error)
            show(f"\nthe run ended by an error of its own: {error!r}")
            raise
        finally:
            self._lock.give_back()
            self._over()

    def _over(self) -> None:
        """Whoever waits goes on."""
        self._ended.set()

    def _each(self, stages: Sequence[Stage[S]], carry_out: Callable[[S], None]) -> None:
        """The steps of each stage, so many at once; nothing is begun once the run halts. `carry_out` takes its own greenlet out of
        `_waiting` once Ctrl-C must not end it any more."""
        for stage in stages:
            pool = Pool(stage.at_once)
            for step in stage.steps:
                # Sliding: the next one begins as soon as one is over, and not at all once something went wrong.
                pool.wait_available()
                if self.halted or self._failing:
                    break
                self._waiting.add(pool.spawn(carry_out, step))
            pool.join()

    # ---- API objects

    def _write(self, step: ClusterStep, order: int, number: str = "") -> None:
        """Carry out one step, recorded before and after. `number` is what is shown before its name."""
        begun = time.monotonic()
        planned: dict[str, Any] = {}
        show(f"\n{number}{step.name}: {step.summary}")

        def begin(fields: Fields) -> None:
            # Without a record there is no way back, and nothing is written.
            nonlocal planned
            planned = self._planned(step, order, fields)
            self._note(planned)
            self._keep_step(step, planned, None)
            # Right before the write: others may have taken the lock while this one waited.
            self._lock.ensure()

        try:
            self._lock.ensure()
            if not self.interrupted:
                step.outcome = "failed"
                step.how = step.write(begin)
                step.outcome = self.success
        except Exception as error:
            step.outcome = getattr(error, "outcome", step.outcome)
            step.why = f"an error of daytwo's own: {error!r}" if isinstance(error, _OWN) else str(error) or repr(error)
        step.seconds = time.monotonic() - begun
        show(f"  {step.name}: {step.outcome}: {step.how or step.why or 'interrupted'} ({step.seconds:.0f} s)")
        if step.outcome != self.success:
            self.halted = self.halted or f"{step.name}: {step.outcome}: {step.why}"
        if step.outcome == "not started" and not planned:
            return
        ended = self._end(step)
        self._note_done(ended)
        if planned:
            try:
                self._keep_step(step, planned, ended)
            except RemoteError as error:
                # It is found all the same: what was about to be written is recorded, and held against what is there.
                show(f"WARNING: how {step.name} ended could not be recorded: {error}")

    # ---- records

    def _keep(self, change: str, state: str, events: Sequence[Mapping[str, Any]], *, append: bool = False) -> None:
        """Raises RemoteError."""
        try:
            self._keeper.ensure_connected(patient(RECONNECT_SECONDS))
        except RemoteError as error:
            raise RemoteError(f"{error}; it keeps the record of what is no node's") from error
        script = keep_script(change, self.info.holder, state, events, append=append)
        answer = self._keeper.run("sh -s", stdin=script, timeout=patient(CONFIRM_SECONDS))
        if answer.code != 0:
            said = " ".join(answer.stderr[-3:]) or f"exit status {answer.code}"
            raise RemoteError(f"{self._keeper.name}: the record could not be written, and nothing is done without: {said}")

    def _note(self, event: Mapping[str, Any]) -> None:
        """Into the record, before what it is about is begun. Raises Unrecorded: without it that must not be begun."""
        self.record.write(event)

    def _note_done(self, event: Mapping[str, Any]) -> None:
        """Into the record what has happened already; where that cannot be written, nothing more is begun."""
        try:
            self.record.write(event)
        except Unrecorded as error:
            self.halted = self.halted or str(error)
            show(f"WARNING: {error}")
