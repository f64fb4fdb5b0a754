"""What is typed: python -m tests.lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.__main__ import parser

ROOT = Path(__file__).resolve().parents[3]


def test_a_command_for_a_node_is_passed_on_as_typed() -> None:
    given = parser().parse_args(["ssh", "w1", "ls", "-l", "--all"])
    assert (given.node, given.command) == ("w1", ["ls", "-l", "--all"])


def test_the_shape_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_PLANES", "3")
    monkeypatch.setenv("WORKERS", "")
    given = parser().parse_args(["up"])
    assert (given.control_planes, given.workers) == (3, 2)
