"""Which nodes a reading asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.bridge import Fleet
from roles.engine.remote import RemoteError
from roles.status import reading


def test_a_worker_alone_is_read_with_the_api_of_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of the nodes that --limit leaves out."""
    hosts: list[Any] = [SimpleNamespace(name=name, is_control_plane=name.startswith("cp"), connected=True) for name in ("cp1", "w1", "w2")]
    asked: list[str] = []

    def look(remote: Any, *_: object, **__: object) -> None:
        asked.append(remote.name)
        raise RemoteError(f"{remote.name}: no answer")

    monkeypatch.setattr(reading, "look", look)
    found = reading.read(Fleet([hosts[1]], [hosts[0], hosts[2]], [], hosts))
    assert sorted(asked) == ["cp1", "w1"]
    assert found.failures == ["w1: no answer"] and found.warnings == []
