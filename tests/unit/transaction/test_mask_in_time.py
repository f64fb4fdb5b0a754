"""What others write is masked in a time that grows with its length: a row of anything hangs no run. (Whoever hangs this process also keeps
it from renewing the lock.)"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from roles.engine.kube.amounts import parse_quantity
from roles.engine.transaction import mask_manifest, mask_text

LENGTH = 20_000
ROWS = (
    "#", "# ", "\\", "\\\"", "password=", "password: a\\", "-----BEGIN PRIVATE KEY-----\n", "{", "value: ", "://u:p@", "eyJ.", "- --token\n", "a.", " ",
    "'", "\n", "name: TOKEN\nvalue: ", "A" * 64 + "\n",
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("mask", [mask_text, mask_manifest])
def test_a_row_of_anything_is_masked_in_time(mask: Callable[[str], str], row: str) -> None:
    begun = time.process_time()
    for before in ("", "password=", "x: "):
        mask(f"{before}{row * (LENGTH // len(row))}!")
    assert time.process_time() - begun < 3


def test_a_row_of_digits_is_no_quantity_in_time() -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity("0" * 100_000 + "!")
    assert time.process_time() - begun < 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [("password=a\\\\\\b", 1), ("password=a\\\\'", 1), ("# # value: secret-text", 1), ("x: 1  # no word of it\n## value: s3cr3t\ny: 2", 1)],
)
def test_what_was_masked_still_is(text: str, shown: int) -> None:
    assert mask_manifest(text).count("<masked") == shown
