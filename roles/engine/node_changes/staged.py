"""A change that waits on its node, complete and checked, until its turn comes. Nothing of the node is touched before that."""

from __future__ import annotations

from collections.abc import Callable

from roles.engine.bridge import Feed, Remote
from roles.engine.bridge.tasks import AsyncResult, Event, Timeout, spawn
from roles.engine.remote import Answer, RemoteError
from roles.engine.runs import CONFIRM_SECONDS, RECONNECT_SECONDS
from roles.engine.timeouts import patient


class Staged:
    """One change, sent to its node in the background (stage_script). The node removes it on `withdraw`, or if the connection ends."""

    def __init__(self, remote: Remote, script: str) -> None:
        self._remote = remote
        self._heard: Callable[[str], None] | None = None
        self._settled = Event()
        self._waits = False
        self._end: AsyncResult[Answer] = AsyncResult()
        #: The input of the change once it has begun.
        self.feed: Feed = Feed()
        self._task = spawn(self._run, script)

    def _run(self, script: str) -> None:
        try:
            self._remote.ensure_connected(patient(RECONNECT_SECONDS))
            self._end.set(self._remote.run("sh -s", stdin=script, on_line=self._hear, feed=self.feed))
        except Exception as error:
            self._end.set_exception(error)
        finally:
            self._settled.set()

    def _hear(self, line: str) -> None:
        if self._heard is not None:
            self._heard(line)
        elif line == "staged":
            self._waits = True
            self._settled.set()

    @property
    def lost(self) -> bool:
        """The connection to the node is lost, and what was staged there with it."""
        if self._end.ready():
            # Without a word from here, only a refusal ends it.
            return self._waits or not self._end.successful()
        return self._waits and not self._remote.alive

    def wait(self) -> None:
        """Until the change waits on its node, or its node has refused it. Raises RemoteError."""
        limit = patient(RECONNECT_SECONDS + CONFIRM_SECONDS)
        if not self._settled.wait(limit):
            raise RemoteError(f"{self._remote.name}: the change could not be sent within {limit:g} s")
        if not self._waits:
            self._end.get()

    def begin(self, seconds: float, on_line: Callable[[str], None]) -> Answer:
        """Begin the change; `on_line` gets each line of its output. Raises ConnectionLost, and RemoteError after `seconds`."""
        self._heard = on_line
        self.feed.put("go\n")
        try:
            answer: Answer = self._end.get(timeout=seconds)
            return answer
        except Timeout as error:
            self._task.kill(block=False)
            raise RemoteError(f"{self._remote.name}: no answer within {seconds:g} s") from error

    def withdraw(self) -> None:
        """The change does not begin."""
        self.feed.put(None)

    def gone(self) -> None:
        """Wait until the node has removed a change that was withdrawn. A node without a connection does that by itself."""
        if not self._end.wait(patient(CONFIRM_SECONDS)):
            self._task.kill(block=False)
