"""The common part of all runs, on nodes and on API objects: the cluster's lock, the run's number, its record, halt, Ctrl-C."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from roles.engine.bridge import Fleet, doing, ending, on_interrupt, unforeseen_error
from roles.engine.bridge.tasks import Event, Pool, Task, spawn, together
from roles.engine.commands import command
from roles.engine.context import ClusterStep, Fields, Outcome, Skipped, Stage, StepContext
from roles.engine.folding import counted
from roles.engine.remote import RemoteError
from roles.engine.runs.lock import ClusterLock, Locked, run_number
from roles.engine.table import NO_SIGN
from roles.engine.timeouts import patient
from roles.engine.transaction import RunInfo
from roles.engine.transaction.change_script import keep_script
from roles.engine.transaction.record import RunRecord, Unrecorded
from roles.engine.voice import conclude, show

S = TypeVar("S")

# A node may be rebooting, or its network down; what runs there continues without us.
RECONNECT_SECONDS = 120
CONFIRM_SECONDS = 60

# Errors that only a bug of daytwo causes.
_OWN = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)


class Interrupted(Exception):
    """The operator interrupted the run."""


class LockedRun:
    """A run that holds the cluster's lock. It runs once, whichever host starts it; the first failure halts it."""

    #: The outcome of a ClusterStep of such a run that was carried out and proven.
    success: ClassVar[Outcome] = "confirmed"
    #: How to continue after a halt.
    again: str = "repeat this command: it keeps what is done"
    #: What skip_unreachable has done without: the label of each host, what it means, and the begin of the last line.
    without: ClassVar[tuple[str, str, str]] = (
        "LEFT OUT",
        "It was not changed; run this command again once it answers.",
        "NOT ALL DONE",
    )
    #: What the first Ctrl-C says about a second one.
    at_once: ClassVar[str] = ""

    def __init__(self, info: RunInfo, fleet: Fleet, take_over: str, finish: Callable[[], None]) -> None:
        self.info = info
        self.record = RunRecord(info)
        #: Why the hosts that skip_unreachable leaves out cannot be reached.
        self.left_out = [remote.unreachable for remote in fleet.unreachable]
        self.halted = ""
        self.interrupted = False
        #: It ended by an error that nobody expected, maybe after its last step.
        self.broken = False
        self._keeper = fleet.lock_host
        self._begun_at = time.monotonic()
        self._lock = ClusterLock(fleet.lock_host, info.holder, take_over)
        self._finish = finish
        self._started = False
        self._ended = Event()
        self._waiting: set[Task[..., None]] = set()
        self._failing = False  # a change is being reverted: no other change begins

    # ---- what the kinds of runs define

    def involves(self, host: str) -> bool:
        """True for a host that has a result to wait for."""
        raise NotImplementedError

    def result(self, host: str) -> bool:
        """Wait for the result of a host; True if all its changes are done and proven. The first call starts the run."""
        raise NotImplementedError

    def _begin(self) -> Mapping[str, Any]:
        """Fields for the record, once the run has the lock and its number."""
        raise NotImplementedError

    def _work(self) -> None:
        """Make all changes; set `halted` to halt."""
        raise NotImplementedError

    def _outcomes(self) -> dict[str, str]:
        """How each change ended, for the record."""
        raise NotImplementedError

    def _proofs(self) -> list[str]:
        """How each change that is done was proven."""
        raise NotImplementedError

    def _leaving(self) -> str:
        """What the operator must know who quits at once."""
        raise NotImplementedError

    def _planned(self, step: ClusterStep, order: int, fields: Fields) -> dict[str, Any]:
        """The record of a step before it begins."""
        raise NotImplementedError

    def _end(self, step: ClusterStep) -> dict[str, Any]:
        """The record of a step's end."""
        raise NotImplementedError

    def _keep_step(self, step: ClusterStep, planned: Mapping[str, Any], ended: Mapping[str, Any] | None) -> None:
        """Write the record on the lock's host: `planned` before the write, and again with `ended` after it. Raises RemoteError."""
        raise NotImplementedError

    def next_commands(self) -> list[str]:
        """What the operator can do next, as `Undo: COMMAND`."""
        return [f"Undo: {self.undo}"] if self.success in self._outcomes().values() else []

    # ---- the run

    @property
    def undo(self) -> str:
        """The command that undoes this run."""
        return command("rollback", run=self.info.id)

    @property
    def _all_done(self) -> bool:
        return not self.halted and set(self._outcomes().values()) <= {self.success}

    def _without_steps(self) -> str:
        """What a run has done that has no step."""
        return "nothing was left to do"

    @property
    def last_line(self) -> str:
        """What came of the run, and what can be done next."""
        outcomes = Counter(self._outcomes().values())
        counts = ", ".join(f"{outcomes[one]} {one}" for one in sorted(outcomes, key=lambda one: (one != self.success, one)))
        unseen = sum(NO_SIGN in how for how in self._proofs())
        counts += f" ({unseen} without a sign of {'its' if unseen == 1 else 'their'} effect)" if unseen else ""
        said = f"{counts or self._without_steps()} in {time.monotonic() - self._begun_at:.0f} s"
        if not self.halted and outcomes[Skipped.outcome]:
            return ". ".join([f"NOT ALL DONE: {said}", "each skipped one says why", *self.next_commands()])
        if not self._all_done:
            return ". ".join([f"HALTED: {said}", f"Continue: fix the cause, then {self.again}", *self.next_commands()])
        label, _, without = self.without
        start = without if self.left_out else "NOT ALL PROVEN" if ending() else "DONE"
        left = f"; {counted(len(self.left_out), 'host')} {label.lower()}" if self.left_out else ""
        return ". ".join([f"{start}: {said}{left}", *self.next_commands()])

    def start(self) -> None:
        if not self._started:
            self._started = True
            on_interrupt(self.interrupt)
            # Ctrl-C must not end the greenlet that undoes unfinished changes.
            spawn(self._drive)

    @property
    def context(self) -> StepContext:
        """What a step gets. Its lock raises Locked and RemoteError, its journal Unrecorded."""
        return StepContext(self.info.id, self._lock, self.record, self._stopped, self._interrupted, show, together)

    def _interrupted(self) -> bool:
        return self.interrupted

    def _stopped(self) -> str:
        """Why nothing more may begin; "" if it may."""
        return self.halted

    def show_left_out(self, then: str) -> None:
        """The hosts that this run leaves out, and a sentence."""
        for one in self.left_out:
            show(f"\n{self.without[0]} {one}. {then}")

    def interrupt(self) -> None:
        """Ctrl-C: no other change begins, changes in progress finish. A second Ctrl-C quits at once."""
        if self.interrupted:
            show(f"\nquitting now; {self._leaving()}")
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
                self._note({"event": "begin", "number": self.info.number, "left_out": self.left_out, **self._begin()})
            except (Locked, RemoteError, Unrecorded) as error:
                self.halted = str(error)
                show(f"\nnot started: {error}")
            else:
                self._work()
                self._note_done({"event": "end-of-run", "halted": self.halted, "outcomes": self._outcomes()})
            self._finish()
            self.show_left_out(self.without[1])
        except Exception as error:
            said = unforeseen_error(error)
            self.broken, self.halted = True, self.halted or said
            show(f"\nthe run ended: {said}")
        finally:
            self._lock.release_or_warn()
            conclude(self.last_line, halted=not self._all_done)
            self._over()

    def _over(self) -> None:
        """Wake up the hosts that wait for the end of the run."""
        self._ended.set()

    def _each(self, stages: Sequence[Stage[S]], carry_out: Callable[[S], None]) -> None:
        """Carry out the steps of each stage, `at_once` at a time; no step begins once the run halts. `carry_out` removes its own greenlet
        from `_waiting` when Ctrl-C must no longer end it."""
        for stage in stages:
            pool = Pool(stage.at_once)
            for step in stage.steps:
                # A sliding window: the next step begins as soon as one is over, unless something failed.
                pool.wait_available()
                if self.halted or self._failing:
                    break
                self._waiting.add(pool.spawn(carry_out, step))
            pool.join()

    # ---- API objects

    def _write(self, step: ClusterStep, order: int, number: str = "") -> None:
        """Carry out one step, recorded before and after. `number` is shown before its name."""
        started = time.monotonic()
        show(f"\n{number}{step.name}: {step.summary}")
        doing(f"{number}{step.name}: {step.summary}", 0)
        try:
            self._lock.ensure()
            if not self.interrupted:
                step.outcome = "failed"
                step.how = step.write(self.context.beginning(partial(self._record_begin, step, order)))
                step.outcome = self.success
        except Exception as error:
            step.outcome = getattr(error, "outcome", step.outcome)
            step.why = unforeseen_error(error) if isinstance(error, _OWN) else str(error) or repr(error)
        step.seconds = time.monotonic() - started
        doing("")
        show(f"  {step.name}: {step.outcome}: {step.how or step.why or 'interrupted'} ({step.seconds:.0f} s)")
        if step.outcome not in (self.success, Skipped.outcome):
            self.halted = self.halted or f"{step.name}: {step.outcome}: {step.why}"
        if step.outcome == "not started" and not step.planned:
            return
        ended = self._end(step)
        self._note_done(ended)
        if step.planned:
            try:
                self._keep_step(step, step.planned, ended)
            except RemoteError as error:
                # An undo still works: the planned fields are recorded, and are compared with the object.
                show(f"WARNING: the outcome of {step.name} could not be recorded: {error}")

    def _record_begin(self, step: ClusterStep, order: int, fields: Fields) -> None:
        """Without a record there is no undo, so nothing is written. Raises Unrecorded, RemoteError, Locked."""
        step.planned = self._planned(step, order, fields)
        self._note(step.planned)
        self._keep_step(step, step.planned, None)
        # Right before the write: another run may have taken the lock meanwhile.
        self._lock.ensure()

    # ---- records

    def _keep(self, change: str, state: str, events: Sequence[Mapping[str, Any]], *, append: bool = False) -> None:
        """Raises RemoteError."""
        try:
            self._keeper.ensure_connected(patient(RECONNECT_SECONDS))
        except RemoteError as error:
            raise RemoteError(f"{error}; this host keeps the record of changes of the cluster itself") from error
        script = keep_script(change, self.info.holder, state, events, append=append)
        answer = self._keeper.run("sh -s", stdin=script, timeout=patient(CONFIRM_SECONDS))
        if answer.code != 0:
            raise RemoteError(f"{self._keeper.name}: the record could not be written, and nothing begins without it: {answer.complaint}")

    def _note(self, event: Mapping[str, Any]) -> None:
        """Record an event before it begins. Raises Unrecorded: then it must not begin."""
        self.record.write(event)

    def _note_done(self, event: Mapping[str, Any]) -> None:
        """Record what has already happened; if that fails, no other change begins."""
        try:
            self.record.write(event)
        except Unrecorded as error:
            self.halted = self.halted or str(error)
            show(f"WARNING: {error}")
