"""The pure parts of the lab's cluster: how to log in, what a kubelet is told, and when the cluster is ready."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import paramiko
import pytest
from ruamel.yaml import YAML

from tests.lab import Lab, LabError, cluster, tools


def test_ssh_config_is_read_as_meant(tmp_path: Path) -> None:
    path = tmp_path / "ssh_config"
    path.write_text(cluster.ssh_config({"cp1": "10.77.0.11", "w1": "10.77.0.21"}, Path("/keys/id"), Path("/keys/known")))
    read = paramiko.SSHConfig.from_path(str(path))
    assert read.get_hostnames() == {"*", "cp1", "w1"}
    for name, address in (("cp1", "10.77.0.11"), ("w1", "10.77.0.21")):
        assert read.lookup(name) == {
            "hostname": address,
            "user": "root",
            "identityfile": ["/keys/id"],
            "identitiesonly": "yes",
            "userknownhostsfile": "/keys/known",
            "stricthostkeychecking": "yes",
            "connecttimeout": "10",
        }
    assert read.lookup("elsewhere") == {"hostname": "elsewhere"}


def test_a_configuration_made_by_hand_reads_back() -> None:
    configuration = {**cluster.kubelet_configuration("1.36.3"), "clusterDNS": ["10.96.0.10"], "a": {"b": {"c": False, "d": "x: y"}}}
    assert YAML(typ="safe").load(cluster._yaml(configuration)) == configuration


@pytest.mark.parametrize(("unified", "version", "said"), [(True, "1.36.3", False), (False, "1.36.3", True), (False, "1.30.1", False)])
def test_only_a_kubelet_on_cgroup_v1_is_told_to_bear_it(monkeypatch: pytest.MonkeyPatch, unified: bool, version: str, said: bool) -> None:
    monkeypatch.setattr(cluster, "unified", lambda: unified)
    assert (cluster.kubelet_configuration(version).get("failCgroupV1") is False) == said


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    monkeypatch.setattr(cluster, "STATE", tmp_path)
    nodes = {name: {"number": number, "layers": []} for name, number in (("cp1", 11), ("w1", 21))}
    (tmp_path / "lab.json").write_text(json.dumps({"network": "10.77.0", "nodes": nodes, "complete": True, "version": "1.36.3"}))
    return Lab()


def node(name: str, ready: str = "True") -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def pod(name: str, ready: bool = True, namespace: str = "kube-system") -> dict[str, Any]:
    states = {"containerStatuses": [{"ready": ready}]}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "status": states}


def lease(name: str, renewed: str) -> dict[str, Any]:
    return {"kind": "Lease", "metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": {"renewTime": renewed}}


COMPONENTS = [pod(f"{name}-cp1") for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")]
WELL = [node("cp1"), node("w1"), *COMPONENTS, lease("cp1", "10:00:05"), lease("w1", "10:00:06")]


def without(name: str, *instead: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in WELL if item["metadata"]["name"] != name] + list(instead)


@pytest.mark.parametrize(
    ("items", "wrong"),
    [
        (WELL, []),
        (without("w1", node("w1", "False")), ["w1 is not Ready"]),
        (without("w1", node("w1", "Unknown")), ["w1 is not Ready"]),
        (without("w1"), ["w1 is not Ready"]),
        (without("etcd-cp1", pod("etcd-cp1", ready=False)), ["pod etcd-cp1 is not ready"]),
        (without("etcd-cp1"), ["pod etcd-cp1 is missing"]),
        (
            without("etcd-cp1", {**pod("etcd-cp1"), "status": {}}),
            ["pod etcd-cp1 is not ready"],
        ),
        ([*WELL, pod("app", ready=False, namespace="default")], []),  # a user's pod is no matter of the lab's
    ],
)
def test_unready(lab: Lab, items: list[dict[str, Any]], wrong: list[str]) -> None:
    assert lab.unready(items, {}, []) == wrong


def test_a_node_whose_lease_is_still_the_old_one_is_not_ready(lab: Lab) -> None:
    old = {"cp1": "10:00:05", "w1": "10:00:06"}
    assert lab.unready(WELL, old, ["w1"]) == ["w1 has not renewed its lease"]
    renewed = [node("cp1"), node("w1"), *COMPONENTS, lease("cp1", "10:00:05"), lease("w1", "10:00:16")]
    assert lab.unready(renewed, old, ["w1"]) == []
    assert lab.unready(renewed, old, ["cp1", "w1"]) == ["cp1 has not renewed its lease"]


def test_nodes_and_addresses(lab: Lab) -> None:
    assert (lab.nodes, lab.control_planes, lab.workers) == (["cp1", "w1"], ["cp1"], ["w1"])
    assert lab.address("w1") == "10.77.0.21"
    with pytest.raises(LabError, match="the lab has no node w9; it has cp1, w1"):
        lab.address("w9")


def test_a_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as reader:
        tools.replace_text(path, "new", 0o600)
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
