"""`python -m tests.benchmarks.scheduling [--clusters N] [--first SEED] [--seed SEED]`: placement and the planner, and the real scheduler.

`--seed`: one cluster alone, with all that is said about it. 1 where something is wrong. `--large`: instead, how long a shadow control plane
takes for 500 nodes and 10,000 pods of which so many nodes go.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.scheduling.clusters import cluster_of
from tests.benchmarks.scheduling.comparison import Told, compare, table
from tests.benchmarks.scheduling.large import verified
from tests.benchmarks.scheduling.scheduler import scheduler
from tests.lab import binaries


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scheduling")
    parser.add_argument("--clusters", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--large", type=int)
    parser.add_argument("--version", default=binaries.DEFAULT_VERSION)
    given = parser.parse_args()
    if given.large is not None:
        for line in verified(binaries.get(given.version), 500, 10_000, given.large):
            print(line, flush=True)
        return 0
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.clusters)
    told, began = Told(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, scheduler(Path(folder), binaries.get(given.version)) as found:
        for seed in seeds:
            compare(cluster_of(seed), found, told)
            if told.clusters % 100 == 0:
                print(f"{told.clusters} clusters, {time.monotonic() - began:.0f} s, {len(told.wrong)} wrong", file=sys.stderr)
    print("\n".join(table(told)))
    print(f"\n{time.monotonic() - began:.0f} s, {told.pure:.0f} s of these in placement and the planner; Kubernetes {given.version}")
    print("\n".join(("", *(f"careful: {one}" for one in told.careful), *(f"WRONG: {one}" for one in told.wrong))))
    return 1 if told.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
