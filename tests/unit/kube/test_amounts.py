"""Amounts, and shares of them."""

from __future__ import annotations

import pytest

from roles.engine.kube.amounts import scaled


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [(2, 5, 2, 2), ("0%", 5, 0, 0), ("1%", 1, 1, 0), ("34%", 3, 2, 1), ("33%", 3, 1, 0), ("7%", 100, 7, 7), ("100%", 7, 7, 7)],
)
def test_a_percentage_is_rounded_up_or_down(value: int | str, total: int, up: int, down: int) -> None:
    assert (scaled(value, total, up=True), scaled(value, total, up=False)) == (up, down)


def test_a_text_without_a_percent_sign_is_neither() -> None:
    assert scaled("3", 5, up=True, otherwise=1) == 1
    with pytest.raises(ValueError, match="string is not a percentage"):
        scaled("3", 5, up=True)
