"""The pure parts of the lab's cluster: how to log in, what a kubelet is told, and when the cluster is ready."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from ruamel.yaml import YAML

from tests.lab import Lab, LabError, Shape, cluster, machine, registry, tools
from tests.lab.machine import Site


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


@pytest.mark.parametrize(("version", "limited"), [("1.36.3", True), ("1.35.0", True), ("1.34.9", False), ("1.30.1", False)])
def test_a_quick_kubelet_is_told_only_what_its_version_reads(version: str, limited: bool) -> None:
    plain, quick = cluster.kubelet_configuration(version), cluster.kubelet_configuration(version, quick=True)
    assert "crashLoopBackOff" not in plain and "nodeLeaseDurationSeconds" not in plain
    more = {"crashLoopBackOff": {"maxContainerRestartPeriod": "10s"}} if limited else {}
    assert quick == {**plain, "nodeLeaseDurationSeconds": 12, **more}


def planned(number: int = 0, name: str = "", checkout: Path = cluster.REPOSITORY_ROOT, **numbers: int) -> Lab:
    planes = sum(node.startswith("cp") for node in numbers)
    shape = asdict(Shape(planes, len(numbers) - planes, "1.36.3"))
    nodes = {node: {"number": place, "layers": []} for node, place in numbers.items()}
    plan = {"checkout": str(checkout), "name": name, "shape": shape, "network": f"10.77.{number}", "nodes": nodes, "complete": True}
    registry.save(registry.Entry(Site(number), plan))
    return Lab(name, checkout)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The state folder of a machine without labs."""
    monkeypatch.setattr(machine, "LABS", tmp_path / "labs")
    for module in (cluster, registry):
        monkeypatch.setattr(module, "STATE", tmp_path)
    return tmp_path


@pytest.fixture
def lab() -> Lab:
    return planned(cp1=11, w1=21)


@pytest.fixture
def large() -> Lab:
    """Three control planes: nothing of it runs."""
    return planned(cp1=11, cp2=12, cp3=13, w1=21, w2=22)


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
        (without("etcd-cp1", {**pod("etcd-cp1"), "status": {}}), ["pod etcd-cp1 is not ready"]),
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
    init, told, kubelet = YAML(typ="safe").load_all(lab.kubeadm_config(Shape(1, 1, version)))
    assert (init["apiVersion"], init["kind"], told["apiVersion"], told["kind"]) == (api, "InitConfiguration", api, "ClusterConfiguration")
    assert init["localAPIEndpoint"] == {"advertiseAddress": "10.77.0.11"}
    assert "certificateKey" not in init
    assert (told["kubernetesVersion"], told["controlPlaneEndpoint"]) == (f"v{version}", "10.77.0.11:6443")
    assert kubelet == cluster.kubelet_configuration(version)


def test_what_kubeadm_is_told_when_there_are_several_control_planes(large: Lab) -> None:
    init, told, _ = YAML(typ="safe").load_all(large.kubeadm_config(Shape(3, 2, "1.36.3"), "00" * 32))
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
    with pytest.raises(LabError, match=message):
        large.reset(*names)
    assert touched == []


@pytest.mark.parametrize(
    ("names", "chosen"),
    [([], ["cp1", "cp2", "cp3", "w1", "w2"]), (["w2", "w1", "w2"], ["w2", "w1"]), (["cp3", "cp1", "cp2"], ["cp3", "cp1", "cp2"])],
)
def test_what_may_be_reset(large: Lab, monkeypatch: pytest.MonkeyPatch, names: list[str], chosen: list[str]) -> None:
    touched: list[list[str]] = []
    monkeypatch.setattr(large, "_reset", touched.append)
    large.reset(*names)
    assert touched == [chosen]


def test_the_only_control_plane_may_be_reset(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[list[str]] = []
    monkeypatch.setattr(lab, "_reset", touched.append)
    lab.reset("cp1")
    assert touched == [["cp1"]]


def test_without_a_lab_nothing_is_reset() -> None:
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


@pytest.mark.parametrize(
    ("version", "given"),
    [
        ("1.36.3", [{"name": "shutdown-watch-termination-grace-period", "value": "5s"}]),
        ("1.30.1", {"shutdown-watch-termination-grace-period": "5s"}),
    ],
)
def test_an_api_server_that_does_not_wait_long_for_watches(lab: Lab, version: str, given: object) -> None:
    _, quick, kubelet = YAML(typ="safe").load_all(lab.kubeadm_config(Shape(1, 2, version, watch_grace="5s")))
    assert quick["apiServer"] == {"extraArgs": given} and kubelet == cluster.kubelet_configuration(version, quick=True)
    _, plain, _ = YAML(typ="safe").load_all(lab.kubeadm_config(Shape(1, 2, version)))
    assert "apiServer" not in plain


def test_a_lab_is_of_one_name_and_one_checkout(lab: Lab, tmp_path: Path) -> None:
    second = planned(1, "a", cp1=11)
    foreign = planned(2, "", tmp_path / "clone", cp1=11, w1=21, w2=22)
    assert [lab.address("cp1"), second.address("cp1"), foreign.address("cp1")] == ["10.77.0.11", "10.77.1.11", "10.77.2.11"]
    assert (lab.access, second.access) == (cluster.REPOSITORY_ROOT / ".lab", cluster.REPOSITORY_ROOT / ".lab/a")
    assert foreign.ssh_config == tmp_path / "clone/.lab/ssh_config"
    assert len({lab.machine("cp1").namespace, second.machine("cp1").namespace, foreign.machine("cp1").namespace}) == 3
    assert not Lab("b").exists


def test_the_environment_names_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB", "a")
    assert (Lab().name, Lab("").name) == ("a", "")
    monkeypatch.setenv("LAB", "../b")
    with pytest.raises(LabError, match=r"LAB='\.\./b' cannot be a lab's name"):
        Lab()


def test_down_takes_all_labs_of_one_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, removed = tmp_path / "ours", []
    planned(0, "", ours, cp1=11)
    planned(1, "a", ours, cp1=11)
    planned(2, "", tmp_path / "clone", cp1=11)
    for folder in (ours / ".lab/a", tmp_path / "clone/.lab"):
        folder.mkdir(parents=True)
        (folder / "ssh_config").touch()

    def remove(site: Site, nodes: object = ()) -> None:
        removed.append(site.number)
        registry.release_or_warn(site)

    monkeypatch.setattr(cluster, "remove", remove)
    monkeypatch.setattr(registry, "orphans", lambda checkout: [])
    assert cluster.down_all(ours) == ["lab", "lab a"]
    assert removed == [0, 1]
    assert [entry.site.number for entry in registry.entries()] == [2]
    assert not (ours / ".lab").exists() and (tmp_path / "clone/.lab/ssh_config").exists()


def test_what_all_labs_share_goes_with_the_last(lab: Lab, state: Path) -> None:
    second = planned(1, "a", cp1=11)
    (state / "layers").mkdir()
    registry.release_or_warn(Site(0))
    assert (state / "layers").exists()
    assert second.name == "a"
    registry.release_or_warn(Site(1))
    assert not state.exists()


@pytest.mark.parametrize(
    ("memory", "disk", "cached", "said"),
    [
        (2.0, 5.0, True, None),
        (
            1.8,
            50.0,
            True,
            "has 1.8 GiB of memory to spare, and a lab of 1 control plane and 2 workers needs 1.9; take a lab down first: lab of ",
        ),
        (8.0, 3.4, True, "has 3.4 GiB free, and a lab of 1 control plane and 2 workers needs 3.5; take a lab down first: "),
        (8.0, 5.0, False, "has 5.0 GiB free, and a lab of 1 control plane and 2 workers needs 9.5; take a lab down first: "),
    ],
)
def test_room_for_one_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lab: Lab, memory: float, disk: float, cached: bool, said: str | None
) -> None:
    monkeypatch.setattr(registry, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(registry, "available_memory", lambda: memory)
    monkeypatch.setattr(registry.shutil, "disk_usage", lambda folder: SimpleNamespace(free=disk * 2**30))
    if said is None:
        registry.check_room(1, 2, cached)
        return
    with pytest.raises(LabError) as caught:
        registry.check_room(1, 2, cached)
    assert said in str(caught.value)


def test_one_process_at_a_time_and_the_file_may_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever waits for a lock whose file is removed meanwhile holds the new one."""
    path, seen, waits = tmp_path / "place/lock", [], threading.Event()
    monkeypatch.setattr(tools, "say", lambda text: waits.set())

    def second() -> None:
        with tools.locked(path, "waiting"):
            seen.append(path.exists())

    thread = threading.Thread(target=second, daemon=True)
    with tools.locked(path, "waiting"):
        thread.start()
        assert waits.wait(60)
        shutil.rmtree(path.parent)
        assert not seen
    thread.join(timeout=60)
    assert seen == [True]


def test_seconds_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr(tools, "SPENT", Counter())
    monkeypatch.setattr(tools.time, "monotonic", lambda: next(clock))
    with tools.spent("outer"), tools.spent("inner"):
        pass
    with tools.spent("outer"):
        pass
    assert tools.SPENT == {"outer": 20}
