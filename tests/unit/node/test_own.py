"""Whose a process is: nothing counts that a process says of itself, and nothing of it is run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roles.engine import kubelet
from roles.engine.node.look import MOST_OTHERS
from roles.engine.transaction import Change, Refusal
from roles.engine.transaction.change_script import render
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.node.proc import DASHED, STATIC, Proc
from tests.unit.transaction.scratch import MAIN

IN_STATIC_POD = f"/kubepods/burstable/pod{STATIC}/{'a' * 64}"
UNIT = "/system.slice/kubelet.service"
SCHEDULER = Change(
    id="r1-n1-kube-scheduler",
    node="n1",
    component="kube-scheduler",
    kind="static-pod",
    unit="kubelet.service",
    summary="A=true",
    files=(),
    health_url="https://127.0.0.1:10259/healthz",
    old_argv=None,
    new_argv=None,
    pod="kube-system_kube-scheduler-node",
    container="kube-scheduler",
)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_the_nodes_own_kubelet_and_components_are_found(proc: Proc) -> None:
    proc.add(100, "kubelet", cgroup=UNIT, unit="kubelet.service")
    proc.add(200, "kube-scheduler", cgroup=IN_STATIC_POD, mounts="mnt:[7]", uid=65534)
    proc.pod("kube-system_kube-scheduler-node", STATIC)
    seen = proc.look()
    assert seen.unit is not None and (seen.unit.name, seen.unit.main_pid) == ("kubelet.service", 100)
    assert seen.kubelet is not None and seen.kubelet.start_ticks == 10000
    scheduler = seen.static_pod_process("kube-scheduler")
    assert scheduler is not None and (scheduler.pid, scheduler.pod_uid) == (200, STATIC)
    assert scheduler.pods == ("kube-system_kube-scheduler-node",) and seen.ignored == []


@pytest.mark.parametrize(
    ("process", "why"),
    [
        ({"uid": 65534}, "root does not run it"),
        ({"mounts": "mnt:[7]"}, "its own file system"),
        ({"mode": 0o775}, "that not only root can write"),
        ({"owner": 1000}, "that not only root can write"),
        ({"unit": "other.service"}, "not the main process"),
        ({"cgroup": f"/kubepods/besteffort/pod{DASHED}/x/system.slice/kubelet.service"}, "in a pod"),
        # What an unprivileged user's systemd --user calls a unit is no unit of the node's.
        ({"cgroup": "/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service", "uid": 1000}, "root does not run it"),
    ],
)
def test_another_kubelet_is_ignored_and_reported(proc: Proc, process: dict[str, object], why: str) -> None:
    proc.add(4242, "kubelet", **{"cgroup": UNIT, "unit": "kubelet.service" if "unit" not in process else "", **process})  # type: ignore[arg-type]
    seen = proc.look()
    assert seen.processes == () and seen.unit is None
    (told,) = seen.ignored
    assert told.startswith(f"process 4242 of user {process.get('uid', 0)} is named kubelet, but is not the node's own") and why in told
    with pytest.raises(Refusal, match="kubelet"):
        kubelet.find(parse("n1", [line for line in node.answer() if not line.startswith(("process", "unit"))]))


@pytest.mark.parametrize(
    "cgroup",
    [
        f"/kubepods/burstable/pod{DASHED}/{'a' * 64}",
        # A container makes a cgroup below its own.
        f"/kubepods/burstable/pod{DASHED}/{'a' * 64}/kubepods/pod{STATIC}",
        f"/kubepods.slice/kubepods-pod{DASHED.replace('-', '_')}.slice/cri-containerd-x.scope/kubepods-pod{STATIC}.slice/x",
        # A user's slice, in which the user makes any.
        f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{STATIC}/x",
        f"/system.slice/own.service/kubepods.slice/kubepods-pod{STATIC}.slice/x",
        f"/system.slice/docker-{'a' * 64}.scope/kubepods/pod{STATIC}/x",
        f"/pod{STATIC}/x",
        f"/kubepods/pod{STATIC}0/x",
        f"/kubepods/pod{STATIC[:-1]}/x",
        "/system.slice/kube-scheduler.service",
    ],
)
def test_a_process_of_the_name_in_no_static_pod_is_ignored_and_reported(proc: Proc, cgroup: str) -> None:
    proc.add(4242, "kube-scheduler", cgroup=cgroup, uid=65534)
    seen = proc.look()
    assert seen.processes == ()
    assert seen.ignored == [
        "process 4242 of user 65534 is named kube-scheduler, but is not the node's own (it does not run in a static pod): ignored"
    ]


@pytest.mark.parametrize(
    "cgroup",
    [
        f"/kubepods/pod{STATIC}/x",
        f"/kubepods/besteffort/pod{STATIC}/x",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-x.scope",
        f"/kubepods.slice/kubepods-pod{STATIC}.slice/crio-x.scope/container",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{STATIC}.slice/x",
        f"/kubelet/kubepods/burstable/pod{STATIC}/x",
        f"/system.slice/containerd.service/kubepods-burstable-pod{STATIC}.slice:cri-containerd:x",
        f"/kubepods/burstable/pod{STATIC}",
    ],
)
def test_a_static_pods_process_is_known_under_both_cgroup_drivers(proc: Proc, cgroup: str) -> None:
    proc.add(200, "kube-scheduler", cgroup=cgroup)
    assert [process.pod_uid for process in proc.look().processes] == [STATIC]


def test_where_the_node_is_a_container_itself_its_own_part_of_the_tree_counts(proc: Proc) -> None:
    (proc.root / "proc/1/cgroup").write_text("4:memory:/lab-1.scope/payload\n0::/lab-1.scope/payload/init.scope\n")
    lines = (f"4:memory:/lab-1.scope/payload/kubepods/pod{STATIC}/x",)
    proc.add(200, "kube-scheduler", cgroup=f"/lab-1.scope/payload/kubepods/pod{STATIC}/x", more_cgroups=lines)
    assert [process.pod_uid for process in proc.look().processes] == [STATIC]


def test_a_process_that_hierarchies_have_in_two_pods_is_in_none(proc: Proc) -> None:
    proc.add(200, "kube-scheduler", cgroup=IN_STATIC_POD, more_cgroups=(f"4:memory:/kubepods/pod{'b' * 32}/x",))
    assert proc.look().processes == ()


def test_a_kubelet_that_moved_to_another_cgroup_is_known_by_its_unit(proc: Proc) -> None:
    proc.add(100, "kubelet", cgroup="/kube.slice", unit="kubelet.service")
    seen = proc.look()
    assert seen.kubelet is not None and seen.kubelet.pid == 100


@pytest.mark.parametrize("name", ["k3s-server", "k3s", "rke2", "k0s", "kubelite", "machined"])
def test_only_a_process_of_the_node_itself_makes_it_another_kind_of_node(proc: Proc, name: str) -> None:
    proc.add(300, name, cgroup=f"/kubepods/besteffort/pod{DASHED}/x", mounts="mnt:[7]")
    proc.add(301, name, cgroup="/user.slice/user-1000.slice", uid=1000)
    proc.add(302, name, cgroup="/docker/x", mounts="mnt:[8]")
    seen = proc.look()
    assert seen.processes == () and len(seen.ignored) == 3
    assert kubelet.find(parse("n1", node.answer(extra=[f"ignored {name} 300 0 pod"])))
    proc.add(303, name, cgroup="/system.slice/x.service")
    assert [process.pid for process in proc.look().processes] == [303]


def test_names_that_only_begin_so_are_no_records(proc: Proc) -> None:
    proc.add(300, "k3s 1 2 = =", cgroup="/system.slice/x.service")
    proc.add(301, "k3s\x1b]52;c;x", cgroup="/system.slice/x.service")
    seen = proc.look()
    assert seen.processes == () and seen.ignored == []


def test_of_many_such_processes_a_few_are_told(proc: Proc) -> None:
    for pid in range(1000, 1000 + MOST_OTHERS + 3):
        proc.add(pid, "kubelet", uid=1000)
    seen = proc.look()
    assert len(seen.others) == MOST_OTHERS
    assert seen.ignored[-1] == "3 more processes have such names, but are not the node's own: ignored"


def test_the_look_runs_nothing_of_what_it_finds(proc: Proc) -> None:
    """Each process's program leaves a file when it is run."""
    proc.add(100, "kubelet", cgroup=UNIT, unit="kubelet.service")
    proc.add(200, "kube-scheduler", cgroup=IN_STATIC_POD)
    proc.add(201, "kube-apiserver", cgroup="/user.slice", uid=65534)
    proc.add(202, "k3s", uid=65534)
    for program in (proc.root / "files").iterdir():
        program.write_text(f"#!/bin/sh\ntouch {proc.root}/was-run\n")
    proc.look()
    assert not (proc.root / "was-run").exists()
    # In this way it would have been seen.
    subprocess.run([str(proc.root / "proc/201/exe")], check=True)
    assert (proc.root / "was-run").exists()


def chosen(proc: Proc) -> str:
    """The process that change.sh takes for the scheduler of this node: its main_pid, run over this folder's processes."""
    script = render(SCHEDULER)
    return proc.run(script[: script.index(MAIN)] + "\nmain_pid\n").strip()


@pytest.mark.parametrize(
    "other",
    [
        {"cgroup": f"/kubepods/burstable/pod{DASHED}/x", "uid": 65534, "mounts": "mnt:[9]"},
        {"cgroup": f"/kubepods/burstable/pod{DASHED}/x/kubepods/pod{STATIC}"},
        {"cgroup": f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{STATIC}/x", "uid": 1000},
        # Another static pod of this node.
        {"cgroup": f"/kubepods/burstable/pod{'b' * 32}/x"},
    ],
)
def test_a_change_takes_no_other_process_for_the_component(proc: Proc, other: dict[str, object]) -> None:
    proc.pod("kube-system_kube-scheduler-node", STATIC)
    proc.pod("kube-system_another-node", "b" * 32)
    proc.add(100, "kube-scheduler", **other)  # type: ignore[arg-type]
    assert chosen(proc) == "0"
    proc.add(200, "kube-scheduler", cgroup=IN_STATIC_POD)
    assert chosen(proc) == "200"


def test_a_change_finds_the_component_where_the_kubelet_keeps_its_logs_elsewhere(proc: Proc) -> None:
    proc.add(200, "kube-scheduler", cgroup=IN_STATIC_POD)
    assert chosen(proc) == "200"


@pytest.mark.parametrize(
    "argument",
    ["    - --kubeconfig={}/kcm.conf\n", '    - "--kubeconfig={}/kcm.conf"\n', "    - --kubeconfig\n    - {}/kcm.conf\n"],
    ids=["one-word", "quoted", "two-words"],
)
def test_the_admin_file_is_found_while_no_controller_manager_runs(proc: Proc, tmp_path: Path, argument: str) -> None:
    """It may wait for its next start: then its manifest says where it is."""
    kubernetes, manifests = tmp_path / "kubernetes", tmp_path / "manifests"
    for folder in (kubernetes, manifests):
        folder.mkdir()
    (kubernetes / "admin.conf").write_text("admin\n")
    (manifests / "other.yaml").write_text("kind: Pod\n    - --kubeconfig=/elsewhere/x.conf\n")
    (manifests / "kcm.yaml").write_text(f"kind: Pod\n    - kube-controller-manager\n{argument.format(kubernetes)}")
    proc.add(100, "kubelet", cgroup=UNIT, unit="kubelet.service", argv=("kubelet", f"--pod-manifest-path={manifests}"))
    assert proc.look().files[f"{kubernetes}/admin.conf"].data == b"admin\n"
