"""The measurement: sizes, latencies, jobs and tools; alternating runs; medians."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks import jobs, plot, summary
from tests.benchmarks.measure import processor_seconds
from tests.benchmarks.world import BenchError, World, say

#: What is kept of each run, and its unit.
MEASURES = {
    "wall": "s",
    "cpu": "s",
    "memory": "MiB",
    "hosts_cpu": "s",
    "ssh_connections": "per host",
    "ssh_sessions": "per host",
    "ssh_kib": "KiB per host",
    "api_requests": "per host",
    "api_kib": "KiB per host",
    "tls_handshakes": "per host",
    "own": "s per change, without the wait on the node",
}


@dataclass(frozen=True)
class Wanted:
    """What is to be measured. `latency` in milliseconds of round trip; `runs` of each combination. With
    `replay` nodes answer in measured runs as they did in the one before (README.md)."""

    hosts: Sequence[int]
    latency: Sequence[float]
    jobs: Sequence[str]
    tools: Sequence[str]
    runs: int
    replay: bool = True


@dataclass
class Result:
    """One combination, and what each of its runs took."""

    hosts: int
    latency: float
    job: str
    tool: str
    replay: bool = False
    runs: list[dict[str, float]] = field(default_factory=list)

    def median(self, measure: str) -> float:
        """The median over the runs."""
        return statistics.median(run[measure] for run in self.runs)

    def between(self, measure: str) -> tuple[float, float]:
        """The smallest and the largest value of the runs."""
        values = [run[measure] for run in self.runs]
        return min(values), max(values)

    def summary(self) -> dict[str, Any]:
        """For JSON: the medians, with smallest and largest values."""
        measures = {name: [round(self.median(name), 3), *(round(value, 3) for value in self.between(name))] for name in MEASURES}
        return {
            "hosts": self.hosts,
            "latency_ms": self.latency,
            "job": self.job,
            "tool": self.tool,
            "replay": self.replay,
            "runs": len(self.runs),
            **measures,
        }


def measure(world: World, wanted: Wanted, folder: Path, pods: int = 5) -> list[Result]:
    """Measure all combinations. Each result is written to `folder` as soon as it is there. Raises BenchError."""
    results: list[Result] = []
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for count in wanted.hosts:
        world.up(count, pods)
        recorded: Recorded = {}
        for latency in wanted.latency:
            for name in wanted.jobs:
                results += _compare(world, count, latency, jobs.JOBS[name], wanted, recorded)
                _write(folder / f"{stamp}.json", results)
    return results


# By tool and job, what the run took that caches and recordings are from.
Recorded = dict[tuple[str, str], dict[str, float]]


def _compare(world: World, count: int, latency: float, job: jobs.Job, wanted: Wanted, recorded: Recorded) -> list[Result]:
    tools = [tool for tool in wanted.tools if tool == "daytwo" or job.play]
    found = {tool: Result(count, latency, job.name, tool, wanted.replay and job.replay) for tool in tools}
    # A change and its way back take turns, also between the tools: each run then finds something to change.
    turned = False
    # The first run of each tool compiles, caches and records; it does not count.
    for number in range(wanted.runs + 1):
        for tool in tools:
            if not number and job.replay and (tool, job.name) in recorded:
                continue  # at another latency
            world.delay(latency)
            replay = wanted.replay and job.replay
            now = jobs.JOBS[job.back] if turned else job
            world.mode(f"{'play' if number else 'record'} {tool}.{job.name}" if replay else "")
            run = once(world, tool, now)
            turned = bool(job.back) and not turned
            if replay:
                # Requests that a node itself sent are not sent again in a replay.
                first = recorded.setdefault((tool, job.name), run)
                run |= {name: first[name] for name in ("api_requests", "api_kib", "tls_handshakes")}
            if number:
                found[tool].runs.append(run)
            kind = f"run {number} of {wanted.runs}" if number else "warm-up"
            say(f"{count} hosts, {latency:g} ms, {job.name}, {tool}, {kind}: {run['wall']:.1f} s, {run['cpu']:.1f} s CPU, "
                f"{run['memory']:.0f} MiB, the hosts {run['hosts_cpu']:.1f} s CPU")  # fmt: skip
    if turned:
        once(world, tools[0], jobs.JOBS[job.back])
    return list(found.values())


def once(world: World, tool: str, job: jobs.Job) -> dict[str, float]:
    """One run of a job. Raises BenchError."""
    pid = world.pid()
    if pid is None:
        raise BenchError("the hosts are not up")
    world.reset()
    before, begun = processor_seconds(pid), time.time()
    usage = jobs.run(world, tool, job)
    after = processor_seconds(pid)
    counts = world.counts()
    number = len(counts) - 1

    def each(*names: str) -> float:
        return sum(one[name] for one in counts.values() for name in names) / number

    return {
        "wall": usage.wall,
        "cpu": usage.user + usage.system,
        "memory": usage.memory,
        "hosts_cpu": after - before,
        "ssh_connections": each("ssh_connections"),
        "ssh_sessions": each("ssh_sessions"),
        "ssh_kib": each("bytes_to_host", "bytes_from_host") / 1024,
        "api_requests": each("api_requests"),
        "api_kib": each("api_bytes") / 1024,
        "tls_handshakes": each("tls_handshakes"),
        "own": jobs.own_seconds(world, begun) if tool == "daytwo" else 0.0,
    }


def _write(path: Path, results: Sequence[Result]) -> None:
    """All runs, and beside them the medians and the plot of the latest measurement."""
    medians = [one.summary() for one in results]
    runs = [{**asdict(result), "summary": median} for result, median in zip(results, medians, strict=True)]
    path.write_text(json.dumps({"measures": MEASURES, "results": runs}, indent=1) + "\n")
    path.with_name("summary.json").write_text(summary.text(MEASURES, medians))
    path.with_name("plot.svg").write_text(plot.svg(medians))


def table(results: Sequence[Result]) -> str:
    """The medians as text, with the spread of the wall time."""
    head = ["hosts", "ms", "job", "tool", "wall s", "(min-max)", "CPU s", "MiB", "hosts' CPU s", "SSH conn", "SSH exec", "SSH KiB",
            "API req", "API KiB", "TLS", "own s"]  # fmt: skip
    rows = [head]
    for one in results:
        low, high = one.between("wall")
        rows.append([str(one.hosts), f"{one.latency:g}", one.job, one.tool, f"{one.median('wall'):.2f}", f"{low:.2f}-{high:.2f}",
                     f"{one.median('cpu'):.2f}", f"{one.median('memory'):.0f}", f"{one.median('hosts_cpu'):.1f}",
                     *(f"{one.median(name):.2f}" for name in ("ssh_connections", "ssh_sessions", "ssh_kib", "api_requests", "api_kib",
                                                              "tls_handshakes", "own"))])  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
