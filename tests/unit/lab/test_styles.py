"""The styles of the lab's nodes: what lies on their disks, read as those who read it there do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from roles import kubelet
from roles.formats import unit
from roles.kubelet import plan
from roles.observe import parse
from tests.integration import crashes
from tests.lab import cluster, images, rootfs
from tests.unit.observe import node

UNIT = "etc/systemd/system/kubelet.service"
ENVIRONMENT, CONFIG = "/etc/kubernetes/kubelet.env", "/etc/kubernetes/kubelet-config.yaml"


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    folder = tmp_path / "binaries"
    folder.mkdir()
    for name in ("kubeadm", "kubelet"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize(
    ("style", "layers"),
    [
        ("kubeadm", ["common", "user-bookworm", "kubeadm", "images"]),
        ("plain", ["common", "user-bookworm", "plain", "images"]),
        ("kubespray", ["common", "user-bookworm", "kubespray", "images"]),
        ("company", ["common", "user-bookworm", "company", "kubeadm", "images"]),
    ],
)
def test_the_layers_of_a_style(tmp_path: Path, style: str, layers: list[str]) -> None:
    assert rootfs.Layers(tmp_path).of("bookworm", style) == [*(tmp_path / name for name in layers), rootfs.base("bookworm")]


def test_a_style_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        rootfs.Layers(tmp_path).of("bookworm", "kubesrpay")


@pytest.mark.parametrize(("unified", "told"), [(True, False), (False, True)])
def test_the_files_of_kubespray(monkeypatch: pytest.MonkeyPatch, unified: bool, told: bool) -> None:
    monkeypatch.setattr(cluster, "unified", lambda: unified)
    texts = cluster.kubespray_files("1.36.3", "w5", "10.77.0.25")
    assert "@" not in "".join(texts.values())
    read = YAML(typ="safe").load(texts[CONFIG])
    needed = cluster.kubelet_configuration("1.36.3")
    assert {key: read[key] for key in needed} == needed and ("failCgroupV1" in read) == told
    assert (read["staticPodPath"], read["address"], read["maxPods"]) == ("/etc/kubernetes/manifests", "10.77.0.25", 110)


@pytest.fixture
def sources(binaries: Path, tmp_path: Path) -> unit.Sources:
    """Unit and environment of the kubespray node, as systemd has them there."""
    rootfs.kubespray_layer(tmp_path / "layer", binaries)
    environment = cluster.kubespray_files("1.36.3", "w5", "10.77.0.25")[ENVIRONMENT].encode()
    return unit.Sources(unit.UnitFile(f"/{UNIT}", (tmp_path / "layer" / UNIT).read_bytes()), (), {ENVIRONMENT: environment}, 252)


def test_the_unit_of_kubespray_starts_the_kubelet_with_these_words(sources: unit.Sources, tmp_path: Path) -> None:
    service = sources.resolve()
    assert service.known_argv == (
        "/usr/local/bin/kubelet",
        "--v=2",
        "--node-ip=10.77.0.25",
        "--hostname-override=w5",
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--config=/etc/kubernetes/kubelet-config.yaml",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--runtime-cgroups=/system.slice/containerd.service",
    )
    layer = tmp_path / "layer"
    assert (layer / service.program.lstrip("/")).read_text() == "kubelet"
    # Before its environment is there it must not start at boot.
    assert not list(layer.rglob("*.wants"))
    assert (layer / "etc/kubernetes/pki").readlink() == Path("/etc/kubernetes/ssl") and (layer / "etc/kubernetes/ssl").is_dir()


def test_a_gate_on_the_node_of_kubespray_and_off_again(sources: unit.Sources) -> None:
    """There is no variable for the operator's words: it goes into the last one that the unit reads, which is there and empty."""
    on = unit.edit_gates(sources, {"A": True}, variable="KUBELET_EXTRA_ARGS", new_dropin="/never")
    assert set(on) == {ENVIRONMENT}
    changed = sources.with_file(ENVIRONMENT, on[ENVIRONMENT])
    empty, full = b'\nKUBELET_CLOUDPROVIDER=""\n', b'\nKUBELET_CLOUDPROVIDER="--feature-gates=A=true"\n'
    before = sources.environment_files[ENVIRONMENT] or b""
    assert empty in before and on[ENVIRONMENT] == before.replace(empty, full)
    off = unit.edit_gates(changed, {"A": None}, variable="KUBELET_EXTRA_ARGS", new_dropin="/never")
    assert off == {ENVIRONMENT: before}


def found_as(config: bytes, environment: bytes, unit_file: bytes) -> kubelet.Kubelet:
    """What daytwo finds on the kubespray node with these files, its kubelet started from them."""
    made = unit.Sources(unit.UnitFile(f"/{UNIT}", unit_file), (), {ENVIRONMENT: environment}, 252).resolve().known_argv
    files = {ENVIRONMENT: environment, CONFIG: config}
    return kubelet.find(parse("w5", node.answer(style="plain", unit=unit_file, argv=made, files=files)))


def test_what_daytwo_finds_there(sources: unit.Sources) -> None:
    found = found_as(
        cluster.kubespray_files("1.36.3", "w5", "10.77.0.25")[CONFIG].encode(),
        sources.environment_files[ENVIRONMENT] or b"",
        sources.fragment.data,
    )
    found.started_directly()
    assert (found.style, found.node_name, found.config_path) == ("plain", "w5", CONFIG)
    assert (found.manifests, found.health_url) == ("/etc/kubernetes/manifests", "http://127.0.0.1:10248/healthz")
    assert found.configuration["failSwapOn"] is False and found.configuration["authentication"]["webhook"] == {"enabled": True}


@pytest.mark.parametrize("second", [crashes.GATE, crashes.BAD])
def test_the_crash_matrix_changes_two_files_there_and_no_unit(sources: unit.Sources, second: str) -> None:
    """As crashes.Lane makes the node, and what a good and a bad change of it wish for."""
    config = cluster.kubespray_files("1.36.3", "w5", "10.77.0.25")[CONFIG] + f"featureGates:\n  {crashes.SECOND_GATE}: false\n"
    flag = f"--feature-gates={crashes.GATE}=false ".encode()
    environment = (sources.environment_files[ENVIRONMENT] or b"").replace(b"\n--kubeconfig=", b"\n" + flag + b"--kubeconfig=")
    found = found_as(config.encode(), environment, sources.fragment.data)
    assert found.flag_gates == {crashes.GATE: False}
    changed = plan.edits(found, {second: True, crashes.SECOND_GATE: True})
    assert set(changed) == {CONFIG, ENVIRONMENT} and not plan.touches_units(found, changed)
    assert (crashes.CONFIG["kubespray"], crashes.ENVIRONMENT) == (CONFIG, ENVIRONMENT)


def documents(path: Path) -> list[Any]:
    try:
        return list(YAML(typ="safe").load_all(path.read_text()))
    except YAMLError:
        return []


def test_what_lies_among_the_manifests(binaries: Path, tmp_path: Path) -> None:
    """Each pod that is waited for has a manifest, and nothing else makes one."""
    rootfs.company_layer(tmp_path / "company")
    rootfs.kubespray_layer(tmp_path / "kubespray", binaries)
    for style, names in rootfs.STATIC_PODS.items():
        folder = tmp_path / style / "etc/kubernetes/manifests"
        pods = {path.name: documents(path)[0] for path in folder.iterdir() if path.name not in rootfs.NO_MANIFESTS}
        assert set(pods) == {f"{name}.yml" for name in names}
        for name, pod in pods.items():
            assert (pod["kind"], pod["metadata"]["namespace"], f"{pod['metadata']['name']}.yml") == ("Pod", "kube-system", name)
            assert pod["spec"]["hostNetwork"] and "tier" not in pod["metadata"]["labels"], "no component of the control plane"
            for container in pod["spec"]["containers"]:
                assert container["image"] == f"{images.REPOSITORY}/app:1" and "command" not in container and "ports" not in container
            for volume in pod["spec"]["volumes"]:
                there = volume["hostPath"]["path"]
                assert there == "/etc/kubernetes/admin.conf" or (tmp_path / style / there.lstrip("/")).is_dir()
    folder = tmp_path / "company/etc/kubernetes/manifests"
    assert {path.name for path in folder.iterdir()} == {"kube-vip.yml", "nginx-proxy.yml", *rootfs.NO_MANIFESTS}
    for name in rootfs.NO_MANIFESTS:
        assert not any(isinstance(document, dict) for document in documents(folder / name)), name
    assert (folder / "haproxy.yml").stat().st_size == 0
    assert documents(folder / "kube-vip.yml")[1:] == [None], "it ends in an empty document"
