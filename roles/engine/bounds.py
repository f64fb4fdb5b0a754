"""Times and JSON of others, with bounds: what an API, a node or a file says is data, and never an exception that nobody expects. Pure.

Whoever may write a status may write any year, and JSON of any depth. `ruff` forbids the plain functions elsewhere (pyproject.toml).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta  # noqa: TID251
from typing import Any

#: Times outside of these count as these, so that a sum of any of them and any `span` is a time, too.
EARLIEST, LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
#: Bytes of one answer or file. A larger one is not read.
MOST_BYTES = 1 << 28
#: Levels of one JSON document. Kubernetes' own objects have less than 30, and Python's functions need one call for each.
MOST_DEPTH = 100
#: A number of 64 bits has not more digits.
_MOST_DIGITS = 20
#: RFC 3339 with nanoseconds has 35 characters.
_LONGEST_TIME = 40
_MOST_SPAN = 100 * 365 * 86400.0
_OTHERS = bytes(set(range(256)) - set(b'[]{}"'))


class Unbounded(ValueError):
    """JSON outside of the bounds."""


class Twice(ValueError):
    """JSON with an object that has a key twice."""

    def __init__(self, key: str) -> None:
        super().__init__(f"it has {key} twice")
        self.key = key


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `read_json`: an object whose keys occur once. Raises Twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Twice(key)
        found[key] = value
    return found


def moment(text: object) -> datetime | None:
    """A time as Kubernetes writes it (RFC 3339), in UTC, between EARLIEST and LATEST; None for anything that is no time with a zone.

    Years from 0 to 9999 are valid in the API (apimachinery, meta/v1/time.go): 0 has no datetime, and 9999 none one minute later.
    """
    if not isinstance(text, str) or len(text) > _LONGEST_TIME:
        return None
    before = text.startswith("0000-")
    try:
        found = datetime.fromisoformat(f"0004{text[4:]}" if before else text)  # noqa: TID251
    except ValueError:
        return None
    if found.tzinfo is None:
        return None
    return EARLIEST if before else max(EARLIEST, min(found, LATEST)).astimezone(UTC)


def at_epoch(seconds: float) -> datetime:
    """A time by its seconds since 1970, between EARLIEST and LATEST."""
    lowest, highest = EARLIEST.timestamp(), LATEST.timestamp()
    return datetime.fromtimestamp(max(lowest, min(seconds, highest)), UTC)  # noqa: TID251


def span(seconds: float) -> timedelta:
    """A duration; beyond 100 years it is 100 years."""
    return timedelta(seconds=max(-_MOST_SPAN, min(seconds, _MOST_SPAN)))


def read_json(text: bytes | str, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """A JSON document. `pairs` makes an object of its pairs (json.loads, object_pairs_hook).

    Raises ValueError: it is no JSON (json.JSONDecodeError), or it has more than MOST_BYTES, more than MOST_DEPTH levels, a number that is
    not finite or has more than 64 bits.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > MOST_BYTES:
        raise Unbounded(f"it has more than {MOST_BYTES >> 20} MiB")
    if _is_deep(data):
        raise Unbounded(f"it has more than {MOST_DEPTH} levels")
    # Other encodings hide brackets and quotes from the check above; JSON between systems is UTF-8 (RFC 8259, section 8.1).
    whole = data.decode("utf-8-sig", "surrogatepass")
    try:
        return json.loads(  # noqa: TID251
            whole, object_pairs_hook=pairs, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
        )
    except RecursionError:
        raise Unbounded(f"it has more than {MOST_DEPTH} levels") from None


def digits(text: str) -> int | None:
    """A number of ASCII digits alone, of at most 64 bits; None for anything else.

    Python's own functions take each script's digits for digits, read an underscore within them, and raise ValueError from 4300 of them on
    (and for a superscript, which is a digit of theirs and no number). Kubernetes reads ASCII (strconv.ParseInt).
    """
    found = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
    return None if found is None or found >= 2**64 else found


_NAMES = {int: "no number of 64 bits", str: "no text", bool: "neither true nor false"}


def misshaped(found: Any, shape: Any, path: str = "") -> str:
    """Where a document is not of a shape: the path and what is there; "" if it is. A shape is `int` (0 to 64 bits), `str`, `bool`, a list
    with the shape of its items, a map with the shapes of some of its fields (`*`: of all others), or a function that reads a text and
    raises ValueError. What is missing or null fits, but for a value of a list, or of a map with a `*`."""
    if found is None:
        return ""
    if isinstance(shape, dict):
        if not isinstance(found, dict):
            return f"{path} is no map"
        if "*" in shape and None in found.values():
            return f"{path} has a null"
        parts = ((shape.get(key, shape.get("*")), value, f"{path}.{key}" if path else str(key)) for key, value in found.items())
        return next((why for of, value, name in parts if of is not None and (why := misshaped(value, of, name))), "")
    if isinstance(shape, list):
        if not isinstance(found, list) or None in found:
            return f"{path} is no list of values"
        return next((why for number, one in enumerate(found) if (why := misshaped(one, shape[0], f"{path}[{number}]"))), "")
    if shape not in _NAMES:
        return _unread(found, shape, path)
    fits = type(found) is shape and (shape is not int or 0 <= found < 1 << 64)
    return "" if fits else f"{path} is {_NAMES[shape]}"


def _unread(found: Any, read: Callable[[str], object], path: str) -> str:
    if not isinstance(found, str):
        return f"{path} is no text"
    try:
        read(found)
    except ValueError as error:
        return f"{path}: {error}"
    return ""


def _is_deep(data: bytes) -> bool:
    """Without a parser, and without a Python function for each character: a list of all pods has 100 MiB."""
    if data.count(b"[") + data.count(b"{") <= MOST_DEPTH:
        return False
    brackets = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    # Two quotes side by side: an empty string, or the border of two; without them the rest is inside or outside of a string as before.
    parts = brackets.replace(b'""', b"").split(b'"')
    left = b"".join(parts[::2])
    for _ in range(MOST_DEPTH):
        inner, left = left, left.replace(b"[]", b"").replace(b"{}", b"")
        if inner == left:
            break
    # What is left has no pairs any more: it is no JSON, which the parser says, or it is deep.
    return len(left) > MOST_DEPTH or b"[]" in left or b"{}" in left


def _no_number(constant: str) -> Any:
    raise Unbounded(f"{constant} is not a number in JSON")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise Unbounded("a number is too large")
    return found


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _MOST_DIGITS:
        raise Unbounded("a number is too large")
    return int(text)
