"""Which nodes go: what the planner finds, and what placement is sure of."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.consolidation.kept import KeepReason
from roles.consolidation.plan import DELETION_COST, disruption
from roles.engine.kube import namespace_and_name
from tests.unit.consolidation.cluster import keeper, nodes, planned, pod
from tests.unit.disruption.world import workload
from tests.unit.placement.cluster import node, spread


def moved(found: Any) -> set[tuple[str, str]]:
    return {namespace_and_name(one.pod) for name in found.plan.goes for one in found.keeper.leaving(name)}


def test_the_dearest_nodes_go_and_their_pods_find_room() -> None:
    there = [*nodes("w1", "w2", "w3"), *(pod(f"web-{number}", f"w{number}") for number in (1, 2, 3))]
    found = planned(keeper(*there), {"w1": 300, "w2": 200, "w3": 100})
    assert found.goes == ["w1", "w2"] and found.plan.stays == ("w3",)
    assert found.plan.moves == {("shop", "web-1"): "w3", ("shop", "web-2"): "w3"}


def test_what_must_stay_stays_and_says_why() -> None:
    found = planned(keeper(*nodes("cp1", "w1", "w2"), pod("a", "w1", owner=None), servers={"cp1"}), {"cp1": 1, "w1": 900, "w2": 1})
    assert found.goes == ["w2"]
    assert found.kept["w1"][0].reason is KeepReason.UNMANAGED


def test_a_spare_node_stays() -> None:
    there = nodes("w1", "w2", "w3")
    assert len(planned(keeper(*there, pod("a", "w1"))).goes) == 2
    assert len(planned(keeper(*there, pod("a", "w1")), spare=1).goes) == 1


def test_no_more_pods_move_than_are_allowed() -> None:
    there = [
        *nodes("w1", "w2", "w3"),
        *(pod(f"a{number}", "w1") for number in range(3)),
        pod("b", "w2"),
        *(pod(f"c{n}", "w3") for n in range(5)),
    ]
    found = planned(keeper(*there), {"w1": 300, "w2": 100, "w3": 100}, max_moves=1)
    assert found.goes == ["w2"] and len(found.plan.moves) == 1


def test_a_pod_that_is_not_sure_to_have_a_place_keeps_its_node() -> None:
    """The labels of namespaces were not read."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = planned(keeper(*nodes("w1", "w2", "w3"), pod("odd", "w1", affinity=affinity)), {"w1": 900, "w2": 1, "w3": 1})
    assert "w1" not in found.goes
    assert "shop/odd" in " ".join([*(one.about for one in found.kept.get("w1", ())), found.plan.why.get("w1", "")])


def test_a_replacement_is_judged_by_its_template() -> None:
    """Its pod was resized in place: the one that comes is as large as the template says, and fits nowhere else."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}
    large = workload("ReplicaSet", "large", 1, spec={"template": template})
    found = planned(keeper(node("w1"), node("w2", cpu="3"), large, pod("a", "w1", owner=large)), {"w1": 900, "w2": 1})
    assert "w1" not in found.goes
    assert [one.reason for one in found.kept.get("w1", ())] == [KeepReason.NO_PLACE]


def test_each_zone_keeps_a_node() -> None:
    there = [node("w1", zone="a"), node("w2", zone="a"), node("w3", zone="b"), node("w4", zone="b")]
    found = planned(keeper(*there), {"w1": 9, "w2": 1, "w3": 9, "w4": 1})
    assert found.goes == ["w1", "w3"]


def test_an_idle_cluster_keeps_a_node_for_pods() -> None:
    found = planned(keeper(*nodes("cp1", "w1", "w2"), servers={"cp1"}))
    assert found.goes == ["w2"] and [one.reason for one in found.kept["w1"]] == [KeepReason.LAST_NODE]
    assert found.bound == 200


def test_savings_for_the_least_disruption_come_first() -> None:
    costly = {"annotations": {DELETION_COST: str(2**30)}}
    there = [*nodes("w1", "w2", "w3"), pod("a", "w1", meta=costly), pod("b", "w2")]
    assert planned(keeper(*there), {"w1": 200, "w2": 190, "w3": 1}).goes == ["w2", "w1"]


@pytest.mark.parametrize(
    ("cost", "priority", "wanted"),
    [("0", 0, 1.0), ("134217728", 0, 2.0), ("0", 2**25, 2.0), ("2147483647", 0, 10.0), ("-2147483648", 0, -10.0), ("lots", 0, 1.0),
     ("9" * 5000, 0, 1.0)],
)  # fmt: skip
def test_disruption_is_that_of_karpenter(cost: str, priority: int, wanted: float) -> None:
    assert disruption(pod("a", "w1", priority=priority, meta={"annotations": {DELETION_COST: cost}})) == pytest.approx(wanted, abs=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_every_pod_of_a_node_that_goes_has_a_move_to_one_that_stays(seed: int) -> None:
    dice = Random(seed)
    names = [f"w{number}" for number in range(dice.randint(2, 5))]
    there = [node(name, cpu=dice.choice(["1", "2"]), zone=dice.choice("ab")) for name in names]
    pods = []
    for number in range(dice.randint(0, 8)):
        more = {"topologySpreadConstraints": spread()} if dice.randrange(4) == 0 else {}
        more |= {"meta": {"deletionTimestamp": "2026-03-01T12:00:10Z"}} if dice.randrange(8) == 0 else {}
        pods.append(pod(f"p{number}", dice.choice(names), cpu=dice.choice(["100m", "500m"]), **more))
    found = planned(keeper(*there, *pods), {name: dice.choice([50.0, 100.0, 200.0]) for name in names}, spare=dice.randrange(2))
    assert moved(found) <= set(found.plan.moves)
    assert set(found.plan.moves.values()) <= {*found.plan.stays, *found.plan.woken}
    assert not set(found.goes) & set(found.kept) and not found.keeper.lost_zones(found.goes or ["none"])
