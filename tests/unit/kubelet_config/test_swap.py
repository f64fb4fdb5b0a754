"""Swap: what keeps a kubelet from starting, what has no effect, and when a node must be drained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.engine.kubelet import KubeletState
from roles.engine.transaction import Refusal
from roles.eviction import eviction_impact
from roles.kubelet_config import allocatable_impact
from tests.unit.kubelet_config.world import drained, plan_fields, state

LIMITED = {"memorySwap": {"swapBehavior": "LimitedSwap"}}


def given(
    swap: int | None = 0, *, cgroup2: bool | None = True, limits: bool | None = True, kernel: str = "6.8.0", **running: Any
) -> KubeletState:
    made = state(**{"failSwapOn": False, **running})
    seen = replace(made.kubelet.seen, swap=swap, cgroup2=cgroup2, swap_limits=limits)
    status = {**made.node["status"], "nodeInfo": {"kubeletVersion": "v1.36.3", "kernelVersion": kernel}}
    return replace(made, kubelet=replace(made.kubelet, seen=seen), node={**made.node, "status": status})


@pytest.mark.parametrize("impact", [allocatable_impact, eviction_impact])
def test_no_deploy_restarts_a_kubelet_that_would_not_start(impact: Any) -> None:
    with pytest.raises(Refusal, match=r"/proc/swaps lists 1 area\(s\): with failSwapOn a kubelet does not start"):
        impact(given(1), {**given().configuration, "failSwapOn": True})
    with pytest.raises(Refusal, match=r"LimitedSwap: the node has cgroup v1, and a kubelet does not start so .*; set .*NoSwap, or boot"):
        impact(given(0, cgroup2=False), {**given().configuration, **LIMITED})
    for well in (given(0), given(1), given(None, cgroup2=None)):
        assert impact(well, {**well.configuration, **LIMITED})
    assert impact(given(0, cgroup2=False), {**given().configuration, "memorySwap": {"swapBehavior": "NoSwap"}})


def test_fail_swap_on_is_refused_while_swap_is_on_and_warned_of_otherwise() -> None:
    with pytest.raises(Refusal, match=r"turn swap off first \(`swapoff -a`"):
        plan_fields(given(2), {"failSwapOn": True})
    whole = plan_fields(given(0), {"failSwapOn": True})
    assert whole.planned[0].change is not None and whole.planned[0].needs_drain == ()
    (warning,) = whole.warnings
    assert "does not start if swap is on after a reboot; check /etc/fstab" in warning
    assert plan_fields(given(0, failSwapOn=True), {"failSwapOn": False}).warnings == ()


def test_another_behaviour_needs_a_drained_node_while_swap_is_on() -> None:
    with pytest.raises(Refusal) as refused:
        plan_fields(given(1), LIMITED)
    assert "memorySwap.swapBehavior: swap is on, and a container's limit of it (memory.swap.max) is set only when" in str(refused.value)
    whole = plan_fields(drained(given(1)), LIMITED)
    (made,) = whole.planned
    assert made.change is not None and made.needs_drain and not made.recreates_pods and made.change.checkpoints == ()
    assert any("keep their limit of swap until they are created again" in warning for warning in whole.warnings)
    # Back, and with an unknown number of areas.
    assert plan_fields(given(1, **LIMITED), {"memorySwap.swapBehavior": "NoSwap"}, may_drain=True).planned[0].needs_drain
    assert plan_fields(given(None), LIMITED, may_drain=True).planned[0].needs_drain


def test_without_swap_a_restart_is_enough() -> None:
    whole = plan_fields(given(0), LIMITED)
    assert whole.planned[0].needs_drain == ()
    assert whole.warnings == (
        "memorySwap.swapBehavior LimitedSwap: no swap is on, so pods get none until it is and the kubelet is restarted",
    )
    assert "with failSwapOn: true the kubelet does not start then" in plan_fields(given(0, failSwapOn=True), LIMITED).warnings[0]
    # NoSwap is the default.
    same = plan_fields(given(1), {"memorySwap.swapBehavior": "NoSwap"})
    assert same.planned[0].change is not None and same.planned[0].needs_drain == ()


def test_a_kernel_without_limits_of_swap_would_ignore_it() -> None:
    with pytest.raises(
        Refusal, match=r"no memory\.swap\.max\), and a kubelet does the same as with NoSwap then; boot the node with swapaccount=1"
    ):
        plan_fields(drained(given(1, limits=False)), LIMITED)
    # With cgroup v1 there is none either, and the rule is another one.
    with pytest.raises(Refusal, match="the node has cgroup v1"):
        plan_fields(drained(given(1, cgroup2=False, limits=False)), LIMITED)
    # What is set already is no reason to refuse other changes.
    assert plan_fields(given(1, limits=False, **LIMITED), {"maxPods": 50}).planned[0].change is not None


@pytest.mark.parametrize(
    ("kernel", "warned"), [("6.3.9-x", True), ("5.14.0-570.el9", True), ("6.4.0", False), ("6.12.1", False), ("", True)]
)
def test_volumes_in_memory_may_be_swapped_with_an_old_kernel(kernel: str, warned: bool) -> None:
    warnings = plan_fields(drained(given(1, kernel=kernel)), LIMITED).warnings
    assert any("may have no tmpfs without swap" in warning for warning in warnings) == warned
