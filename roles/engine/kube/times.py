"""Times and durations. Pure. Go's time.ParseDuration."""

from __future__ import annotations

import math
import re
from datetime import datetime
from fractions import Fraction

from roles.engine.bounds import moment

_NANO = 10**9
_MOST_DIGITS = 100
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}


def parse_duration(text: str) -> Fraction:
    """A Go duration in seconds ("1m30s", "-5s", "0"), in whole nanoseconds. Raises ValueError."""
    sign, body = (-1 if text[:1] == "-" else 1), text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Fraction(0)
    parts = _DURATION.findall(body) if len(body) <= _MOST_DIGITS else []
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError(f"{text!r} is not a duration; write numbers with units: 90s, 1m30s, 2h")
    # Go cuts each part to nanoseconds.
    total = sum(math.floor(Fraction(number.rstrip(".")) * _SECONDS[unit] * _NANO) for number, unit in parts)
    if total > 2**63 - (sign > 0):
        raise ValueError(f"{text!r} is longer than a duration can be (about 292 years)")
    return sign * Fraction(total, _NANO)


def time_of(text: object) -> datetime | None:
    """A time of the API, with its zone; None if it is not set. Raises ValueError."""
    if not text:
        return None
    if (found := moment(text)) is None:
        raise ValueError(f"{text!r} is no time with a zone")
    return found
