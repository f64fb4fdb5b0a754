"""What is typed: python -m tests.lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.__main__ import how_to_use, parser

ROOT = Path(__file__).resolve().parents[3]


def test_a_command_for_a_node_is_passed_on_as_typed() -> None:
    given = parser().parse_args(["ssh", "w1", "ls", "-l", "--all"])
    assert (given.node, given.command) == ("w1", ["ls", "-l", "--all"])


def test_what_a_new_lab_prints_works_in_any_folder() -> None:
    assert how_to_use("") == [f". {ROOT}/.venv/bin/activate", f"export DAYTWO_INVENTORY={ROOT}/inventories/lab.py", "daytwo status"]
    assert how_to_use("a1")[1] == f"export DAYTWO_INVENTORY={ROOT}/inventories/lab.py LAB=a1"


def test_the_shape_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_PLANES", "3")
    monkeypatch.setenv("WORKERS", "")
    given = parser().parse_args(["up"])
    assert (given.control_planes, given.workers) == (3, 2)
