"""One run of resizes: at most so many pods at a time, each seen to its end; the first failure halts; then the template, if it is to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gevent
from gevent.pool import Pool

from roles.api import Api, ApiError, Conflict
from roles.change.record import Events, RunInfo, RunRecord, Unrecorded, now, read_events
from roles.objects import LOOK_AGAIN, Errand, NotDone, Object, Unknown
from roles.patience import patient
from roles.pod_resize import resources as facts
from roles.pod_resize.engine import Engine, Foreign, Gone, RevertFailed, Undone
from roles.pod_resize.plan import Change, Step
from roles.pod_resize.template import Template
from roles.proof import NoApi
from roles.rollout.lock import Locked
from roles.rollout.remote import Fleet, RemoteError, show

Outcome = Literal["done", "reverted", "revert-failed", "foreign", "gone", "failed", "not started"]

# Seconds: a template is put back beside a controller that writes the workload's status all the time.
CONFLICTS = 30.0


@dataclass
class Turn:
    """One pod in its turn, or the template."""

    name: str
    what: str
    step: Step | None = None
    outcome: Outcome = "not started"
    why: str = ""
    proof: str = ""
    seconds: float = 0.0


class ResizeRun(Errand):
    """Carries out a plan once. `template`: what is written to the workload once all pods have it, or None."""

    def __init__(
        self,
        info: RunInfo,
        steps: list[Step],
        connect: Callable[[], Api],
        fleet: Fleet,
        take_over: str,
        *,
        engine: Engine,
        at_once: int,
        template: Template | None,
        about: Mapping[str, Any],
        finish: Callable[[ResizeRun], None],
    ) -> None:
        super().__init__(info, connect, fleet, take_over)
        self.turns = [Turn(f"pod {step.where}", "resize", step) for step in steps]
        self.engine = engine
        self.template = template
        if template is not None:
            self.turns.append(Turn(template.name, "update template"))
        self.seconds = 0.0
        self._at_once = at_once
        self._about = dict(about)
        self._finish = finish

    @property
    def pods(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.step is not None]

    def outcomes(self) -> dict[str, str]:
        return {turn.name: turn.outcome for turn in self.turns}

    def close(self) -> None:
        self._finish(self)

    def leaving(self) -> str:
        return f"a resize that was asked for goes on in the cluster; to take it back: {self.undo}"

    @property
    def undo(self) -> str:
        return f"deploys/resize.py --data undo={self.info.id}"

    def work(self) -> None:
        begun = time.monotonic()
        self.note({"event": "about", **self._about})
        pool = Pool(self._at_once)
        for number, turn in enumerate(self.pods, 1):
            pool.wait_available()
            if self.halted:
                break
            pool.spawn(self._guarded, number, turn)
            # It begins now, and what is told stays in order.
            gevent.sleep(0)
        pool.join()
        if not self.halted and self.template is not None:
            self._carry_out(self.turns[-1], lambda: self._update(self.template))
        self.seconds = time.monotonic() - begun

    def _guarded(self, number: int, turn: Turn) -> None:
        step = turn.step
        assert step is not None
        count = len(self.pods)
        show(f"\n[{number}/{count}] {step.where} on {step.node}: {step.told}")

        def resized() -> str:
            self.note(
                {
                    "event": "plan", "run": self.info.id, "order": number, "namespace": step.namespace, "pod": step.name, "uid": step.uid,
                    "node": step.node,
                    "changes": {
                        name: {"before": change.before, "after": change.after, "restarts": change.restarts}
                        for name, change in step.changes.items()
                    },
                }
            )  # fmt: skip
            return str(self.engine.resize(step))

        self._carry_out(turn, resized)
        done = sum(one.outcome == "done" for one in self.pods)
        if count > 1:
            show(f"  {done} of {count} pods are done")

    def _carry_out(self, turn: Turn, do: Callable[[], str]) -> None:
        begun = time.monotonic()
        try:
            self._lock.ensure()
            turn.outcome = "failed"
            turn.proof = do()
            turn.outcome = "done"
        except Gone as error:
            turn.outcome, turn.why = "gone", str(error)
        except Undone as error:
            turn.outcome, turn.why = "reverted", str(error)
        except Foreign as error:
            turn.outcome, turn.why = "foreign", str(error)
        except RevertFailed as error:
            turn.outcome, turn.why = "revert-failed", str(error)
        except (NotDone, ApiError, NoApi, Locked, RemoteError, Unrecorded) as error:
            turn.why = str(error)
        except Exception as error:
            turn.why = f"an error of daytwo's own: {error!r}"
        turn.seconds = time.monotonic() - begun
        show(f"  {turn.name}: {turn.outcome}: {turn.proof or turn.why} ({turn.seconds:.0f} s)")
        if turn.outcome != "done":
            self.halted = self.halted or f"{turn.name}: {turn.outcome}: {turn.why}"
        self.note_done(
            {
                "event": "end", "object": turn.name, "uid": turn.step.uid if turn.step else "", "at": now(), "outcome": turn.outcome,
                "why": turn.why, "proof": turn.proof, "seconds": round(turn.seconds, 1),
            }
        )  # fmt: skip

    # ---- the template

    def _update(self, template: Template | None) -> str:
        assert template is not None
        self.note({"event": "template", "path": template.path, "name": template.name, "uid": template.uid,
                   "before": template.before, "after": template.after})  # fmt: skip
        try:
            self._write(template)
        except Unknown as error:
            why = str(error)
        else:
            try:
                return self._has(template, self._rolled(template))
            except Exception as error:
                why = str(error) or repr(error)
        show(f"  {why}")
        show("  putting the template back")
        try:
            left = self._put_back(template)
        except Foreign as error:
            raise Foreign(f"{why}; {error}") from error
        except Exception as error:
            where = f"-n {template.namespace} {template.kind.lower()}/{template.name.rpartition('/')[2]}"
            raise RevertFailed(
                f"{why}; and the template was not seen to be put back: {str(error) or repr(error)}; STATE UNKNOWN, look: kubectl get "
                f"{where} -o yaml; BY HAND, where it has what this run set: kubectl rollout undo {where}"
            ) from error
        told = f"; {left}" if left else ""
        raise Undone(f"{why}; put back and rolled out{told}; pods that were resized in place keep what they have")

    def _write(self, template: Template, version: str = "") -> None:
        """Raises as Access.written, and NotDone."""

        def done(found: Object) -> bool:
            return template.is_of(found) and not template.changed(found)

        found = self.api.written(template.path, lambda api: api.patch(template.path, template.patch(version)), done)
        if why := template.changed(found):
            raise NotDone(why)

    def _put_back(self, template: Template) -> str:
        """What a roll-out to what was before left behind. Only what this run wrote is written over, and that very version of it. Raises
        Foreign, NotDone, ApiError, NoApi."""
        back = template.back()
        until = time.monotonic() + patient(CONFLICTS)
        while True:
            there = self.fetch(template.path)
            if there is None or not template.is_of(there):
                raise Foreign("it was deleted meanwhile, so nothing is put back")
            if not back.changed(there):
                break
            if why := template.changed(there):
                raise Foreign(f"{why}: it is left as they have it")
            try:
                self._write(back, str(there["metadata"].get("resourceVersion") or ""))
                break
            except Conflict:
                # Its controller writes its status meanwhile; somebody else may have written its template.
                if time.monotonic() > until:
                    raise
            gevent.sleep(LOOK_AGAIN)
        return self._rolled(back)

    def _rolled(self, template: Template) -> str:
        return self.rolled_out(
            template.kind, template.name, template.path, template.uid, template.timeout, template.changed, template.is_new
        )  # fmt: skip

    def _has(self, template: Template, left: str) -> str:
        pods = [
            pod
            for pod in self.pods_of(template.kind, template.namespace, template.uid)
            if not pod["metadata"].get("deletionTimestamp") and not facts.is_over(pod)
        ]
        wrong = [facts.where(pod) for pod in pods if not template.is_new(pod)]
        if wrong:
            raise NotDone(f"it is rolled out, and {', '.join(wrong)} have other resources than it says: an admission webhook changes them")
        return f"rolled out; its {len(pods)} pods have it, read back{'; ' if left else ''}{left}"


# ---- records of earlier runs


@dataclass(frozen=True)
class Recorded:
    """A run as its record has it. `about` is what `work` noted first; `template` as it was before and after, or None; `outcomes` how its
    pods ended, by UID, as far as that was written; `cut`: its last line was not written whole."""

    steps: tuple[Step, ...]
    about: Mapping[str, Any]
    template: Mapping[str, Any] | None
    outcomes: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


def recorded(run: str, record: Events) -> Recorded:
    """Raises ValueError where the record is none of resizes, or a line of it lacks something."""
    steps: list[Step] = []
    about: Mapping[str, Any] = {}
    template: Mapping[str, Any] | None = None
    outcomes: dict[str, str] = {}
    try:
        for event in record.events:
            if event.get("event") == "about":
                about = event
            elif event.get("event") == "plan" and "changes" in event:
                steps.append(_step(event))
            elif event.get("event") == "template":
                template = event
            elif event.get("event") == "end" and event.get("uid"):
                outcomes[str(event["uid"])] = str(event["outcome"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the record of run {run} lacks something ({type(error).__name__}: {error}); undo it by hand") from error
    if not about or "namespace" not in about:
        raise ValueError(f"run {run} resized nothing; deploys/rollback.py undoes runs on nodes")
    return Recorded(tuple(steps), about, template, outcomes, record.cut)


def _step(event: Mapping[str, Any]) -> Step:
    changes = {name: Change(change["before"], change["after"], bool(change["restarts"])) for name, change in event["changes"].items()}
    return Step(event["namespace"], event["pod"], event["uid"], event["node"], changes)


def record_path(run: str) -> Path:
    return RunRecord(RunInfo(run, "", "", "", "", "")).path


def read_record(run: str) -> Recorded:
    """From the operator's own records. Raises ValueError, OSError, Refusal."""
    if not run or "/" in run or run.startswith("."):
        raise ValueError(f"{run!r} is no run; one looks like r20260131-235900-1a2b")
    return recorded(run, read_events(record_path(run)))
