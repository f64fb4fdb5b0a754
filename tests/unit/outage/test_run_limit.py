"""Several nodes drained at the same time: how many pods of one workload leave at once if no budget says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gevent
import pytest

from roles.engine.node_changes.outages import CHANGE
from roles.engine.objects import NotDone
from roles.engine.outage import DrainConsents, NodeOutage
from roles.engine.outage.evicting import RunLimit
from tests.context import context
from tests.unit.disruption.world import budget, deployment, of_status
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.world import node, spread

W = [node(f"w{number}") for number in (1, 2, 3, 4)]


class Drains:
    """Drains of one run that begin at the same time; `late`: each begins once one more pod was evicted. `failed` by the name of the node."""

    def __init__(
        self, cluster: LiveCluster, *nodes: str, stopped: Callable[[], str] = lambda: "", late: bool = False, **consents: Any
    ) -> None:
        limit = RunLimit(cluster.session)
        self.noted: list[Mapping[str, Any]] = []
        self.failed: dict[str, str] = {}

        def note(event: Mapping[str, Any]) -> None:
            self.noted.append(event)
            # As a question to the lock's node: others ask the API meanwhile.
            for _ in range(10):
                gevent.sleep(0)

        def drain(name: str) -> None:
            while late and len(cluster.evictions) < nodes.index(name):
                cluster.clock.sleep(1)
            wanted = DrainConsents(**{"drain_timeout": 300, **consents})
            one = NodeOutage(cluster.session, name, wanted, "r1", CHANGE, limit=limit)
            try:
                one.take(context(note=note, stopped=stopped))
            except NotDone as error:
                self.failed[name] = str(error)

        gevent.joinall([gevent.spawn(drain, name) for name in nodes], raise_error=True)


def test_two_replicas_on_two_nodes_never_leave_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LiveCluster(monkeypatch, *W, *spread(deployment(2, 2), "w1", "w2"))
    assert not Drains(cluster, "w1", "w2").failed and [ready for _, ready in cluster.evictions] == [1, 1]
    assert {one["spec"]["nodeName"] for one in cluster.pods()} == {"w3"}


def test_as_many_leave_as_in_a_roll_out_over_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """25% of eight are two, on one node or on three."""
    cluster = LiveCluster(monkeypatch, *W, *spread(deployment(8, 8), *("w1", "w1", "w1", "w1", "w2", "w2", "w3", "w3")))
    assert not Drains(cluster, "w1", "w2", "w3").failed
    assert len(cluster.evictions) == 8 and min(ready for _, ready in cluster.evictions) == 6


def test_a_drain_that_begins_while_pods_are_away_knows_how_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own plan sees one Ready pod of two. The third node is the one where the first replacement came."""
    cluster = LiveCluster(monkeypatch, *W, *spread(deployment(2, 2), "w1", "w2"))
    assert not Drains(cluster, "w1", "w2", "w3", late=True).failed
    assert [ready for _, ready in cluster.evictions] == [1, 1, 1] and {one["spec"]["nodeName"] for one in cluster.pods()} == {"w4"}


@pytest.mark.parametrize(
    ("halted", "seconds", "words"),
    [
        ("interrupted", 300, "not evicted (interrupted): 0 other pods of Deployment shop/web are Ready, and 1 must be"),
        ("", 60, "0 other pods of Deployment shop/web are Ready"),
    ],
)
def test_a_halt_and_the_time_limit_end_the_wait(monkeypatch: pytest.MonkeyPatch, halted: str, seconds: int, words: str) -> None:
    cluster = LiveCluster(monkeypatch, *W, *spread(deployment(2, 2), "w1", "w2"))
    cluster.starts = False
    drains = Drains(cluster, "w1", "w2", stopped=lambda: halted if cluster.evictions else "", seconds=seconds)
    assert len(cluster.evictions) == 1 and set(drains.failed) == {"w1", "w2"}
    assert any(words in why for why in drains.failed.values()), drains.failed
    # A pod that waits is not recorded as one that leaves.
    assert [one.get("what") for one in drains.noted].count("evict") == 1
    assert not any(cluster.node(name)["spec"].get("unschedulable") for name in ("w1", "w2"))


def test_a_budget_decides_for_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked by each eviction, and daytwo adds nothing."""
    status = of_status(2, 0, 2, 2)
    cluster = LiveCluster(monkeypatch, *W, *spread(deployment(2, 2), "w1", "w2"), budget(maxUnavailable=2, status=status))
    assert not Drains(cluster, "w1", "w2").failed and [ready for _, ready in cluster.evictions] == [1, 0]


def test_replacements_that_may_stay_pending_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    full = [node(name, pods=0) for name in ("w1", "w2", "w3")]
    cluster = LiveCluster(monkeypatch, *full, *spread(deployment(2, 2), "w1", "w2"))
    cluster.starts = False
    assert not Drains(cluster, "w1", "w2", allow_pending=True).failed and len(cluster.evictions) == 2


def test_past_a_budget_nothing_else_limits_how_many_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    status = of_status(2, 2, 2, 0)
    cluster = LiveCluster(monkeypatch, *W, *spread(deployment(2, 2), "w1", "w2"), budget(minAvailable=2, status=status))
    drains = Drains(cluster, "w1", "w2", ignore_budgets=("shop/web",))
    assert not drains.failed and [ready for _, ready in cluster.evictions] == [1, 1]
