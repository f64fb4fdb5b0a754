"""A host of an inventory, for tests of runs: it grants the cluster's lock, and gives each run its number."""

from __future__ import annotations

from collections.abc import Callable

from roles.engine.bridge import Feed
from roles.engine.remote import Answer

#: What counts the runs of a cluster.
COUNT = "6dc0be2b-6b01-44f8-9d9a-6c3a5a3b54f2"


class LockHost:
    connected, alive, is_control_plane, groups = True, True, True, ("control_plane",)

    def __init__(self, name: str = "cp1") -> None:
        self.name = name

    def ensure_connected(self, within: float = 0) -> None:
        """It always is connected."""

    def run(
        self,
        script: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,
        on_line: Callable[[str], None] | None = None,
        feed: Feed | None = None,
    ) -> Answer:
        if feed is None or on_line is None:
            return self.answer(script, stdin or "")
        if stdin:
            return self.change(on_line, feed)
        on_line("locked 0a 1")
        while (beat := feed.get()) not in ("q", None):
            if beat == "?":
                on_line("held")
        return Answer(0, [], [])

    def answer(self, script: str, stdin: str) -> Answer:
        """To a command: the number of the run."""
        return Answer(0, [f"number {COUNT} 7"], [])

    def change(self, on_line: Callable[[str], None], feed: Feed) -> Answer:
        """Take a change."""
        raise NotImplementedError
