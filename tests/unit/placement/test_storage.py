"""What becomes of a volume whose pod moves, by kind; and places that a pod gets without ever starting there."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.placement import ClusterView, Move, Placement, Storage, place_all, where
from roles.engine.placement.storage import attachments
from tests.unit.placement.cluster import HOST, ZONE, affinity, node, pod
from tests.unit.storage import attachment, claim, csi_node, driver, mounts, volume

RWO, RWX, ROX, RWOP = "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"
NODES = [node("w1", zone="a"), node("w2", zone="b"), node("w3", zone="b")]
LOCAL = {"local": {"path": "/x"}, "on": (HOST, "w1")}


def storage(*items: dict[str, Any]) -> Storage:
    return Storage(lambda kind: NODES if kind == "Node" else [one for one in items if one["kind"] == kind])


@pytest.mark.parametrize(
    ("modes", "source", "move"),
    [
        ((RWO,), {"csi": {"driver": "d"}}, Move.ONE_NODE),
        ((RWO,), {"csi": {"driver": "not-attached"}}, Move.SHARED),
        ((RWO, ROX), {"csi": {"driver": "d"}}, Move.SHARED),
        ((RWX,), {"csi": {"driver": "d"}}, Move.SHARED),
        ((RWOP,), {"csi": {"driver": "d"}}, Move.ONE_POD),
        ((RWOP,), {"csi": {"driver": "not-attached"}}, Move.ONE_POD),
        ((RWO,), {"csi": {"driver": "d"}, "on": (ZONE, "a")}, Move.ONE_NODE),
        ((RWO,), {"csi": {"driver": "d"}, "on": ("topology.d/node", "w1")}, Move.NODE_LOCAL),
        ((RWO,), {"csi": {"driver": "d"}, "on": ("topology.d/node", "w1", "w2")}, Move.ONE_NODE),
        ((RWO,), {"csi": {"driver": "d"}, "on": (HOST, "w1")}, Move.NODE_LOCAL),
        ((RWO,), LOCAL, Move.NODE_LOCAL),
        ((RWO,), {"local": {"path": "/x"}, "on": (HOST, "gone")}, Move.NODE_LOCAL),
        ((RWX,), {"hostPath": {"path": "/x"}, "on": (HOST, "w1")}, Move.NODE_LOCAL),
        ((RWO,), {"hostPath": {"path": "/x"}}, Move.LEFT_BEHIND),
        ((RWO,), {"nfs": {"server": "s", "path": "/"}}, Move.SHARED),
        ((RWO,), {"awsElasticBlockStore": {"volumeID": "v"}}, Move.ONE_NODE),
        ((RWX,), {"gcePersistentDisk": {"pdName": "v"}}, Move.ONE_NODE),
        ((RWO, ROX), {"gcePersistentDisk": {"pdName": "v"}}, Move.ONE_NODE),
        ((ROX,), {"gcePersistentDisk": {"pdName": "v"}}, Move.SHARED),
        ((RWO,), {"azureDisk": {}}, Move.ONE_NODE),
        ((RWX,), {"azureFile": {}}, Move.SHARED),
        ((RWO,), {"cinder": {}}, Move.ONE_NODE),
        ((RWO,), {"vsphereVolume": {}}, Move.ONE_NODE),
        ((RWO,), {"portworxVolume": {}}, Move.SHARED),  # its driver says that it attaches nothing
        ((RWO,), {"iscsi": {}}, Move.ONE_NODE),
        ((RWO,), {"fc": {}}, Move.ONE_NODE),
        ((RWO,), {"flexVolume": {}}, Move.ONE_NODE),
    ],
)  # fmt: skip
def test_each_kind_of_claimed_volume(modes: tuple[str, ...], source: dict[str, Any], move: Move) -> None:
    there = storage(claim("c", *modes), volume("pv-c", *modes, **source), driver("not-attached", False), driver("pxd.portworx.com", False))
    (found,) = there.volumes(pod("p", "w1", **mounts("c")) | {"metadata": {"name": "p", "namespace": "shop"}})
    assert found.move is move and found.claim == "shop/c" and found.name == "pv-c"
    assert found.only == ("w1" if move is Move.NODE_LOCAL and "gone" not in source["on"] else "")


def volumes_of(*volumes: dict[str, Any], items: tuple[dict[str, Any], ...] = ()) -> list[Move]:
    return [one.move for one in storage(*items).volumes(pod("p", "w1", volumes=list(volumes)))]


def test_volumes_of_the_pod_itself_and_claims_that_say_little() -> None:
    assert volumes_of({"name": "e", "ephemeral": {"volumeClaimTemplate": {}}}) == [Move.NEW]
    assert volumes_of({"name": "a", "cinder": {"volumeID": "v"}}, {"name": "b", "azureDisk": {"diskURI": "d"}}) == [Move.ONE_NODE] * 2
    assert volumes_of({"name": "g", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}) == [Move.SHARED]
    assert volumes_of({"name": "x", "emptyDir": {}}, {"name": "y", "nfs": {}}, {"name": "z", "azureFile": {}}) == []
    mounted = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    assert volumes_of(mounted) == volumes_of(mounted, items=(claim("c", volume="", namespace="x"),)) == [Move.UNKNOWN]
    assert volumes_of(mounted, items=(claim("c", namespace="x"),)) == [Move.ONE_NODE], "the volume was not read: its claim speaks"
    assert volumes_of(mounted, items=(claim("c", RWX, namespace="x"),)) == [Move.SHARED]


def test_the_modes_of_the_volume_decide_and_not_those_of_its_claim() -> None:
    """kube-controller-manager asks the volume (IsMultiAttachAllowed)."""
    there = storage(claim("c", RWO), volume("pv-c", RWO, RWX))
    (found,) = there.volumes(pod("p", "w1", **mounts("c")) | {"metadata": {"name": "p", "namespace": "shop"}})
    assert found.move is Move.SHARED and not found.waits


def test_what_a_detach_waits_for() -> None:
    ending = {"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}}
    told = [one.progress for one in attachments([attachment("v", "w1"), attachment("v", "w1", **ending)])]
    assert told == ["the kubelet there unmounts it", "d detaches it"]
    (failed,) = attachments([attachment("v", "w1", detachError={"message": "disk is busy"}, **ending)])
    assert (failed.volume, failed.node, failed.progress) == ("v", "w1", "d cannot detach it: disk is busy")


# ---- places


def view(*there: dict[str, Any], items: tuple[dict[str, Any], ...] = (), nodes: Any = NODES) -> ClusterView:
    of = {kind: [one for one in items if one["kind"] == kind] for kind in ("PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment")}
    csi = [csi_node(one["metadata"]["name"]) for one in nodes]
    return ClusterView(nodes, there, of["PersistentVolumeClaim"], of["PersistentVolume"], csi, of["VolumeAttachment"])


SHARED = (claim("c", namespace="x"), volume("pv-c"))


def both(*nodes: dict[str, Any]) -> list[Placement]:
    one, other = pod("p", "w1", **mounts("c")), pod("q", "w1", **mounts("c"))
    return place_all([one, other], view(one, other, items=SHARED, nodes=[*NODES[:1], *nodes]), ["w1"])


def test_two_pods_with_one_volume_fit_if_nothing_can_part_them() -> None:
    for found in both(*NODES[1:]):
        assert found.outcome == "unsure" and found.on == ("w2", "w3") and "nothing keeps x/" in str(found)
    assert [one.apart for one in both(*NODES[1:])] == [("x/q",), ("x/p",)]
    assert [one.outcome for one in both(NODES[1])] == ["fits", "fits"], "one node takes both"
    one, other = pod("p", "w1", labels={"app": "web"}, **mounts("c")), pod("q", "w1", affinity=affinity("podAffinity"), **mounts("c"))
    found, follows = place_all([one, other], view(one, other, items=SHARED), ["w1"])
    assert found.fits and not follows.apart


def test_a_pod_that_stays_keeps_the_volume() -> None:
    one, other = pod("p", "w1", **mounts("c")), pod("q", "w1", **mounts("c"))
    found = where(one, view(one, other, items=SHARED), ["w1"])
    assert found.outcome == "nowhere" and found.nodes["w2"].state == "waits", "it is scheduled, and does not start"
    assert found.nodes["w2"].why == ("volume pv-c stays attached to w1, where x/q uses it",)
    elsewhere = pod("q", "w2", **mounts("c"))
    assert where(one, view(one, elsewhere, items=SHARED), ["w1"]).outcome == "unsure", "the scheduler may choose w3"
    assert where(one, view(one, elsewhere, items=SHARED, nodes=NODES[:2]), ["w1"]).fits
    several = (claim("c", RWX, namespace="x"), volume("pv-c", RWX))
    assert where(one, view(one, other, items=several), ["w1"]).fits


def test_a_pod_that_waits_for_its_volume_takes_its_room_all_the_same() -> None:
    small = [NODES[0], node("w2", cpu="1")]
    kept, stays = pod("p", "w1", cpu="800m", **mounts("c")), pod("q", "w1", **mounts("c"))
    other = pod("r", "w1", cpu="800m")
    found = place_all([kept, other], view(kept, stays, other, items=SHARED, nodes=small), ["w1"])
    assert [one.outcome for one in found] == ["nowhere", "unsure"]


def test_a_disk_of_a_replaced_kind_counts_for_its_driver() -> None:
    one = pod("p", "w1", **mounts("c"))
    disk = (claim("c", namespace="x"), volume("pv-c", awsElasticBlockStore={"volumeID": "v"}))

    def found(*attached: str, most: int = 1) -> Placement:
        csi = [csi_node("w2", "ebs.csi.aws.com", most)]
        items = [attachment(name, "w2", "ebs.csi.aws.com") for name in attached]
        return where(one, ClusterView(NODES[:2], [one], [disk[0]], [disk[1]], csi, items), ["w1"])

    assert found().fits and found("other", most=2).fits
    assert found("other").nodes["w2"].why == ("it may have more than 1 volumes of ebs.csi.aws.com then",)
