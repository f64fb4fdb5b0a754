"""One line on a terminal says what a long step is doing: pyinfra's own line, with daytwo's text. Without a terminal there is none.

Written for pyinfra 3.10 (progress.py): it writes the line five times a second while it waits for hosts, and clears it before other output.
"""

from __future__ import annotations

from typing import Any

from pyinfra import progress

_doing = ""


def doing(text: str) -> None:
    """What the run does now, such as `read 340 of 1000 hosts`; "": pyinfra's own text."""
    global _doing  # noqa: PLW0603  # one process is one run
    _doing = text[: max(0, progress.TERMINAL_WIDTH - 8)]


class _Texts:
    """pyinfra takes the last text of a queue."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def __getitem__(self, index: int) -> str:
        return _doing or str(self._queue[index])


def guard() -> None:
    """From now on pyinfra's line shows the text of `doing`. Calling it again changes nothing."""
    write = progress._print_spinner
    if not hasattr(write, "guarded"):

        def spinner(stop: Any, queue: Any) -> None:
            write(stop, _Texts(queue))

        spinner.guarded = True  # type: ignore[attr-defined]
        progress._print_spinner = spinner
