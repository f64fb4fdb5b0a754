"""The lab of one lane: in the shape that the next tests need, and whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.lab.fingerprint import differences

# What a module has deleted may take a moment to go: a difference is looked at again, so often, after so many seconds.
LOOKS, PAUSE = 5, 1.0
# A component that a test has restarted may be in its back-off; a reset takes longer than that.
WELL_LOOKS = 20
# So many places are named in a line.
NAMED = 5


class LaneLab:
    """`need` is called before the first test of each unit, `leave` after the last one. `seconds` is what it took in all; `reason` says why
    there is no lab now (else it is empty); `failed` is the first test of this unit that failed: the next one does not begin with what it
    left. `notes` are lines for those who follow the run, `left` those about modules whose tests passed and that left nodes or cluster other
    than they found them: the next module would pass or fail by what comes before it. Its lab is reset."""

    # Of a lab is used what the stand-in of tests/unit/lanes/test_labs.py has.
    def __init__(self, lab: Any, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self.lab = lab
        self.seconds = 0.0
        self.reason = self.failed = ""
        self.notes: list[str] = []
        self.left: list[str] = []
        self._clock, self._sleep = clock, sleep
        # As the lab is when it is new; empty: not known.
        self._new: Mapping[str, str] = {}
        self._begun = self._used = False
        self._last = ""

    def need(self, shape: str, module: str) -> None:
        """Have a lab of this shape that is whole. Never raises: `reason` says what went wrong."""
        begun = self._clock()
        self.reason, self._used = "", True
        try:
            self._have(shape)
        except Exception as error:
            self.reason = f"the lab ({shape}) cannot be made: {error or type(error).__name__}"
            self.notes.append(f"no {shape} lab for {module}: {_line(str(error))}")
            # Whatever it left: the next unit starts from nothing.
            self._begun = False
        self.failed, self._last = "", module
        self.seconds += self._clock() - begun

    def leave(self) -> None:
        """The last unit is over: say what it has left. Never raises."""
        begun = self._clock()
        if self._begun and self._last and not self.failed and not self.reason:
            self._changed()
        self.seconds += self._clock() - begun

    def down(self) -> None:
        """Take down what was made here, and what was there already."""
        if not (self._used or self.lab.exists):
            return
        begun = self._clock()
        self.lab.down()
        self.seconds += self._clock() - begun

    def _have(self, shape: str) -> None:
        if not self._begun or self.lab.shape_name != shape:
            if self._begun and not self.failed and self.lab.exists:
                self._changed()
            self._make(shape)
            self._begun = True
            return
        if self.failed:
            why = f"{self.failed} failed"
        else:
            unwell, changed = self._unwell(), self._changed()
            why = unwell or changed
        if not why:
            return
        try:
            self.lab.pristine()
            self.notes.append(f"lab reset after {self._last}: {_line(why)}")
        except Exception as error:
            self.lab.down()
            self._make(shape)
            self.notes.append(f"lab made again after {self._last}: {_line(why)}; it could not be reset: {_line(str(error))}")

    def _unwell(self) -> str:
        for look in range(WELL_LOOKS):
            unwell = self.lab.well()
            if not unwell or look + 1 == WELL_LOOKS:
                break
            self._sleep(PAUSE)
        return unwell

    def _changed(self) -> str:
        """Why the lab is not as it was before the last unit; empty where it is, or where it is not known how it was."""
        if not self._new:
            return ""
        for look in range(LOOKS):
            try:
                found = differences(self._new, self.lab.fingerprint())
            except Exception as error:
                return f"it cannot be seen whether all is as it was: {error}"
            if not found:
                return ""
            if look + 1 < LOOKS:
                self._sleep(PAUSE)
        more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
        self.left.append(f"{self._last}: {_line('; '.join(found[:NAMED]), 1000)}{more}")
        self.notes.append(f"LEFT CHANGED by {self.left[-1]}")
        return "it left nodes or cluster changed"

    def _make(self, shape: str) -> None:
        begun, before = self._clock(), self.lab.shape_name
        self._new = {}
        self.lab.become(shape)
        verb = "found and reset" if before == shape else "made"
        self.notes.append(f"lab ({shape}) {verb} in {self._clock() - begun:.0f} s")
        try:
            self._new = self.lab.fingerprint()
        except Exception as error:
            self.notes.append(f"what this lab is like when it is new is not known: {_line(str(error))}")


def _line(text: str, most: int = 300) -> str:
    return " ".join(text.split())[:most]
