"""When a machine may be used: as its owner writes it, at the jumps of clocks, and at any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.consolidation.hours import DAYS, Availability, Hours, availability, parse_hours, parse_zone

NIGHTS = "Mo-Fr 19:00-07:00"
NOTICE = 900.0


def hours(text: str, zone: str = "UTC") -> Hours:
    return parse_hours(text, parse_zone(zone))


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=parse_zone(zone))


@pytest.mark.parametrize(
    ("now", "state", "free_by", "changes"),
    [  # 2026-11-27 is a Friday
        ("2026-11-27T18:59", "gone", "2026-11-27T07:00", "2026-11-27T19:00"),
        ("2026-11-27T19:00", "available", None, "2026-11-28T06:45"),
        ("2026-11-28T06:44", "available", None, "2026-11-28T06:45"),
        ("2026-11-28T06:45", "ending", "2026-11-28T07:00", "2026-11-28T07:00"),
        ("2026-11-28T07:00", "gone", "2026-11-28T07:00", "2026-11-30T19:00"),
        ("2026-11-30T01:00", "gone", "2026-11-28T07:00", "2026-11-30T19:00"),
    ],
)
def test_a_range_over_midnight_belongs_to_the_day_that_it_begins(now: str, state: str, free_by: str | None, changes: str) -> None:
    found = availability(hours(NIGHTS), NOTICE, at(now))
    assert found == Availability(state, at(free_by) if free_by else None, at(changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "now", "state", "when"),
    [
        # Two o'clock is three in Berlin on 2026-03-29, and twice two on 2026-10-25: the shorter time counts.
        ("Su 02:30-04:00", "2026-03-29T00:45", "gone", "2026-03-29T01:30"),
        ("Su 02:30-04:00", "2026-03-29T01:31", "available", "2026-03-29T01:45"),
        ("Sa-Su 22:00-02:30", "2026-03-29T00:20", "ending", "2026-03-29T00:30"),
        ("Su 02:30-04:00", "2026-10-25T01:00", "gone", "2026-10-25T01:30"),
        ("Sa-Su 22:00-02:30", "2026-10-25T00:20", "ending", "2026-10-25T00:30"),
        ("Sa-Su 22:00-02:30", "2026-10-25T01:00", "gone", "2026-10-25T21:00"),
        ("Sa 22:00-24:00, Su 00:00-07:00", "2026-10-24T22:00", "available", "2026-10-25T05:45"),
    ],
)
def test_where_a_clock_jumps_the_machine_is_used_for_the_shorter_time(text: str, now: str, state: str, when: str) -> None:
    found = availability(hours(text, "Europe/Berlin"), NOTICE, at(now))
    assert (found.state, found.changes) == (state, at(when))


def test_a_machine_without_hours_or_with_all_of_them_is_available() -> None:
    now = at("2026-11-28T07:00")
    assert availability(None, NOTICE, now) == Availability("available")
    assert availability(hours("00:00-24:00", "America/Havana"), NOTICE, now) == Availability("available")
    assert availability(hours("Mo-Fr 19:00-07:00, 07:00-19:00, Sa-Su 19:00-07:00"), NOTICE, now) == Availability("available")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nights", "write DAYS HH:MM-HH:MM"),
        ("Mo,We 19:00-07:00", "'Mo' is not hours"),
        ("Mo-Fr 7pm-7am", "write DAYS HH:MM-HH:MM"),
        ("mo 19:00-20:00", "write DAYS HH:MM-HH:MM"),
        ("Mo-Xx 19:00-20:00", "Xx is no day; days are Mo"),
        ("19:00-19:00", "write 00:00-24:00 for a whole day"),
        ("24:00-07:00", "write 00:00 of the next day"),
        ("19:00-24:30", "24:30 is no time of day"),
        ("٠٩:00-10:00", "write DAYS HH:MM-HH:MM"),
        ("", "write DAYS HH:MM-HH:MM"),
    ],
)
def test_what_is_not_clear_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hours(text)


@pytest.mark.parametrize(
    "zone", ["CET", "EST", "Europe", "Europe/Nowhere", "../etc/passwd", "America/Argentina", "x/" + "y" * 5000, "a/\0"]
)
def test_a_zone_is_that_of_a_place(zone: str) -> None:
    with pytest.raises(ValueError, match="tz is"):
        parse_zone(zone)


CLOCK = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
RANGE = st.tuples(st.sampled_from(["", "Mo ", "Fr-Mo ", "Mo-Fr ", "Sa-Su "]), CLOCK, CLOCK).filter(lambda one: one[1] != one[2])
TEXT = st.lists(RANGE.map(lambda one: f"{one[0]}{one[1]}-{one[2]}"), min_size=1, max_size=3).map(", ".join)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu"])
#: Two years with all jumps.
TIMES = st.integers(0, 2 * 366 * 24 * 60).map(lambda minutes: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes))


@given(TEXT, ZONES, TIMES, st.sampled_from([0.0, 900.0, 7200.0]))
def test_nothing_changes_before_the_next_change_and_then_it_does(text: str, zone: str, now: datetime, notice: float) -> None:
    of = hours(text, zone)
    found = availability(of, notice, now)
    if found.changes is None:
        assert found.state == "available" and of.always
        return
    assert found.changes > now
    before, then = availability(of, notice, found.changes - timedelta(seconds=1)), availability(of, notice, found.changes)
    assert (before.state, before.free_by) == (found.state, found.free_by)
    assert (then.state, then.free_by) != (found.state, found.free_by)
    if found.state == "ending":
        assert found.free_by == found.changes <= now + timedelta(seconds=notice) and then.state == "gone"


@given(TEXT, ZONES, TIMES)
def test_a_machine_is_never_used_when_its_clock_says_no(text: str, zone: str, now: datetime) -> None:
    """By the words of the text: minute by minute, without any span."""
    local = now.astimezone(parse_zone(zone))
    minute, day = local.hour * 60 + local.minute, local.weekday()

    def says(one: str) -> bool:
        names, _, clocks = one.rpartition(" ")
        begins, ends = (int(clock[:2]) * 60 + int(clock[3:]) for clock in clocks.split("-"))
        first, _, last = (names or "Mo-Su").partition("-")
        count = (DAYS.index(last or first) - DAYS.index(first)) % 7 + 1
        days = {(DAYS.index(first) + number) % 7 for number in range(count)}
        today, yesterday = day in days, (day - 1) % 7 in days
        return (today and begins <= minute < ends) if begins < ends else (today and minute >= begins) or (yesterday and minute < ends)

    expected = any(map(says, text.split(", ")))
    used = availability(hours(text, zone), 0.0, now).state == "available"
    assert used <= expected
    # It is used at all times that are not about a jump of the clock.
    quiet = len({(local + timedelta(hours=step)).utcoffset() for step in range(-30, 31, 3)}) == 1
    assert used == expected or not quiet
