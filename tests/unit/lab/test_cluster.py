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


def planned(folder: Path, **numbers: int) -> Lab:
    nodes = {name: {"number": number, "layers": []} for name, number in numbers.items()}
    (folder / "lab.json").write_text(json.dumps({"network": "10.77.0", "nodes": nodes, "complete": True, "version": "1.36.3"}))
    return Lab()


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    monkeypatch.setattr(cluster, "STATE", tmp_path)
    return planned(tmp_path, cp1=11, w1=21)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    """Three control planes: nothing of it runs."""
    monkeypatch.setattr(cluster, "STATE", tmp_path)
    return planned(tmp_path, cp1=11, cp2=12, cp3=13, w1=21, w2=22)


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


def test_one_control_plane_is_its_own_endpoint(lab: Lab) -> None:
    assert (lab.balancer, lab.endpoint) == (None, "10.77.0.11:6443")


def test_several_control_planes_stand_behind_a_balancer(large: Lab) -> None:
    assert large.balancer is not None
    assert (large.balancer.address, large.endpoint) == ("10.77.0.5", "10.77.0.5:6443")
    assert large.balancer.backends == ("10.77.0.11", "10.77.0.12", "10.77.0.13")
    assert "lb" not in large.nodes


@pytest.mark.parametrize(("version", "api"), [("1.36.3", "kubeadm.k8s.io/v1beta4"), ("1.30.1", "kubeadm.k8s.io/v1beta3")])
def test_what_kubeadm_is_told(lab: Lab, version: str, api: str) -> None:
    init, told, kubelet = YAML(typ="safe").load_all(lab.kubeadm_config(version))
    assert (init["apiVersion"], init["kind"], told["apiVersion"], told["kind"]) == (api, "InitConfiguration", api, "ClusterConfiguration")
    assert init["localAPIEndpoint"] == {"advertiseAddress": "10.77.0.11"}
    assert "certificateKey" not in init
    assert (told["kubernetesVersion"], told["controlPlaneEndpoint"]) == (f"v{version}", "10.77.0.11:6443")
    assert kubelet == cluster.kubelet_configuration(version)


def test_what_kubeadm_is_told_when_there_are_several_control_planes(large: Lab) -> None:
    init, told, _ = YAML(typ="safe").load_all(large.kubeadm_config("1.36.3", "00" * 32))
    assert init["localAPIEndpoint"] == {"advertiseAddress": "10.77.0.11"}
    assert init["certificateKey"] == "00" * 32
    assert told["controlPlaneEndpoint"] == "10.77.0.5:6443"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cp2"], "cp2 cannot be reset without cp1, cp3"),
        (["w1", "cp3", "cp1"], "cp1, cp3 cannot be reset without cp2"),
        (["w1", "w9"], "the lab has no node w9"),
    ],
)
def test_a_reset_that_is_refused_touches_nothing(large: Lab, monkeypatch: pytest.MonkeyPatch, names: list[str], message: str) -> None:
    touched: list[list[str]] = []
    monkeypatch.setattr(large, "_reset", touched.append)
    monkeypatch.setattr(cluster, "supervisors", dict)
    with pytest.raises(LabError, match=message):
        large.reset(*names)
    assert touched == []


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], ["cp1", "cp2", "cp3", "w1", "w2"]),
        (["w2", "w1", "w2"], ["w2", "w1"]),
        (["cp3", "cp1", "cp2"], ["cp3", "cp1", "cp2"]),
    ],
)
def test_what_may_be_reset(large: Lab, monkeypatch: pytest.MonkeyPatch, names: list[str], chosen: list[str]) -> None:
    touched: list[list[str]] = []
    monkeypatch.setattr(large, "_reset", touched.append)
    monkeypatch.setattr(cluster, "supervisors", dict)
    large.reset(*names)
    assert touched == [chosen]


def test_the_only_control_plane_may_be_reset(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[list[str]] = []
    monkeypatch.setattr(lab, "_reset", touched.append)
    monkeypatch.setattr(cluster, "supervisors", dict)
    lab.reset("cp1")
    assert touched == [["cp1"]]


def test_without_a_lab_nothing_is_reset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster, "STATE", tmp_path)
    monkeypatch.setattr(cluster, "supervisors", dict)
    with pytest.raises(LabError, match="there is no lab"):
        Lab().reset()


def test_a_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as reader:
        tools.replace_text(path, "new", 0o600)
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
