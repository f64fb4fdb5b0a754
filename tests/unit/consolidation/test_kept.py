"""Why a node must stay, each for its own reason."""

from __future__ import annotations

from typing import Any

import pytest

from roles.consolidation.kept import KeepReason, sentence
from roles.engine.kube.field_managers import FIELD_MANAGER
from tests.unit.consolidation.cluster import keeper, nodes, pod, web
from tests.unit.disruption.world import budget, of_status, workload
from tests.unit.placement.cluster import node
from tests.unit.storage import claim, mounts, volume

STATEFUL = workload("StatefulSet", "db", 1)
DAEMONS = workload("DaemonSet", "agent")
NOTE = "karpenter.sh/do-not-disrupt"


def annotated(**notes: str) -> dict[str, Any]:
    return {"annotations": {key.replace("__", "/").replace("_", "-"): value for key, value in notes.items()}}


def csi(image: str) -> list[dict[str, Any]]:
    return [{"name": "c", "image": image}]


def reasons(*items: dict[str, Any], **more: Any) -> list[KeepReason]:
    """Of w1, beside which there is w2."""
    return [one.reason for one in keeper(node("w1"), node("w2"), *items, **more).kept.get("w1", ())]


def test_a_node_with_pods_that_can_move_may_go() -> None:
    assert reasons(pod("web-1", "w1"), pod("agent-1", "w1", owner=DAEMONS), DAEMONS) == []


@pytest.mark.parametrize(
    ("wanted", "items"),
    [
        (KeepReason.SAFE_TO_EVICT, [pod("a", "w1", meta=annotated(**{"cluster_autoscaler.kubernetes.io__safe_to_evict": "false"}))]),
        (KeepReason.DO_NOT_DISRUPT, [pod("a", "w1", meta={"annotations": {NOTE: "true"}})]),
        (KeepReason.DO_NOT_DISRUPT, [pod("a", "w1", meta={"annotations": {"karpenter.sh/do-not-evict": "true"}})]),
        # Pods of the node itself count too.
        (KeepReason.DO_NOT_DISRUPT, [DAEMONS, pod("a", "w1", owner=DAEMONS, meta={"annotations": {NOTE: "true"}})]),
        # It began two hours ago.
        (KeepReason.DO_NOT_DISRUPT, [pod("a", "w1", meta={"annotations": {NOTE: "2h1s"}})]),
        (KeepReason.DO_NOT_DISRUPT, [pod("a", "w1", meta={"annotations": {NOTE: "for ever"}})]),
        (KeepReason.UNMANAGED, [pod("a", "w1", owner=None)]),
        (KeepReason.OTHER_SCHEDULER, [pod("a", "w1", schedulerName="volcano")]),
        (KeepReason.EMPTY_DIR, [pod("a", "w1", volumes=[{"name": "tmp", "emptyDir": {}}])]),
        (KeepReason.CSI_CONTROLLER, [pod("a", "w1", containers=csi("registry.k8s.io:443/sig-storage/csi-provisioner:v5.1@sha256:1"))]),
        (KeepReason.NODE_DATA, [STATEFUL, pod("a", "w1", owner=STATEFUL, volumes=[{"name": "d", "hostPath": {"path": "/srv"}}])]),
        (KeepReason.NODE_DATA, [claim("d"), {**volume("pv-d", on=("kubernetes.io/hostname", "w1"), local={"path": "/x"})},
                                pod("a", "w1", **mounts("d"))]),
        (KeepReason.BUDGET, [pod("a", "w1"), budget(minAvailable=1, status=of_status(1, 1, 1, 0))]),
        (KeepReason.TWO_BUDGETS, [pod("a", "w1"), budget("one", minAvailable=0, status=of_status(1, 0, 1, 1)),
                                  budget("two", minAvailable=0, status=of_status(1, 0, 1, 1))]),
        (KeepReason.CANNOT_LEAVE, [pod("a", "w1", terminationGracePeriodSeconds=3600)]),
    ],
)  # fmt: skip
def test_a_pod_keeps_its_node(wanted: KeepReason, items: list[dict[str, Any]]) -> None:
    assert reasons(*items) == [wanted]


@pytest.mark.parametrize(
    "items",
    [
        [pod("a", "w1", meta={"annotations": {NOTE: "false"}})],
        [pod("a", "w1", meta={"annotations": {NOTE: "2h"}})],
        [pod("a", "w1", owner=None, meta={"annotations": {NOTE: "true"}}) | {"status": {"phase": "Succeeded"}}],
        [pod("a", "w1", containers=csi("example.com/my-csi-provisioner-docs:1"))],
        [pod("a", "w1"), budget(minAvailable=1, status=of_status(2, 1, 2, 1)), pod("b", "w2")],
        [pod("a", "w1", volumes=[{"name": "d", "hostPath": {"path": "/srv"}}])],
    ],
)
def test_a_pod_does_not_keep_its_node(items: list[dict[str, Any]]) -> None:
    assert reasons(*items) == []


def test_data_in_an_empty_dir_may_be_lost_by_consent() -> None:
    assert reasons(pod("a", "w1", volumes=[{"name": "tmp", "emptyDir": {}}]), allow_local_data=True) == []


def test_data_that_no_pod_uses_now_keeps_its_node() -> None:
    local = volume("pv-d", on=("kubernetes.io/hostname", "w1"), local={"path": "/x"})
    assert reasons(local) == []
    local["spec"]["claimRef"] = {"name": "d"}
    assert reasons(local) == [KeepReason.NODE_DATA]


def of_node(**more: Any) -> list[KeepReason]:
    """Of a node w1 with these fields of its metadata, spec and status."""
    one = node("w1")
    for part, fields in more.items():
        one[part] = {**one[part], **fields}
    return [keep.reason for keep in keeper(one, node("w2")).kept.get("w1", ())]


def cordoned(manager: str, mark: str = "") -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    notes = {"annotations": {"daytwo.dev/outage": mark}} if mark else {}
    return {"metadata": {"name": "w1", "labels": {}, "managedFields": [entry], **notes}, "spec": {"unschedulable": True}}


def test_the_node_itself() -> None:
    assert of_node() == []
    assert of_node(metadata={"labels": {"node-role.kubernetes.io/control-plane": ""}}) == [KeepReason.CONTROL_PLANE]
    disabled = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true", NOTE: "true"}
    assert of_node(metadata={"annotations": disabled}) == [KeepReason.SCALE_DOWN_DISABLED, KeepReason.NODE_DO_NOT_DISRUPT]
    assert of_node(status={"conditions": []}) == [KeepReason.NOT_READY]
    assert of_node(**cordoned("kubectl")) == [KeepReason.CORDONED]
    assert of_node(**cordoned(FIELD_MANAGER, '{"run": "r1", "purpose": "drain"}')) == [KeepReason.OUT_OF_SERVICE]


def test_what_the_inventory_says() -> None:
    there = nodes("w1", "w2")
    kept = keeper(*there, servers={"w1"}, known={"w1"}).kept
    assert {name: [one.reason for one in keeps] for name, keeps in kept.items()} == {
        "w1": [KeepReason.CONTROL_PLANE],
        "w2": [KeepReason.NOT_IN_INVENTORY, KeepReason.LAST_NODE],
    }
    assert [*keeper(*there, chosen={"w1"}).kept] == ["w2"]


def test_etcd() -> None:
    static = pod("etcd-w1", "w1", owner=None, containers=[{"name": "etcd"}], meta={"annotations": {"kubernetes.io/config.mirror": "x"}})
    assert reasons(static) == [KeepReason.ETCD]


def test_the_last_node_of_a_zone_stays() -> None:
    """A control-plane node, and one that takes no pods, are none that could have them."""
    there = [node("cp1", zone="a"), node("w1", zone="a"), node("w2", zone="b"), node("w3", zone="b"), node("w4", zone="a", cordoned=True)]
    found = keeper(*there, servers={"cp1"})
    assert [one.reason for one in found.kept["w1"]] == [KeepReason.LAST_OF_ZONE]
    assert found.lost_zones(["w2"]) == {} and {*found.lost_zones(["w2", "w3"])} == {"w2", "w3"}


def test_the_last_node_for_pods_stays() -> None:
    assert [one.reason for one in keeper(*nodes("cp1", "w1"), servers={"cp1"}).kept["w1"]] == [KeepReason.LAST_NODE]
    assert {*keeper(*nodes("w1", "w2")).lost_zones(["w1", "w2"])} == {"w1", "w2"}


def sleeping(mark: str, ready: str = "False") -> dict[str, Any]:
    return {**node("w1"), **cordoned(FIELD_MANAGER, mark), "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    ("item", "more", "asleep"),
    [
        (sleeping('{"run": "r1", "purpose": "drain"}'), [], True),
        (sleeping('{"run": "r1", "purpose": "drain"}'), [DAEMONS, pod("agent-1", "w1", owner=DAEMONS)], True),
        (sleeping('{"run": "r1", "purpose": "drain"}'), [pod("web-1", "w1")], False),
        (sleeping('{"run": "r1", "purpose": "power-off", "boot": "b"}'), [], True),
        (sleeping('{"run": "r1", "purpose": "drain"}', "True"), [], False),
        (sleeping('{"run": "r1", "purpose": "reboot", "boot": "b"}'), [], False),
        (sleeping('{"run": "r1", "purpose": "change"}'), [], False),
        (sleeping(""), [], False),
    ],
)
def test_a_machine_that_sleeps(item: dict[str, Any], more: list[dict[str, Any]], asleep: bool) -> None:
    found = keeper(item, node("w2"), *more)
    assert (found.asleep == {"w1"}) is asleep
    assert ("w1" in found.kept) is not asleep


def test_a_tenants_words_cannot_look_like_ours() -> None:
    hostile = "true\x1b[2J\n0 nodes could go " + "x" * 500
    kept = keeper(*nodes("w1", "w2"), pod("a", "w1", meta={"annotations": {NOTE: hostile}}, schedulerName=hostile)).kept["w1"]
    text = sentence(kept)
    assert "\n" not in text and "\x1b" not in text and len(text) < 500
    assert {one.reason for one in kept} == {KeepReason.DO_NOT_DISRUPT, KeepReason.OTHER_SCHEDULER}


def test_reasons_of_one_kind_are_one_part() -> None:
    kept = keeper(*nodes("w1", "w2"), *(pod(f"a{number}", "w1", owner=None) for number in range(5)), *web()).kept["w1"]
    assert sentence(kept) == "nothing recreates shop/a0, shop/a1, shop/a2 and 2 more"
