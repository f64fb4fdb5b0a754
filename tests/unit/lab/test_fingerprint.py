"""What a lab is at one moment: from what a node and the API say of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lab import fingerprint


def look(root: Path) -> dict[str, str]:
    """The node's command, run on a folder in place of the node's own."""
    script = fingerprint.NODE
    for place in [*fingerprint.PLACES.split(), "/var/lib/kubelet"]:
        script = script.replace(f" {place} ", f" {root}{place} ")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    return {place.replace(str(root), ""): told for place, told in fingerprint.of_node("w1", done.stdout).items() if str(root) in place}


def test_a_link_is_the_same_by_both_names_of_lib() -> None:
    wants = "/etc/systemd/system/multi-user.target.wants/kubelet.service"
    by_either = [fingerprint.of_node("w1", f"l 777 0:0 38 {lib}/systemd/system/kubelet.service\t{wants}\0") for lib in ("/lib", "/usr/lib")]
    assert by_either[0] == by_either[1] == {f"w1 {wants}": "link to /usr/lib/systemd/system/kubelet.service, 777, 0:0"}


def test_files_folders_links_and_their_modes(tmp_path: Path) -> None:
    for folder in ("etc/kubernetes/manifests", "etc/systemd/system/wants", "var/lib/kubelet/pods/one", "usr/local/bin"):
        (tmp_path / folder).mkdir(parents=True)
    manifest = tmp_path / "etc/kubernetes/manifests/a b.yaml"
    manifest.write_text("x\n")
    manifest.chmod(0o600)
    (tmp_path / "etc/systemd/system/wants/kubelet.service").symlink_to("../kubelet.service")
    (tmp_path / "etc/systemd/system/daytwo-recover.service").write_text("comes with the first change")
    (tmp_path / "var/lib/kubelet/config.yaml").write_text("kind: KubeletConfiguration\n")
    (tmp_path / "var/lib/kubelet/cpu_manager_state").write_text("its own")
    (tmp_path / "var/lib/kubelet/pods/one/file").write_text("of a pod")
    with (tmp_path / "usr/local/bin/kubelet").open("wb") as program:
        program.truncate(1_000_000)
    owner = f"{os.getuid()}:{os.getgid()}"
    digest = hashlib.sha256(b"x\n").hexdigest()[:12]
    before = look(tmp_path)
    assert before["w1 /etc/kubernetes/manifests"].startswith("folder, 7")
    assert before["w1 /etc/kubernetes/manifests/a b.yaml"] == f"file of 2 bytes, 600, {owner}, {digest}"
    assert before["w1 /etc/systemd/system/wants/kubelet.service"] == f"link to ../kubelet.service, 777, {owner}"
    assert before["w1 /usr/local/bin/kubelet"].startswith("file of 1000000 bytes, ") and digest not in before["w1 /usr/local/bin/kubelet"]
    assert "w1 /var/lib/kubelet/config.yaml" in before
    assert not [place for place in before if "daytwo" in place or "state" in place or "pods" in place]

    assert fingerprint.differences(before, look(tmp_path)) == []
    manifest.write_text("y\n")
    (tmp_path / "etc/systemd/system/wants/kubelet.service").unlink()
    (tmp_path / "etc/kubernetes/manifests").chmod(0o700)
    (tmp_path / "etc/default").mkdir()
    (tmp_path / "etc/default/kubelet").write_text("")
    told = fingerprint.differences(before, look(tmp_path))
    assert [line.split(":")[0] for line in told] == [
        "w1 /etc/default/kubelet is new (file of 0 bytes, 644, " + f"{os.getuid()}",
        "w1 /etc/kubernetes/manifests is another",
        "w1 /etc/kubernetes/manifests/a b.yaml is another",
        "w1 /etc/systemd/system/wants/kubelet.service is gone",
    ]
    assert told[2].endswith(f": {digest} -> {hashlib.sha256(b'y' + chr(10).encode()).hexdigest()[:12]}")


def test_a_folder_for_drop_ins_says_nothing() -> None:
    told = "d 755 0:0 4096 \t/etc/systemd/system/kubelet.service.d\0f 644 0:0 5 \t/etc/systemd/system/kubelet.service.d/9.conf\0"
    assert list(fingerprint.of_node("w1", told)) == ["w1 /etc/systemd/system/kubelet.service.d/9.conf"]


def test_what_is_mounted_over_a_folder() -> None:
    assert fingerprint.of_node("w1", "mount tmpfs\t/etc/default\0") == {"w1 /etc/default (mounted)": "tmpfs"}


def item(kind: str, name: str, space: str = "", meta: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, **({"namespace": space} if space else {}), **(meta or {})}, **more}


SPACES = [item("Namespace", name) for name in ("default", "kube-system")]


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (item("Namespace", "shop"), "namespace shop is new"),
        (item("Namespace", "shop", meta={"deletionTimestamp": "now"}), ""),
        (item("Pod", "app", "default"), "pod default/app is new"),
        (item("Pod", "app", "default", {"deletionTimestamp": "now"}), ""),
        (item("Pod", "app", "gone"), ""),
        (item("Pod", "kube-scheduler-cp1", "kube-system"), ""),
        (item("PriorityClass", "batch", value=1), "PriorityClass batch is new (a6cde5e5a4a5)"),
        (item("PodDisruptionBudget", "web", "default", spec={"minAvailable": 1}), "PodDisruptionBudget default/web is new"),
        (item("ConfigMap", "kubelet-config", "kube-system", data={"kubelet": "x"}), "ConfigMap kubelet-config is new"),
        (item("ConfigMap", "kube-root-ca.crt", "default", data={}), ""),
    ],
)
def test_objects_that_are_not_there_in_a_new_cluster(one: dict[str, Any], says: str) -> None:
    told = fingerprint.differences(fingerprint.of_cluster(SPACES), fingerprint.of_cluster([*SPACES, one]))
    assert [line.partition(" (")[0] for line in told] == ([says.partition(" (")[0]] if says else [])


def node(taints: list[dict[str, str]] | None = None, labels: dict[str, str] | None = None, **spec: object) -> dict[str, Any]:
    kept = {"node.alpha.kubernetes.io/ttl": "0"}
    return item("Node", "w1", meta={"labels": {"a": "b", **(labels or {})}, "annotations": kept}, spec={"taints": taints or [], **spec})


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (node(), []),
        (node([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]), []),
        (node([{"key": "t", "value": "1", "effect": "NoExecute"}]), ["node w1 is another: - -> taint t=1:NoExecute"]),
        (node(unschedulable=True), ["node w1 is another: - -> cordoned"]),
        (node(labels={"a": "c"}), ["node w1 is another: a=b -> a=c"]),
    ],
)
def test_nodes_that_are_not_as_they_were(now: dict[str, Any], says: list[str]) -> None:
    assert fingerprint.differences(fingerprint.of_cluster([node()]), fingerprint.of_cluster([now])) == says


def test_status_and_versions_of_objects_say_nothing() -> None:
    before = item("PodDisruptionBudget", "web", "default", {"resourceVersion": "1"}, spec={"minAvailable": 1}, status={"x": 1})
    after = item("PodDisruptionBudget", "web", "default", {"resourceVersion": "2"}, spec={"minAvailable": 1}, status={"x": 2})
    other = item("PodDisruptionBudget", "web", "default", {"resourceVersion": "2"}, spec={"minAvailable": 2}, status={"x": 2})
    first, second, third = (fingerprint.of_cluster([*SPACES, one]) for one in (before, after, other))
    assert first == second != third
