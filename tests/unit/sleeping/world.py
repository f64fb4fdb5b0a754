"""A node whose machine daytwo turned off."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from roles.engine.outage import Mark
from roles.engine.outage.mark import OUTAGE
from roles.sleeping import Ends

RUN = "r20261128-130000-aaaa"
OFF = datetime(2026, 11, 28, 13, tzinfo=UTC)


def sleeper(
    mark: str, *, manager: str = "daytwo", ready: str = "Unknown", since: str = "2026-11-28T13:00:00Z", version: str = "v1.36.3"
) -> Any:
    field = {"manager": manager, "operation": "Update", "time": since, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    return {
        "metadata": {"name": "w1", "annotations": {OUTAGE: mark}, "managedFields": [field]},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"kubeletVersion": version}},
    }


def marked(ends: Ends) -> str:
    return ends.into(Mark(RUN, "power-off", "boot", why="for the night")).text()
