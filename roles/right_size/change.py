"""One workload's change, and its undo: pods in place, autoscalers' targets, a watch, then the template."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine.api import ApiFailure
from roles.engine.context import ClusterStep, StepContext
from roles.engine.node import ObservationError
from roles.engine.objects import ChangedByOthers, Gone, RevertFailed, Session, Undone, WriteRefused
from roles.engine.remote import RemoteError
from roles.engine.timeouts import Deadline
from roles.engine.voice import show
from roles.pod_resize import WorkloadResize
from roles.right_size.targets import AUTOSCALER, TargetChange, write_target
from roles.right_size.watching import SoakLook, UseBefore, worse

ACTION = "right size"
# Seconds between two looks during the watch.
LOOK_EVERY = 5.0
# Looks in a row that may fail.
_BLIND = 3


@dataclass
class SizedChange:
    """A workload whose resources a run changes, and with them the targets of its autoscalers. The record has what the undo needs."""

    resize: WorkloadResize
    targets: Sequence[TargetChange]
    session: Session

    def about(self) -> dict[str, Any]:
        return {**self.resize.about(), AUTOSCALER: {one.name: one.uid for one in self.targets}}

    def begin(self, context: StepContext) -> None:
        context.begin([*self.resize.fields(), *(one.field for one in self.targets)])


@dataclass
class WorkloadChange(SizedChange):
    """`again` judges the resize once more, right before it is carried out, and raises NotDone if that is no longer the change of the plan;
    `seconds`: how long it watches; `look` looks at the workload, and `keep` keeps what a look saw that was worse; `known`: by container."""

    seconds: float
    look: Callable[[], SoakLook]
    known: Mapping[str, UseBefore]
    again: Callable[[], WorkloadResize]
    keep: Callable[[SoakLook], None]
    written: list[TargetChange] = field(default_factory=list)
    recorded: dict[str, Any] = field(default_factory=dict)

    def step(self) -> ClusterStep:
        self.recorded.update(self.about())
        return ClusterStep(self.resize.name, "its resources fit what it uses", "", self.carry_out, "", action=ACTION, about=self.recorded)

    def carry_out(self, context: StepContext) -> str:
        """Raises Undone if everything is as before, and RevertFailed; NotDone if nothing was written."""
        # The plan may be hours old: the workloads before this one were watched.
        self.resize = self.again()
        self.recorded.update(self.about())
        # What happens between the resize and the first look must count too; but not restarts that the resize itself needs.
        before = None if self.resize.restarts or not self.seconds else self._first()
        self.begin(context)
        try:
            self._write(lambda one: one.meanwhile, context)
            proof = self.resize.resize(context)
            self._write(lambda one: one.after, context)
            problem = self._watched(before)
            lasting = "" if problem else self.resize.update_template(partial(self._meanwhile, context))
        except Exception as error:
            raise self._back(context, str(error) or repr(error), error) from error
        if problem:
            raise self._back(context, problem)
        changed = "".join(f"; {one.name}: {one.text}" for one in self.targets)
        return f"watched for {self.seconds:g} s{changed}; {lasting}; {proof}"

    def _write(self, metrics: Callable[[TargetChange], Sequence[Any]], context: StepContext) -> None:
        for target in self.targets:
            if target not in self.written and list(metrics(target)) == list(target.before):
                continue
            try:
                write_target(self.session, target, metrics(target), context)
            except (ChangedByOthers, Gone):
                raise
            except Exception:
                self._wrote(target)  # it may have been applied
                raise
            self._wrote(target)

    def _wrote(self, target: TargetChange) -> None:
        if target not in self.written:
            self.written.append(target)

    def _first(self) -> SoakLook:
        """Raises WriteRefused: without it nothing is changed."""
        try:
            return self.look()
        except (ApiFailure, RemoteError, ObservationError) as error:
            raise WriteRefused(f"it cannot be watched, so nothing was changed: {error}") from error

    def _watched(self, before: SoakLook | None) -> str:
        """Why it is worse off than `before`, or than right now; "" if it is not. The last look is after the whole time."""
        if not self.seconds:
            return ""
        clock, blind = Deadline(self.seconds, as_given=True), 0
        show(f"  {self.resize.name}: watching for {self.seconds:g} s")
        while True:
            over = clock.over
            try:
                now = self.look()
                blind, before = 0, before or now
            except (ApiFailure, RemoteError, ObservationError) as error:
                blind += 1
                if blind >= _BLIND:
                    return f"it could not be watched: {error}"
            else:
                if problems := list(worse(before, now, self.known)):
                    self.keep(now)
                    return "; ".join(problems)
            if over and not blind:
                return ""
            clock.pause(LOOK_EVERY if over else min(LOOK_EVERY, clock.left))

    def _back(self, context: StepContext, why: str, error: Exception | None = None) -> Exception:
        """Put everything back, because of `why`, or of `error` that a step raised; the error says how that ended."""
        show(f"  {self.resize.name}: {why}")
        untouched = error is not None and not self.resize.done
        if not untouched:
            self._meanwhile(context)
        written = list(reversed(self.written))
        self.written.clear()
        ended = error if untouched and error is not None else self.resize.put_back(why)
        failed = self._targets_back(written, lambda one: one.before, context)
        if failed or isinstance(error, RevertFailed):
            return RevertFailed("; ".join([str(ended), *failed]))
        if untouched and written and not isinstance(ended, (Undone, ChangedByOthers)):
            return Undone(f"{ended}; its autoscalers have their old targets")
        return ended

    def _meanwhile(self, context: StepContext) -> None:
        """Pods of both kinds are there then, too. What fails here is tried again when all pods are back, and counts then."""
        self._targets_back(reversed(self.written), lambda one: one.meanwhile, context)

    def _targets_back(
        self, written: Iterable[TargetChange], metrics: Callable[[TargetChange], Sequence[Any]], context: StepContext
    ) -> list[str]:  # fmt: skip
        """Why some could not be put back."""
        failed = []
        for target in written:
            try:
                write_target(self.session, target, metrics(target), context)
            except Gone:
                continue
            except Exception as error:
                failed.append(f"HorizontalPodAutoscaler {target.name}: {str(error) or repr(error)}")
        return failed


class WorkloadUndo(SizedChange):
    """A recorded workload, as it was: the template, or else its pods; and the targets of its autoscalers."""

    def step(self) -> ClusterStep:
        return ClusterStep(self.resize.name, "its resources are as before", "", self.carry_out, "", action=ACTION, about=self.about())

    @property
    def empty(self) -> bool:
        return not self.resize.steps and self.resize.template is None and not self.targets

    def carry_out(self, context: StepContext) -> str:
        self.begin(context)
        proofs = []
        for target in self.targets:
            with contextlib.suppress(Gone):
                write_target(self.session, target, target.meanwhile, context)
        # A run that was killed during its roll-out leaves old pods that it has resized; the undo of the roll-out keeps these.
        if self.resize.steps:
            proofs.append(self.resize.resize(context))
        if self.resize.template is not None:
            proofs.append(self.resize.update_template())
        for target in self.targets:
            write_target(self.session, target, target.after, context)
        return "; ".join([*proofs, *(f"{one.name}: its target is as before" for one in self.targets)])
