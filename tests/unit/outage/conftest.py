"""What waits takes no time in tests of outages."""

from __future__ import annotations

import pytest
from pyinfra.api import output

from roles.engine import timeouts
from roles.engine.outage import drainer, evicting, reading, surge
from tests.unit.clock import Clock


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ticks = Clock()
    for module in (timeouts, reading, evicting, surge, drainer):
        monkeypatch.setattr(module, "time", ticks)
    return ticks


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the run says, in lines."""
    lines: list[str] = []
    monkeypatch.setattr(output, "_echo", lambda text="", **_: lines.extend(text.split("\n")))
    return lines
