"""The drain before a reboot: whose cordon it leaves, and that it goes on only while the run has the cluster's lock."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from roles.engine.object_changes import NotDone
from roles.engine.outage import CORDONED_BY, DrainConsents
from roles.engine.rollout.lock import Locked
from roles.reboot.emptying import Emptying
from tests.context import context
from tests.unit.disruption.world import deployment
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.test_plan import node, spread

RUN = "r20260102-000000-bbbb"


class Run:
    """A run with a record; `taken_over`: after so many events, another run has the lock."""

    def __init__(self, halted: str = "", taken_over: int = 100) -> None:
        self.halted, self.events, self._left = halted, list[Any](), taken_over
        self.context = context(run=RUN, note=self.events.append, stopped=lambda: self.halted, ensure=self.ensure)

    def ensure(self) -> None:
        if len(self.events) > self._left:
            raise Locked("another run has held this cluster's lock")


def drained(cluster: LiveCluster, run: Run, *runs: str) -> str:
    return Emptying(cluster.session, DrainConsents(seconds=60)).drain("w1", run.context, runs)


def test_nodes_that_are_drained_at_the_same_time_share_the_limit_of_a_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LiveCluster(monkeypatch, node("w1"), node("w2"), node("w3"), *spread(deployment(2, 2), "w1", "w2"))
    emptying = Emptying(cluster.session, DrainConsents(seconds=60))
    drains = [gevent.spawn(emptying.drain, name, Run().context, ()) for name in ("w1", "w2")]
    gevent.joinall(drains, raise_error=True)
    assert [ready for _, ready in cluster.evicted] == [1, 1]


def cordon(cluster: LiveCluster) -> tuple[bool, str]:
    item = cluster.node("w1")
    return bool(item["spec"].get("unschedulable")), (item["metadata"].get("annotations") or {}).get(CORDONED_BY, "")


@pytest.mark.parametrize("manager", ["daytwo", "kubectl-cordon"])
def test_a_cordon_that_was_there_before_stays_with_its_mark(monkeypatch: pytest.MonkeyPatch, manager: str) -> None:
    """Also if the drain fails: then nothing has changed."""
    mark = "r1" if manager == "daytwo" else ""
    for run in (Run(), Run(halted="w2: failed")):
        cluster = LiveCluster(monkeypatch, node("w1", manager=manager, mark=mark), node("w2"), *deployment(1, 1))
        if run.halted:
            with pytest.raises(NotDone, match=r"w2: failed.*w1: it keeps the cordon that it had"):
                drained(cluster, run, "r0")
        else:
            assert "1 workload serves elsewhere" in drained(cluster, run, "r0")
        assert cordon(cluster) == (True, mark)


def test_if_the_drain_fails_its_own_cordon_is_removed_and_that_of_an_ended_reboot_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for before, said, after in (
        (node("w1"), "uncordoned", (False, "")),
        (node("w1", manager="daytwo", mark="r1"), "given back to run r1", (True, "r1")),
    ):
        cluster = LiveCluster(monkeypatch, before, node("w2"), *deployment(2, 2))
        cluster.starts = False
        with pytest.raises(NotDone, match=rf"w1: {said}: read back"):
            drained(cluster, Run(), "r1")
        assert cordon(cluster) == after and len(cluster.evicted) == 1


@pytest.mark.parametrize(
    ("manager", "mark", "said", "after"),
    [
        ("daytwo", RUN, "uncordoned", (False, "")),
        ("daytwo", "r0", "uncordoned", (False, "")),
        ("daytwo", "r1", "it keeps the cordon that it had, of run r1", (True, "r1")),
        ("kubectl-cordon", RUN, "it keeps the cordon that it had, of kubectl-cordon (Update)", (True, "")),
        ("kubectl-cordon", "", "it keeps the cordon that it had, of kubectl-cordon (Update)", (True, "")),
        ("", RUN, "it is not cordoned", (False, "")),
    ],
)
def test_after_a_reboot_only_its_own_cordon_is_removed(
    monkeypatch: pytest.MonkeyPatch, manager: str, mark: str, said: str, after: tuple[bool, str]
) -> None:
    """r0: an earlier run of reboots that was to reboot it; r1: a drain."""
    cluster = LiveCluster(monkeypatch, node("w1", manager=manager, mark=mark))
    assert (
        Emptying(cluster.session, DrainConsents()).free(cluster.node("w1"), {RUN, "r0"}, None, context()) == said
        and cordon(cluster) == after
    )


def test_after_a_take_over_no_pod_leaves_and_nothing_is_uncordoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that has the lock may be draining the same node."""
    cluster = LiveCluster(monkeypatch, node("w1"), node("w2"), *deployment(2, 2))
    # The cordon and the first eviction are recorded and done.
    with pytest.raises(NotDone, match=r"another run has held this cluster's lock.*STILL CORDONED"):
        drained(cluster, Run(taken_over=2))
    assert len(cluster.evicted) == 1 and cordon(cluster) == (True, RUN)
