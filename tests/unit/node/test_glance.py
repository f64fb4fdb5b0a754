"""What the script at a glance says of a node's changes and of the lock, and what is read of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roles.engine.node.glance import Glance, NewestChange
from roles.engine.node.look import rendered
from roles.engine.scripts import filled
from tests.unit.node import node
from tests.unit.node.node import parse

FUNCTIONS = "b64() { base64 -w 0; }\ntext() { printf '%s' \"$1\" | b64; }\n"


def asked(home: Path, shell: str) -> Glance:
    script = FUNCTIONS + filled("glance.sh.j2", home=str(home), most=9, seconds=5)
    done = subprocess.run([shell, "-s"], input=script, text=True, capture_output=True, check=True)
    found = parse("w1", [*node.answer(), *done.stdout.splitlines(), "end"]).glance
    assert found is not None and done.stderr == ""
    return found


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_newest_change_is_the_one_with_the_highest_number(tmp_path: Path, shell: str) -> None:
    home = tmp_path / "a b"
    assert asked(home, shell).newest is None
    for name, number in (
        ("r2-w1-kubelet", "10"),
        ("r9-w1-kubelet", "9"),
        ("r20260101-000000-aaaa-cluster-objects", "77"),
        ("evil", "99999999999"),
        ("word", "x"),
    ):
        change = home / "changes" / name
        change.mkdir(parents=True)
        (change / "number").write_text(f"{number}\n")
        (change / "state").write_text("state=confirmed\n")
        (change / "holder").write_text(f"run={name[:2]}\nwho=me@here\n")
    found = asked(home, shell)
    assert found.newest is not None and found.lock is None
    assert (found.newest.name, found.newest.values) == ("r2-w1-kubelet", {"state": "confirmed", "run": "r2", "who": "me@here"})
    assert found.newest.at == int((home / "changes/r2-w1-kubelet/state").stat().st_mtime)
    (home / "cluster").write_text("run=r5\nexpires=12\n")
    (home / "changes/r2-w1-kubelet/state").unlink()
    found = asked(home, shell)
    assert found.lock == {"run": "r5", "expires": "12"} and found.newest == NewestChange(
        "r2-w1-kubelet", None, {"run": "r2", "who": "me@here"}
    )


def test_only_one_deploy_asks_for_it() -> None:
    assert "needs-restarting" in rendered(glance=True) and "needs-restarting" not in rendered()
    assert parse("w1", node.answer()).glance is None
