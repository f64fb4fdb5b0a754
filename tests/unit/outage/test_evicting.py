"""When an evicted pod counts as gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest

from roles.engine.objects import NotDone, Session
from roles.engine.outage import DrainConsents, PodFate
from roles.engine.outage.evicting import Evictor
from roles.engine.outage.model import PodWorkload
from tests.context import context
from tests.unit.disruption.world import deployment

HOLD = "shop.example/hold"


class Cluster:
    """One Deployment whose evicted pod stays in the API as given, and whose new pod is Ready."""

    def __init__(self, **old: Any) -> None:
        self.top, self.replicas, self.pod = deployment(1, 1)
        new = {
            **self.pod,
            "metadata": {**self.pod["metadata"], "name": "new", "uid": "new"},
            "spec": {**self.pod["spec"], "nodeName": "w2"},
        }
        kept = {"finalizers": old.pop("finalizers", []), "deletionGracePeriodSeconds": old.pop("grace", 30)}
        meta = {**self.pod["metadata"], "deletionTimestamp": "2026-03-01T12:00:00Z", **kept}
        self.there = [new, {**self.pod, "metadata": meta, "status": {**self.pod["status"], **old}}]

    def alone(self, key: str) -> Any:
        return nullcontext()

    def asked(self, ask: Callable[[Any], Any], what: str = "") -> Any:
        return ask(self)

    def create(self, path: str, body: Any, what: str) -> dict[str, Any]:
        assert path.endswith("/eviction") and body["deleteOptions"]["preconditions"]["uid"] == self.pod["metadata"]["uid"]
        return {}

    def fetch_all(self, path: str) -> list[dict[str, Any]]:
        return {"pods": self.there, "replicasets": [self.replicas], "deployments": [self.top]}[path.rpartition("/")[2]]


def moved(cluster: Cluster) -> str:
    top = cluster.top
    workload = PodWorkload("Deployment", "shop", "web", top["metadata"]["uid"], 1, top, 1, True)
    mover = Evictor(cast(Session, cluster), DrainConsents().model_copy(update={"drain_timeout": 0}), ["w1"])
    return mover.move(PodFate(cluster.pod, "w1", "evicted", "", workload=workload), context())


def test_a_pod_that_has_ended_and_that_only_a_finalizer_keeps_is_gone() -> None:
    told = moved(Cluster(finalizers=[HOLD], phase="Succeeded", grace=0))
    assert told == f"evicted; ended ({HOLD} keeps its object); 1 of Deployment shop/web are Ready"


@pytest.mark.parametrize("old", [{"finalizers": [HOLD]}, {"finalizers": [HOLD], "phase": "Failed"}, {"phase": "Failed"}, {}])
def test_others_are_waited_for(old: dict[str, Any]) -> None:
    with pytest.raises(NotDone, match="still there 0 s after its eviction"):
        moved(Cluster(**old))
