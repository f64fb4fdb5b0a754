"""What the controller does with an autoscaler as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.engine.autoscaling import Autoscaler, ScalingController
from roles.engine.autoscaling.decide import ScalingScene, decide, shared
from roles.engine.autoscaling.limits import Past, ScalingHistory
from roles.engine.autoscaling.model import LiveScale, NoReading, Total
from tests.unit.autoscaling.world import (
    IN_ALL,
    KCM,
    NOW,
    ago,
    decided,
    external,
    fresh,
    hpa,
    object_metric,
    pod,
    pods,
    samples,
    utilization,
)

GONE = NoReading("no metrics returned from resource metrics API")


def reasons(decision: object) -> dict[str, str]:
    return {one.type: one.reason for one in decision.conditions}  # type: ignore[attr-defined]


def test_the_metric_with_the_highest_count_decides() -> None:
    found = decided(hpa(utilization(percent=50), utilization("memory", 50)), 2, [samples(60, 60), samples(*[10**11] * 2)])
    assert (found.desired, found.recommended) == (4, 4)
    assert found.leading is not None and found.leading.metric.name == "memory"
    assert found.reason == "memory resource utilization (percentage of request) above target"
    assert reasons(found) == {
        "AbleToScale": "ReadyForNewScale",
        "ScalingActive": "ValidMetricFound",
        "ScalingLimited": "DesiredWithinRange",
    }
    assert found.text == "scales from 2 to 4"


def test_all_below_target_scales_down() -> None:
    found = decided(hpa(), 4, samples(10, 10, 10, 10))
    assert (found.desired, found.reason) == (1, "All metrics below target")


def test_with_some_metrics_invalid_it_only_scales_up() -> None:
    two = hpa(utilization(percent=50), utilization("memory", 50))
    up = decided(two, 2, [samples(100, 100), GONE])
    assert (up.desired, up.works) == (4, False)
    same = decided(two, 2, [samples(50, 50), GONE])
    assert (same.desired, same.failed) == (2, "")
    down = decided(two, 2, [samples(10, 10), GONE])
    assert (down.desired, down.lowest, down.text) == (None, 2, "stays at 2: it cannot compute a count")
    assert down.failed.startswith("invalid metrics (1 invalid out of 2), first error is:")
    assert reasons(down)["ScalingActive"] == "FailedGetResourceMetric"
    none = decided(two, 2, [GONE, GONE])
    assert "2 invalid out of 2" in none.failed


def test_outside_of_the_range_it_clamps_without_asking_for_metrics() -> None:
    high = decided(hpa(maximum=3), 5, GONE)
    assert (high.desired, high.rows, high.reason) == (3, (), "Current number of replicas above Spec.MaxReplicas")
    low = decided(hpa(minimum=3), 1, GONE)
    assert (low.desired, low.reason) == (3, "Current number of replicas below Spec.MinReplicas")
    assert reasons(low) == {"AbleToScale": "SucceededGetScale"}


def test_zero_replicas_disable_it() -> None:
    found = decided(hpa(), 0, samples())
    assert (found.desired, reasons(found)["ScalingActive"], found.works) == (0, "ScalingDisabled", True)


@pytest.mark.parametrize(("minor", "wakes"), [(32, True), (35, True), (36, False), (37, False)])
def test_from_1_36_on_only_the_controller_s_own_zero_wakes_up(minor: int, wakes: bool) -> None:
    asked = hpa(external(IN_ALL), minimum=0)
    on = {"HPAScaleToZero": True}
    found = decided(asked, 0, Total((250000,)), controller=ScalingController(minor, gates=on))
    assert found.desired == (3 if wakes else 0)
    marked = {**asked, "status": {"conditions": [{"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero"}]}}
    if minor >= 36:
        assert decided(marked, 0, Total((250000,)), controller=ScalingController(minor, gates=on)).desired == 3
        assert decided(marked, 0, Total((250000,)), controller=ScalingController(minor, gates={"HPAScaleToZero": False})).desired == 0
        raised = {**marked, "spec": {**asked["spec"], "minReplicas": 5}}
        assert decided(raised, 0, Total((100000,)), controller=ScalingController(minor, gates=on)).desired == 5


def test_a_total_of_zero_scales_to_zero_only_by_minimum() -> None:
    assert decided(hpa(object_metric(IN_ALL), minimum=0), 3, Total((0,))).desired == 0
    assert decided(hpa(object_metric(IN_ALL)), 3, Total((0,))).desired == 1


def test_a_target_without_scale_fails() -> None:
    scene = ScalingScene(Autoscaler.of(hpa()), None, 'deployments.apps "web" not found')
    found = decide(scene, KCM, NOW)
    assert (found.desired, found.works, found.text) == (None, False, "cannot read its target")
    assert reasons(found) == {"AbleToScale": "FailedGetScale"}


def test_pods_under_two_autoscalers_stop_both() -> None:
    found = decided(hpa(), 2, samples(90, 90), shared_with=("shop/other",))
    assert (found.desired, reasons(found)["ScalingActive"]) == (None, "AmbiguousSelector")
    assert found.failed == "pods by selector app=web are controlled by multiple HPAs: [shop/other shop/web]"


def test_a_selector_must_be_there_and_readable() -> None:
    scene = ScalingScene(Autoscaler.of(hpa()), LiveScale(2, 2, ""), "", pods(2), [samples(90, 90)])
    assert reasons(decide(scene, KCM, NOW))["ScalingActive"] == "InvalidSelector"
    scene = replace(scene, scale=LiveScale(2, 2, "a=b=c"), selector_problem="found '=', expected: ',' or 'end of string'")
    assert "couldn't convert selector" in decide(scene, KCM, NOW).failed


def test_who_shares_pods() -> None:
    one, two = pod("a"), pod("b")
    other = pod("a", namespace="other")
    assert shared({"shop/x": [one, two], "shop/y": [two], "other/z": [other]}) == {
        "shop/x": ("shop/y",),
        "shop/y": ("shop/x",),
        "other/z": (),
    }


def test_a_recommendation_of_before_holds_the_count() -> None:
    """Ten seconds later the load is gone: the recommendation of 8 holds for 300 s."""
    memory = replace(fresh(ago(3600), 1), recommendations=(Past(ago(15), 8),))
    assert decided(hpa(), 4, samples(5, 5, 5, 5), history=memory).desired == 8


def test_a_range_is_said_as_one() -> None:
    found = decided(hpa(), 4, samples(5, 5, 5, 5), history=ScalingHistory(ceiling=4))
    assert (found.desired, found.text) == (None, "sets between 1 and 4 (now 4)")
    assert found.unknown
