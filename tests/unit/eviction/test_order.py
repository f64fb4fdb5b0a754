"""Each pod's place and why, and the OOM scores. (The formula against the kubelet's own: test_predict.py.)"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kubelet.thresholds import effective
from roles.eviction import order
from roles.eviction.usage import ContainerProcess
from tests.unit.eviction.pods import GI, MI, filesystem, node, pod, stats, summary, uid_of


def one_node(**more: Any) -> order.NodeOrder:
    pods = [
        pod("web", priority=10, requests={"memory": "100Mi", "ephemeral-storage": "50Mi"}),
        pod("batch", priority=-5, qos="BestEffort"),
        pod("etcd-n1", priority=2000001000, mirror="e" * 32, spec={"priorityClassName": "system-node-critical"}),
        pod("idle", requests={"memory": "1Gi"}),
        pod("gone", phase="Succeeded"),
    ]
    seen = summary(
        stats("web", memory=130 * MI, rootfs=60 * MI, processes=30),
        stats("batch", memory=20 * MI, logs=MI, processes=3),
        stats("etcd-n1", uid="e" * 32, memory=200 * MI),
        stats("idle", memory=10 * MI),
    )
    return order.order(seen, pods, node(), **more)


def test_places_and_turns() -> None:
    found = one_node()
    assert [row.pod for row in found.rows] == ["default/batch", "default/web", "default/etcd-n1", "default/idle"]
    uses = [row.uses["memory.available"] for row in found.rows]

    def by(signal: str) -> list[str]:
        return [row.pod for row in sorted(found.rows, key=lambda row: row.uses[signal].place)]

    assert [(use.place, use.turn, use.over) for use in uses] == [(1, 1, True), (2, 2, True), (3, None, True), (4, 3, False)]
    assert by("nodefs.available") == ["default/batch", "default/web", "default/idle", "default/etcd-n1"]
    assert by("pid.available") == ["default/batch", "default/idle", "default/web", "default/etcd-n1"]
    assert found.signals == ("memory.available", "nodefs.available", "pid.available")
    apart = order.order(summary(imagefs=filesystem(capacity=GI)), [], node())
    assert apart.signals == ("memory.available", "nodefs.available", "imagefs.available", "pid.available")


def test_reasons() -> None:
    rows = {row.pod.removeprefix("default/"): row for row in one_node().rows}
    assert order.reason("memory.available", rows["web"]) == "30Mi over its request"
    assert order.reason("memory.available", rows["batch"]) == "20Mi used, nothing requested"
    assert order.reason("memory.available", rows["idle"]) == "1014Mi below its request"
    assert order.reason("memory.available", rows["etcd-n1"]) == "never evicted (static pod)"
    assert order.reason("pid.available", rows["web"]) == "priority 10, 30 processes"
    unknown = order.order(summary(), [pod("new")], node()).rows[0]
    assert order.reason("memory.available", unknown) == "usage unknown"


def test_scores_by_the_formula_and_from_proc() -> None:
    ids = {name: uid_of(name)[:8] * 8 for name in ("web", "batch", "etcd-n1")}
    processes = [
        ContainerProcess(uid_of("web"), ids["web"], 11, 900),
        ContainerProcess(uid_of("batch"), ids["batch"], 12, 1000),
        ContainerProcess("e" * 32, ids["etcd-n1"], 13, -997),
    ]
    found = {row.pod.removeprefix("default/"): row.containers for row in one_node(processes=processes).rows}
    assert found["web"] == (order.Adjust("app", 988, 900, 11),)
    assert found["batch"] == (order.Adjust("app", 1000, 1000, 12),)
    assert found["etcd-n1"] == (order.Adjust("app", -997, -997, 13),)
    assert found["idle"] == (order.Adjust("app", 875, None, None),)
    differ = [note for note in one_node(processes=processes).notes if "oom_score_adj" in note]
    assert len(differ) == 1 and "default/web: PID 1 of app has oom_score_adj 900, but its request results in 988" in differ[0]
    assert any("not read" in note for note in one_node().notes)


def test_an_init_container_that_has_ended_has_no_score() -> None:
    side = {"name": "side", "restartPolicy": "Always"}
    one = pod("a", spec={"initContainers": [{"name": "init"}, side], "ephemeralContainers": [{"name": "debug"}]})
    [row] = order.order(summary(), [one], node()).rows
    assert [adjust.container for adjust in row.containers] == ["side", "app", "debug"]


@pytest.mark.parametrize(
    ("quality", "requested", "wanted"),
    [("Guaranteed", "8Gi", -997), ("BestEffort", "", 1000), ("Burstable", "", 999), ("Burstable", "1", 999), ("Burstable", "4Gi", 500),
     ("Burstable", "7.99Gi", 3), ("Burstable", "16Gi", 3), ("Burstable", "100Mi", 988)],
)  # fmt: skip
def test_the_formula(quality: str, requested: str, wanted: int) -> None:
    one = pod("a", qos=quality, requests={"memory": requested} if requested else {})
    assert order.oom_score_adj(one, one["spec"]["containers"][0], 8 * GI, 36) == wanted


def test_a_node_critical_pod_needs_the_class_and_the_priority() -> None:
    def score(**more: Any) -> int:
        one = pod("a", qos="BestEffort", **more)
        return order.oom_score_adj(one, one["spec"]["containers"][0], 8 * GI, 36)

    of_class = {"spec": {"priorityClassName": "system-node-critical"}}
    assert score(priority=2000001000, **of_class) == -997
    assert score(priority=2000001000, spec={"priorityClassName": "system-cluster-critical"}) == 1000
    assert score(priority=5, **of_class) == 1000


def test_the_kernel_does_not_kill_a_sidecar_before_the_container_that_it_serves() -> None:
    side = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"memory": "80Mi"}}}
    one = pod("a", requests={"memory": "4Gi"}, spec={"initContainers": [side]})
    assert order.oom_score_adj(one, side, 8 * GI, 36) == 500
    less = pod("a", requests={"memory": "8Mi"}, spec={"initContainers": [side]})
    assert order.oom_score_adj(less, side, 8 * GI, 36) == 1000 - 9


def test_a_pod_level_request_is_divided_among_the_containers() -> None:
    at_pod_level = {"resources": {"requests": {"memory": "4Gi"}}}
    one = pod("a", requests={"memory": "2Gi"}, spec=at_pod_level)
    container = one["spec"]["containers"][0]
    assert (order.oom_score_adj(one, container, 8 * GI, 36), order.oom_score_adj(one, container, 8 * GI, 33)) == (500, 750)


@given(st.integers(0, 20 * GI), st.integers(0, 20 * GI), st.integers(1, 16 * GI))
def test_a_larger_request_never_has_a_higher_score(one: int, other: int, capacity: int) -> None:
    scores = []
    for size in sorted((one, other)):
        requesting = pod("a", requests={"memory": str(size)})
        scores.append(order.oom_score_adj(requesting, requesting["spec"]["containers"][0], capacity, 36))
    assert 999 >= scores[0] >= scores[1] >= 3


def test_without_capacity_there_is_no_score() -> None:
    one = pod("a")
    with pytest.raises(ValueError, match="capacity"):
        order.oom_score_adj(one, one["spec"]["containers"][0], 0, 36)


@pytest.mark.parametrize(
    ("signal", "value", "text"),
    [("memory.available", 0, "0"), ("memory.available", 1023, "1023"), ("memory.available", 1536, "1.5Ki"), ("memory.available", 300 * MI, "300Mi"),
     ("nodefs.available", 50 * GI, "50.0Gi"), ("nodefs.available", 5000 * GI, "5000Gi"), ("pid.available", 32768, "32768"), ("nodefs.inodesFree", 65537, "65537")],
)  # fmt: skip
def test_sizes_for_people(signal: str, value: int, text: str) -> None:
    assert order.amount(signal, value) == text


def test_the_machine_form() -> None:
    found = order.order_report(one_node(thresholds=effective({"evictionHard": {"memory.available": "10%"}})))
    again = found.model_dump(mode="json")
    assert order.OrderReport.model_validate_json(json.dumps(again)) == found
    assert (again["node"], again["memory"], again["layout"]) == ("n1", 8 * GI, "one")
    assert again["signals"]["memory.available"] | {"time": ""} == {
        "available": 4 * GI, "capacity": 8 * GI, "time": "", "thresholds": [{"limit": 858993472, "grace": 0}],
    }  # fmt: skip
    assert again["pods"][0]["uses"]["memory.available"] == {
        "used": 20 * MI, "requested": 0, "over": True, "place": 1, "turn": 1, "tied": False,
    }  # fmt: skip


def test_the_table() -> None:
    ids = uid_of("web")[:8] * 8
    found = one_node(
        processes=[ContainerProcess(uid_of("web"), ids, 11, 900)], thresholds=effective({"evictionHard": {"memory.available": "500Mi"}})
    )
    title, headers, _, *rows = order.order_as_table(found).splitlines()
    assert title.startswith(
        "n1: 4 pods; memory 4.0Gi of 8.0Gi left (evicts below 500Mi); disk 50.0Gi of 100Gi left; processes 31768 of 32768 left"
    )
    assert headers.split()[:6] == ["memory", "disk", "processes", "pod", "priority", "QoS"]
    cells = [re.split(r" {2,}", row) for row in rows if not row.startswith("note:")]
    assert cells[0] == [
        "1", "1", "1", "default/batch", "-5", "BestEffort", "20Mi/-", "1.0Mi/-", "3", "1000", "20Mi used, nothing requested",
    ]  # fmt: skip
    assert cells[1][9] == "900(!988)" and cells[2][:3] == ["never", "never", "never"]
    assert [row for row in rows if row.startswith("note:")] == [f"note: {note}" for note in found.notes]
