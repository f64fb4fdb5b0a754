"""One line on a terminal says what a long step is doing: pyinfra's own line, with daytwo's text. Without a terminal there is none.

Written for pyinfra 3.10 (progress.py): it writes the line five times a second while it waits for hosts, and clears it before other output.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyinfra import progress

from roles.engine.harmless import one_line

_doing: Callable[[], str] = str


def doing(text: str, of: float | None = None) -> None:
    """What the run does now, such as `read 340 of 1000 hosts`; "": pyinfra's own text. `of`: how many seconds it will take, of which those
    that have passed are shown; 0: that is not known."""
    global _doing  # noqa: PLW0603  # one process is one run
    begun, shown = time.monotonic(), one_line(text)

    def line() -> str:
        passed = time.monotonic() - begun
        more = "" if of is None else f" for {min(passed, of):.0f} of {of:.0f} s" if of else f", {passed:.0f} s"
        return shown[: max(0, progress.TERMINAL_WIDTH - 8 - len(more))] + more

    _doing = line if text else str


class _Texts:
    """pyinfra takes the last text of a queue."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def __getitem__(self, index: int) -> str:
        return _doing() or str(self._queue[index])


def guard() -> None:
    """From now on pyinfra's line shows the text of `doing`. Calling it again changes nothing."""
    write = progress._print_spinner
    if not hasattr(write, "guarded"):

        def spinner(stop: Any, queue: Any) -> None:
            write(stop, _Texts(queue))

        spinner.guarded = True  # type: ignore[attr-defined]
        progress._print_spinner = spinner
