"""One run: the changes of all nodes, in order and at the chosen pace, each proven or reverted; the first failure halts it."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from roles.engine import folding
from roles.engine.bridge import Fleet, doing, hosts_by_name
from roles.engine.bridge.tasks import Event, Task, current_task, sleep
from roles.engine.context import ClusterStep, Fields, Stage
from roles.engine.folding import counted
from roles.engine.node_changes.asking import ask_change
from roles.engine.node_changes.outages import Leftover
from roles.engine.node_changes.said import HEALTHY, SETTLED, in_words
from roles.engine.node_changes.staged import Staged
from roles.engine.node_changes.step import NodeStep
from roles.engine.node_changes.verdict import encoded_end, outcome_of, quoted, refusal_text, verdict
from roles.engine.outage import NodeOutage, undo
from roles.engine.proof import Proof
from roles.engine.remote import ConnectionLost, RemoteError
from roles.engine.runs import CONFIRM_SECONDS, RECONNECT_SECONDS, LockedRun
from roles.engine.timeouts import Deadline, patient
from roles.engine.transaction import RunInfo, Status, change_id, report
from roles.engine.transaction.change_script import resume_script, script, stage_script
from roles.engine.transaction.model import STABLE_SECONDS
from roles.engine.transaction.record import cluster_record, end_record, plan_record
from roles.engine.voice import show

# The steps of a revert, and the time limit of each (see change.sh).
REVERT_SECONDS = 4 * 130 + 60


@contextlib.contextmanager
def _drain_time(step: NodeStep) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        step.drain_seconds += time.monotonic() - begun


class NodeRun(LockedRun):
    """Runs the steps of all stages in its own greenlets; every host waits for its own result.

    `first` and `last` are changes of the cluster itself: before any node is touched, and after every node is confirmed. The first
    failure in `first` halts the run; the steps of `last` are independent of each other. The lock host keeps their record. `leftovers`:
    nodes that an earlier run cordoned for its change; they are uncordoned once they have no change of this run, or all of them.
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
        leftovers: Sequence[Leftover] = (),
    ) -> None:
        super().__init__(info, fleet, take_over, lambda: finish(self))
        self.first, self.last, self.leftovers = list(first), list(last), list(leftovers)
        #: Nodes that could not be uncordoned, and why.
        self.still_cordoned: dict[str, str] = {}
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
        self._begun = 0  # steps begin in order
        self._staged: dict[int, Staged] = {}
        self._withdrawn: list[Staged] = []
        # With many hosts, lines about a step are shown only if it fails.
        self._lines: dict[int, list[str]] = {step.order: [] for step in self.steps} if folding.folds() else {}

    @property
    def cluster_steps(self) -> list[ClusterStep]:
        return [*self.first, *self.last]

    def involves(self, host: str) -> bool:
        return host in self._done or (host == self._speaker and bool(self.cluster_steps or self.leftovers))

    def result(self, host: str) -> bool:
        self.start()
        if host in self._done:
            self._done[host].wait()
        own = [step.outcome for step in self.steps if step.change.node == host]
        if host == self._speaker or self.halted:
            self._ended.wait()
        if host == self._speaker:
            own += [step.outcome for step in self.cluster_steps]
            own += ["unknown" for _ in self.still_cordoned]
        # One host makes an interrupted run fail, or one that broke; a node that is confirmed is no failure.
        return all(outcome == "confirmed" for outcome in own) and not ((self.interrupted or self.broken) and host == self._speaker)

    def _begin(self) -> Mapping[str, Any]:
        return {"changes": len(self.steps)}

    def _work(self) -> None:
        for step in self.first:
            self._write(step, 0)
            if self.halted:
                break
        self._uncordon_left([one for one in self.leftovers if one.host not in self._done])
        try:
            self._each(self.stages, self._carry_out)
            self._uncordon_left([one for one in self.leftovers if one.host in self._done and self._confirmed(one.host)])
        finally:
            self._withdraw()
            for staged in self._withdrawn:
                staged.gone()
        for number, step in enumerate(self.last, len(self.steps) + 1):
            # Only if all nodes have it: the ConfigMaps must not be ahead of the nodes.
            if not self.interrupted and self._confirmed():
                self._write(step, number)

    def _confirmed(self, host: str | None = None) -> bool:
        """All changes (of one host) are confirmed."""
        return all(step.outcome == "confirmed" for step in self.steps if host in (None, step.change.node))

    def _outcomes(self) -> dict[str, str]:
        of_nodes: dict[str, str] = {step.change.id: step.outcome for step in self.steps}
        return of_nodes | {self._cluster_id(step): step.outcome for step in self.cluster_steps}

    def _proofs(self) -> list[str]:
        of_nodes = [step.how for step in self.steps if step.outcome == self.success]
        return of_nodes + [step.how for step in self.cluster_steps if step.outcome == self.success]

    def _without_steps(self) -> str:
        return f"{counted(len(self.leftovers), 'node')} uncordoned"

    def _leaving(self) -> str:
        cordoned = [step.drain.node for step in self.steps if step.drain is not None and step.drain.cordoned]
        stay = f"; {', '.join(cordoned)} stay cordoned: the same command continues, or {undo.command(cordoned)}"
        return "each node reverts what is not confirmed at its deadline" + (stay if cordoned else "")

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

    # ---- changes that wait on their nodes

    def _stage(self, step: NodeStep) -> Staged:
        sent = stage_script(step.change, replace(self.info.holder, fence=self._lock.generation), self._plan_of(step))
        return Staged(self._remotes[step.change.node], sent)

    def _stage_next(self, step: NodeStep) -> None:
        """While a change is watched and proven, send the next one to its node: at most one for each that may then run at the same time. Not
        during a soak, which may take hours."""
        if self._halting or step.change.soak:
            return
        left = [[other for other in stage.steps if other.order > self._begun][: stage.at_once] for stage in self.stages]
        for other in next(filter(None, left), []):
            if other.order not in self._staged and other.drain is None:  # a drain may take hours
                self._staged[other.order] = self._stage(other)
                return

    def _withdraw(self) -> None:
        """No change that waits on its node begins: the nodes remove them."""
        for staged in self._staged.values():
            staged.withdraw()
            self._withdrawn.append(staged)
        self._staged.clear()

    @property
    def _halting(self) -> bool:
        return bool(self.halted) or self._failing

    def interrupt(self) -> None:
        super().interrupt()
        self._withdraw()

    # ---- one step

    def _plan_of(self, step: NodeStep) -> dict[str, Any]:
        planned = plan_record(self.info, step.order, step.change, step.effective, step.undoes)
        return {**planned, "drained": step.drain.node} if step.drain is not None else planned

    def _carry_out(self, step: NodeStep) -> None:
        started = time.monotonic()
        self._show(step, f"\n[{step.order}/{len(self.steps)}] {step.change.node}: {step.change.component}: {step.change.summary}")
        self._begun = step.order
        own = current_task()
        try:
            try:
                if step.drain is not None:
                    with _drain_time(step):
                        self._drain(step, step.drain, own)
                staged, why = self._on_node(step)
            finally:
                self._waiting.discard(own)
            if why:
                step.why = why
            elif not self._halting:
                del self._staged[step.order]
                self._note(self._plan_of(step))
                self._transact(step, staged)
        except Exception as error:
            step.outcome = "unknown" if step.touched else step.outcome
            step.why = str(error) or repr(error)
        if step.drain is not None and step.drain.cordoned:
            with _drain_time(step):
                self._uncordon(step, step.drain)
        step.seconds = time.monotonic() - started
        self._say(step, f"{step.outcome}{': ' + step.why if step.why else ''} ({step.seconds:.0f} s)")
        doing("")
        self._show_ended(step)
        if step.outcome != "confirmed":
            self.failed.append(step)
            self.halted = self.halted or f"{step.change.node}, {step.change.component}: {step.outcome}: {step.why}"
            self._withdraw()
        if step.touched:
            self._note_done(self._end_of(step))
        if self._confirmed(step.change.node):
            self._done[step.change.node].set()

    # ---- the drain around a step

    def _drain(self, step: NodeStep, drain: NodeOutage, own: Task[..., None]) -> None:
        """Empty the node before its change is sent. Raises NotDone, ApiFailure, Locked, RemoteError."""
        self._lock.ensure()
        # It asks by itself whether the run halts, and then uncordons.
        self._waiting.discard(own)
        self._say(step, f"draining {drain.node} first: {'; '.join(drain.why)}")
        proof = drain.take(self.context)
        self._say(step, f"drained: {proof}")
        self._note({"event": "drained", "node": drain.node, "change": step.change.id, "moved": drain.moved, "proof": proof})
        self._waiting.add(own)

    def _uncordon(self, step: NodeStep, drain: NodeOutage) -> None:
        """After the change: uncordon the node, unless it may be broken."""
        if step.outcome in ("revert-failed", "unknown"):
            step.left_cordoned = f"its change ended as {step.outcome}"
        else:
            try:
                self._lock.ensure()
                proof = drain.give_back(self.context)
                self._say(step, proof)
                done = proof.partition(": ")[0]
                step.how = f"{step.how}; drained before it ({counted(len(drain.moved), 'pod')} moved), {done}" if step.how else step.how
                self._note_done({"event": "uncordoned", "node": drain.node, "change": step.change.id, "proof": proof})
            except Exception as error:
                step.left_cordoned = str(error) or repr(error)
        if step.left_cordoned:
            self._keep_cordoned(drain.node, step.left_cordoned)

    def _uncordon_left(self, leftovers: Sequence[Leftover]) -> None:
        for one in leftovers:
            if self.halted:
                return
            try:
                self._lock.ensure()
                show(f"\n{one.host}: cordoned by run {one.run}, which is over: {one.uncordon(self.context)}")
            except Exception as error:
                self._keep_cordoned(one.node, str(error) or repr(error))

    def _keep_cordoned(self, node: str, why: str) -> None:
        self.still_cordoned[node] = why
        self.halted = self.halted or f"{node} is STILL CORDONED: {why}"
        self._note_done({"event": "still cordoned", "node": node, "why": why})

    def _stopped(self) -> str:
        return self.halted or ("another change failed" if self._failing else "")

    def _on_node(self, step: NodeStep) -> tuple[Staged, str | None]:
        """The change, waiting on its node, and why it must not begin, asked after that. Sent again if the connection was lost meanwhile:
        nothing has begun. Raises RemoteError, Locked."""
        limit = Deadline(RECONNECT_SECONDS)
        while True:
            staged = self._staged.get(step.order)
            if staged is None or staged.lost:
                staged = self._staged[step.order] = self._stage(step)
            try:
                staged.wait()
            except ConnectionLost:
                if limit.over:
                    raise
                continue
            self._lock.ensure()
            why = step.ready()
            if why or self._halting or not staged.lost:
                return staged, why

    def _transact(self, step: NodeStep, staged: Staged) -> None:
        """Begin the change that waits on its node, prove it, and let the node confirm or revert it."""
        change = step.change
        remote = self._remotes[change.node]
        started = time.monotonic()
        proof: Proof | None = None

        def on_line(line: str) -> None:
            nonlocal proof
            text = report.log_text(line)
            if text is not None:
                self._heard(step, text)
            elif line == "verdict?":
                step.status = report.parse(lines)
                proof = self._prove(step, step.status)
                staged.feed.put(verdict(step.change.id, proof, time.monotonic() - started))
                staged.feed.put(None)
            else:
                lines.append(line)

        lines: list[str] = []
        step.touched = True
        budget = change.confirm_timeout + patient(REVERT_SECONDS)
        status = ask_change(remote, lambda heard: staged.begin(budget, heard), budget, on_line, again=resume_script(change.id))
        if status.state == "applied":
            # The connection was lost before the node read the verdict.
            step.status = status
            proof = proof or self._prove(step, status)
            verb = (
                f"detached revert {quoted(refusal_text(proof))}"
                if proof.problems
                else f"confirm {encoded_end(step.change.id, proof, time.monotonic() - started)}"
            )
            status = ask_change(remote, f'sh "{script(change.id)}" {verb}', budget, on_line, again=f'sh "{script(change.id)}" status')
        if status.state in ("applied", "applying", "reverting", "lost"):
            # Too late to be confirmed, or not yet reverted: the node ends it. If its directory was deleted, start the revert.
            again = f'sh "{script(change.id)}" watch end'
            first = f'sh "{script(change.id)}" detached revert "its directory was deleted"' if status.state == "lost" else again
            status = ask_change(remote, first, budget, lambda line: None, again=again)
        step.status = status
        step.outcome = outcome_of(status)
        if step.outcome == "confirmed":
            return
        if step.outcome == "revert-failed":
            step.blockers = step.blocking()
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

    def _heard(self, step: NodeStep, text: str) -> None:
        """A line of the log of a change in progress."""
        if said := in_words(text, step.change):
            self._say(step, said)
        if text.startswith(HEALTHY):
            self._doing(step, "healthy", STABLE_SECONDS)
        step.watch(text)
        if found := SETTLED.fullmatch(text):
            step.node_seconds = float(found.group(1))
        elif text == "step: wait":
            self._stage_next(step)
        elif text.startswith("failed: "):
            self._failing = True
            self._withdraw()

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
            self._say(step, f"{refusal_text(proof)}; reverting")
        return proof

    def _end_of(self, step: NodeStep) -> dict[str, object]:
        ended = end_record(step.change.id, step.outcome, step.why, step.how, step.seconds)
        if step.outcome == "confirmed" and step.node_seconds:
            ended["own_seconds"] = round(step.seconds - step.node_seconds - step.drain_seconds - step.change.soak, 2)
        return ended

    # ---- output

    def _say(self, step: NodeStep, text: str) -> None:
        self._show(step, f"  {step.change.node} {step.change.component}: {text}")
        self._doing(step, text)

    def _doing(self, step: NodeStep, text: str, of: float = 0) -> None:
        if step.order not in self._lines:
            doing(f"{step.change.node} ({step.order}/{len(self.steps)}) {step.change.component}: {text}", of)

    def _show(self, step: NodeStep, line: str) -> None:
        if step.order in self._lines:
            self._lines[step.order].append(line)
        else:
            show(line)

    def _show_ended(self, step: NodeStep) -> None:
        """The end of a step whose lines were held back: all of them if it failed; else how many are done: one, half of them, all."""
        lines = self._lines.get(step.order)
        if lines is None:
            return
        if step.outcome != "confirmed":
            for line in lines:
                show(line)
        done, total = sum(one.outcome == "confirmed" for one in self.steps), len(self.steps)
        doing(f"changed {done} of {total}")
        if done in (1, total) or done * 2 // total > (done - 1) * 2 // total:
            show(f"{done} of {total} changes are confirmed")
