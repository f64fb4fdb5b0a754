"""The refusal of a run; and what nobody expected, in one sentence for the operator: the error, its place in the code, and a file with the
traceback to report.

A traceback on a terminal says nothing to an operator, and may show what a node wrote.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyinfra.api.exceptions import DeployError

from roles.engine.commands import whole
from roles.engine.files import FILE_MODE, create_private, keep_newest, state_folder, write_whole
from roles.engine.harmless import harmless, one_line
from roles.engine.screen import width, wrap
from roles.engine.transaction import mask_text

_ROOT = Path(__file__).resolve().parents[3]
_LONGEST = 300
# Characters of a traceback with the words of others, and files.
_MOST_KEPT, _MOST_FILES = 1 << 20, 50
# The same error of many hosts is kept once.
_kept: dict[str, Path | None] = {}


class RunRefused(DeployError):  # type: ignore[misc]  # pyinfra ships no types
    """A refusal, without a traceback: pyinfra would print the file and line that raised it, which is in gevent. `reasons`: why, if it is
    more than the sentence `what`; `verdict`: the last line without them, if it is not FAILED and `what`."""

    def __init__(self, what: str, reasons: Sequence[str] = (), verdict: str = "") -> None:
        what, reasons = whole(what), tuple(map(whole, reasons))
        super().__init__("\n".join([what, *(f"  - {reason}" for reason in reasons)]))
        self.reasons = reasons
        self._verdict = verdict or (f"FAILED: {what.removesuffix(':')}" if what else "")

    @property
    def __traceback__(self) -> None:
        return None

    @__traceback__.setter
    def __traceback__(self, traceback: object) -> None:
        """Ignored; Python still keeps the traceback for sys.exc_info()."""

    @property
    def last_lines(self) -> str:
        """For a terminal: the reasons, and at last what that means for the run; "" if the run has said it."""
        if len(self.reasons) > 1:
            return "\n".join(["", *(f"  - {reason}" for reason in self.reasons), "", f"{self._verdict}, for {len(self.reasons)} reasons"])
        return "\n" + ": ".join([self._verdict, *self.reasons]) if self._verdict else ""


def sentence(error: BaseException) -> str:
    """What happened, where, and what to do. Keeps the traceback in a file, if there is room for it."""
    what = f"{type(error).__name__}: {one_line(mask_text(str(error)))[:_LONGEST]}, in {place(error)}"
    if what not in _kept:
        _kept[what] = _keep("".join(traceback.format_exception(error)))
    file = _kept[what]
    report = f"report it with the file {file}" if file else "report it with this line and the command"
    return f"daytwo did not expect this, which is a defect: {what}. deploys/changes.py lists what was begun; {report}"


def place(error: BaseException) -> str:
    """The line of daytwo, or else of the operator's own files, that raised an error: `roles/engine/api/read.py:164`."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    own = [(path.relative_to(_ROOT), line) for path, line in frames if path.is_relative_to(_ROOT) and ".venv" not in path.parts]
    path, line = (own or frames or [(Path("an unknown place"), None)])[-1]
    return f"{path}:{line}" if line else str(path)


@contextmanager
def refused() -> Iterator[None]:
    """Any error of the block becomes a refusal of the run; a refusal stays what it is."""
    try:
        yield
    except RunRefused:
        raise
    except Exception as error:
        if type(error).__module__.split(".")[0] == "pyinfra":
            raise  # its own words for the operator: DeployError, NoHostError
        raise RunRefused(sentence(error)) from None


def say(error: BaseException) -> None:
    """On standard error, where no result belongs to anybody."""
    sys.stderr.write(wrap(f"--> {whole(sentence(error))}", width(sys.stderr)) + "\n")


def _keep(text: str) -> Path | None:
    with contextlib.suppress(OSError):
        folder = state_folder("errors")
        create_private(folder)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}-{len(_kept)}.txt"
        write_whole(path, harmless(mask_text(text))[-_MOST_KEPT:], FILE_MODE)
        keep_newest(folder, "*.txt", _MOST_FILES)
        return path
    return None
