"""The kernel's own counts of containers: the script run over a node's files as both hierarchies and both cgroup drivers have them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roles.engine.node import ObservationError
from roles.right_size import kernel
from roles.right_size.kernel import KernelUse, NodeUse

UID = "0f0e5b6c-53a4-4b4b-9f4f-0123456789ab"
UNDERSCORES = UID.replace("-", "_")
ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
MI = 2**20
SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice/cri-containerd-{ID}.scope"
CGROUPFS = f"/kubepods/burstable/pod{UID}/{ID}"
V2 = {
    "memory.current": f"{100 * MI}\n",
    "memory.peak": f"{150 * MI}\n",
    "memory.max": "max\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n",
    "memory.stat": f"anon {70 * MI}\ninactive_anon 5\ninactive_file {20 * MI}\n",
    "cpu.stat": "usage_usec 12500000\nuser_usec 1\nnr_periods 200\nnr_throttled 50\nthrottled_usec 9\n",
    "cpu.max": "20000 100000\n",
    "cpu.pressure": "some avg10=0.00 avg60=1.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
}


class Node:
    """A node's /proc and cgroup mounts in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("b1\n")
        (root / "proc/uptime").write_text("1234.50 99.0\n")
        self.mounts: list[str] = []

    def mount(self, kind: str, options: str, point: str) -> None:
        self.mounts.append(f"30 23 0:26 / {self.root}{point} rw,relatime shared:9 - {kind} {kind} rw,{options}")
        (self.root / "proc/self/mountinfo").write_text("\n".join(self.mounts) + "\n")

    def process(self, pid: int, *lines: str) -> None:
        (self.root / f"proc/{pid}").mkdir()
        (self.root / f"proc/{pid}/cgroup").write_text("".join(f"{line}\n" for line in lines))

    def files(self, folder: str, files: dict[str, str]) -> None:
        (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.root / folder.lstrip("/") / name).write_text(text)

    def look(self, shell: str = "sh", stack: str = "8192") -> NodeUse:
        text = kernel.script().replace("/proc/", f"{self.root}/proc/")
        done = subprocess.run(
            ["sh", "-c", f"ulimit -S -s {stack}; exec {shell} -s"], input=text, text=True, capture_output=True, check=True
        )
        assert not done.stderr
        found = kernel.parse("n1", done.stdout.splitlines())
        assert abs(found.clock - time.time()) < 600 and found.boot == "b1"
        return found


def unified(folder: Path) -> Node:
    node = Node(folder)
    node.mount("cgroup2", "nsdelegate", "/sys/fs/cgroup")
    return node


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("path", [SYSTEMD, CGROUPFS])
def test_cgroup_v2(tmp_path: Path, shell: str, path: str) -> None:
    node = unified(tmp_path)
    node.process(7, f"0::{path}")
    node.process(8, f"0::{path}/made-inside/{OTHER}")  # systemd in a container creates cgroups of its own
    node.process(9, "0::/system.slice/ssh.service")
    node.files(f"/sys/fs/cgroup{path}", V2)
    found = node.look(shell).containers
    assert found == {(UID, ID): KernelUse(1234.5, 80 * MI, 20 * MI, 150 * MI, None, 2, 12.5, 200, 50, 2.5, 0.0)}


@pytest.mark.parametrize("path", [SYSTEMD, CGROUPFS])
def test_cgroup_v1_with_its_controllers_apart(tmp_path: Path, path: str) -> None:
    node = Node(tmp_path)
    for controllers in ("cpu,cpuacct", "memory", "pids"):
        node.mount("cgroup", controllers, f"/sys/fs/cgroup/{controllers}")
    node.mount("cgroup2", "nsdelegate", "/sys/fs/cgroup/unified")
    node.process(7, f"9:pids:{path}", f"4:cpu,cpuacct:{path}", f"3:memory:{path}", f"1:name=systemd:{path}", "0::/")
    node.files(f"/sys/fs/cgroup/memory{path}", {
        "memory.usage_in_bytes": f"{100 * MI}\n", "memory.max_usage_in_bytes": f"{128 * MI}\n", "memory.limit_in_bytes": f"{128 * MI}\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        "memory.stat": f"inactive_file 1\ntotal_inactive_file {10 * MI}\n",
    })  # fmt: skip
    node.files(f"/sys/fs/cgroup/cpu,cpuacct{path}", {
        "cpuacct.usage": "12500000000\n", "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 5\n",
        "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n",
    })  # fmt: skip
    found = node.look().containers[UID, ID]
    assert found == KernelUse(1234.5, 90 * MI, 10 * MI, 128 * MI, 128 * MI, 1, 12.5, 10, 4)


def test_an_old_kernel_has_no_peak(tmp_path: Path) -> None:
    node = unified(tmp_path)
    node.process(7, f"0::{CGROUPFS}")
    node.files(f"/sys/fs/cgroup{CGROUPFS}", {name: text for name, text in V2.items() if name != "memory.peak"} | {"memory.max": "4096\n"})
    found = node.look().containers[UID, ID]
    assert found.peak is None and found.memory_limit == 4096 and found.cpu == 12.5


def test_names_that_a_container_gave_its_cgroups_cannot_pass_for_others(tmp_path: Path) -> None:
    node = unified(tmp_path)
    node.process(7, f"0::{CGROUPFS}/kubepods/pod{UID.replace('0', '1')}/{OTHER}")
    node.process(8, f"0::/kubepods/pod{UID}/a b=c end {OTHER}")
    node.process(9, f"0::/kubepods/pod{UID}/$(touch {tmp_path}/ran);{OTHER}")
    node.files(f"/sys/fs/cgroup{CGROUPFS}", V2)
    assert set(node.look().containers) == {(UID, ID)}
    assert not (tmp_path / "ran").exists()


def test_a_flood_of_containers_is_cut_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MOST", 2)
    node = unified(tmp_path)
    for pid in range(3):
        node.process(100 + pid, f"0::/kubepods/pod{UID}/{pid}{ID[1:]}")
    found = node.look()
    assert found.cut and len(found.containers) == 2


def test_more_processes_than_one_command_line_has_room_for(tmp_path: Path) -> None:
    node = unified(tmp_path)
    for pid in range(1000, 10_000, 3):
        node.process(pid, f"0::{CGROUPFS}")
    # The kernel allows a quarter of the stack for arguments, and 128 KiB at least.
    assert set(node.look("sh", stack="256").containers) == {(UID, ID)}


def test_a_container_that_ended_meanwhile_has_no_values(tmp_path: Path) -> None:
    node = unified(tmp_path)
    node.process(7, f"0::{CGROUPFS}")
    assert node.look().containers == {(UID, ID): KernelUse(1234.5)}


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["boot b1 5"],
        ["boot b1", "end"],
        ["end"],
        ["boot b1 5", "use v3 1 x", "end"],
        ["boot b1 5", "use v2 x /a", "end"],
        ["sh: grep: not found", "end"],
    ],
)
def test_half_an_answer_is_an_error(lines: list[str]) -> None:
    with pytest.raises(ObservationError, match="n1"):
        kernel.parse("n1", lines)


@given(st.lists(st.text(st.characters(exclude_characters="\n"))))
def test_any_lines_end_in_a_result_or_its_error(lines: list[str]) -> None:
    try:
        kernel.parse("n1", lines)
    except ObservationError as error:
        assert str(error).startswith("n1")


@pytest.mark.parametrize("time", ["nan", "inf", "-1", "1e300"])
def test_times_that_cannot_be_are_malformed(time: str) -> None:
    for lines in ([f"boot b1 {time}", "end"], ["boot b1 1", f"use v2 {time} memory.current=1 {CGROUPFS}", "end"]):
        with pytest.raises(ObservationError, match="malformed"):
            kernel.parse("w1", lines)


@given(st.from_regex(r"[0-9]{1,6000}", fullmatch=True))
@example("9" * 5000)
@example("9223372036854771712")
def test_a_number_of_any_length_is_one_or_unknown(number: str) -> None:
    values = " ".join(f"{name}={number}" for name in ("memory.current", "memory.peak", "usage_usec", "oom_kill", "memory.pressure"))
    [use] = kernel.parse("w1", ["boot b1 1", f"use v2 5 {values} {CGROUPFS}", "end"]).containers.values()
    assert use.memory is None or use.memory == int(number) < 2**64
    assert use.cpu is None or use.cpu < 2**64


def test_the_time_is_that_of_the_counter() -> None:
    """On a node with both hierarchies: what the script read of a container some time before or after does not count."""
    use = ["use v2 10.00 usage_usec=1000000 {0}", "use v1 10.50 cpuacct.usage=1200000000 {0}", "use v1 11.00 memory.usage_in_bytes=7 {0}"]
    lines = ["boot b1 5", *(line.format(CGROUPFS) for line in use), "end"]
    found = kernel.parse("n1", lines).containers[UID, ID]
    assert (found.at, found.cpu, found.memory) == (10.0, 1.0, 7)
    found = kernel.parse("n1", ["boot b1 5", lines[3], lines[2], "end"]).containers[UID, ID]
    assert (found.at, found.cpu, found.memory) == (10.5, 1.2, 7)
