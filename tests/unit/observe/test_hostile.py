"""Nothing of a node is taken for its own by its name, and nothing is run by looking at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.observe.fake import ORDINARY_POD, OTHER_STATIC, POD, SERVICE, STATIC, STATIC_POD, Fake

USERS = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/"


@pytest.fixture
def machine(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_nodes_own_are_found_and_not_run(machine: Fake, shell: str) -> None:
    machine.kubelet()
    machine.component()
    seen = machine.look(shell)
    assert seen.kubelet is not None and (seen.kubelet.pid, seen.kubelet.start_ticks) == (100, 5000)
    scheduler = seen.static_pod_process("kube-scheduler")
    assert scheduler is not None and scheduler.pid == 200 and scheduler.pod_uid == STATIC
    assert seen.process_of("kube-scheduler", "kube-system", "kube-scheduler") == scheduler
    assert seen.process_of("kube-scheduler", "kube-system", "other") is None
    assert machine.ran == {} and seen.ignored == ()


NAMES = ["kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "k3s-server", "rke2", "k0s", "kubelite", "machined"]


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (ORDINARY_POD, 65534),
        (ORDINARY_POD, 0),
        ("0::/user.slice/user-1000.slice/session-1.scope", 1000),
        # What a pod or a user with cgroups of its own may make below them.
        (f"{ORDINARY_POD}/kubelet.service", 0),
        (f"{ORDINARY_POD}/kubepods.slice/kubepods-pod{STATIC}.slice/x", 0),
        (f"0::/kubepods/besteffort/pod{POD}/{'b' * 64}/kubepods/pod{STATIC}/x", 0),
        (f"2:cpu:/kubepods/pod{STATIC}/x\n1:name=systemd:/kubepods/pod{POD}/x", 0),
        (f"{USERS}kubepods.slice/kubepods-pod{STATIC}.slice/x", 1000),
        (f"{USERS}kubelet.service", 1000),
        (f"0::/system.slice/web.service/kubepods/pod{STATIC}/x", 33),
        (f"0::/docker/{'c' * 64}/kubelet/kubepods/pod{OTHER_STATIC}/x", 0),
        (SERVICE, 65534),
        (SERVICE, 0),
    ],
)
def test_others_of_their_names_are_ignored_and_said(machine: Fake, cgroup: str, uid: int) -> None:
    machine.kubelet()
    machine.component()
    for pid, name in enumerate(NAMES, 600):
        machine.process(pid, name, cgroup, uid=uid, exe=machine.program(f"evil-{name}"))
    seen = machine.look()
    assert {process.pid for process in seen.processes} == {100, 200} and machine.ran == {}
    assert {line.partition(": ")[0].rpartition(" ")[2] for line in seen.ignored} == {str(600 + number) for number in range(len(NAMES))}
    assert seen.kubelet is not None and seen.kubelet.pid == 100
    assert seen.unit is not None and seen.unit.name == "kubelet.service"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"uid": 65534}, "does not run as root"),
        ({"cgroup": "0::/init.scope"}, "no service of systemd"),
        ({"cgroup": "0::/system.slice/other.service"}, "not the main process of other.service"),
        ({"cgroup": "0::/system.slice/ku*.service"}, "no service of systemd"),
        ({"mounts": "mnt:[2]"}, "mount namespace of its own"),
    ],
)
def test_a_kubelet_is_the_main_process_of_its_unit(machine: Fake, changes: dict[str, object], why: str) -> None:
    machine.kubelet(**changes)
    seen = machine.look()
    assert seen.kubelet is None and seen.unit is None and why in seen.ignored[0]


@pytest.mark.parametrize(
    "cgroup", ["1:name=systemd:/system.slice/kubelet.service\n0::/", f"12:cpu,cpuacct:/\n{SERVICE}", "0::/system.slice/kubelet.service/sub"]
)
def test_the_kubelets_unit_is_known_in_either_cgroup_version(machine: Fake, cgroup: str) -> None:
    machine.kubelet(cgroup=cgroup)
    assert machine.look().kubelet is not None


@pytest.mark.parametrize(
    "cgroup",
    [
        STATIC_POD,
        f"0::/kubepods/burstable/pod{STATIC}/{'a' * 64}",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{STATIC}.slice/cri-containerd-{'a' * 64}.scope",
        f"11:misc:/\n4:memory:/kubepods/burstable/pod{STATIC}/x\n1:name=systemd:/kubepods/burstable/pod{STATIC}/x\n0::/",
    ],
)
def test_a_static_pod_is_known_under_either_driver(machine: Fake, cgroup: str) -> None:
    machine.kubelet()
    machine.component(cgroup=cgroup)
    assert machine.look().static_pod_process("kube-scheduler") is not None


def test_a_uid_that_the_kubelet_does_not_know_is_no_static_pod(machine: Fake) -> None:
    machine.kubelet()
    machine.component()
    machine.process(300, "kube-controller-manager", STATIC_POD.replace(STATIC, OTHER_STATIC))
    seen = machine.look()
    assert seen.static_pod_process("kube-controller-manager") is None and "knows no static pod with its UID" in seen.ignored[0]


def test_files_that_a_stranger_names_are_not_read(machine: Fake) -> None:
    """The admin's credentials come from beside the controller-manager's own: nobody else says where that is."""
    machine.kubelet()
    (machine.folder / "admin.conf").write_text("hostile")
    machine.process(666, "kube-controller-manager", ORDINARY_POD, argv=("kube-controller-manager", f"--kubeconfig={machine.folder}/x"))
    machine.process(667, "kube-apiserver", ORDINARY_POD, argv=("kube-apiserver", f"--etcd-cafile={machine.folder}/admin.conf"))
    assert machine.look().file(f"{machine.folder}/admin.conf") is None
    machine.component(300, "kube-controller-manager", OTHER_STATIC, argv=("kube-controller-manager", f"--kubeconfig={machine.folder}/x"))
    assert machine.look().data(f"{machine.folder}/admin.conf") == b"hostile", "else the above would show nothing"


def test_a_name_with_blanks_and_line_ends_breaks_no_record(machine: Fake) -> None:
    machine.kubelet()
    machine.process(666, "k3s a\x1b b", ORDINARY_POD)
    machine.process(667, "kubelet\nx) S 1", ORDINARY_POD)
    seen = machine.look()
    assert seen.kubelet is not None and seen.ignored == ("process k3s, PID 666: it belongs to no service of systemd",)


def test_very_many_strangers_cost_little_and_are_counted(machine: Fake) -> None:
    machine.kubelet()
    evil = machine.program("evil")
    for pid in range(1000, 1040):
        machine.process(pid, "kubelet", f"{ORDINARY_POD}/a.service", exe=evil)
    seen = machine.look()
    assert len(seen.ignored) == 11 and seen.ignored[-1] == "and 30 processes more"
    asked = (machine.folder / "systemctl.log").read_text().splitlines()
    assert len([line for line in asked if "a.service" in line]) == 1


def test_the_unit_that_has_the_usual_name_counts(machine: Fake) -> None:
    machine.units = {"kubelet.service": 100, "another.service": 90}
    machine.process(90, "kubelet", "0::/system.slice/another.service")
    machine.kubelet()
    seen = machine.look()
    assert seen.kubelet is not None and seen.kubelet.pid == 100
    machine.process(110, "kubelet", "0::/system.slice/third.service")
    machine.units["third.service"] = 110
    seen = machine.look()
    assert seen.kubelet is not None and seen.kubelet.pid == 100 and "third.service is not kubelet.service" in seen.ignored[0]


def test_a_node_of_another_kind_is_known_by_its_own_service(machine: Fake) -> None:
    machine.units = {"k3s.service": 70}
    machine.process(70, "k3s-server", "0::/system.slice/k3s.service")
    assert [process.name for process in machine.look().processes] == ["k3s"]
