"""The operator's side of a run, in the process of its test."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyinfra.api import output

from roles.engine import timeouts, voice
from roles.engine.runs import locked_run
from tests.unit.clock import Clock
from tests.unit.hosts import RecordHost


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The records of runs are this test's alone, and they catch no signal."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(locked_run, "on_interrupt", lambda handle: None)


@pytest.fixture
def operator(alone: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a run shows; no wait takes time."""
    shown: list[str] = []
    monkeypatch.setattr(timeouts, "time", Clock())
    monkeypatch.setattr(voice, "_out", shown.append)
    return shown


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What pyinfra shows."""
    said: list[str] = []
    monkeypatch.setattr(output, "_echo", lambda text="", **_: said.append(text))
    return said


@pytest.fixture
def host(alone: None, tmp_path: Path) -> RecordHost:
    return RecordHost(tmp_path / "node")
