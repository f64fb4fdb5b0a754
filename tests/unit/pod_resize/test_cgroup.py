"""The limits that the kernel enforces on a container: reading them on a node, and the expected values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.node import ObservationError
from roles.pod_resize import cgroup
from roles.pod_resize.cgroup import ContainerCgroup
from tests.unit.pod_resize.world import ID, MI, SMALL

OTHER = "b" * 64
V1 = {"cpu.shares": "102", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "memory.limit_in_bytes": str(200 * MI)}
V2 = {"cpu.weight": "4", "cpu.max": "max,100000", "memory.max": str(200 * MI)}
BOTH = {"requests": {"cpu": "250m", "memory": "200Mi"}, "limits": {"cpu": "500m", "memory": "300Mi"}}


def v1(**files: str) -> ContainerCgroup:
    return ContainerCgroup(ID, 7, 99, "v1", V1 | {key.replace("__", "."): value for key, value in files.items()})


def v2(**files: str) -> ContainerCgroup:
    return ContainerCgroup(ID, 7, 99, "v2", V2 | {key.replace("__", "."): value for key, value in files.items()})


def test_as_wanted() -> None:
    assert cgroup.problems(v1(), SMALL) == []
    assert cgroup.problems(v2(), SMALL) == []
    both1 = v1(cpu__shares="256", cpu__cfs_quota_us="50000", memory__limit_in_bytes=str(300 * MI))
    assert cgroup.problems(both1, BOTH) == []
    assert cgroup.problems(v2(cpu__weight="10", cpu__max="50000,100000", memory__max=str(300 * MI)), BOTH) == []
    # CustomCPUCFSQuotaPeriod
    assert cgroup.problems(v2(cpu__weight="10", cpu__max="5000,10000", memory__max=str(300 * MI)), BOTH) == []


def test_each_file_that_is_not() -> None:
    assert cgroup.problems(v1(cpu__shares="307"), SMALL) == ["cpu.shares is 307, wanted 102"]
    assert cgroup.problems(v1(cpu__cfs_quota_us="50000"), SMALL) == ["cpu.cfs_quota_us is 50000, wanted -1"]
    wrong = cgroup.problems(v1(memory__limit_in_bytes=str(600 * MI)), SMALL)
    assert wrong == [f"memory.limit_in_bytes is {600 * MI}, wanted {200 * MI}"]
    assert cgroup.problems(v2(cpu__max="50000,100000"), SMALL) == ["cpu.max is 50000 100000, wanted max"]
    assert "cpu.weight is 1" in cgroup.problems(v2(cpu__weight="1"), SMALL)[0]
    assert cgroup.problems(v2(memory__max="max"), SMALL) == [f"memory.max is max, wanted {200 * MI}"]
    assert cgroup.problems(v1(cpu__cfs_quota_us="50000", cpu__cfs_period_us="-"), BOTH)


def test_missing_files_are_no_proof() -> None:
    assert len(cgroup.problems(ContainerCgroup(ID, 7, 99, "v1", {}), BOTH)) == 3
    assert len(cgroup.problems(ContainerCgroup(ID, 7, 99, "v2", {}), {})) == 3


def test_no_limit() -> None:
    nothing = {"requests": {"cpu": "100m"}}
    assert cgroup.problems(v1(memory__limit_in_bytes="9223372036854771712"), nothing) == []
    assert cgroup.problems(v2(memory__max="max"), nothing) == []
    assert cgroup.problems(v1(), nothing) == [f"memory.limit_in_bytes is {200 * MI}, wanted no limit"]


def test_without_quotas_no_cpu_limit_is_written() -> None:
    held = v1(cpu__shares="256", memory__limit_in_bytes=str(300 * MI))
    assert cgroup.problems(held, BOTH) == ["cpu.cfs_quota_us is -1, wanted 50000"]
    assert cgroup.problems(held, BOTH, cfs_quota=False) == []


def test_a_limit_alone_gives_the_share() -> None:
    held = v1(cpu__shares="512", cpu__cfs_quota_us="50000")
    assert cgroup.problems(held, {"limits": {"cpu": "500m", "memory": "200Mi"}}) == []


# As runc 1.1 and runc 1.4 / crun 1.23 compute them.
@pytest.mark.parametrize(("shares", "old", "new"), [(2, 1, 1), (1024, 39, 100), (102, 4, 17), (262144, 10000, 10000)])
def test_weights_by_both_formulas(shares: int, old: int, new: int) -> None:
    assert cgroup.weights(shares) == {old, new}


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_more_cpu_is_never_less(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 2 <= cgroup.shares(low) <= cgroup.shares(high) <= 262144
    assert 1000 <= cgroup.quota(low, 100000) <= cgroup.quota(high, 100000)


@given(st.integers(2, 262144))
def test_weights_are_in_range(shares: int) -> None:
    assert all(1 <= weight <= 10000 for weight in cgroup.weights(shares))


def test_memory_that_cannot_be_reclaimed() -> None:
    files = {"memory.usage_in_bytes": "100", "inactive_file": "30"}
    assert ContainerCgroup(ID, 7, 99, "v1", files).usage == 70
    assert ContainerCgroup(ID, 7, 99, "v2", {"memory.current": "100", "inactive_file": "-"}).usage == 100
    assert ContainerCgroup(ID, 7, 99, "v1", {"memory.usage_in_bytes": "10", "inactive_file": "30"}).usage == 0
    assert ContainerCgroup(ID, 7, 99, "v1", {"memory.usage_in_bytes": "-"}).usage is None


# ---- the script and its answer


def test_an_answer() -> None:
    lines = [f"container {ID} 7 99 v1 cpu.shares=102 cpu.max=-", "end"]
    assert cgroup.parse("w1", lines) == {ID: ContainerCgroup(ID, 7, 99, "v1", {"cpu.shares": "102", "cpu.max": "-"})}
    assert cgroup.parse("w1", ["end"]) == {}


@pytest.mark.parametrize(
    "lines", [[], [f"container {ID} 7 99 v1"], ["container x"], ["nonsense", "end"], [f"container {ID} a b v1", "end"]]
)
def test_an_invalid_answer(lines: list[str]) -> None:
    with pytest.raises(ObservationError, match="w1"):
        cgroup.parse("w1", lines)


def test_only_ids_reach_the_script() -> None:
    assert cgroup.bare_id(f"containerd://{ID}") == ID and cgroup.bare_id("") == "" == cgroup.bare_id("docker://x; rm -rf /")
    assert "rm -rf" not in cgroup.script([ID, "x; rm -rf /"])


def test_the_script_on_this_machine() -> None:
    """No container of that id runs here; the answer is complete anyway."""
    if sys.platform != "linux":
        pytest.skip("it reads /proc")
    answer = subprocess.run(["sh", "-c", cgroup.script([ID])], text=True, capture_output=True, check=True)
    assert cgroup.parse("here", answer.stdout.splitlines()) == {}


def test_the_script_reads_the_cgroup_that_is_named(tmp_path: Path) -> None:
    """Uses this machine's cgroups, if it has one of the two hierarchies and a cgroup can be created in it."""
    memory = next(
        (path for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if os.access(path / "cgroup.procs", os.W_OK)), None
    )
    if memory is None or os.geteuid() != 0:
        pytest.skip("no cgroup can be made here")
    version = "v1" if memory.name == "memory" else "v2"
    group = memory / f"daytwo-test-{os.getpid()}" / f"cri-containerd-{ID}.scope"
    try:
        group.mkdir(parents=True)
    except OSError:
        pytest.skip("no cgroup can be made here")
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        (group / "cgroup.procs").write_text(str(sleeper.pid))
        answer = subprocess.run(["sh", "-c", cgroup.script([ID])], text=True, capture_output=True, check=True)
        found = cgroup.parse("here", answer.stdout.splitlines())
        assert found[ID].pid == sleeper.pid and found[ID].version == version
        if version == "v1":
            limit = (group / "memory.limit_in_bytes").read_text().strip()
            assert found[ID].files["memory.limit_in_bytes"] == limit and found[ID].usage is not None
    finally:
        sleeper.kill()
        sleeper.wait()
        group.rmdir()
        group.parent.rmdir()
