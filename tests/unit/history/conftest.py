"""The records of runs on the operator's machine are a test's alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.engine.transaction.record import RunRecord
from tests.unit.history.world import OBJECTS_INFO


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Of the run on objects."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return RunRecord(OBJECTS_INFO).path
