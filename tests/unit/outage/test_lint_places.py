"""The rule `no-place` of the audit: whether replacements fit on the other nodes."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.disruption import PDB, DisruptionRule, budget_states, lint
from roles.engine.findings import Finding
from roles.engine.outage import lint_places
from roles.engine.outage.lint_places import read_places, with_places
from tests.unit.disruption.world import NOW, budget, deployment, of_status, pod, workload, world
from tests.unit.outage.world import asking, node, of_template, spread

FINE = {"maxUnavailable": 1, "status": of_status(2, 1, 2, 1)}


def judged(*items: dict[str, Any], nodes: tuple[dict[str, Any], ...] = (node("w1"), node("w2"))) -> tuple[list[Finding], list[str]]:
    live = world(*nodes, *items)
    states = budget_states(live, NOW)
    return with_places(lint(live, states, NOW), live, states, NOW)


def places(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.rule == "no-place"]


def of_cpu(cpu: str, *on: str) -> list[dict[str, Any]]:
    items = spread(deployment(len(on), len(on)), *on)
    of_template(items[1], asking(cpu))
    for one in items[2:]:
        one["spec"] |= asking(cpu)
    return items


def test_replacements_that_fit_are_said_with_the_waves() -> None:
    found, not_known = judged(*of_cpu("1", "w1", "w1"), budget(**FINE))
    assert places(found) == [] and not_known == []
    assert next(one.why for one in found if one.rule == "waves").endswith("; they fit on the other nodes")


def test_pods_without_another_place_are_named_with_the_reason() -> None:
    found, _ = judged(*of_cpu("3", "w1", "w1"), budget(**FINE))
    (one,) = places(found)
    assert one.severity == "warning" and one.objects == ("PodDisruptionBudget shop/web", "Node w1")
    assert "w1: shop/web-1-1 (cpu: 3000m requested, 1000m left" in one.why
    assert "fit on the other nodes" not in next(one.why for one in found if one.rule == "waves")
    # Pods without a budget leave the node too, and take their room.
    other = workload("ReplicaSet", "other", 1)
    first = pod("a-first", other, app="other", spec=asking("2"))
    assert places(judged(*of_cpu("3", "w1"), other, first, budget(maxUnavailable=1, status=of_status(1, 0, 1, 1)))[0])
    assert not places(judged(*of_cpu("3", "w1"), budget(maxUnavailable=1, status=of_status(1, 0, 1, 1)))[0])


def test_a_taint_that_a_controller_removes_is_a_note_without_advice_to_make_room() -> None:
    tainted = node("w2")
    tainted["spec"]["taints"] = [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]
    (one,) = places(judged(*of_cpu("1", "w1", "w1"), budget(**FINE), nodes=(node("w1"), tainted))[0])
    assert (
        one.severity == "note" and "disk-pressure on w2 (removed by kube-controller-manager" in one.why and "make room" not in one.way_out
    )


def test_what_is_not_judged_is_a_note() -> None:
    items = of_cpu("1", "w1", "w2")
    for one in items[2:]:
        one["spec"]["schedulerName"] = "other"
    of_template(items[1], asking("1", schedulerName="other"))
    (one,) = places(judged(*items, budget(**FINE))[0])
    assert one.severity == "note" and "its scheduler is other" in one.why and {"Node w1", "Node w2"} < set(one.objects)


def test_what_another_rule_says_of_these_pods_is_not_said_again() -> None:
    items = of_cpu("3", "w1")
    live = world(node("w1"), node("w2", pods=0), *items, budget(maxUnavailable=1, status=of_status(1, 0, 1, 1)))
    states = budget_states(live, NOW)
    tied = DisruptionRule.TIED_TO_NODE.found(("Pod shop/web-1-0",), "")
    assert len(places(with_places([], live, states, NOW)[0])) == 1
    assert places(with_places([tied], live, states, NOW)[0]) == []
    assert places(with_places([DisruptionRule.NO_NODE_LEFT.found(("PodDisruptionBudget shop/web",), "")], live, states, NOW)[0]) == []


def test_of_a_large_cluster_the_fullest_nodes_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [*of_cpu("3", "w1", "w2", "w2"), budget(maxUnavailable=1, status=of_status(3, 2, 3, 1))]
    assert judged(*items)[1] == []
    monkeypatch.setattr(lint_places, "MOST_CHECKS", 1)
    found, not_known = judged(*items)
    assert [one.objects[1:] for one in places(found)] == [("Node w2",)]
    assert not_known == ["whether replacements fit on other nodes: only 1 of 2 nodes with pods of budgets were judged"]


def test_only_what_is_needed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(lint_places, "list_objects", lambda api, path, **more: read.append(path.rpartition("/")[2]) or [])
    read_places(None, world(*deployment(1, 1)))  # type: ignore[arg-type]
    assert read == []
    live = read_places(None, world(node("w1"), *deployment(1, 1), budget(**FINE)))  # type: ignore[arg-type]
    assert read == ["namespaces"] and live.of(PDB) and "Namespace" in live.objects
    stored = pod("a", spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]})
    read_places(None, world(node("w1"), stored, budget(**FINE)))  # type: ignore[arg-type]
    assert read[1:] == ["namespaces", "persistentvolumeclaims", "persistentvolumes", "csidrivers", "csinodes", "volumeattachments"]
