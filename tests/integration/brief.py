"""Runs pyinfra as an operator does, but that a new process needs to stay healthy for 6 s only, instead of 12: `brief.py ARGUMENTS...`.

For runs that prepare what a test is about, or put back what it has shown: they wait 6 s less for each process that they restart. What a
test is about is run as it is shipped.
"""

from __future__ import annotations

import runpy
import sys

import roles.engine.transaction as transaction
from roles.engine.transaction import model

# More than a proof keeps its connection for (roles/engine/proof/cluster.py: RECENT_SECONDS).
SECONDS = 6

if __name__ == "__main__":
    model.STABLE_SECONDS = transaction.STABLE_SECONDS = SECONDS
    sys.argv = ["pyinfra", *sys.argv[1:]]
    runpy.run_module("pyinfra", run_name="__main__")
