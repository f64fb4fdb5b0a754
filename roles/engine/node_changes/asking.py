"""Asks a node about a change in progress, over connections that may be lost."""

from __future__ import annotations

from collections.abc import Callable

from roles.engine.bridge import Remote
from roles.engine.bridge.tasks import sleep
from roles.engine.remote import Answer, ConnectionLost, RemoteError
from roles.engine.runs import RECONNECT_SECONDS
from roles.engine.timeouts import Deadline, patient
from roles.engine.transaction import Status, report
from roles.engine.voice import show

# The time limit to ask a node again how a change ended, when its time is nearly over.
LAST_ANSWER_SECONDS = 30


def ask_change(
    remote: Remote,
    first: str | Callable[[Callable[[str], None]], Answer],
    seconds: float,
    on_line: Callable[[str], None],
    *,
    again: str,
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
        answer = remote.run(first, timeout=seconds, on_line=only_new) if isinstance(first, str) else first(only_new)
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
        raise RemoteError(f"{remote.name}: change.sh printed no status: {answer.complaint}")
    return status
