"""What change.sh prints, read: also where a connection that broke cut it short."""

from __future__ import annotations

import base64

import pytest

from roles.engine.transaction.report import parse


@pytest.mark.parametrize("field", ["cmdline", "cgroup", "evidence"])
def test_a_field_that_was_cut_short_hides_no_other(field: str) -> None:
    whole = base64.b64encode(b"kubelet\0--x\0").decode()
    found = parse(["state=applied", "identity=7 99", f"{field}={whole[:9]}", "health=200"])
    assert (found.state, found.identity, found.health) == ("applied", ("7", "99"), "200")
    assert parse(["state=applied", f"cmdline={whole}"]).argv == ("kubelet", "--x")
