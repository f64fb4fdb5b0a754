"""One run: the changes of all nodes in their order and at their pace, each proven or put back; the first failure halts."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import gevent
from gevent.event import Event
from gevent.pool import Pool

from roles.change import Change, Status, keep_script, script, stage_script
from roles.change import report as change_report
from roles.change.model import change_id
from roles.change.record import Effective, RunInfo, RunRecord, Unrecorded, cluster_record, end_record, plan_record
from roles.patience import patient
from roles.rollout.lock import ClusterLock, Locked
from roles.rollout.number import run_number
from roles.rollout.pace import Pace, Stage, stages
from roles.rollout.remote import Answer, ConnectionLost, Feed, Fleet, Remote, RemoteError, hosts_by_name, on_interrupt, show

Outcome = Literal["confirmed", "reverted", "revert-failed", "refused", "failed", "not started", "unknown"]

# A node may be rebooting or its network away; what runs there goes on without us.
RECONNECT_SECONDS = 120
CONFIRM_SECONDS = 60
# Rungs of the way back, and what each may take (see change.sh).
REVERT_SECONDS = 4 * 130 + 60


class Interrupted(Exception):
    """The operator asked to halt."""


@dataclass(frozen=True)
class Proof:
    """What was shown of a change: `how` in a few words, and the problems; without problems it is proven."""

    how: str
    problems: tuple[str, ...] = ()


@dataclass
class Step:
    """One change in its turn. `ready` is asked right before it (a text: why not), `watch` sees each line of its log, `prove`
    judges it once it is applied. For the record: `effective`, the values in effect before and after; `undoes`, the change it undoes."""

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


# The fields of a cluster's object that a write is about to change: {"path": [...], "before": ..., "after": ...}.
Fields = Sequence[Mapping[str, Any]]


@dataclass
class ClusterStep:
    """A part of a run that is no node's: an object of the cluster. `write` carries it out and returns how that was proven; right
    before it writes it calls what it is given with the fields as they are. `diff` is for the plan; `lost` says what is not so, and how
    to mend it, where the write fails or is not begun; `undoes` is the change that it undoes."""

    name: str
    summary: str
    diff: str
    write: Callable[[Callable[[Fields], None]], str]
    lost: str
    undoes: str = ""
    outcome: Outcome = "not started"
    why: str = ""
    how: str = ""
    seconds: float = 0.0


def arrange(steps: Sequence[Step], control_plane: Collection[str], pace: Pace, on: bool) -> list[Stage[Step]]:
    """The stages of a run from its steps in their wanted order; `control_plane` are hosts. The first worker, the canary, soaks."""
    components = [step for step in steps if step.change.kind != "kubelet"]
    kubelets = [step for step in steps if step.change.kind == "kubelet"]
    workers = [step for step in kubelets if step.change.node not in control_plane]
    if workers:
        workers[0].change = replace(workers[0].change, soak=pace.soak)
    return stages(components, workers, [step for step in kubelets if step not in workers], pace, on)


class Run:
    """Drives the steps of all stages, in greenlets of its own; every host waits for its own result.

    `first` and `last` are the cluster's own: before any node is touched, and after every one of them is confirmed. The first failure
    of `first` halts the run; those of `last` are independent of each other. The cluster's lock host keeps their record.
    """

    def __init__(
        self,
        info: RunInfo,
        stages: Sequence[Stage[Step]],
        fleet: Fleet,
        take_over: str,
        finish: Callable[[Run], None],
        *,
        first: Sequence[ClusterStep] = (),
        last: Sequence[ClusterStep] = (),
    ) -> None:
        self.info = info
        self.first, self.last = list(first), list(last)
        self.stages = list(stages)
        self.steps = [step for stage in stages for step in stage.steps]
        for number, step in enumerate(self.steps, 1):
            step.order = number
        self.record = RunRecord(info)
        self._remotes = hosts_by_name(fleet.targets)
        self._keeper = fleet.lock_host
        self._lock = ClusterLock(fleet.lock_host, info.holder, take_over)
        # The host that answers for what is no node's: the one that is done last.
        targets = [remote.name for remote in fleet.targets]
        self._speaker = self.steps[-1].change.node if self.steps else self._keeper.name if self._keeper.name in targets else targets[0]
        self._finish = finish
        self._done = {step.change.node: Event() for step in self.steps}
        self._ended = Event()
        self._started = False
        self._waiting: set[gevent.Greenlet[..., None]] = set()
        self.failed: list[Step] = []
        self.halted = ""
        self.interrupted = False
        self._failing = False  # one is being put back: nothing more is begun

    @property
    def cluster_steps(self) -> list[ClusterStep]:
        return [*self.first, *self.last]

    def involves(self, host: str) -> bool:
        """True for a host that has something to wait for."""
        return host in self._done or (host == self._speaker and bool(self.cluster_steps))

    def result(self, host: str) -> bool:
        """Wait for a host's changes; True when all of them are confirmed. The first host to ask starts the run."""
        if not self._started:
            self._started = True
            on_interrupt(self.interrupt)
            gevent.spawn(self._drive)
        if host in self._done:
            self._done[host].wait()
        own = [step.outcome for step in self.steps if step.change.node == host]
        if host == self._speaker or self.halted:
            self._ended.wait()
        if host == self._speaker:
            own += [step.outcome for step in self.cluster_steps]
        return all(outcome == "confirmed" for outcome in own) and not self.interrupted

    def interrupt(self) -> None:
        """Ctrl-C: nothing more is begun, what is in hand ends; a second time: out at once."""
        if self.interrupted:
            show("\nleaving at once; what is not confirmed is put back by its own node at its deadline")
            raise SystemExit(130)
        self.interrupted = True
        self.halted = self.halted or "interrupted by the operator"
        show("\nhalting: what is in hand is brought to its end; once more to leave at once (the nodes then decide by themselves)")
        for greenlet in self._waiting:
            greenlet.kill(Interrupted("interrupted by the operator"), block=False)

    def _drive(self) -> None:
        try:
            try:
                self._lock.ensure()
                self.info = replace(self.info, number=run_number(self._keeper).recorded)
                self._note({"event": "begin", "changes": len(self.steps), "number": self.info.number})
            except (Locked, RemoteError, Unrecorded) as error:
                self.halted = str(error)
                show(f"\nnot begun: {error}")
            else:
                for step in self.first:
                    self._write(step, 0)
                    if self.halted:
                        break
                for stage in self.stages:
                    self._carry_out_stage(stage)
                for number, step in enumerate(self.last, len(self.steps) + 1):
                    self._write_last(step, number)
                outcomes = {step.change.id: step.outcome for step in self.steps}
                outcomes |= {self._cluster_id(step): step.outcome for step in self.cluster_steps}
                self._note_done({"event": "end-of-run", "halted": self.halted, "outcomes": outcomes})
            self._finish(self)
        except Exception as error:
            self.halted = self.halted or repr(error)
            show(f"\nthe run ended by an error of its own: {error!r}")
            raise
        finally:
            self._lock.give_back()
            self._ended.set()
            for event in self._done.values():
                event.set()

    def _write_last(self, step: ClusterStep, order: int) -> None:
        """Only where all nodes have it: what lasts must not be more than what is."""
        if self.interrupted or any(other.outcome != "confirmed" for other in self.steps):
            return
        self._write(step, order)

    def _cluster_id(self, step: ClusterStep) -> str:
        return change_id(self.info.id, "cluster", step.name)

    def _write(self, step: ClusterStep, order: int) -> None:
        begun = time.monotonic()
        name = self._cluster_id(step)
        planned: dict[str, Any] = {}
        show(f"\n{step.name}: {step.summary}")

        def begin(fields: Fields) -> None:
            # Without a record there is no way back, and nothing is written.
            nonlocal planned
            planned = cluster_record(self.info, order, name, self._keeper.name, step.name, step.summary, fields, step.undoes)
            self._note(planned)
            self._keep(name, "staged", [planned])
            # Right before the write: others may have taken the lock while this one waited.
            self._lock.ensure()

        try:
            self._lock.ensure()
            if not self.interrupted:
                step.how = step.write(begin)
                step.outcome = "confirmed"
        except Exception as error:
            step.outcome, step.why = "failed", str(error) or repr(error)
        step.seconds = time.monotonic() - begun
        show(f"  {step.name}: {step.outcome}: {step.how or step.why or 'interrupted'} ({step.seconds:.0f} s)")
        if step.outcome != "confirmed":
            self.halted = self.halted or f"{step.name}: {step.outcome}: {step.why}"
        if planned:
            ended = end_record(name, step.outcome, step.why, step.how, step.seconds)
            self._note_done(ended)
            try:
                self._keep(name, "confirmed" if step.outcome == "confirmed" else "staged", [planned, ended])
            except RemoteError as error:
                # It is found all the same: what was about to be written is recorded, and held against what is there.
                show(f"WARNING: how {step.name} ended could not be recorded: {error}")

    def _keep(self, name: str, state: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Raises RemoteError."""
        try:
            self._keeper.ensure_connected(patient(RECONNECT_SECONDS))
        except RemoteError as error:
            raise RemoteError(f"{error}; it keeps the record of what is no node's") from error
        answer = self._keeper.run("sh -s", stdin=keep_script(name, self.info.holder, state, events), timeout=patient(CONFIRM_SECONDS))
        if answer.code != 0:
            said = " ".join(answer.stderr[-3:]) or f"exit status {answer.code}"
            raise RemoteError(f"{self._keeper.name}: the record could not be written, and nothing is done without: {said}")

    def _carry_out_stage(self, stage: Stage[Step]) -> None:
        pool = Pool(stage.at_once)
        for step in stage.steps:
            # Sliding: the next one begins as soon as one is over, and not at all once something went wrong.
            pool.wait_available()
            if self.halted or self._failing:
                break
            greenlet = pool.spawn(self._carry_out, step)
            self._waiting.add(greenlet)
        pool.join()

    def _carry_out(self, step: Step) -> None:
        begun = time.monotonic()
        show(f"\n[{step.order}/{len(self.steps)}] {step.change.node}: {step.change.component}: {step.change.summary}")
        own = gevent.getcurrent()
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
        step.seconds = time.monotonic() - begun
        self._say(step, f"{step.outcome}{': ' + step.why if step.why else ''} ({step.seconds:.0f} s)")
        if step.outcome != "confirmed":
            self.failed.append(step)
            self.halted = self.halted or f"{step.change.node}, {step.change.component}: {step.outcome}: {step.why}"
        if step.touched:
            self._note_done(self._end_of(step))
        if all(other.outcome == "confirmed" for other in self.steps if other.change.node == step.change.node):
            self._done[step.change.node].set()

    def _transact(self, step: Step, planned: Mapping[str, Any]) -> None:
        """Lay the change down, apply it, prove it, and let the node keep it or put it back."""
        change = step.change
        remote = self._remotes[change.node]
        begun = time.monotonic()
        feed: Feed = Feed()
        proof: Proof | None = None

        def on_line(line: str) -> None:
            nonlocal proof
            text = change_report.log_text(line)
            if text is not None:
                self._say(step, text)
                step.watch(text)
                if text.startswith("failed: "):
                    self._failing = True
            elif line == "verdict?":
                step.status = change_report.parse(lines)
                proof = self._prove(step, step.status)
                feed.put(_verdict(step, proof, time.monotonic() - begun))
                feed.put(None)
            else:
                lines.append(line)

        lines: list[str] = []
        step.touched = True
        budget = change.confirm_timeout + patient(REVERT_SECONDS)
        staged = stage_script(change, replace(self.info.holder, fence=self._lock.generation), planned)
        status = self._ask(remote, "sh -s", budget, on_line, again=f'sh "{script(change.id)}" watch', stdin=staged, feed=feed)
        if status.state == "applied":
            # The connection was lost before the verdict was heard.
            step.status = status
            proof = proof or self._prove(step, status)
            verb = (
                f"detached revert {_quoted(_refusal(proof))}"
                if proof.problems
                else f"confirm {_encoded(step, proof, time.monotonic() - begun)}"
            )
            status = self._ask(remote, f'sh "{script(change.id)}" {verb}', budget, on_line, again=f'sh "{script(change.id)}" status')
        if status.state in ("applied", "applying", "reverting", "lost"):
            # Too late to be confirmed, or still on its way back: the node ends it. One whose directory was deleted is helped on.
            again = f'sh "{script(change.id)}" watch end'
            first = f'sh "{script(change.id)}" detached revert "its directory was deleted"' if status.state == "lost" else again
            status = self._ask(remote, first, budget, lambda line: None, again=again)
        step.status = status
        step.outcome = _outcome(status)
        if step.outcome == "confirmed":
            return
        # A new process that came to be judged was healthy: what speaks against it is the judgement, not some line of its output.
        telling = "" if proof else status.telling_line
        if status.state == "staged":
            step.why = "the node ended it before anything was touched; nothing was changed"
            return
        step.why = status.reason + (f" [{telling}]" if telling and telling not in status.reason else "")
        if step.outcome not in ("refused", "unknown"):
            step.seconds = time.monotonic() - begun
            encoded = base64.b64encode(json.dumps(self._end_of(step)).encode()).decode()
            with contextlib.suppress(RemoteError):
                remote.run(f'sh "{script(change.id)}" record {encoded}', timeout=patient(CONFIRM_SECONDS))

    def _prove(self, step: Step, status: Status) -> Proof:
        self._say(step, "proving")
        proof = step.prove(status)
        if step.change.soak and not proof.problems:
            self._say(step, f"proven; soaking for {step.change.soak} s")
            end = time.monotonic() + step.change.soak
            while time.monotonic() < end and not self.interrupted:
                gevent.sleep(min(1.0, max(end - time.monotonic(), 0)))
            proof = Proof(proof.how, ("the soak was cut short",)) if self.interrupted else step.prove(status)
            proof = Proof(f"{proof.how}; soaked {step.change.soak} s", proof.problems)
        step.how = proof.how
        if proof.problems:
            self._say(step, f"{_refusal(proof)}; putting it back")
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
        """Run a verb of change.sh and read its status; after a lost connection connect anew and ask again."""
        end = time.monotonic() + seconds
        answer: Answer | None = None
        shown = skip = 0

        def only_new(line: str) -> None:
            # After a lost connection the log is told from its beginning.
            nonlocal shown, skip
            if change_report.log_text(line) is not None and skip:
                skip -= 1
                return
            shown += change_report.log_text(line) is not None
            on_line(line)

        try:
            answer = remote.run(command, stdin=stdin, timeout=seconds, on_line=only_new, feed=feed)
        except ConnectionLost as lost:
            show(f"{lost}; connecting anew, the node goes on by itself")
            give_up = min(end, time.monotonic() + patient(RECONNECT_SECONDS))
            while answer is None:
                try:
                    remote.reconnect()
                    skip = shown
                    answer = remote.run(again, timeout=max(30.0, end - time.monotonic()), on_line=only_new)
                except ConnectionLost:
                    if time.monotonic() > give_up:
                        raise
                    gevent.sleep(2)
        status = change_report.parse(answer.stdout)
        if status.state == "unknown":
            said = " ".join(answer.stderr[-3:]) or f"exit status {answer.code}"
            raise RemoteError(f"{remote.name}: change.sh gave no status: {said}")
        return status

    def _end_of(self, step: Step) -> dict[str, object]:
        return end_record(step.change.id, step.outcome, step.why, step.how, step.seconds)

    def _note(self, event: Mapping[str, object]) -> None:
        """Before what it is about is begun. Raises Unrecorded."""
        self.record.write(event)

    def _note_done(self, event: Mapping[str, object]) -> None:
        """The nodes keep their own records; but where this one cannot be written, nothing more is begun."""
        try:
            self.record.write(event)
        except Unrecorded as error:
            self.halted = self.halted or str(error)
            show(f"WARNING: {error}")

    def _say(self, step: Step, text: str) -> None:
        show(f"  {step.change.node} {step.change.component}: {text}")


def _refusal(proof: Proof) -> str:
    return "not proven: " + "; ".join(proof.problems)


def _encoded(step: Step, proof: Proof, seconds: float) -> str:
    record = end_record(step.change.id, "confirmed", "", proof.how, seconds)
    return base64.b64encode(json.dumps(record).encode()).decode()


def _verdict(step: Step, proof: Proof, seconds: float) -> str:
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
