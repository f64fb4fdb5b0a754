"""Advice stays within the LimitRanges of the namespace, and names the one that it follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.right_size import JudgedContainer
from roles.right_size.workloads import Amounts
from tests.unit.right_size.world import MI, container, judged, reads


def of(*limits: dict[str, Any], namespace: str = "shop") -> dict[str, Any]:
    return {"limit_ranges": [{"metadata": {"namespace": namespace, "name": "sizes"}, "spec": {"limits": list(limits)}}]}


def idle(cpu: int = 200, memory: int = 128 * MI, **more: Any) -> JudgedContainer:
    ranges = more.pop("ranges", {})
    return judged((container("web", cpu, memory, **more), reads(120, 5, lambda _: 1.0, memory=lambda _: 2 * MI)), **ranges)[0]


MINIMUM = {"type": "Container", "min": {"cpu": "50m", "memory": "64Mi"}}


def test_nothing_is_advised_below_the_minimum() -> None:
    assert (idle().cpu.request, idle().memory.request) == (5, 8 * MI)
    one = idle(ranges=of(MINIMUM))
    assert (one.cpu.decision, one.cpu.request, one.memory.request) == ("lower", 50, 64 * MI)
    assert "LimitRange shop/sizes needs at least 50m" in one.cpu.why and "at least 64Mi" in one.memory.why
    # What it may not give up is not wasted.
    assert (one.wasted_cpu, one.wasted_memory) == (150, 64 * MI)
    assert idle(50, 64 * MI, ranges=of(MINIMUM)).cpu.decision == "keep"
    assert idle(ranges=of(MINIMUM, namespace="other")).cpu.request == 5
    assert idle(ranges=of({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}})).cpu.request == 5


def test_nothing_is_advised_above_the_maximum() -> None:
    def busy(most: str) -> JudgedContainer:
        return judged((container("web", 100), reads(120, 5, lambda _: 900.0)), **of({"type": "Container", "max": {"cpu": most}}))[0]

    assert busy("4").cpu.request == busy("4").cpu.target and "LimitRange" not in busy("4").cpu.why
    one = busy("500m")
    assert (one.cpu.decision, one.cpu.request) == ("raise", 500) and "allows at most 500m: raise that first" in one.cpu.why
    assert (busy("100m").cpu.decision, busy("100m").cpu.request) == ("keep", 100)


def test_the_ratio_of_limit_and_request_is_kept() -> None:
    ratio = of({"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}})
    one = idle(200, limits=Amounts(400), ranges=ratio)
    assert one.cpu.limit is not None and one.cpu.request is not None and one.cpu.limit <= 4 * one.cpu.request
    assert "a limit of 4 times the request" in one.cpu.why


@pytest.mark.parametrize(
    ("rule", "held"), [({"min": {"cpu": "50m"}}, True), ({"min": {"cpu": "8m"}}, False), ({"max": {"cpu": "500m"}}, False)]
)
def test_the_sum_of_a_pod_counts_too(rule: dict[str, Any], held: bool) -> None:
    """Two containers of one pod: each alone could be lowered, both together could not."""
    low = reads(120, 5, lambda _: 1.0)
    first = container("web", 200)
    second = replace(first, name="other", id="e" * 64)
    found = judged((first, low), (second, low), **of({"type": "Pod", **rule}))
    assert [one.cpu.request for one in found] == ([200, 200] if held else [5, 5])
    assert all(("needs at least 50m of each pod" in one.cpu.why) is held for one in found)
