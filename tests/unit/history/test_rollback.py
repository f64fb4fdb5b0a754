"""Which run deploys/rollback.py undoes, and how often it reads the records of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyinfra.api.exceptions import DeployError

from roles import history
from roles.engine.node_changes import Basis
from roles.engine.transaction.record import CLUSTER_KIND
from roles.history import Recorded, Speaker
from roles.history.facts import HistoryError
from tests.unit.history.world import NO_WAY, OBJECTS_LINES, OBJECTS_RUN, Nodes, change, numbered, of_objects, recorded, undone
from tests.unit.hosts import INFO
from tests.unit.outage.world import node, of_change


def of_cluster() -> Recorded:
    return recorded(change("kubelet-config", "cp1", kind=CLUSTER_KIND, files=()), speaker=Speaker.keeper)


@pytest.fixture(autouse=True)
def that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of another day would need its name."""
    monkeypatch.setattr(history, "time", SimpleNamespace(time=lambda: datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()))


def test_the_newest_run_is_undone_as_a_run_on_objects_only_if_it_is_one() -> None:
    older = numbered(3, recorded(change(run="r20260101-000000-aaaa")), run=3)
    with pytest.raises(DeployError, match=NO_WAY):
        undone(Nodes({"cp1": [of_objects()], "w1": [older]}))
    newer = numbered(12, recorded(change(run="r20260103-000000-cccc")), run=12)
    newer = replace(newer, plan={**newer.plan, "data": "of other data"})
    assert undone(Nodes({"cp1": [of_objects(number="3")], "w1": [newer]})).runs == ("r20260103-000000-cccc",)


def test_an_incomplete_run_on_objects_is_undone_only_by_its_name() -> None:
    cut = of_objects(OBJECTS_LINES[:2], state="staged")
    with pytest.raises(DeployError, match="there is nothing to undo"):
        undone(Nodes({"cp1": [cut]}))
    with pytest.raises(DeployError, match=NO_WAY):
        undone(Nodes({"cp1": [cut]}, run=OBJECTS_RUN))


def test_a_named_run_is_read_once() -> None:
    nodes = Nodes({"cp1": [of_cluster()], "w1": [recorded()]}, run=INFO.id)
    assert [one.component for one in undone(nodes).chosen] == ["kubelet", "kubelet-config"]
    assert nodes.reads == [["cp1", "w1"]]


def test_for_the_newest_run_the_old_files_are_read_too_of_the_nodes_that_it_changed() -> None:
    nodes = Nodes({"cp1": [], "w1": [recorded()], "w2": []})
    assert undone(nodes).desired.by_host.keys() == {"w1"}
    assert nodes.reads == [["cp1", "w1", "w2"], ["w1"]]


def test_the_host_of_the_lock_is_read_also_if_limit_excludes_it() -> None:
    kept = recorded(change("kube-apiserver", "cp1"))
    nodes = Nodes({"cp1": [kept, of_cluster()], "w1": [recorded()]}, ["w1"], run=INFO.id)
    found = undone(nodes)
    assert [one.component for one in found.chosen] == ["kubelet", "kubelet-config"] and found.desired.by_host.keys() == {"w1"}
    assert nodes.reads == [["w1", "cp1"]]
    assert undone(Nodes({"cp1": [of_cluster()], "w1": []}, ["w1"], run=INFO.id)).chosen == ()


def cordoned(limit: Sequence[str] = (), *, by: str = INFO.id) -> tuple[str, ...]:
    """The refusals of the undo of a run without a change, on a cluster whose w2 has this cordon."""
    nodes = Nodes({"cp1": [], "w1": [], "w2": []}, limit, run=INFO.id)
    found = undone(nodes)
    assert not found.chosen and list(found.desired.by_host) == [limit[0] if limit else "cp1"]
    listed = {one["metadata"]["name"]: one for one in (node("cp1"), node("w1"), node("w2", manager="daytwo", mark=of_change(by)))}
    reading = SimpleNamespace(last_nodes=lambda: listed)
    basis = cast(Basis, SimpleNamespace(fleet=nodes, found=SimpleNamespace(reading=reading)))
    plans = [cast(Any, SimpleNamespace(kubelet=SimpleNamespace(node_name=host))) for host in found.desired.by_host]
    assert set(found.cordons_of(basis)) == (set() if limit else {INFO.id})
    return tuple(map(str, found.against_plans(basis, plans)))


def test_a_run_that_was_killed_in_the_middle_of_a_drain_has_only_its_cordon() -> None:
    """Nothing of it is on a node yet."""
    assert cordoned() == () and "no node has a confirmed change of run" in cordoned(by="r20260101-000000-ffff")[0]
    assert cordoned(["w1"]) and not cordoned(["w2"])


@pytest.mark.parametrize("data", [{}, {"run": INFO.id}])
def test_a_node_that_cannot_be_read_stops_the_undo(data: dict[str, Any]) -> None:
    with pytest.raises(DeployError, match="w1: the record was read only in part"):
        undone(Nodes({"cp1": [recorded()], "w1": HistoryError("w1: the record was read only in part")}, **data))
