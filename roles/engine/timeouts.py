"""One factor for all time limits of a run: how many times longer than on an ordinary machine everything may take.

A node that is emulated, or short of processor time, works correctly but takes 10 or 50 times as long. The factor multiplies daytwo's own
limits (for an answer, a survey, a start, a proof). It does not change what others decide: the kubelet's grace periods and back-offs. Nor
does it change the pauses between two checks, and how long a process must stay healthy.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from typing import Final

KEY = "patience"
LEAST, MOST = 1.0, 100.0
#: Seconds, of an ordinary machine: a restarting API server is away for about 40.
API_WAIT = 60.0
#: Seconds between two looks at what may have changed: not stretched.
LOOK_AGAIN = 1.0

_factor = LEAST
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def parse(value: object) -> float:
    """A number from 1 to 100, also as text of ASCII digits. Raises ValueError."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    found = float(str(value)) if number or (isinstance(value, str) and _DECIMAL.fullmatch(value)) else math.nan
    if not LEAST <= found <= MOST:
        raise ValueError(f"{KEY}={value!r} is not a number from {LEAST:g} to {MOST:g}")
    return found


def set_factor(values: Iterable[object]) -> None:
    """Set the factor of this process to the greatest of the hosts' `values`; None: not set. Raises ValueError."""
    global _factor  # noqa: PLW0603  # one process is one run
    _factor = max((parse(value) for value in values if value is not None), default=LEAST)


def patient(seconds: float) -> float:
    """A limit multiplied by the factor, from the limit on an ordinary machine."""
    return seconds * _factor


def unless_set(seconds: float, is_set: bool) -> float:
    """The limit of a data key: a value that the operator set counts as it is, a default is stretched."""
    return seconds if is_set else patient(seconds)


class Deadline:
    """The end of a wait that begins now. `seconds` are those of an ordinary machine and are stretched, so that no wait forgets the factor.
    With `as_given` they are a limit that is already stretched, or that an operator set."""

    def __init__(self, seconds: float, *, as_given: bool = False) -> None:
        self.seconds = seconds if as_given else patient(seconds)
        self._begun = time.monotonic()

    @property
    def passed(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._begun

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.passed)

    @property
    def over(self) -> bool:
        return self.passed >= self.seconds

    def pause(self, seconds: float, late: Exception | None = None) -> None:
        """Between two checks: not stretched. Raises `late` instead if the time is over."""
        if late is not None and self.over:
            raise late
        # pyinfra's command line patches this sleep, so that other greenlets run meanwhile.
        time.sleep(seconds)
