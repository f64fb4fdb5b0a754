"""The cgroup driver: changed where the container runtime already has it, and refused with the runtime's own setting everywhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.engine.kubelet import KubeletState
from roles.engine.kubelet.drained import RuntimeEdit
from roles.engine.kubelet.runtime import Runtime
from roles.engine.node_changes import node_report
from roles.engine.transaction import FileEdit, Refusal, RuntimeRestart
from roles.kubelet_config import cgroups
from tests.unit.kubelet_config.world import CONTAINERD_17, CONTAINERD_CONFIG, FILE, PATH, PLACE, SERVED, drained, plan_fields, pod, state
from tests.unit.node import node
from tests.unit.node.node import parse

NEW = Runtime("containerd 2.1.0", "systemd", {"runc": "systemd"}, (PLACE,))
TO_SYSTEMD = {"cgroupDriver": "systemd"}


def given(found: Runtime | None, running: str = "cgroupfs", config: str = "") -> KubeletState:
    return replace(drained(state(config, cgroupDriver=running)), runtime=found)


@pytest.mark.parametrize("found", [CONTAINERD_17, NEW], ids=["not-reported", "reported"])
def test_the_kubelet_follows_a_runtime_that_has_the_driver(found: Runtime) -> None:
    whole = plan_fields(given(found), TO_SYSTEMD)
    (made,) = whole.planned
    assert made.change is not None and b"cgroupDriver: systemd" in (made.change.files[0].after or b"")
    assert made.recreates_pods and made.change.checkpoints == () and made.settings == TO_SYSTEMD
    assert made.needs_drain == (
        "cgroupDriver: the kubelet ends every pod that still runs, and creates it again in the cgroups of the new driver",
    )
    assert any("ended and created again in place" in warning for warning in whole.warnings)
    lines = "\n".join(node_report._description(made.change, 1, recreates_pods=made.recreates_pods))
    assert "the pods that are left are ended and created again" in lines and "pods keep running" not in lines


def test_it_needs_a_drained_node() -> None:
    with pytest.raises(Refusal, match="it is not cordoned and 2 pods run there"):
        plan_fields(replace(state(cgroupDriver="cgroupfs"), runtime=CONTAINERD_17), TO_SYSTEMD)
    (made,) = plan_fields(replace(state(cgroupDriver="cgroupfs"), runtime=CONTAINERD_17), TO_SYSTEMD, may_drain=True).planned
    assert made.needs_drain


@pytest.mark.parametrize("found", [SERVED, replace(SERVED, reported="systemd")], ids=["not-reported", "reported"])
def test_kubelet_and_containerd_change_in_one_transaction(found: Runtime) -> None:
    whole = plan_fields(given(found, "systemd", "cgroupDriver: systemd\n"), {"cgroupDriver": "cgroupfs"}, may_drain=True)
    (made,) = whole.planned
    assert made.change is not None and made.recreates_pods and made.needs_drain
    assert made.change.runtime == RuntimeRestart("containerd.service", PATH)
    first, second = made.change.files
    assert b"cgroupDriver: cgroupfs" in (first.after or b"") and second.path == PATH and (second.mode, second.owner) == (0o644, "")
    assert (second.before, second.after) == (CONTAINERD_CONFIG, CONTAINERD_CONFIG.replace(b"= true", b"= false"))
    assert any("containerd 1.7.24 changes to cgroupfs, too" in warning and PLACE in warning for warning in whole.warnings)
    lines = "\n".join(node_report._description(made.change, 1, recreates_pods=True))
    assert "all pods of the node end, the files are placed, systemctl restart containerd.service, systemctl start kubelet.service" in lines
    # Pods and runtime have time of their own before the kubelet starts.
    assert made.change.confirm_timeout == replace(made.change, runtime=None).confirm_timeout + 60
    with pytest.raises(Refusal, match="it is not cordoned and 2 pods run there"):
        plan_fields(replace(state("cgroupDriver: systemd\n", cgroupDriver="systemd"), runtime=found), {"cgroupDriver": "cgroupfs"})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"unit": ""}, "it is not containerd with a unit containerd.service that serves the kubelet's socket"),
        ({"file": None}, "is no file that can be read"),
        ({"file": replace(FILE, kind="link")}, "is a symbolic link"),
        ({"file": replace(FILE, mtime=1100)}, "was written after the runtime had started"),
        ({"places": (PLACE, "/etc/containerd/conf.d/a.toml:1: SystemdCgroup = true")}, "another file sets it, too"),
        ({"file": replace(FILE, data=CONTAINERD_CONFIG.replace(b"true", b"false"))}, "does not say what it runs with"),
        ({"file": replace(FILE, data=b"[")}, "cannot be parsed as TOML"),
    ],
    ids=["unit", "unread", "link", "younger", "conf.d", "differs", "no-toml"],
)
def test_a_runtime_that_daytwo_cannot_change_is_the_operators(more: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        plan_fields(given(replace(SERVED, **more), "systemd"), {"cgroupDriver": "cgroupfs"})
    assert f"; daytwo does not change it: {'' if 'unit' in more else PATH if 'places' not in more else ''}" in str(refused.value)
    assert words in str(refused.value) and "the runtime first: `pyinfra INVENTORY deploys/drain.py --data nodes=n1`" in str(refused.value)


def test_an_undo_that_has_the_runtimes_file_restarts_it_with_that() -> None:
    restart, new = RuntimeRestart("containerd.service", PATH), CONTAINERD_CONFIG.replace(b"true", b"false")
    (made,) = plan_fields(given(SERVED, "systemd", "cgroupDriver: systemd\n"), {"cgroupDriver": "cgroupfs"}).planned
    assert made.change is not None
    back = FileEdit(PATH, new, b"# older\n" + CONTAINERD_CONFIG)
    undo = replace(made.change, files=(made.change.files[0], back), runtime=None)
    wanted = FileEdit(PATH, new, CONTAINERD_CONFIG)
    assert cgroups.with_runtime_edit(undo, RuntimeEdit("systemd", restart, wanted, "")) == replace(undo, runtime=restart)
    with pytest.raises(Refusal, match="as it was before, has another cgroup driver"):
        cgroups.with_runtime_edit(replace(undo, files=(FileEdit(PATH, CONTAINERD_CONFIG, new),)), RuntimeEdit("systemd", restart, None, ""))


def test_a_containerd_that_has_the_driver_restarts_without_a_new_file() -> None:
    (made,) = plan_fields(given(SERVED), TO_SYSTEMD).planned
    assert made.change is not None and [edit.path for edit in made.change.files] == ["/var/lib/kubelet/config.yaml"]
    assert made.change.runtime == RuntimeRestart("containerd.service", PATH)


MIXED = replace(CONTAINERD_17, handlers={"runc": "systemd", "nvidia": "cgroupfs"})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (CONTAINERD_17, "containerd 1.7.24 runs with another driver (runc systemd), and while the kubelet had cgroupfs no pod would start"),
        (NEW, "has the driver systemd, which it reports to the kubelet (CRI RuntimeConfig), and the kubelet ignores its own field"),
        (MIXED, "(runc systemd, nvidia cgroupfs)"),
        (
            Runtime(problem="the node has no curl to ask it with"),
            "it is not known which driver the container runtime has (the node has no curl",
        ),
        (None, "it was not asked"),
    ],
    ids=["not-reported", "reported", "mixed", "unknown", "not-asked"],
)
def test_a_runtime_with_another_driver_is_refused_with_its_file_line_and_value(found: Runtime | None, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        plan_fields(given(found, "systemd"), {"cgroupDriver": "cgroupfs"})
    text = str(refused.value)
    assert "n1: cgroupDriver cgroupfs: " in text and words in text
    if found is not None and not found.problem:
        assert f"; set in {PLACE}" in text
        assert "deploys/drain.py --data nodes=n1`, set SystemdCgroup = false for each handler" in text and "deploys/uncordon.py" in text


def test_absent_means_the_default_of_the_field() -> None:
    with pytest.raises(Refusal, match="cgroupDriver cgroupfs: containerd"):
        plan_fields(given(CONTAINERD_17, "systemd", "cgroupDriver: systemd\n"), {"cgroupDriver": "absent"})


def test_the_setting_of_cri_o_is_named_by_its_name() -> None:
    found = Runtime("cri-o 1.33.0", "systemd", {}, ('/etc/crio/crio.conf:3: cgroup_manager = "systemd"',))
    with pytest.raises(Refusal, match='set cgroup_manager = "cgroupfs", restart the runtime'):
        plan_fields(given(found, "systemd"), {"cgroupDriver": "cgroupfs"})


def test_a_value_that_is_in_effect_needs_neither_runtime_nor_drain() -> None:
    """A kubelet that has taken the driver from its runtime shows it, whatever its file says."""
    (made,) = plan_fields(replace(state("cgroupDriver: cgroupfs\n", cgroupDriver="systemd"), runtime=None), TO_SYSTEMD).planned
    assert made.change is not None and not made.needs_drain and not made.recreates_pods
    (made,) = plan_fields(state("cgroupDriver: systemd\n", cgroupDriver="systemd"), TO_SYSTEMD).planned
    assert made.change is None


def test_a_file_that_the_runtime_beats_is_not_blamed_on_a_missing_restart() -> None:
    with pytest.raises(Refusal, match="reports to the kubelet"):
        plan_fields(given(NEW, "systemd", "cgroupDriver: cgroupfs\n"), {"cgroupDriver": "cgroupfs"})
    with pytest.raises(Refusal, match="not restarted since: drain the node first, then `systemctl restart"):
        plan_fields(given(NEW, "cgroupfs", "cgroupDriver: systemd\n"), TO_SYSTEMD)


def test_a_control_plane_node_is_refused() -> None:
    manifests = {"kube-apiserver.yaml": node.manifest("kube-apiserver")}
    seen = parse("n1", node.answer(manifests=manifests, components={"kube-apiserver": ["kube-apiserver"]}))
    at = given(CONTAINERD_17)
    with pytest.raises(Refusal, match=r"would end the control plane's pods \(.*kube-apiserver.*\) at the same time"):
        plan_fields(replace(at, kubelet=replace(at.kubelet, seen=seen)), TO_SYSTEMD)
    etcd = pod("etcd-n1")
    cgroups.check(replace(at, pods=[etcd]), (), TO_SYSTEMD)
    etcd["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    with pytest.raises(Refusal, match=r"pods \(etcd-n1\) at the same time"):
        cgroups.check(replace(at, pods=[etcd]), (), TO_SYSTEMD)


def test_the_proof_is_the_runtimes_answer_and_where_the_pods_are() -> None:
    good = replace(CONTAINERD_17, processes={"systemd": 12, "cgroupfs": 0})
    assert cgroups.judged(good, "systemd") == cgroups.Proof("containerd 1.7.24 has systemd, processes of pods only in kubepods.slice")
    assert cgroups.judged(CONTAINERD_17, "systemd").how.endswith("no process of a pod but in kubepods.slice")
    (left,) = cgroups.judged(replace(good, processes={"systemd": 12, "cgroupfs": 1}), "systemd").problems
    assert left == "processes of pods are still in the cgroups of the other driver (kubepods)"
    (other,) = cgroups.judged(good, "cgroupfs").problems[:1]
    assert other == "containerd 1.7.24 has the cgroup driver systemd now, not cgroupfs"
    assert "not known now: x" in cgroups.judged(Runtime(problem="x"), "systemd").problems[0]
