"""How plans grow with the cluster, in calls of functions: the same on every machine, however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from roles.engine.placement import ClusterView, Trial
from tests.benchmarks import plans
from tests.unit.placement.cluster import affinity, node, pod

# Twice as large, a plan may take a little more than twice as long: sets and sorts grow a bit faster than their sizes.
MOST = 2.4


def calls(job: Callable[[], object]) -> int:
    count = 0

    def called(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        job()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", ["drain of 1", "states of budgets", "all forecasts"])
def test_plans_grow_as_nodes_and_pods(name: str) -> None:
    few, many = (calls(plans.jobs(size)[name]) for size in (20, 40))
    assert few > 500 and many < few * MOST, (few, many)


def test_workloads_that_keep_their_pods_apart_do_not_cost_the_square_of_their_number() -> None:
    def moved(workloads: int) -> None:
        pods = [
            pod(f"p{one}", f"w{one % 4}", cpu="1m", memory="1Mi", labels={"app": f"a{one}", "tier": "x"},
                affinity=affinity("podAntiAffinity", app=f"a{one}"))
            for one in range(workloads)
        ]  # fmt: skip
        nodes = [node(f"w{one}", pods="1000") for one in range(5)]
        found = Trial(ClusterView(nodes, pods)).moves((one, "w4") for one in pods)
        assert {one.state for one in found} == {"fits"}

    few, many = calls(lambda: moved(100)), calls(lambda: moved(200))
    assert many < few * MOST, (few, many)


def test_the_table_of_plans_stays_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "scale.md"
    page.write_text("a\n<!-- table: plans -->\nold\n<!-- end -->\nb\n<!-- end -->\n", encoding="utf-8")
    plans.write([{"nodes": 5, "drain of 1": 0.123}], page)
    assert page.read_text(encoding="utf-8") == (
        "a\n<!-- table: plans -->\n| nodes | drain of 1 |\n| --- | --- |\n| 5 | 0.12 |\n<!-- end -->\nb\n<!-- end -->\n"
    )
