"""Amounts for people: one of a thing has no plural, and no number of bytes is shown as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roles.right_size.quantities import memory_text

ROLES = Path(__file__).resolve().parents[2] / "roles"
# A number of a computed length before a plural; `of 3 pods` is right for one, too, and so is a line that knows the number.
_PLURAL = re.compile(r"(?<!of )(?<!all )(?<!all its )(?<!only )\{(?:len|sum)\([^{}]*\)\} (?:static )?(?:pods|changes|records)\b")


def test_one_of_a_thing_has_no_plural() -> None:
    found = [
        f"{path.relative_to(ROLES)}: {line.strip()}"
        for path in sorted(ROLES.rglob("*.py"))
        for line in path.read_text().splitlines()
        if _PLURAL.search(line) and "== 1" not in line and "!= 1" not in line
    ]
    assert found == [], "use roles.engine.detail.counted"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0Mi"), (1, "1Ki"), (421888, "412Ki"), (2**20, "1Mi"), (25276063744, "24106Mi"), (2**31, "2Gi")]
)
def test_an_amount_of_memory_has_a_unit(size: int, text: str) -> None:
    assert memory_text(size) == text
