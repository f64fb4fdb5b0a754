"""One run: the changes of all nodes, in order and at the chosen pace, each proven or reverted; the first failure halts it."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from roles.engine.bridge import Answer, ConnectionLost, Event, Feed, Fleet, Remote, RemoteError, current_task, hosts_by_name, show, sleep
from roles.engine.proof import Proof
from roles.engine.rollout import CONFIRM_SECONDS, RECONNECT_SECONDS, ClusterStep, Fields, LockedRun, Outcome, Pace, Stage, stages
from roles.engine.timeouts import Deadline, patient
from roles.engine.transaction import (
    Change,
    Effective,
    RunInfo,
    Status,
    change_id,
    cluster_record,
    end_record,
    plan_record,
    report,
    script,
    stage_script,
)

# The steps of a revert, and the time limit of each (see change.sh).
REVERT_SECONDS = 4 * 130 + 60
# The time limit to ask a node again how a change ended, when its time is nearly over.
LAST_ANSWER_SECONDS = 30


@dataclass
class NodeStep:
    """One change of a run. `ready` is called right before it (a text: why it must not begin), `watch` gets each line of its log, `prove`
    proves it once it is applied. For the record: `effective`, the effective values before and after; `undoes`, the change it undoes."""

    change: Change
    ready: Callable[[], str | None]
    prove: Callable[[Status], Proof]
    watch: Callable[[str], None] = lambda line: None
    effective: Effective = field(default_factory=Effective)
    undoes: str = ""
    outcome: Outcome = "not started"
    why: str = ""
    how: str = ""
    seconds: float = 0.0
    status: Status | None = field(default=None, repr=False)
    order: int = 0
    touched: bool = False


def arrange(steps: Sequence[NodeStep], control_plane: Collection[str], pace: Pace, on: bool) -> list[Stage[NodeStep]]:
    """The stages of a run from its steps in the desired order; `control_plane` are hosts. The first worker, the canary, soaks."""
    components = [step for step in steps if step.change.kind != "kubelet"]
    kubelets = [step for step in steps if step.change.kind == "kubelet"]
    workers = [step for step in kubelets if step.change.node not in control_plane]
    if workers:
        workers[0].change = replace(workers[0].change, soak=pace.soak)
    return stages(components, workers, [step for step in kubelets if step not in workers], pace, on)


class NodeRun(LockedRun):
    """Runs the steps of all stages in its own greenlets; every host waits for its own result.

    `first` and `last` are changes of the cluster itself: before any node is touched, and after every node is confirmed. The first
    failure in `first` halts the run; the steps of `last` are independent of each other. The lock host keeps their record.
    """

    at_once: ClassVar = " (each node then reverts what is not confirmed)"

    def __init__(
        self,
        info: RunInfo,
        stages: Sequence[Stage[NodeStep]],
        fleet: Fleet,
        take_over: str,
        finish: Callable[[NodeRun], None],
        *,
        first: Sequence[ClusterStep] = (),
        last: Sequence[ClusterStep] = (),
    ) -> None:
        super().__init__(info, fleet, take_over, lambda: finish(self))
        self.first, self.last = list(first), list(last)
        self.stages = list(stages)
        self.steps = [step for stage in stages for step in stage.steps]
        for number, step in enumerate(self.steps, 1):
            step.order = number
        self._remotes = hosts_by_name(fleet.targets)
        # The host that reports the result of the cluster's own steps: the last one.
        targets = [remote.name for remote in fleet.targets]
        self._speaker = self.steps[-1].change.node if self.steps else self._keeper.name if self._keeper.name in targets else targets[0]
        self._done = {step.change.node: Event() for step in self.steps}
        self.failed: list[NodeStep] = []

    @property
    def cluster_steps(self) -> list[ClusterStep]:
        return [*self.first, *self.last]

    def involves(self, host: str) -> bool:
        return host in self._done or (host == self._speaker and bool(self.cluster_steps))

    def result(self, host: str) -> bool:
        self.start()
        if host in self._done:
            self._done[host].wait()
        own = [step.outcome for step in self.steps if step.change.node == host]
        if host == self._speaker or self.halted:
            self._ended.wait()
        if host == self._speaker:
            own += [step.outcome for step in self.cluster_steps]
        return all(outcome == "confirmed" for outcome in own) and not self.interrupted

    def _begin(self) -> Mapping[str, Any]:
        return {"changes": len(self.steps)}

    def _work(self) -> None:
        for step in self.first:
            self._write(step, 0)
            if self.halted:
                break
        self._each(self.stages, self._carry_out)
        for number, step in enumerate(self.last, len(self.steps) + 1):
            # Only if all nodes have it: the ConfigMaps must not be ahead of the nodes.
            if not self.interrupted and all(other.outcome == "confirmed" for other in self.steps):
                self._write(step, number)

    def _outcomes(self) -> dict[str, str]:
        of_nodes: dict[str, str] = {step.change.id: step.outcome for step in self.steps}
        return of_nodes | {self._cluster_id(step): step.outcome for step in self.cluster_steps}

    def _leaving(self) -> str:
        return "each node reverts what is not confirmed at its deadline"

    def _over(self) -> None:
        super()._over()
        for event in self._done.values():
            event.set()

    def _cluster_id(self, step: ClusterStep) -> str:
        return change_id(self.info.id, "cluster", step.name)

    def _planned(self, step: ClusterStep, order: int, fields: Fields) -> dict[str, Any]:
        name = self._cluster_id(step)
        return cluster_record(self.info, order, name, self._keeper.name, step.name, step.summary, fields, step.undoes)

    def _end(self, step: ClusterStep) -> dict[str, Any]:
        return end_record(self._cluster_id(step), step.outcome, step.why, step.how, step.seconds)

    def _keep_step(self, step: ClusterStep, planned: Mapping[str, Any], ended: Mapping[str, Any] | None) -> None:
        state = "confirmed" if step.outcome == "confirmed" else "staged"
        self._keep(self._cluster_id(step), state, [planned, ended] if ended else [planned])

    def _carry_out(self, step: NodeStep) -> None:
        started = time.monotonic()
        show(f"\n[{step.order}/{len(self.steps)}] {step.change.node}: {step.change.component}: {step.change.summary}")
        own = current_task()
        try:
            try:
                self._lock.ensure()
                why = step.ready()
            finally:
                self._waiting.discard(own)
            if why:
                step.why = why
            elif not self.interrupted:
                planned = plan_record(self.info, step.order, step.change, step.effective, step.undoes)
                self._note(planned)
                self._transact(step, planned)
        except Exception as error:
            step.outcome = "unknown" if step.touched else step.outcome
            step.why = str(error) or repr(error)
        step.seconds = time.monotonic() - started
        self._say(step, f"{step.outcome}{': ' + step.why if step.why else ''} ({step.seconds:.0f} s)")
        if step.outcome != "confirmed":
            self.failed.append(step)
            self.halted = self.halted or f"{step.change.node}, {step.change.component}: {step.outcome}: {step.why}"
        if step.touched:
            self._note_done(self._end_of(step))
        if all(other.outcome == "confirmed" for other in self.steps if other.change.node == step.change.node):
            self._done[step.change.node].set()

    def _transact(self, step: NodeStep, planned: Mapping[str, Any]) -> None:
        """Write the change to the node, apply it, prove it, and let the node confirm or revert it."""
        change = step.change
        remote = self._remotes[change.node]
        started = time.monotonic()
        feed: Feed = Feed()
        proof: Proof | None = None

        def on_line(line: str) -> None:
            nonlocal proof
            text = report.log_text(line)
            if text is not None:
                self._say(step, text)
                step.watch(text)
                if text.startswith("failed: "):
                    self._failing = True
            elif line == "verdict?":
                step.status = report.parse(lines)
                proof = self._prove(step, step.status)
                feed.put(_verdict(step, proof, time.monotonic() - started))
                feed.put(None)
            else:
                lines.append(line)

        lines: list[str] = []
        step.touched = True
        budget = change.confirm_timeout + patient(REVERT_SECONDS)
        staged = stage_script(change, replace(self.info.holder, fence=self._lock.generation), planned)
        status = self._ask(remote, "sh -s", budget, on_line, again=f'sh "{script(change.id)}" watch', stdin=staged, feed=feed)
        if status.state == "applied":
            # The connection was lost before the node read the verdict.
            step.status = status
            proof = proof or self._prove(step, status)
            verb = (
                f"detached revert {_quoted(_refusal(proof))}"
                if proof.problems
                else f"confirm {_encoded(step, proof, time.monotonic() - started)}"
            )
            status = self._ask(remote, f'sh "{script(change.id)}" {verb}', budget, on_line, again=f'sh "{script(change.id)}" status')
        if status.state in ("applied", "applying", "reverting", "lost"):
            # Too late to be confirmed, or not yet reverted: the node ends it. If its directory was deleted, start the revert.
            again = f'sh "{script(change.id)}" watch end'
            first = f'sh "{script(change.id)}" detached revert "its directory was deleted"' if status.state == "lost" else again
            status = self._ask(remote, first, budget, lambda line: None, again=again)
        step.status = status
        step.outcome = _outcome(status)
        if step.outcome == "confirmed":
            return
        # If there is a proof, the new process was healthy: then the proof has the cause, not a line of its output.
        telling = "" if proof else status.error_line
        if status.state == "staged":
            step.why = "the node ended it before it touched anything; nothing was changed"
            return
        step.why = status.reason + (f" [{telling}]" if telling and telling not in status.reason else "")
        if step.outcome not in ("refused", "unknown"):
            step.seconds = time.monotonic() - started
            encoded = base64.b64encode(json.dumps(self._end_of(step)).encode()).decode()
            with contextlib.suppress(RemoteError):
                remote.run(f'sh "{script(change.id)}" record {encoded}', timeout=patient(CONFIRM_SECONDS))

    def _prove(self, step: NodeStep, status: Status) -> Proof:
        self._say(step, "proving")
        proof = step.prove(status)
        if step.change.soak and not proof.problems:
            self._say(step, f"proven; soaking for {step.change.soak} s")
            soak = Deadline(step.change.soak, as_given=True)
            while not soak.over and not self.interrupted:
                sleep(min(1.0, soak.left))
            proof = Proof(proof.how, ("the soak was cut short",)) if self.interrupted else step.prove(status)
            proof = Proof(f"{proof.how}; soaked {step.change.soak} s", proof.problems)
        step.how = proof.how
        if proof.problems:
            self._say(step, f"{_refusal(proof)}; reverting")
        return proof

    def _ask(
        self,
        remote: Remote,
        command: str,
        seconds: float,
        on_line: Callable[[str], None],
        *,
        again: str,
        stdin: str | None = None,
        feed: Feed | None = None,
    ) -> Status:
        """Run a verb of change.sh for at most `seconds` (already stretched) and read its status; after a lost connection, reconnect and ask
        again."""
        whole = Deadline(seconds, as_given=True)
        answer: Answer | None = None
        shown = skip = 0

        def only_new(line: str) -> None:
            # After a lost connection the log is printed from its beginning.
            nonlocal shown, skip
            if report.log_text(line) is not None and skip:
                skip -= 1
                return
            shown += report.log_text(line) is not None
            on_line(line)

        try:
            answer = remote.run(command, stdin=stdin, timeout=seconds, on_line=only_new, feed=feed)
        except ConnectionLost as lost:
            show(f"{lost}; reconnecting, the node continues by itself")
            connected = Deadline(min(whole.left, patient(RECONNECT_SECONDS)), as_given=True)
            while answer is None:
                try:
                    remote.reconnect()
                    skip = shown
                    answer = remote.run(again, timeout=max(patient(LAST_ANSWER_SECONDS), whole.left), on_line=only_new)
                except ConnectionLost:
                    if connected.over:
                        raise
                    sleep(2)
        status = report.parse(answer.stdout)
        if status.state == "unknown":
            said = " ".join(answer.stderr[-3:]) or f"exit status {answer.code}"
            raise RemoteError(f"{remote.name}: change.sh printed no status: {said}")
        return status

    def _end_of(self, step: NodeStep) -> dict[str, object]:
        return end_record(step.change.id, step.outcome, step.why, step.how, step.seconds)

    def _say(self, step: NodeStep, text: str) -> None:
        show(f"  {step.change.node} {step.change.component}: {text}")


def _refusal(proof: Proof) -> str:
    return "not proven: " + "; ".join(proof.problems)


def _encoded(step: NodeStep, proof: Proof, seconds: float) -> str:
    record = end_record(step.change.id, "confirmed", "", proof.how, seconds)
    return base64.b64encode(json.dumps(record).encode()).decode()


def _verdict(step: NodeStep, proof: Proof, seconds: float) -> str:
    if proof.problems:
        return f"revert {' '.join(_refusal(proof).split())}\n"
    return f"confirm {_encoded(step, proof, seconds)}\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _outcome(status: Status) -> Outcome:
    match status.state:
        case "confirmed" | "reverted" | "revert-failed" | "refused":
            return status.state
        case "staged":
            return "refused"
        case _:
            return "unknown"
