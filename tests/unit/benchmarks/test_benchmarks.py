"""The pure parts of the benchmarks: medians, and what counts as a failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.benchmarks import bench, summary
from tests.benchmarks.jobs import JOBS, own_seconds, wrong
from tests.benchmarks.measure import LostError, measured
from tests.benchmarks.world import World


def _result(hosts: int, tool: str, *walls: float) -> bench.Result:
    return bench.Result(hosts, 10, "status", tool, False, [{**dict.fromkeys(bench.MEASURES, 1.0), "wall": wall} for wall in walls])


def test_medians_and_spread() -> None:
    result = _result(10, "daytwo", 3.0, 1.0, 2.0)
    assert result.summary()["wall"] == [2.0, 1.0, 3.0]
    assert "2.00" in bench.table([result]) and "1.00-3.00" in bench.table([result])


def test_a_recording_is_for_all_latencies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []

    class Recorded:
        def up(self, *_: object) -> None: ...
        def delay(self, _: float) -> None: ...
        def mode(self, mode: str) -> None:
            modes.append(mode)

    def once(*_: object) -> dict[str, float]:
        return dict.fromkeys(bench.MEASURES, float(len(modes)))

    monkeypatch.setattr(bench, "once", once)
    wanted = bench.Wanted([1], [0, 10], ["status", "plan"], ["daytwo"], 1)
    results = bench.measure(cast(World, Recorded()), wanted, tmp_path)
    assert modes == [
        "record daytwo.status", "play daytwo.status", "record daytwo.plan", "play daytwo.plan", "play daytwo.status", "play daytwo.plan",
    ]  # fmt: skip
    assert [(one.median("tls_handshakes"), one.median("wall")) for one in results] == [(1, 2), (3, 4), (1, 5), (3, 6)]


@pytest.mark.parametrize(
    ("tool", "job", "text", "status", "problem"),
    [
        ("daytwo", "audit", "Audit: nothing found on 2 nodes", 0, ""),
        ("daytwo", "audit", "Audit: 1 finding on 2 nodes", 0, "findings"),
        ("daytwo", "audit", "Audit: nothing found on 2 nodes", 1, "exit status 1"),
        ("daytwo", "status", "cp1  kubeadm  kubelet  v1.36.3  6  2s  active, 0 restarts  /x\nw1  unreachable", 0, "and 1 are"),
        ("daytwo", "status", "2 hosts: cp1, w1  kubeadm  kubelet  v1.36.3  6  various  active, 0 restarts  /x", 0, ""),
        (
            "daytwo",
            "plan",
            "cp1  kubelet  ContainerCheckpoint  true  true  no change  0\nw1   kubelet  ContainerCheckpoint  x  x  no change  0",
            0,
            "",
        ),
        ("daytwo", "plan", "2 hosts: cp1, w1  kubelet  ContainerCheckpoint  true  true  no change  0  x", 0, ""),
        ("daytwo", "checks", "2 hosts: cp1, w1  node-ready  pass  x", 0, ""),
        ("ansible", "status", "cp1 : ok=8 changed=0 unreachable=0 failed=0\nw1 : ok=1 changed=0 unreachable=1 failed=0", 0, "not well: w1"),
        ("ansible", "status", "cp1 : ok=8 changed=0 unreachable=0 failed=0\nw1  : ok=1 changed=0 unreachable=0    failed=0", 0, ""),
    ],
)
def test_a_failure_is_no_number(tool: str, job: str, text: str, status: int, problem: str) -> None:
    found = wrong(tool, JOBS[job], text, status, ["cp1", "w1"])
    assert problem in found and bool(problem) == bool(found)


def test_what_measures_is_killed(tmp_path: Path) -> None:
    """Here by the command itself: an error that says so, and no number."""
    with pytest.raises(LostError, match="ended from outside, with status -9"):
        measured(["sh", "-c", "kill -9 $PPID"], tmp_path, dict(os.environ), tmp_path / "output", 60)


def test_a_command_is_measured(tmp_path: Path) -> None:
    usage = measured([sys.executable, "-c", "print(sum(range(1000000))); exit(3)"], tmp_path, dict(os.environ), tmp_path / "output", 60)
    assert usage.status == 3 and usage.wall > 0 and usage.user + usage.system > 0 and usage.memory > 1
    assert (tmp_path / "output").read_text() == "499999500000\n"


def test_ratios_are_of_the_same_job_on_the_same_hosts() -> None:
    medians = [one.summary() for one in (_result(10, "daytwo", 2.0), _result(10, "ansible", 7.0), _result(100, "ansible", 70.0))]
    assert summary.ratios(medians) == [{"hosts": 10, "latency_ms": 10, "job": "status", "wall": 3.5, "cpu": 1.0}]


def test_a_straight_line_is_found() -> None:
    medians = [_result(hosts, "daytwo", 1 + hosts / 100).summary() for hosts in (10, 100, 1000)]
    wall = summary.fits(medians)[0]
    assert (wall["measure"], wall["base"], wall["each"], wall["off"]) == ("wall", 1.0, 0.01, 0.0)
    bent = [_result(hosts, "daytwo", hosts**2).summary() for hosts in (10, 100, 1000)]
    assert summary.fits(bent)[0]["off"] > 1
    assert summary.fits(medians[:2]) == [], "two points are always on a line"


def test_the_own_share_is_that_of_the_run(tmp_path: Path) -> None:
    runs = tmp_path / "records/daytwo/runs"
    runs.mkdir(parents=True)
    for name, begun, text in (("old", 10, '{"own_seconds": 9.0}'), ("new", 30, '{"own_seconds": 0.5, "x": 1}\n{"own_seconds": 1.5}\n')):
        (runs / f"{name}.jsonl").write_text(text)
        os.utime(runs / f"{name}.jsonl", (begun, begun))
    assert own_seconds(World(tmp_path), 20) == 1.0
    assert own_seconds(World(tmp_path), 40) == 0.0
