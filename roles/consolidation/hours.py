"""When a machine that its owner takes back may be used: `Mo-Fr 19:00-07:00`, in the time zone of its place. Pure.

A range over midnight belongs to the day that it begins. Ranges that meet are one. Where a clock jumps, and a time of day is there twice or
not at all, the machine is used for the shorter time: hours begin with the later of both readings, and end with the earlier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import cached_property
from typing import Literal
from zoneinfo import ZoneInfo

from roles.engine.bounds import span

DAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
_DAY = span(86400)
_RANGE = re.compile(
    r"(?:(?P<first>[A-Z][a-z])(?:-(?P<last>[A-Z][a-z]))? +)?(?P<begins>[0-2][0-9]:[0-5][0-9])-(?P<ends>[0-2][0-9]:[0-5][0-9])", re.ASCII
)
_EXAMPLE = '"Mo-Fr 19:00-07:00, Sa-Su 00:00-24:00"'
#: A week has every change; one day more on both sides has the ranges over midnight.
_AROUND = 9
_WHOLE_DAY = 24 * 60


@dataclass(frozen=True)
class Range:
    """Minutes since midnight of each of the days, 0 for Monday; `ends` is at most 24 hours after `begins`."""

    days: frozenset[int]
    begins: int
    ends: int


@dataclass(frozen=True)
class Hours:
    """`text`: as the data has it."""

    text: str
    ranges: tuple[Range, ...]
    zone: ZoneInfo

    def __str__(self) -> str:
        return f"{self.text} {self.zone.key}"

    def around(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """The spans near a time, in UTC, in their order."""
        today = now.astimezone(self.zone).date()
        merged: list[tuple[datetime, datetime]] = []
        for begins, ends in sorted(self._on_clocks(today)):
            if merged and begins <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(ends, merged[-1][1]))
            else:
                merged.append((begins, ends))
        spans = [(max(self._instants(begins)), min(self._instants(ends))) for begins, ends in merged]
        return [(begins, ends) for begins, ends in spans if begins < ends]

    def _on_clocks(self, today: date) -> Iterator[tuple[datetime, datetime]]:
        for day in (today + _DAY * number for number in range(-_AROUND, _AROUND + 1)):
            midnight = datetime.combine(day, time())
            for one in self.ranges:
                if day.weekday() in one.days:
                    yield midnight + span(60 * one.begins), midnight + span(60 * one.ends)

    def _instants(self, clock: datetime) -> list[datetime]:
        return [clock.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)]

    @cached_property
    def always(self) -> bool:
        minutes = {(day * _WHOLE_DAY + minute) % (7 * _WHOLE_DAY) for one in self.ranges for day in one.days
                   for minute in range(one.begins, one.ends)}  # fmt: skip
        return len(minutes) == 7 * _WHOLE_DAY


@dataclass(frozen=True)
class Availability:
    """`ending`: it must be free by `free_by`, which is within its notice. `gone`: its hours have ended, at `free_by` if that was in the
    last days. `changes`: when the state is another one; None: never. Times are in UTC."""

    state: Literal["available", "ending", "gone"]
    free_by: datetime | None = None
    changes: datetime | None = None


def availability(hours: Hours | None, notice: float, now: datetime) -> Availability:
    """What a machine is at a time. `notice`: in seconds; `hours`: None for one without, which is available until its owner asks for it."""
    if hours is None or hours.always:
        return Availability("available")
    spans = hours.around(now)
    for begins, ends in spans:
        if begins <= now < ends:
            if ends - now <= span(notice):
                return Availability("ending", ends, ends)
            return Availability("available", None, ends - span(notice))
    past = [ends for _, ends in spans if ends <= now]
    return Availability("gone", max(past, default=None), min((begins for begins, _ in spans if begins > now), default=None))


# ---- as an operator writes it


def parse_hours(text: str, zone: ZoneInfo) -> Hours:
    """Raises ValueError with what is wrong, and how to write it."""
    parts = [part.strip() for part in text.split(",")]
    return Hours(", ".join(parts), tuple(_range(part) for part in parts), zone)


def _range(part: str) -> Range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise ValueError(f"{part!r} is not hours; write DAYS HH:MM-HH:MM, each range with its own days: {_EXAMPLE}")
    first, last = found["first"], found["last"] or found["first"]
    if unknown := [day for day in (first, last) if day is not None and day not in DAYS]:
        raise ValueError(f"{part!r}: {unknown[0]} is no day; days are {', '.join(DAYS)}")
    begins, ends = _minutes(part, found["begins"]), _minutes(part, found["ends"])
    if begins == _WHOLE_DAY:
        raise ValueError(f"{part!r} begins at 24:00; write 00:00 of the next day")
    if begins == ends:
        raise ValueError(f"{part!r} may be no time or a whole day; write 00:00-24:00 for a whole day")
    days = set(range(7))
    if first is not None:
        start = DAYS.index(first)
        days = {(start + number) % 7 for number in range((DAYS.index(str(last)) - start) % 7 + 1)}
    return Range(frozenset(days), begins, ends if ends > begins else ends + _WHOLE_DAY)


def _minutes(part: str, clock: str) -> int:
    found = int(clock[:2]) * 60 + int(clock[3:])
    if found > _WHOLE_DAY:
        raise ValueError(f"{part!r}: {clock} is no time of day; the last one is 24:00, as an end")
    return found


def parse_zone(name: str) -> ZoneInfo:
    """Raises ValueError. An abbreviation has no rules of its own, or those of several places."""
    if name != "UTC" and "/" not in name:
        raise ValueError(f"tz is {name!r}; write the IANA name of a place, such as Europe/Berlin, or UTC")
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(
            f"tz is {name!r}, which this machine's time zone data does not have; write an IANA name such as Europe/Berlin (package tzdata)"
        ) from None
