"""`python -m tests.benchmarks.packing [FIRST LAST]`: the planner beside Karpenter, on the same clusters.

karpenter.json has what Karpenter's own disruption methods (v1.14.1: emptiness, multi-node, single-node, until nothing is left to do) made
of each cluster: seed, cost, moves. CPU seconds and memory are of this process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import process_time

from roles.engine.packing import plan, read
from tests.benchmarks.packing.clusters import cluster, of_seed

KARPENTER = Path(__file__).with_name("karpenter.json")


def main(first: int, last: int) -> None:
    theirs = {seed: (cost, moves) for seed, cost, moves in json.loads(KARPENTER.read_text(encoding="utf-8"))}
    rows = []
    for seed in range(first, last + 1):
        problem = read(cluster(**of_seed(seed)))
        began = process_time()
        found = plan(problem)
        rows.append((found.cost, len(found.moves), found.bound, *theirs[seed], process_time() - began))
    cost, moves, bound, their_cost, their_moves, _ = map(sum, zip(*rows, strict=True))
    print(f"cost {cost:.0f}, Karpenter {their_cost:.0f} ({cost / their_cost - 1:+.1%}); bound {bound:.0f} ({cost / bound - 1:+.1%})")
    print(f"moves {moves}, Karpenter {their_moves} (x {moves / their_moves:.2f})")
    print(f"worst seed: cost x {max(row[0] / row[3] for row in rows):.3f}, moves x {max(row[1] / row[4] for row in rows):.2f}")
    print(f"dearer than Karpenter on {sum(row[0] > row[3] for row in rows)} of {len(rows)}")
    print(f"CPU {max(row[5] for row in rows):.1f} s at most, {getrusage(RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:] or ("1", "200")))
