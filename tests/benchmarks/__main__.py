"""python -m tests.benchmarks run [...] | plans | steps | relay | publish FILE... | up N | down | status"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.benchmarks import bench, plans, relay, steps
from tests.benchmarks.jobs import JOBS, command
from tests.benchmarks.publish import publish
from tests.benchmarks.world import ROOT, BenchError, World, say


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _latencies(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="daytwo with many simulated hosts on this machine.")
    verbs = made.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="make hosts, measure, and take them down")
    run.add_argument("--hosts", type=_numbers, default=[10, 100])
    run.add_argument("--latency", type=_latencies, default=[10.0], help="round trips in ms")
    run.add_argument("--jobs", type=lambda text: text.split(","), default=["status", "plan"], help=", ".join(JOBS))
    run.add_argument("--with", dest="tools", type=lambda text: text.split(","), default=["daytwo", "ansible"])
    run.add_argument("--runs", type=int, default=5)
    run.add_argument("--pods", type=int, default=5, help="pods on each worker")
    run.add_argument("--replay", type=int, choices=(0, 1), default=1, help="nodes answer reading jobs as recorded")
    up = verbs.add_parser("up", help="make hosts, and leave them there")
    up.add_argument("count", type=int)
    up.add_argument("--latency", type=float, default=0.0)
    planning = verbs.add_parser("plans", help="what plans cost by the size of the cluster; writes the table of docs/scale.md")
    planning.add_argument("--nodes", type=_numbers, default=[100, 200, 500, 1000])
    planning.add_argument("--runs", type=int, default=3)
    profile = verbs.add_parser("steps", help="where the time of a short run goes")
    profile.add_argument("--hosts", type=int, default=10)
    profile.add_argument("--latency", type=float, default=10.0)
    profile.add_argument("--job", choices=[job.name for job in JOBS.values() if job.replay], default="plan")
    profile.add_argument("--runs", type=int, default=5)
    limits = verbs.add_parser("relay", help="what the relay itself costs: added delay, bytes a second, CPU")
    limits.add_argument("--latency", type=_latencies, default=[0.0, 10.0, 50.0])
    docs = verbs.add_parser("publish", help="write docs/scale.json, its plot and its tables from results")
    docs.add_argument("results", type=Path, nargs="+")
    verbs.add_parser("down", help="take them down")
    verbs.add_parser("status", help="how many there are, and the memory they hold")
    return made


def main() -> int:
    """The command line. 1 where something failed."""
    given = _parser().parse_args()
    # So that the hosts go down, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    world = World()
    try:
        match given.verb:
            case "run":
                if unknown := [name for name in given.jobs if name not in JOBS]:
                    raise BenchError(f"no such job: {', '.join(unknown)}; there are {', '.join(JOBS)}")
                try:
                    wanted = bench.Wanted(given.hosts, given.latency, given.jobs, given.tools, given.runs, bool(given.replay))
                    print(bench.table(bench.measure(world, wanted, world.state / "results", given.pods)))
                finally:
                    world.down()
            case "up":
                world.up(given.count)
                world.delay(given.latency)
                say(f"ssh -F {world.ssh_config} w1; pyinfra {world.inventory} deploys/status.py -y")
            case "plans":
                rows = plans.measure(given.nodes, given.runs)
                plans.write(rows)
                print("\n".join(plans.lines(rows)))
            case "steps":
                try:
                    world.up(given.hosts)
                    world.delay(given.latency)
                    job = JOBS[given.job]
                    world.mode("record steps")
                    bench.once(world, "daytwo", job)
                    world.mode("play steps")
                    words, environment = command(world, "daytwo", job)
                    print("\n".join(steps.report(world.state, words[1:], ROOT, environment, given.runs)))
                finally:
                    world.down()
            case "relay":
                try:
                    world.up(1)
                    print("\n".join(relay.report(world, given.latency)))
                finally:
                    world.down()
            case "publish":
                publish(given.results)
            case "down":
                world.down()
            case "status":
                print(f"{len(world.hosts())} hosts, {world.memory():.0f} MiB")
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
