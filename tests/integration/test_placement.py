"""Placement and the planner against the real scheduler, in a shadow control plane. A false "fits" is a defect."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.engine.kube.pods import node_of
from roles.engine.shadow import Move
from tests.benchmarks.scheduling.clusters import cluster_of
from tests.benchmarks.scheduling.comparison import Told, compare, table
from tests.benchmarks.scheduling.scheduler import scheduler
from tests.integration.shadow import asked
from tests.lab import binaries

pytestmark = pytest.mark.binaries

#: `python -m tests.benchmarks.scheduling` asks about 2000.
CLUSTERS = 40


def test_what_fits_is_scheduled_and_what_a_plan_moves_has_its_node(tmp_path: Path) -> None:
    told = Told()
    with scheduler(tmp_path, binaries.get(binaries.DEFAULT_VERSION)) as found:
        for seed in range(CLUSTERS):
            compare(cluster_of(seed), found, told)
    print("\n".join(table(told)))
    assert not told.wrong, "\n".join(told.wrong)
    assert min(told.pods["fits", "scheduled"], told.pods["nowhere", "left over"]) > CLUSTERS / 2 and told.plans["moves"] > CLUSTERS / 4, (
        told
    )


@pytest.mark.slow
def test_no_question_changes_the_next_one(tmp_path: Path) -> None:
    """Five nodes, each with seven pods and room for one more: of the pods of any node four find room, as often as one asks."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    nodes = [
        {
            "metadata": {"name": f"w{one}", "uid": f"w{one}", "labels": {"kubernetes.io/hostname": f"w{one}"}},
            "status": {"allocatable": room},
        }
        for one in range(5)
    ]
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "500m"}}}
    pods = [
        {
            "metadata": {"name": f"p{one}", "uid": f"p{one}", "namespace": "x"},
            "spec": {"nodeName": f"w{one % 5}", "containers": [container]},
        }
        for one in range(35)
    ]
    objects = {"Namespace": [{"metadata": {"name": "x"}}], "Node": nodes, "Pod": pods}
    with asked(tmp_path, binaries.get(binaries.DEFAULT_VERSION), objects) as found:
        for number in range(20):
            node = f"w{number % 5}"
            moves = [[Move(pod, pod) for pod in pods if node_of(pod) == node]]
            verdict = found.ask(moves, cordon=[node]) if number % 2 else found.ask(moves, remove=[node])
            assert (len(verdict.of("placed")), len(verdict.of("pending"))) == (4, 3), verdict.pods
            assert node not in {one.node for one in verdict.pods} and not verdict.agrees
