"""The script that reads a node's records, run on folders that root of a node has filled."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from roles.history import facts

RUN = "r20260601-120000-abcd"


@pytest.fixture
def change(tmp_path: Path) -> Path:
    made = tmp_path / "changes" / f"{RUN}-w1-kubelet"
    (made / "before").mkdir(parents=True)
    (made / "state").write_text("state=confirmed\n")
    (made / "holder").write_text("at=1\n")
    (made / "number").write_text("7\n")
    return made


def said(home: Path) -> dict[str, list[str]]:
    answer = subprocess.run(["sh", "-s"], input=facts.question([RUN], str(home)), text=True, capture_output=True, check=True, timeout=60)
    assert answer.stdout.endswith("end\n") and not answer.stderr
    return {line.split()[0]: line.split() for line in answer.stdout.splitlines()}


def test_what_is_no_file_or_has_no_end_is_cut_or_left_out(change: Path, tmp_path: Path) -> None:
    os.mkfifo(change / "reason")
    (change / "record.jsonl").symlink_to("/dev/zero")
    os.mkfifo(change / "before" / "1")
    with (change / "before" / "2").open("wb") as endless:
        endless.truncate(1 << 40)
    (change / "before" / "3").write_bytes(b"old")
    found = said(tmp_path)
    assert found["change"][3:] == ["=", "=", "7"] and found["original"][2:] == ["3", "b2xk="]
    (change / "record.jsonl").unlink()
    with (change / "record.jsonl").open("wb") as endless:
        endless.truncate(1 << 40)
    assert len(said(tmp_path)["change"][4]) < 6 << 20
