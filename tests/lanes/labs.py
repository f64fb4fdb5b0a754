"""The lab of one lane: in the shape that the next tests need, and whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class LabLike(Protocol):
    """What a lane needs of tests.lab.Lab."""

    @property
    def shape_name(self) -> str | None: ...
    @property
    def exists(self) -> bool: ...
    def become(self, shape: str) -> None: ...
    def pristine(self) -> None: ...
    def well(self) -> str: ...
    def evidence(self, folder: Path) -> None: ...
    def down(self) -> None: ...


class LaneLab:
    """`need` is called before the first test of each unit. `seconds` is what it took in all; `reason` says why there is no lab now
    (else it is empty); `notes` are lines for those who follow the run."""

    def __init__(self, lane: str, lab: LabLike, clock: Callable[[], float] = time.monotonic) -> None:
        self.lane, self.lab = lane, lab
        self.seconds = 0.0
        self.reason = ""
        self.notes: list[str] = []
        self._clock = clock
        self._begun = self._used = False
        self._last = ""
        self._failed = ""

    def need(self, shape: str, module: str) -> None:
        """Have a lab of this shape that is whole. Never raises: `reason` says what went wrong."""
        begun = self._clock()
        self.reason, self._used = "", True
        try:
            self._have(shape)
        except Exception as error:
            self.reason = f"lane {self.lane}: the lab ({shape}) cannot be made: {error or type(error).__name__}"
            self._say(f"no {shape} lab for {module}: {_line(str(error))}")
            # Whatever it left: the next unit starts from nothing.
            self._begun = False
        self._failed, self._last = "", module
        self.seconds += self._clock() - begun

    def failed(self, test: str) -> None:
        """A test of this unit failed: the next unit does not begin with what it left."""
        self._failed = self._failed or test

    def down(self) -> None:
        """Take down what was made here, and what was there already."""
        if not (self._used or self.lab.exists):
            return
        begun = self._clock()
        self.lab.down()
        self.seconds += self._clock() - begun

    def _have(self, shape: str) -> None:
        if not self._begun or self.lab.shape_name != shape:
            self._make(shape)
            self._begun = True
            return
        why = f"{self._failed} failed" if self._failed else self.lab.well()
        if not why:
            return
        try:
            self.lab.pristine()
            self._say(f"lab reset after {self._last}: {_line(why)}")
        except Exception as error:
            self.lab.down()
            self._make(shape)
            self._say(f"lab made again after {self._last}: {_line(why)}; it could not be reset: {_line(str(error))}")

    def _make(self, shape: str) -> None:
        begun, before = self._clock(), self.lab.shape_name
        self.lab.become(shape)
        verb = "found and reset" if before == shape else "made"
        self._say(f"lab ({shape}) {verb} in {self._clock() - begun:.0f} s")

    def _say(self, text: str) -> None:
        self.notes.append(f"lane {self.lane}: {text}")


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
