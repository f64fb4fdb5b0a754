"""One run on API objects: each change in turn, proven or reverted by itself; the first failure halts the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from roles.engine import table
from roles.engine.bridge import Fleet
from roles.engine.bridge.tasks import Lock, current_task
from roles.engine.context import ClusterStep, Fields, Outcome, Stage
from roles.engine.remote import RemoteError
from roles.engine.runs import LockedRun, end_unproven
from roles.engine.transaction import ObjectsRecord, RunInfo, change_id, new_run_id, object_record, this_run
from roles.engine.transaction.record import OBJECTS_KIND, end_record
from roles.engine.voice import show, show_lines

#: What a run is asked for: the data of the cluster or by host, or the record of the run that it undoes; or the run itself.
Asked = BaseModel | Mapping[str, object] | ObjectsRecord | RunInfo

#: Outcomes of a started change that leave the object as before, or deleted by someone else.
_AS_BEFORE = frozenset({"reverted", "gone", "skipped"})


@dataclass(frozen=True)
class Consents:
    """What the operator allows when undoing a run (roles/history/model.py); each capability reads those that it knows.
    `kubeconfig`: a file on the operator's machine whose identity is used."""

    force: bool = False
    allow_evictions: bool = False
    allow_restarts: bool = False
    kubeconfig: str | None = None


def begun(asked: Asked) -> tuple[RunInfo, str]:
    """The run that begins now, and the change that it undoes, or ""."""
    if isinstance(asked, RunInfo):
        return asked, ""
    if isinstance(asked, ObjectsRecord):
        return this_run(new_run_id(), {"undo": asked.run}), asked.change
    return this_run(new_run_id(), {"cluster": asked.model_dump()} if isinstance(asked, BaseModel) else asked), ""


class ObjectRun(LockedRun):
    """Runs the steps of all stages; one host reports the result for the cluster.

    The undo uses `capability` and `about` (roles/history/objects.py); `undoes` is the change that this run undoes, or "".
    `leaving` says what a second Ctrl-C leaves behind; `warnings` are (object, text) about changes that are done but left something behind;
    steps append to it. `consents`: what the operator has given to continue without a proof, such as allow_problems=true.
    """

    success: ClassVar[Outcome] = "done"
    without: ClassVar[tuple[str, str, str]] = ("NOT READ", "This run changes objects of the API alone.", "NOT ALL READ")

    def __init__(
        self,
        asked: Asked,
        stages: Sequence[Stage[ClusterStep]],
        fleet: Fleet,
        take_over: str,
        finish: Callable[[ObjectRun], None],
        *,
        capability: str,
        leaving: Callable[[], str],
        about: Mapping[str, Any] | None = None,
        warnings: list[tuple[str, str]] | None = None,
        consents: Sequence[str] = (),
    ) -> None:
        info, self.undoes = begun(asked)
        super().__init__(info, fleet, take_over, lambda: finish(self))
        self.stages = [stage for stage in stages if stage.steps]
        self.steps = [step for stage in self.stages for step in stage.steps]
        self.warnings = warnings if warnings is not None else []
        self.consents = consents
        self.seconds = 0.0
        self._capability, self._about = capability, dict(about or {})
        self._leaves = leaving
        self._driver = next((remote for remote in fleet.targets if remote.is_control_plane), fleet.targets[0]).name
        self._change = change_id(info.id, "cluster", OBJECTS_KIND)
        self._places = {
            step.name: (order, stage) for order, (stage, step) in enumerate(((one, step) for one in self.stages for step in one.steps), 1)
        }
        # Steps may run at once, and all write the one record of the run.
        self._keeping = Lock()
        self._kept = False
        # Ends of steps, sent to the node with the start of the next step or at the end of the run: this halves the number of commands.
        self._unsent: list[Mapping[str, Any]] = []
        self._warned = 0

    def next_commands(self) -> list[str]:
        return [] if self._about.get(object_record.CANNOT_UNDO) else super().next_commands()

    def involves(self, host: str) -> bool:
        return bool(self.steps) and host == self._driver

    def result(self, host: str) -> bool:
        self.start()
        self._ended.wait()
        return not self.halted and not self.interrupted and all(outcome == self.success for outcome in self._outcomes().values())

    def _begin(self) -> Mapping[str, Any]:
        return {"changes": len(self.steps), **object_record.kind_of_run(self._capability, self._about)}

    def _work(self) -> None:
        begun = time.monotonic()
        self._each(self.stages, self._carry_out)
        if self.halted:
            self._give_back()
        self.seconds = time.monotonic() - begun
        if self._kept:
            try:
                self._send(self._state(over=True), {"event": "end-of-run", "halted": self.halted})
            except RemoteError as error:
                show(f"WARNING: the end of this run could not be recorded: {error}")

    def _give_back(self) -> None:
        """What a halted run gives back of what its steps have done; by default nothing."""

    def _outcomes(self) -> dict[str, str]:
        return {step.name: step.outcome for step in self.steps}

    def _proofs(self) -> list[str]:
        return [step.how for step in self.steps if step.outcome == self.success]

    def _leaving(self) -> str:
        return self._leaves()

    def _carry_out(self, step: ClusterStep) -> None:
        # A started step finishes: Ctrl-C ends only steps that have not started.
        self._waiting.discard(current_task())
        order, stage = self._places[step.name]
        self._write(step, order, f"[{stage.steps.index(step) + 1}/{len(stage.steps)}] ")
        if stage.at_once > 1:
            show(f"  {sum(one.outcome == self.success for one in stage.steps)} of {len(stage.steps)} are done")

    # ---- the record

    def _planned(self, step: ClusterStep, order: int, fields: Fields) -> dict[str, Any]:
        return object_record.planned(self.info.id, order, step.name, step.action, step.summary, fields, step.about)

    def _end(self, step: ClusterStep) -> dict[str, Any]:
        for name, text in self.warnings[self._warned :]:
            self._note_done({"event": "warning", "object": name, "text": text})
        self._warned = len(self.warnings)
        return end_record(step.name, step.outcome, step.why, step.how, step.seconds, "object")

    def _keep_step(self, step: ClusterStep, planned: Mapping[str, Any], ended: Mapping[str, Any] | None) -> None:
        if ended is not None:
            self._unsent.append(ended)
            return
        with self._keeping:
            if self._kept:
                self._send(self._state(over=False), planned)
                return
            names = ", ".join(f"{one.action} {one.name}" for one in self.steps)
            first = object_record.first_line(
                self.info, self._change, self._keeper.name, self._capability, self._about, names, self.undoes
            )  # fmt: skip
            self._keep(self._change, "staged", [first, planned])
            self._kept = True

    def _send(self, state: str, event: Mapping[str, Any]) -> None:
        """Raises RemoteError."""
        ends = list(self._unsent)
        self._keep(self._change, state, [*ends, event], append=True)
        del self._unsent[: len(ends)]

    def _state(self, *, over: bool) -> str:
        """A state of roles/engine/transaction. An undo is confirmed only when all of it is done: until then the undone run still counts."""
        begun = {step.outcome for step in self.steps} - {"not started"}
        if self.undoes:
            return "confirmed" if over and all(step.outcome == self.success for step in self.steps) else "staged"
        if self.success in begun:
            return "confirmed"
        return "reverted" if over and begun <= _AS_BEFORE else "staged"

    # ---- the report

    def show_objects(self, rest: Sequence[Sequence[str]], rows: Sequence[Sequence[str]] | None = None) -> None:
        """The outcome of each object; `rest` are the rows of objects that the run does not change; `rows` replaces those of the steps."""
        if rows is None:
            rows = [
                [one.name, one.action, one.outcome, f"{one.seconds:.0f}" if one.seconds else "-", table.short(one.how or one.why) or "-"]
                for one in self.steps
            ]
        show_lines("\n" + table.render(["object", "action", "outcome", "s", "proof"], [*rows, *rest]))
        end_unproven((step.how for step in self.steps), self.consents)

    def show_end(self, rest: Sequence[Sequence[str]], more: Sequence[str] = (), rows: Sequence[Sequence[str]] | None = None) -> None:
        """The table, then `more`, warnings, and why the run halted."""
        self.show_objects(rest, rows)
        for text in (*more, *(f"WARNING: {text}" for _, text in self.warnings)):
            show(f"\n{text}")
        show(f"\nRecord of the run: {self.record.path}")
        done = [step.name for step in self.steps if step.outcome == self.success]
        if not self.halted:
            return
        show(f"\nHALTED: {self.halted}")
        if untouched := [step.name for step in self.steps if step.outcome == "not started"]:
            show(f"Not touched: {', '.join(untouched)}.")
        if done:
            show(f"Done and proven: {', '.join(done)}.")
