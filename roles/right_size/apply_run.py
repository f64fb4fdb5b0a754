"""One workload's change, and its way back: pods in place, autoscalers' targets, a watch, then the template."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.engine.api import Api, ApiFailure
from roles.engine.bridge import RemoteError, show
from roles.engine.context import StepContext
from roles.engine.kube import Object, uid, version
from roles.engine.kube.fields import spec_of, with_meta
from roles.engine.node import ObservationError
from roles.engine.objects import ChangedByOthers, Gone, NotDone, RevertFailed, Session, Undone, WriteRefused
from roles.engine.rollout import ClusterStep
from roles.engine.timeouts import Deadline
from roles.engine.transaction import ChangedField, ChangedObject
from roles.pod_resize import WorkloadResize
from roles.right_size.applying import SCALER, TargetChange
from roles.right_size.watching import SoakLook, UseBefore, worse

ACTION = "right size"
#: The first part of the path of a recorded field that is of an autoscaler: then its name.
AUTOSCALER = "autoscalers"
# Seconds between two looks during the watch.
LOOK_EVERY = 5.0
# Looks in a row that may fail.
_BLIND = 3


@dataclass
class WorkloadChange:
    """`again` plans the resize once more, right before it is carried out, and raises NotDone if that is no longer the change of the plan;
    `seconds`: how long it watches; `look` looks at the workload, and `keep` keeps what a
    look saw that was worse; `known`: by container."""

    resize: WorkloadResize
    targets: Sequence[TargetChange]
    session: Session
    seconds: float
    look: Callable[[], SoakLook]
    known: Mapping[str, UseBefore]
    again: Callable[[], WorkloadResize]
    keep: Callable[[SoakLook], None]
    written: list[TargetChange] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def step(self) -> ClusterStep:
        self.about.update(record_of(self.resize, self.targets))
        return ClusterStep(self.resize.name, "its resources fit what it uses", "", self.carry_out, "", action=ACTION, about=self.about)

    def carry_out(self, context: StepContext) -> str:
        """Raises Undone if everything is as before, and RevertFailed; NotDone if nothing was written."""
        # The plan may be hours old: the workloads before this one were watched.
        self.resize = self.again()
        self.about.update(record_of(self.resize, self.targets))
        # What happens between the resize and the first look must count too; but not restarts that the resize itself needs.
        before = None if self.resize.restarts or not self.seconds else self._first()
        context.begin([*self.resize.fields(), *(target_field(one) for one in self.targets)])
        try:
            self._write(lambda one: one.meanwhile)
            proof = self.resize.resize()
            self._write(lambda one: one.after)
            problem = self._watched(before)
            lasting = "" if problem else self.resize.update_template(self._meanwhile)
        except Exception as error:
            raise self._back(str(error) or repr(error), error) from error
        if problem:
            raise self._back(problem)
        changed = "".join(f"; {one.name}: {one.text}" for one in self.targets)
        return f"watched for {self.seconds:g} s{changed}; {lasting}; {proof}"

    def _write(self, metrics: Callable[[TargetChange], Sequence[Any]]) -> None:
        for target in self.targets:
            if target not in self.written and list(metrics(target)) == list(target.before):
                continue
            try:
                write_target(self.session, target, metrics(target))
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

    def _back(self, why: str, error: Exception | None = None) -> Exception:
        """Put everything back, because of `why`, or of `error` that a step raised; the error says how that ended."""
        show(f"  {self.resize.name}: {why}")
        untouched = error is not None and not self.resize.done
        if not untouched:
            self._meanwhile()
        written = list(reversed(self.written))
        self.written.clear()
        ended = error if untouched and error is not None else self.resize.put_back(why)
        failed = self._targets_back(written, lambda one: one.before)
        if failed or isinstance(error, RevertFailed):
            return RevertFailed("; ".join([str(ended), *failed]))
        if untouched and written and not isinstance(ended, (Undone, ChangedByOthers)):
            return Undone(f"{ended}; its autoscalers have their old targets")
        return ended

    def _meanwhile(self) -> None:
        """On the way back pods of both kinds are there, too. What fails here is tried again when all pods are back, and counts then."""
        self._targets_back(reversed(self.written), lambda one: one.meanwhile)

    def _targets_back(self, written: Iterable[TargetChange], metrics: Callable[[TargetChange], Sequence[Any]]) -> list[str]:
        """Why some could not be put back."""
        failed = []
        for target in written:
            try:
                write_target(self.session, target, metrics(target))
            except Gone:
                continue
            except Exception as error:
                failed.append(f"HorizontalPodAutoscaler {target.name}: {str(error) or repr(error)}")
        return failed


@dataclass
class WayBack:
    """A recorded workload, as it was: the template, or else its pods; and the targets of its autoscalers."""

    resize: WorkloadResize
    targets: Sequence[TargetChange]
    session: Session

    def step(self) -> ClusterStep:
        about = record_of(self.resize, self.targets)
        return ClusterStep(self.resize.name, "its resources are as before", "", self.carry_out, "", action=ACTION, about=about)

    @property
    def empty(self) -> bool:
        return not self.resize.steps and self.resize.template is None and not self.targets

    def carry_out(self, context: StepContext) -> str:
        context.begin([*self.resize.fields(), *(target_field(one) for one in self.targets)])
        proofs = []
        for target in self.targets:
            with contextlib.suppress(Gone):
                write_target(self.session, target, target.meanwhile)
        # A run that was killed during its roll-out leaves old pods that it has resized; the way back of the roll-out keeps these.
        if self.resize.steps:
            proofs.append(self.resize.resize())
        if self.resize.template is not None:
            proofs.append(self.resize.update_template())
        for target in self.targets:
            write_target(self.session, target, target.after)
        return "; ".join([*proofs, *(f"{one.name}: its target is as before" for one in self.targets)])


def record_of(resize: WorkloadResize, targets: Iterable[TargetChange]) -> dict[str, Any]:
    """What the way back needs, for the record."""
    return {**resize.about(), AUTOSCALER: {one.name: one.uid for one in targets}}


def target_field(change: TargetChange) -> dict[str, Any]:
    return {"path": [AUTOSCALER, change.name, "metrics"], "before": list(change.before), "after": list(change.after)}


def recorded_targets(changed: ChangedObject) -> list[TargetChange]:
    """The targets of a recorded workload, as their way back. Raises ValueError if the record is incomplete."""
    try:
        uids: Mapping[str, str] = changed.about.get(AUTOSCALER) or {}
        namespace = str(changed.about["namespace"])
        return [
            TargetChange(one.path[1], SCALER.path_of(namespace, one.path[1]), str(uids[one.path[1]]), list(one.after), list(one.before), "")
            for one in changed.fields
            if one.path[0] == AUTOSCALER
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the record of {changed.name} lacks something ({type(error).__name__}: {error}); undo it by hand") from error


def metrics_of(item: Object) -> list[Any]:
    return list(spec_of(item).get("metrics") or ())


def write_target(session: Session, change: TargetChange, metrics: Sequence[Any]) -> None:
    """Write an autoscaler's metrics: those before the change, meanwhile, or after it. Raises Gone, ChangedByOthers, NotDone, ApiError,
    NoApi."""
    wanted = list(metrics)

    def write() -> Object:
        there = session.fetch(change.path)
        if there is None or uid(there) != change.uid:
            raise Gone(f"the HorizontalPodAutoscaler {change.name} was deleted meanwhile")
        if metrics_of(there) == wanted:
            return there
        if not change.wrote(metrics_of(there)):
            raise ChangedByOthers(f"someone else changed the metrics of the HorizontalPodAutoscaler {change.name} meanwhile")
        return session.written(change.path, sending(change, there, wanted), lambda now: metrics_of(now) == wanted)

    if metrics_of(session.unconflicted(write)) != wanted:
        raise NotDone(f"the HorizontalPodAutoscaler {change.name} has other metrics than were written: an admission webhook changes them")


def sending(change: TargetChange, there: Object, wanted: list[Any]) -> Callable[[Api], dict[str, Any]]:
    """The write of the version that was read. An autoscaler of daytwo's is applied, so that it stays one that daytwo applies; of others,
    only this field is patched."""
    if not SCALER.is_ours(there):
        return lambda api: api.patch(change.path, change.patch(wanted, version(there)))
    manifest, _ = SCALER.restoring(there, [ChangedField(("spec", "metrics"), wanted, None)])
    made = with_meta(manifest, resourceVersion=version(there))
    return lambda api: api.apply(change.path, made, force=True)
