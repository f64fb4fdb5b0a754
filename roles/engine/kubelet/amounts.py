"""Pure: amounts of a node's resources, added, compared and shown. cpu is counted in thousandths, all others in whole units."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from roles.engine.kubelet.thresholds import parse_quantity, whole

# A node's resource -> how much of it: cpu in thousandths, all others whole (bytes, pods, devices).
Amounts = Mapping[str, int]

HUGE_PAGES = "hugepages-"


def shown(resource: str, amount: int) -> str:
    """An amount for an operator: 1500m of cpu, 512.0Mi of memory, storage and huge pages, anything else unchanged."""
    if resource == "cpu":
        return f"{amount}m"
    in_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith(HUGE_PAGES)
    return f"{amount / 2**20:.1f}Mi" if in_bytes and amount >= 2**20 else str(amount)


# The pods of a cluster have few different amounts.
_quantity = lru_cache(maxsize=4096)(parse_quantity)


def listed(resources: Mapping[str, Any] | None) -> dict[str, Fraction]:
    """The quantities of a resource list. Raises ValueError."""
    return {resource: _quantity(str(amount)) for resource, amount in (resources or {}).items()}


def added(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {key: one.get(key, Fraction(0)) + other.get(key, Fraction(0)) for key in {**one, **other}}


def largest(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {key: max(one.get(key, Fraction(0)), other.get(key, Fraction(0))) for key in {**one, **other}}


def units(resource: str, amount: Fraction) -> int:
    return whole(amount * 1000) if resource == "cpu" else whole(amount)
