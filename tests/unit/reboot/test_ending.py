"""How a control-plane node ends: the script itself, with processes of the test in the place of the node's."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.reboot import ending, facts
from roles.reboot.ending import GRACE, MOST_GRACE, EndedComponent, Ending, grace, plan_ending
from tests.unit.node.proc import DASHED, STATIC, Proc

POD = "kube-system_{}-node"
NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
SYSTEMCTL = """#!/bin/sh
cd "{root}" || exit 1
case "$*" in
is-system-running) cat state ;;
'stop -- kubelet.service') echo stop >>log; [ -e hangs ] || echo inactive >active ;;
'start --no-block -- kubelet.service') echo start >>log ;;
*MainPID*) echo 100 ;;
'show --property=ActiveState --value -- kubelet.service') cat active ;;
'show --property=ActiveState --value daytwo-reboot.service') cat unit 2>/dev/null || echo inactive ;;
reset-failed*) ;;
reboot) echo reboot >>log; [ ! -e inhibited ] || exit 1; [ -e delayed ] || echo stopping >state ;;
*) echo "unexpected: $*" >>log ;;
esac
"""


class Node:
    """Processes that run, as a node's static pods; each writes its name to `log` when it ends."""

    def __init__(self, root: Path) -> None:
        self.root, self.proc, self.processes = root, Proc(root), list[subprocess.Popen[bytes]]()
        (root / "run/systemd/inhibit").mkdir(parents=True)
        (root / "proc/uptime").unlink()
        (root / "proc/uptime").symlink_to("/proc/uptime")
        (root / "state").write_text("running\n")
        (root / "active").write_text("active\n")
        (root / "bin/systemctl").write_text(SYSTEMCTL.format(root=root))
        run = root / "bin/systemd-run"
        run.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{root}/ordered\n')
        run.chmod(0o755)

    def start(self, name: str, pod: str, uid: str, *, stays: bool = False) -> subprocess.Popen[bytes]:
        """A process that systemd or the kubelet would see in a pod. `stays`: SIGTERM does not end it."""
        on_term = ":" if stays else f"echo {name} >>{self.root}/log; exit 0"
        process = subprocess.Popen(["sh", "-c", f"trap '{on_term}' TERM; echo; while :; do sleep 0.05; done"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # it has its trap
        threading.Thread(target=process.wait, daemon=True).start()
        self.processes.append(process)
        self.proc.add(process.pid, name[:15], cgroup=f"/kubepods/burstable/pod{uid}/{'a' * 64}", mounts="mnt:[7]")
        stat = self.root / f"proc/{process.pid}/stat"
        stat.unlink()
        stat.symlink_to(f"/proc/{process.pid}/stat")
        if not (self.root / "pods" / f"{pod}_{uid}").exists():
            self.proc.pod(pod, uid)
        return process

    def control_plane(self) -> None:
        for number, name in enumerate(NAMES):
            self.start(name, POD.format(name), f"{number}{STATIC[1:]}")

    def script(self, text: str) -> str:
        return self.proc.here(text).replace("/run/", f"{self.root}/run/")

    def end(self, what: str = "reboot", *, seconds: int = 60) -> subprocess.CompletedProcess[str]:
        (self.root / "run/daytwo-reboot").mkdir(exist_ok=True)
        return subprocess.run(["sh", "-s", what], input=self.script(made(seconds).script()), text=True, capture_output=True, check=False)

    @property
    def log(self) -> list[str]:
        return (self.root / "log").read_text().split() if (self.root / "log").exists() else []


def made(seconds: int = 60) -> Ending:
    found = plan_ending("kubelet.service", {name: POD.format(name) for name in NAMES}, [mirror("kube-apiserver-node", seconds)])
    assert found is not None
    return found


def mirror(name: str, seconds: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "kube-system", "name": name}, "spec": {"terminationGracePeriodSeconds": seconds}}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    there = Node(tmp_path)
    yield there
    for process in there.processes:
        process.kill()


def test_the_api_server_ends_while_its_etcd_still_runs(node: Node) -> None:
    node.control_plane()
    done = node.end()
    assert (done.returncode, node.log) == (0, ["stop", "kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd", "reboot"])
    assert "kube-apiserver: ended after" in done.stderr
    # The unit's last command: the node ends, and no kubelet starts again.
    assert node.end("back").returncode == 0 and "start" not in node.log


def test_only_the_nodes_own_static_pods_end(node: Node) -> None:
    node.control_plane()
    others = [
        node.start("kube-apiserver", "kube-system_kube-apiserver-node", DASHED),  # the name of a pod from the API is its own choice
        node.start("kube-apiserver", "tenants_kube-apiserver-node", f"f{STATIC[1:]}"),
        node.start("etcd", "kube-system_etcd-node-x", f"e{STATIC[1:]}"),
    ]
    assert node.end().returncode == 0
    assert [one.poll() for one in others] == [None] * 3 and node.log.count("kube-apiserver") == 1 and node.log.count("etcd") == 1


def test_an_api_server_that_does_not_end_is_killed_before_etcd_ends(node: Node) -> None:
    server = node.start("kube-apiserver", POD.format("kube-apiserver"), STATIC, stays=True)
    node.start("etcd", POD.format("etcd"), f"1{STATIC[1:]}")
    done = node.end(seconds=1)
    assert (done.returncode, node.log) == (0, ["stop", "etcd", "reboot"]) and "kube-apiserver: killed after" in done.stderr
    assert server.wait(timeout=10) == -signal.SIGKILL


@pytest.mark.parametrize("why", ["it does not end", "it ends the pods itself"])
def test_a_kubelet_that_runs_on_keeps_its_pods(node: Node, why: str) -> None:
    node.control_plane()
    if why == "it does not end":
        (node.root / "hangs").touch()
    else:
        (node.root / "run/systemd/inhibit/3").write_text("WHAT=shutdown\nWHO=kubelet\nPID=100\nMODE=delay\n")
        (node.root / "delayed").touch()  # the shutdown begins when the kubelet is done: that may take many minutes
    (node.root / "run/systemd/inhibit/1").write_text("WHAT=sleep\nWHO=x\nPID=100\nMODE=delay\n")
    (node.root / "run/systemd/inhibit/2").write_text("WHAT=shutdown\nWHO=kubelet\nPID=1001\nMODE=delay\n")
    assert node.end().returncode == 0
    assert node.log == (["stop", "reboot"] if why == "it does not end" else ["reboot"])


@pytest.mark.parametrize("why", ["inhibited", "delayed"])
def test_a_reboot_that_does_not_begin_starts_the_kubelet_again(node: Node, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_BEGIN", 1)
    (node.root / why).touch()
    assert (node.end("back").returncode, node.log) == (0, [])  # before anything was stopped
    assert node.end().returncode == 1
    assert (node.end("back").returncode, node.log) == (0, ["stop", "reboot", "start"])


@pytest.mark.parametrize(("state", "code", "then"), [("running", 1, ["stop", "start"]), ("stopping", 0, ["stop"])])
def test_a_unit_that_is_ended_meanwhile(node: Node, state: str, code: int, then: list[str]) -> None:
    """A shutdown of somebody else is no failure; anything else is."""
    node.start("kube-apiserver", POD.format("kube-apiserver"), STATIC, stays=True)
    (node.root / "run/daytwo-reboot").mkdir()
    script = node.root / "ending.sh"
    # The signal comes while the script waits for the API server.
    script.write_text(
        node.script(made(60).script()).replace("send TERM", f'send TERM "$@"; echo {state} >{node.root}/state; kill -TERM $$; :')
    )
    assert subprocess.run(["sh", script, "reboot"], capture_output=True, check=False, timeout=60).returncode == code
    node.end("back")
    assert node.log == then


def test_the_order_comes_with_what_brings_the_kubelet_back(node: Node) -> None:
    order = node.script(facts.reboot_script("b00t", "r1", made()))
    for _ in range(2):
        assert subprocess.run(["sh", "-s"], input=order, text=True, capture_output=True, check=True).stdout == "ordered\n"
    folder = node.root / "run/daytwo-reboot"
    words = (node.root / "ordered").read_text().splitlines()
    assert (
        words[-3:] == ["/bin/sh", f"{folder}/ending.sh", "reboot"] and f"--property=ExecStopPost=-/bin/sh {folder}/ending.sh back" in words
    )
    assert (folder / "ending.sh").read_text() == node.script(made().script()) and folder.stat().st_mode & 0o777 == 0o700
    # A second order, after a lost answer, while the first is carried out.
    (node.root / "unit").write_text("activating\n")
    (node.root / "ordered").unlink()
    (folder / "stopped").touch()
    assert subprocess.run(["sh", "-s"], input=order, text=True, capture_output=True, check=True).stdout == "ordered\n"
    assert not (node.root / "ordered").exists() and (folder / "stopped").exists()


def test_what_ends_and_how_long_it_has() -> None:
    found = made(seconds=75)
    assert found.components[2] == EndedComponent("kube-apiserver", "kube-system_kube-apiserver-node", 75, kill=True)
    assert found.components[3].program == "etcd" and not found.components[3].kill and found.seconds > 75
    assert plan_ending("kubelet.service", {"etcd": "kube-system_etcd-node"}, []) is None
    pod = "kube-system_kube-apiserver-node"
    for seconds, expected in ((10**9, MOST_GRACE), (0, GRACE), ("$(x)", GRACE), (None, GRACE), (True, GRACE)):
        assert grace([mirror("web", 5), mirror("kube-apiserver-node", seconds)], pod) == expected
    assert grace([], pod) == GRACE
