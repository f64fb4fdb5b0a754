"""Amounts of resources: quantities read, added, compared and shown. cpu is counted in thousandths, all others in whole units. Pure.

k8s.io/apimachinery/pkg/api/resource/quantity.go (ParseQuantity, Value).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

# A node's resource -> how much of it: cpu in thousandths, all others whole (bytes, pods, devices).
Amounts = Mapping[str, int]

HUGE_PAGES = "hugepages-"

_QUANTITY = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?")
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_PERCENT = re.compile(r"([0-9]{1,20})%\Z")
_NANO = 10**9
_MOST_DIGITS = 100


def parse_quantity(text: str) -> Fraction:
    """A resource.Quantity, exact to its smallest step (1n). Raises ValueError.

    Suffixes: Ki Mi Gi Ti Pi Ei (powers of 2), n u m k M G T P E, or an exponent (1e3). A value between two steps is rounded away from 0.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity; write a number with or without a suffix: 500Mi, 1.5Gi, 2G, 1000")
    sign, number, suffix, exponent = found.groups()
    # Who may create an object may write any number of digits into some quantities; what is computed of one must stay a number of Python.
    if len(number) > _MOST_DIGITS or (exponent is not None and not (len(exponent) < 5 and -100 <= int(exponent) <= 100)):
        raise ValueError(f"{text[:40]!r} is out of the range of a quantity")
    power = int(exponent) if exponent is not None else _POWERS.get(suffix or "", 0)
    size = Fraction(number.rstrip(".")) * (Fraction(2) ** _BINARY[suffix] if suffix in _BINARY else Fraction(10) ** power)
    size = Fraction(math.ceil(size * _NANO), _NANO)
    if suffix in _BINARY:
        size = min(size, Fraction(2**63 - 1))
    return -size if sign == "-" else size


def whole(quantity: Fraction) -> int:
    """A quantity in whole units as Quantity.Value() returns it: rounded away from 0."""
    return math.ceil(quantity) if quantity >= 0 else math.floor(quantity)


def scaled(value: int | str, total: int, *, up: bool, otherwise: int | None = None) -> int:
    """A number, or a percentage of `total`, rounded up or down (intstr.GetScaledValueFromIntOrPercent). `otherwise`: what counts if it is
    neither; without it that raises ValueError."""
    if isinstance(value, int):
        return value
    if (found := _PERCENT.match(str(value))) is None:
        if otherwise is None:
            raise ValueError("invalid value for IntOrString: invalid type: string is not a percentage")
        return otherwise
    whole_share = int(found[1]) * total
    return -(-whole_share // 100) if up else whole_share // 100


def shown(resource: str, amount: int) -> str:
    """An amount for an operator: 1500m of cpu, 512.0Mi of memory, storage and huge pages, anything else unchanged."""
    if resource == "cpu":
        return f"{amount}m"
    in_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith(HUGE_PAGES)
    return f"{amount / 2**20:.1f}Mi" if in_bytes and amount >= 2**20 else str(amount)


def quantity(resource: str, amount: Fraction) -> str:
    """An amount and its resource, as an operator writes them: `500m requests.cpu`."""
    base = resource.removeprefix("requests.").removeprefix("limits.")
    return f"{shown(base, units(base, amount))} {resource}"


_NONE = Fraction(0)
# The pods of a cluster have few different amounts.
_quantity = lru_cache(maxsize=4096)(parse_quantity)


def listed(resources: Mapping[str, Any] | None) -> dict[str, Fraction]:
    """The quantities of a resource list. Raises ValueError."""
    return {resource: _quantity(str(amount)) for resource, amount in (resources or {}).items()}


def added(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    # Most pods have one container and no overhead.
    return {**one, **other} if not (one and other) else {key: one.get(key, _NONE) + other.get(key, _NONE) for key in {**one, **other}}


def largest(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {key: max(one.get(key, _NONE), other.get(key, _NONE)) for key in {**one, **other}}


def units(resource: str, amount: Fraction) -> int:
    return whole(amount * 1000) if resource == "cpu" else whole(amount)
