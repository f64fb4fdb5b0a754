"""Times and JSON of others have bounds: anything else is refused as data, and never an exception that nobody expects."""

from __future__ import annotations

import json
import pickle
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.bounds import EARLIEST, LATEST, MOST_DEPTH, at_epoch, digits, moment, read_json, span

ROOT = Path(__file__).resolve().parents[2]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-11-27T01:02:03Z", datetime(2026, 11, 27, 1, 2, 3, tzinfo=UTC)),
        ("2026-11-27T01:02:03.123456Z", datetime(2026, 11, 27, 1, 2, 3, 123456, tzinfo=UTC)),
        ("2026-11-27T01:02:03+02:00", datetime(2026, 11, 26, 23, 2, 3, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", LATEST),
        ("9999-12-31T23:59:59-14:00", LATEST),
        ("0001-01-01T00:00:00Z", EARLIEST),
        ("0001-01-01T00:00:00+14:00", EARLIEST),
        ("0000-02-29T00:00:00Z", EARLIEST),
        ("2026-11-27T01:02:03", None),
        ("2026-13-27T01:02:03Z", None),
        ("null", None),
        ("", None),
        ("Z" * 100_000, None),
        (None, None),
        (7, None),
        ({}, None),
    ],
)
def test_a_time_is_within_bounds_or_none(text: Any, found: datetime | None) -> None:
    assert moment(text) == found


@given(st.text() | st.datetimes(timezones=st.timezones()).map(lambda one: one.isoformat()), st.floats(allow_nan=False) | st.integers())
def test_sums_of_times_and_spans_are_times(text: str, seconds: float) -> None:
    for at in (moment(text) or EARLIEST, LATEST, at_epoch(seconds)):
        assert at - span(seconds) + span(seconds) == at
        assert (at + span(seconds)).timestamp() > -1e10


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[" * 200_000 + "]" * 200_000,
        '{"a":' * 200_000,
        '{"a":' * 200_000 + "1" + "}" * 200_000,
        "[1," * 200_000,
        '["]",' * (MOST_DEPTH * 2 + 2) + "1" + "]" * (MOST_DEPTH * 2 + 2),
        '["\\"]",' * (MOST_DEPTH * 2 + 2) + "1" + "]" * (MOST_DEPTH * 2 + 2),
        "NaN",
        "[Infinity]",
        "1e999",
        "9" * 21,
        "1" * 10_000,
        "{",
        "",
    ],
)
def test_json_out_of_bounds_is_a_value_error(text: str) -> None:
    for form in (text, text.encode()):
        with pytest.raises(ValueError):
            read_json(form)


def test_json_in_other_encodings_hides_nothing() -> None:
    with pytest.raises(ValueError):
        read_json(("[" * 300 + "]" * 300).encode("utf-16"))


@given(VALUES)
@settings(max_examples=30)
def test_other_json_is_read_as_ever(value: Any) -> None:
    text = json.dumps(value)
    assert read_json(text) == read_json(text.encode()) == value


def test_depth_is_counted_outside_of_strings() -> None:
    many = {"a": "[{" * 500, "b": ['\\"[', "\\\\"] * 300, "c": [[[]]] * 1000}
    assert read_json(json.dumps(many)) == many
    deep: Any = 1
    for _ in range(MOST_DEPTH):
        deep = [deep]
    assert pickle.dumps(read_json(json.dumps(deep)))


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", 0), ("007", 7), (str(2**64 - 1), 2**64 - 1), ("", None), ("-1", None), ("+1", None), ("1_0", None), (" 1", None), ("1\n", None)]
    + [("٣", None), ("³", None), ("9" * 21, None), ("9" * 5000, None)],
)
def test_digits_are_ascii_and_no_more_than_64_bits(text: str, found: int | None) -> None:
    assert digits(text) == found


def test_nothing_takes_the_digits_of_other_scripts() -> None:
    """The API server and the kubelet read ASCII. `\\d` is fine where the pattern says re.ASCII."""
    loose = re.compile(r"\\d|\.(?:isdigit|isdecimal|isnumeric)\(")
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("roles", "deploys")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if loose.search(line) and "ASCII" not in line and "isascii" not in line
    ]
    assert places == [], "use [0-9], or roles.engine.bounds.digits"
