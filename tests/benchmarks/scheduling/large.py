"""How long a shadow control plane takes to start and to answer for a large cluster."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roles.engine.kube.pods import node_of
from roles.engine.shadow import Move
from tests.benchmarks.packing.clusters import cluster
from tests.integration.shadow import asked


def verified(binaries: Path, nodes: int, pods: int, going: int) -> Iterator[str]:
    """A plan in which the first nodes go, node by node: 0.1 of the workloads are spread over hosts."""
    there = cluster(1, nodes, pods // nodes, spread=0.1)
    gone = [one["metadata"]["name"] for one in there["nodes"][:going]]
    namespaces = sorted({one["metadata"]["namespace"] for one in there["pods"]})
    objects: dict[str, list[Any]] = {
        "Node": there["nodes"],
        "Pod": there["pods"],
        "Namespace": [{"metadata": {"name": name}} for name in namespaces],
    }
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, asked(Path(folder), binaries, objects) as shadow:
        yield f"{len(there['nodes'])} nodes and {len(there['pods'])} pods: {time.monotonic() - began:.0f} s to start and to fill"
        began = time.monotonic()
        waves = [[Move(pod, pod) for pod in there["pods"] if node_of(pod) == name] for name in gone]
        found = shadow.ask(waves, cordon=gone)
        placed, pending = len(found.of("placed")), len(found.of("pending"))
        yield f"{going} nodes go, one after the other: {time.monotonic() - began:.0f} s; {placed} pods placed, {pending} pending"
