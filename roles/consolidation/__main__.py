"""`python -m roles.consolidation cluster.json`: the plan for a cluster that is given as JSON (`-`: from standard input), as JSON."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roles.engine.bounds import read_json
from roles.engine.packing import Plan, plan, read


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 2 for wrong input, with one line that says what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m roles.consolidation", description="Plans a cluster on fewer or cheaper machines.")
    parser.add_argument("cluster", help="a JSON file with nodes, pods, pdbs, off and cost, or - for standard input")
    parser.add_argument("--max-moves", type=int, metavar="N", help="at most so many pods move")
    parser.add_argument("--spare", type=int, default=0, metavar="N", help="so many of the largest nodes may fail afterwards")
    given = parser.parse_args(arguments)
    try:
        text = sys.stdin.buffer.read() if given.cluster == "-" else Path(given.cluster).read_bytes()
        found = plan(replace(read(read_json(text)), max_moves=given.max_moves, spare=given.spare))
    except (OSError, ValueError) as error:
        print(f"{given.cluster}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        print(f"{given.cluster}: an object is not as the API writes it: {type(error).__name__} {error}", file=sys.stderr)
        return 2
    print(json.dumps(_shown(found), indent=1))
    return 0


def _shown(found: Plan) -> dict[str, object]:
    return {
        "nodes": [*found.stays, *found.woken],
        "woken": list(found.woken),
        "cost": found.cost,
        "moves": {"/".join(pod): node for pod, node in found.moves.items()},
        "bound": found.bound,
    }


if __name__ == "__main__":
    # The plan is all that this process does, and it keeps what it makes: Python would look for garbage in it again and again.
    gc.disable()
    sys.exit(main())
