"""Another deploy of daytwo, as a process of its own: what the loop decides is carried out by the deploy that an operator would start."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from roles.engine.commands import STARTED_AS, TYPED, words
from roles.engine.harmless import one_line

# Of its output: where the reason of a failure is.
_LAST_LINES = 60
_LONGEST = 400
#: How a run begins the line that says why it did not begin (roles/engine/runs/locked_run.py).
NOT_STARTED = "not started: "
_RUN = re.compile(r"Plan of run (r[0-9a-z-]{1,40}):")


@dataclass(frozen=True)
class Ended:
    """How it ended, and its last words. `begun` is False if another run holds the cluster, so that nothing was tried."""

    code: int
    said: str
    begun: bool = True


class Child:
    """Starts when it is asked to run. `heard` gets each line of its output, `named` the name of its run."""

    def __init__(self, deploy: str, data: Mapping[str, str], heard: Callable[[str], object], named: Callable[[str], object]) -> None:
        self._words, self._heard, self._named = words(deploy, **data), heard, named
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> Ended:
        """Until it has ended. Raises OSError if it cannot be started."""
        others = {name: value for name, value in os.environ.items() if name not in (STARTED_AS, TYPED)}
        # A session of its own: Ctrl-C of a terminal is for the loop, which passes it on once.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pyinfra", *self._words, "-y"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env={**others, "PYINFRA_PROGRESS": "off"}, start_new_session=True,
        )  # fmt: skip
        last: deque[str] = deque(maxlen=_LAST_LINES)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard(line.rstrip("\n"))
            last.append(one_line(line.strip()))
            if (run := _RUN.match(line)) is not None:
                self._named(run[1])
        code = self._process.wait()
        lines = [line for line in last if line]
        refused = next((line for line in lines if line.startswith(NOT_STARTED)), "")
        return Ended(code, (refused or (lines[-1] if lines else f"exit status {code}"))[:_LONGEST], not refused)

    def interrupt(self) -> None:
        """As Ctrl-C does it: what is in progress finishes, nothing else begins."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
