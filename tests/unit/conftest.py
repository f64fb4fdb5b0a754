"""The operator's side of a run, in the process of its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine import timeouts, voice
from roles.engine.runs import locked_run
from tests.unit.clock import Clock
from tests.unit.hosts import RecordHost


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What a run shows; its records are this test's alone, no wait takes time, and it catches no signal."""
    shown: list[str] = []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(timeouts, "time", Clock())
    monkeypatch.setattr(voice, "_out", shown.append)
    monkeypatch.setattr(locked_run, "on_interrupt", lambda handle: None)
    return shown


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RecordHost]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(locked_run, "on_interrupt", lambda handle: None)
    yield RecordHost(tmp_path / "daytwo")
