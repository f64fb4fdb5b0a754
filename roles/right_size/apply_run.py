"""One workload's change, and its way back: pods in place, autoscalers' targets, a watch, then the template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.engine.api import ApiError, Conflict
from roles.engine.bridge import RemoteError, show
from roles.engine.node import ObservationError
from roles.engine.object_changes import LOOK_AGAIN, ChangedByOthers, Gone, NotDone, Object, RevertFailed, Session, Undone, WriteRefused
from roles.engine.proof import NoApi
from roles.engine.rollout import ClusterStep, Fields
from roles.engine.timeouts import Deadline
from roles.engine.transaction import ChangedObject
from roles.pod_resize import WorkloadResize
from roles.right_size.applying import TargetChange, hpa_path
from roles.right_size.watching import Look, worse

ACTION = "right size"
#: The first part of the path of a recorded field that is of an autoscaler: then its name.
AUTOSCALER = "autoscalers"
# Seconds between two looks during the watch; to retry a write that conflicts with the autoscaler's own writes of its status.
LOOK_EVERY, CONFLICTS = 5.0, 30.0
# Looks in a row that may fail.
_BLIND = 3


@dataclass
class WorkloadChange:
    """`again` plans the resize once more, right before it is carried out, and raises NotDone if that is no longer the change of the plan;
    `soak`: seconds of the watch; `look` looks at the workload, and `keep` keeps what a
    look saw that was worse; `shares`: the share of throttled periods before, by container."""

    resize: WorkloadResize
    targets: Sequence[TargetChange]
    session: Session
    soak: float
    look: Callable[[], Look]
    shares: Mapping[str, float]
    again: Callable[[], WorkloadResize]
    keep: Callable[[Look], None]
    written: list[TargetChange] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def step(self) -> ClusterStep:
        self.about.update(record_of(self.resize, self.targets))
        return ClusterStep(self.resize.name, "its resources fit what it uses", "", self.carry_out, "", action=ACTION, about=self.about)

    def carry_out(self, begin: Callable[[Fields], None]) -> str:
        """Raises Undone if everything is as before, and RevertFailed; NotDone if nothing was written."""
        # The plan may be hours old: the workloads before this one were watched.
        self.resize = self.again()
        self.about.update(record_of(self.resize, self.targets))
        # What happens between the resize and the first look must count too; but not restarts that the resize itself needs.
        before = None if self.resize.restarts or not self.soak else self._first()
        begin([*self.resize.fields(), *(target_field(one) for one in self.targets)])
        try:
            # Of both orders, the one in which the autoscaler may add pods meanwhile, and never removes some.
            self._write(one for one in self.targets if one.falls)
            proof = self.resize.resize()
            self._write(one for one in self.targets if not one.falls)
            problem = self._watched(before)
            lasting = "" if problem else self.resize.update_template()
        except Exception as error:
            raise self._back(str(error) or repr(error), error) from error
        if problem:
            raise self._back(problem)
        changed = "".join(f"; {one.name}: {one.text}" for one in self.targets)
        return f"watched for {self.soak:g} s{changed}; {lasting}; {proof}"

    def _write(self, targets: Iterable[TargetChange]) -> None:
        for target in targets:
            try:
                write_target(self.session, target)
            except (ChangedByOthers, Gone):
                raise
            except Exception:
                self.written.append(target)  # it may have been applied
                raise
            self.written.append(target)

    def _first(self) -> Look:
        """Raises WriteRefused: without it nothing is changed."""
        try:
            return self.look()
        except (ApiError, NoApi, RemoteError, ObservationError) as error:
            raise WriteRefused(f"it cannot be watched, so nothing was changed: {error}") from error

    def _watched(self, before: Look | None) -> str:
        """Why it is worse off than `before`, or than right now; "" if it is not. The last look is after the whole time."""
        if not self.soak:
            return ""
        clock, blind = Deadline(self.soak, as_given=True), 0
        show(f"  {self.resize.name}: watching for {self.soak:g} s")
        while True:
            over = clock.over
            try:
                now = self.look()
                blind, before = 0, before or now
            except (ApiError, NoApi, RemoteError, ObservationError) as error:
                blind += 1
                if blind >= _BLIND:
                    return f"it could not be watched: {error}"
            else:
                if problems := list(worse(before, now, self.shares)):
                    self.keep(now)
                    return "; ".join(problems)
            if over and not blind:
                return ""
            clock.pause(LOOK_EVERY if over else min(LOOK_EVERY, clock.left))

    def _back(self, why: str, error: Exception | None = None) -> Exception:
        """Put everything back, because of `why`, or of `error` that a step raised; the error says how that ended."""
        show(f"  {self.resize.name}: {why}")
        written = bool(self.written)
        # In the opposite order, for the same reason.
        failed = self._targets_back(lambda one: not one.falls)
        untouched = error is not None and not self.resize.done
        ended = error if untouched and error is not None else self.resize.put_back(why)
        failed += self._targets_back(lambda one: one.falls)
        if failed or isinstance(error, RevertFailed):
            return RevertFailed("; ".join([str(ended), *failed]))
        if untouched and written and not isinstance(ended, (Undone, ChangedByOthers)):
            return Undone(f"{ended}; its autoscalers have their old targets")
        return ended

    def _targets_back(self, which: Callable[[TargetChange], bool]) -> list[str]:
        """Why some could not be put back."""
        failed = []
        for target in [one for one in reversed(self.written) if which(one)]:
            self.written.remove(target)
            try:
                write_target(self.session, target.back())
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

    def carry_out(self, begin: Callable[[Fields], None]) -> str:
        begin([*self.resize.fields(), *(target_field(one) for one in self.targets)])
        proofs = []
        # A run that was killed during its roll-out leaves old pods that it has resized; the way back of the roll-out keeps these.
        if self.resize.steps:
            proofs.append(self.resize.resize())
        if self.resize.template is not None:
            proofs.append(self.resize.update_template())
        for target in self.targets:
            write_target(self.session, target)
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
            TargetChange(one.path[1], hpa_path(namespace, one.path[1]), str(uids[one.path[1]]), list(one.after), list(one.before), "")
            for one in changed.fields
            if one.path[0] == AUTOSCALER
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the record of {changed.name} lacks something ({type(error).__name__}: {error}); undo it by hand") from error


def metrics_of(item: Object) -> list[Any]:
    return list((item.get("spec") or {}).get("metrics") or ())


def write_target(session: Session, change: TargetChange) -> None:
    """Write an autoscaler's metrics. Raises Gone, ChangedByOthers, NotDone, ApiError, NoApi."""
    deadline = Deadline(CONFLICTS)
    while True:
        there = session.fetch(change.path)
        if there is None or str(there["metadata"].get("uid")) != change.uid:
            raise Gone(f"the HorizontalPodAutoscaler {change.name} was deleted meanwhile")
        if metrics_of(there) == list(change.after):
            return
        if metrics_of(there) != list(change.before):
            raise ChangedByOthers(f"someone else changed the metrics of the HorizontalPodAutoscaler {change.name} meanwhile")
        version = str(there["metadata"].get("resourceVersion") or "")
        try:
            found = session.written(
                change.path,
                lambda api, version=version: api.patch(change.path, change.patch(version)),  # type: ignore[misc]
                lambda now: metrics_of(now) == list(change.after),
            )
        except Conflict:
            # The autoscaler wrote its status meanwhile.
            if deadline.over:
                raise
            deadline.pause(LOOK_AGAIN)
            continue
        if metrics_of(found) != list(change.after):
            raise NotDone(
                f"the HorizontalPodAutoscaler {change.name} has other metrics than were written: an admission webhook changes them"
            )
        return
