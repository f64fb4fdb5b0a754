"""One run: the changes of all nodes, one after the other, each proven or put back; the first failure halts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import gevent
from gevent.event import Event

from roles.change import Change, Status, directory, stage_script
from roles.change import report as change_report
from roles.rollout.remote import Answer, ConnectionLost, Remote, RemoteError, show

Outcome = Literal["confirmed", "reverted", "revert-failed", "not started", "unknown"]

# A node may be rebooting or its network away; what runs there goes on without us.
RECONNECT_SECONDS = 120
CONFIRM_SECONDS = 60


@dataclass(frozen=True)
class Proof:
    """What was shown of a change: `how` in a few words, and the problems; without problems it is proven."""

    how: str
    problems: tuple[str, ...] = ()


@dataclass
class Step:
    """One change in its turn. `ready` is asked right before it (a text: why not), `watch` sees each line of its log, `prove`
    judges it once it is applied."""

    change: Change
    ready: Callable[[], str | None]
    prove: Callable[[Status], Proof]
    watch: Callable[[str], None] = lambda line: None
    outcome: Outcome = "not started"
    why: str = ""
    how: str = ""
    seconds: float = 0.0
    status: Status | None = field(default=None, repr=False)


class Run:
    """Drives the steps in their order, in a greenlet of its own; every host waits for its own result."""

    def __init__(self, run_id: str, steps: Sequence[Step], remotes: dict[str, Remote], finish: Callable[[Run], None]) -> None:
        self.id = run_id
        self.steps = list(steps)
        self._remotes = remotes
        self._finish = finish
        self._done = {step.change.node: Event() for step in steps}
        self._ended = Event()
        self._started = False
        self.halted_by: Step | None = None

    def result(self, host: str) -> bool:
        """Wait for a host's changes; True when all of them are confirmed. The first host to ask starts the run."""
        if not self._started:
            self._started = True
            gevent.spawn(self._drive)
        self._done[host].wait()
        own = [step for step in self.steps if step.change.node == host]
        if (self.steps and own[-1] is self.steps[-1]) or self.halted_by:
            self._ended.wait()
        return all(step.outcome == "confirmed" for step in own)

    def _drive(self) -> None:
        try:
            for number, step in enumerate(self.steps):
                begun = time.monotonic()
                show(f"\n[{number + 1}/{len(self.steps)}] {step.change.node}: {step.change.component}: {step.change.summary}")
                try:
                    self._carry_out(step)
                except Exception as error:
                    step.outcome = "unknown" if step.status or step.outcome != "not started" else step.outcome
                    step.why = str(error) or repr(error)
                step.seconds = time.monotonic() - begun
                self._say(step, f"{step.outcome}{': ' + step.why if step.why else ''} ({step.seconds:.0f} s)")
                if step.outcome != "confirmed":
                    self.halted_by = step
                    break
                if not any(later.change.node == step.change.node for later in self.steps[number + 1 :]):
                    self._done[step.change.node].set()
            self._finish(self)
        finally:
            self._ended.set()
            for event in self._done.values():
                event.set()

    def _carry_out(self, step: Step) -> None:
        if why := step.ready():
            step.why = why
            return
        remote = self._remotes[step.change.node]
        here = directory(step.change.id)
        budget = step.change.apply_timeout + 4 * 130 + 60

        def on_line(line: str) -> None:
            text = change_report.log_text(line)
            if text is not None:
                self._say(step, text)
                step.watch(text)

        step.outcome = "unknown"
        status = self._ask(remote, "sh -s", budget, on_line, again=f"sh {here}/change.sh watch", stdin=stage_script(step.change))
        step.status = status
        if status.state == "applied":
            self._say(step, "proving")
            proof = step.prove(status)
            step.how = proof.how
            if not proof.problems:
                confirmed = self._ask(remote, f"sh {here}/change.sh confirm", CONFIRM_SECONDS, on_line, again=f"sh {here}/change.sh status")
                step.status = confirmed
                step.outcome, step.why = _outcome(confirmed), "" if confirmed.state == "confirmed" else confirmed.reason
                return
            reason = "not proven: " + "; ".join(proof.problems)
            self._say(step, f"{reason}; putting it back")
            quoted = "'" + reason.replace("'", "'\\''") + "'"
            revert = f"sh {here}/change.sh detached revert {quoted}"
            status = self._ask(remote, revert, budget, on_line, again=f"sh {here}/change.sh watch daytwo-{step.change.id}-revert")
            step.status = status
        step.outcome = _outcome(status)
        telling = status.telling_line
        step.why = status.reason + (f" [{telling}]" if telling and telling not in status.reason else "")

    def _ask(
        self,
        remote: Remote,
        command: str,
        seconds: float,
        on_line: Callable[[str], None],
        *,
        again: str,
        stdin: str | None = None,
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
            answer = remote.run(command, stdin=stdin, timeout=seconds, on_line=only_new)
        except ConnectionLost as lost:
            show(f"{lost}; connecting anew, the node goes on by itself")
            give_up = min(end, time.monotonic() + RECONNECT_SECONDS)
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

    def _say(self, step: Step, text: str) -> None:
        show(f"  {step.change.node} {step.change.component}: {text}")


def _outcome(status: Status) -> Outcome:
    match status.state:
        case "confirmed" | "reverted" | "revert-failed":
            return status.state
        case _:
            return "unknown"
