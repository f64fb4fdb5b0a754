"""Surges that a killed run has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roles.engine.outage.drainer import SURGE
from roles.engine.outage.mark import run_of
from roles.engine.outage.surge import CHEAPEST, DELETION_COST
from roles.engine.outage.surge_marks import SURGED_BY
from roles.engine.transaction import RunInfo
from roles.engine.transaction.record import RunRecord
from tests.unit.disruption.world import deployment
from tests.unit.outage.api import ClusterApi
from tests.unit.outage.world import node


def record(run: str, deployment: str, fields: Sequence[Mapping[str, Any]] = (), **more: Any) -> None:
    """The line of a surge in the operator's record of a run, as it is before the write."""
    made = fields or [{"path": ["metadata", "annotations", SURGED_BY], "before": None, "after": run}]
    about = {"event": "drain", "object": f"pod shop/{deployment}", "what": SURGE, "node": "w1", "uid": f"uid-Deployment-{deployment}"}
    RunRecord(RunInfo(run_of(run), "", "", "", "", "")).write({**about, "fields": list(made), **more})


def surged(api: ClusterApi, run: str, name: str = "web") -> None:
    """As a run leaves it that was killed in a surge."""
    record(run, name)
    api.one("Deployment", name)["metadata"]["annotations"] = {SURGED_BY: run}
    api.one("Deployment", name)["spec"]["replicas"] = 2
    api.one("Pod", f"{name}-1-0")["metadata"]["annotations"] = {DELETION_COST: CHEAPEST, "own": "1"}


def cluster(*, by: str = "", also: tuple[str, ...] = ()) -> ClusterApi:
    return ClusterApi(node("w1", manager="daytwo" if by else "", mark=by), node("w2"), *deployment(1, 1), *(
        item for name in also for item in deployment(1, 1, name)
    ))  # fmt: skip


def state(api: ClusterApi, name: str = "web") -> tuple[int, str, str]:
    """The replicas of a Deployment, its mark, and the cost of its pod."""
    top, one = api.one("Deployment", name), api.one("Pod", f"{name}-1-0")
    marks, costs = top["metadata"].get("annotations") or {}, one["metadata"].get("annotations") or {}
    return top["spec"]["replicas"], marks.get(SURGED_BY, ""), costs.get(DELETION_COST, "")


AS_BEFORE = (1, "", "")


def check(api: ClusterApi) -> None:
    """As long as something of the surge is there, the node has the mark by which it is found."""
    assert state(api) == AS_BEFORE or api.one("Node", "w1")["spec"].get("unschedulable")
