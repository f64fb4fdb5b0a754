"""Stabilization, rate limits, minimum and maximum; and what can be said when the controller's memory is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.autoscaling import Autoscaler
from roles.engine.autoscaling.limits import Limited, Past, ScalingHistory, limit, rate_limit
from roles.engine.autoscaling.model import Policy, ScalingRules
from tests.unit.autoscaling.world import KCM, NOW, ago, hpa

EMPTY = ScalingHistory(recommendations_since=ago(7200), changes_since=ago(7200))


def recommended(*pairs: tuple[float, int]) -> ScalingHistory:
    """(seconds ago, pods), and nothing else."""
    return replace(EMPTY, recommendations=tuple(Past(ago(age), number) for age, number in pairs))


def limited(wanted: int, current: int, history: ScalingHistory = EMPTY, **more: Any) -> Limited:
    return limit(wanted, current, Autoscaler.of(hpa(**more)), KCM, history, NOW)


def test_the_highest_recommendation_of_the_window_counts() -> None:
    past = recommended((301, 9), (300, 7), (60, 5))
    assert limited(3, 8, past).desired == (7, 7)
    assert limited(3, 8, recommended((301, 9))).desired == (3, 3)
    assert limited(8, 5, past).desired == (8, 8)
    able, _ = limited(3, 8, past).conditions
    assert (able.reason, able.message.split(",")[0]) == ("ScaleDownStabilized", "recent recommendations were higher than current one")
    assert limited(8, 5, past).conditions[0].reason == "ReadyForNewScale"


def test_the_flag_sets_the_window() -> None:
    short = replace(KCM, downscale_stabilization=30)
    assert limit(3, 8, Autoscaler.of(hpa()), short, recommended((60, 5)), NOW).desired == (3, 3)


@pytest.mark.parametrize(
    ("wanted", "current", "count", "reason", "is_limited"),
    [
        (9, 1, 4, "ScaleUpLimit", True),
        (9, 3, 6, "ScaleUpLimit", True),
        (12, 6, 10, "TooManyReplicas", True),
        (1, 6, 2, "TooFewReplicas", True),
        (5, 6, 5, "DesiredWithinRange", False),
        (10, 6, 10, "DesiredWithinRange", False),
    ],
)
def test_without_behavior_a_count_doubles_at_most_or_becomes_four(
    wanted: int, current: int, count: int, reason: str, is_limited: bool
) -> None:
    found = limited(wanted, current, minimum=2)
    assert found.desired == (count, count)
    assert (found.conditions[1].reason, found.conditions[1].status) == (reason, is_limited)


UP_TWO = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}


def test_setting_any_behavior_fills_in_the_rest() -> None:
    # Up: the default of 4 pods or 100 % in 15 s; down: the window of the flag.
    behavior = {"scaleDown": {"selectPolicy": "Max"}}
    assert limited(10, 3, behavior=behavior).desired == (7, 7)
    assert limited(10, 5, behavior=behavior).desired == (10, 10)
    assert limited(1, 5, recommended((299, 4)), behavior=behavior).desired == (4, 4)
    assert limited(1, 5, recommended((300, 4)), behavior=behavior).desired == (1, 1)


def test_changes_in_the_period_of_a_policy_count_against_it() -> None:
    assert limited(9, 4, behavior=UP_TWO).desired == (6, 6)
    past = replace(EMPTY, ups=(Past(ago(59), 1), Past(ago(60), 5)))
    assert limited(9, 4, past, behavior=UP_TWO).desired == (5, 5)
    past = replace(EMPTY, ups=(Past(ago(10), 3),))
    found = limited(9, 4, past, behavior=UP_TWO)
    assert (found.desired, found.conditions[1].reason) == ((4, 4), "ScaleUpLimit")
    # What was removed in the period may be added again.
    past = replace(EMPTY, downs=(Past(ago(10), 3),))
    assert limited(9, 4, past, behavior=UP_TWO).desired == (9, 9)


@pytest.mark.parametrize(("select", "up", "down"), [("Max", 14, 5), ("Min", 12, 8), ("Disabled", 10, 10)])
def test_select_policy(select: str, up: int, down: int) -> None:
    rules = ScalingRules(0, select, (Policy("Pods", 2, 60), Policy("Percent", 40, 60)))
    assert rate_limit(10, rules, EMPTY, NOW, up=True) == up
    rules = ScalingRules(0, select, (Policy("Pods", 2, 60), Policy("Percent", 45, 60)))
    assert rate_limit(10, rules, EMPTY, NOW, up=False) == down


def test_a_percentage_is_rounded_up_when_scaling_up_and_cut_when_scaling_down() -> None:
    ten = ScalingRules(0, "Max", (Policy("Percent", 10, 60),))
    assert rate_limit(1, ten, EMPTY, NOW, up=True) == 2
    assert rate_limit(15, ten, EMPTY, NOW, up=False) == 13


def test_scaling_down_can_be_disabled() -> None:
    found = limited(1, 5, behavior={"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}})
    assert (found.desired, found.conditions[1].reason) == ((5, 5), "ScaleDownLimit")


def test_a_window_up_takes_the_lowest_and_a_window_down_the_highest() -> None:
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 120}}
    found = limited(8, 4, recommended((30, 6), (90, 2)), behavior=behavior)
    assert (found.desired, found.conditions[0].reason) == ((6, 6), "ScaleUpStabilized")
    assert limited(8, 4, recommended((30, 3)), behavior=behavior).desired == (4, 4)
    found = limited(1, 4, recommended((90, 3), (121, 9)), behavior=behavior)
    assert (found.desired, found.conditions[0].reason) == ((3, 3), "ScaleDownStabilized")


def test_with_behavior_the_minimum_is_a_limit_only_when_scaling_down() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    found = limited(1, 5, behavior=behavior, minimum=3)
    assert (found.desired, found.conditions[1].reason) == ((3, 3), "TooFewReplicas")
    found = limited(12, 8, behavior=behavior)
    assert (found.desired, found.conditions[1].reason) == ((10, 10), "TooManyReplicas")


POLICY = st.fixed_dictionaries(
    {"type": st.sampled_from(["Pods", "Percent"]), "value": st.integers(1, 200), "periodSeconds": st.integers(1, 1800)}
)
DIRECTION = st.fixed_dictionaries(
    {},
    optional={
        "stabilizationWindowSeconds": st.integers(0, 3600),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "policies": st.lists(POLICY, min_size=1, max_size=3),
    },
)
BEHAVIOR = st.none() | st.fixed_dictionaries({}, optional={"scaleUp": DIRECTION, "scaleDown": DIRECTION})
EVENTS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 30)), max_size=6)


@given(BEHAVIOR, st.integers(0, 30), st.integers(1, 30), st.integers(0, 5), st.integers(0, 25), EVENTS, EVENTS, EVENTS)
def test_what_is_not_known_makes_a_range_that_has_the_truth(
    behavior: dict[str, Any] | None,
    wanted: int,
    current: int,
    least: int,
    more: int,
    asked: list[tuple[int, int]],
    ups: list[tuple[int, int]],
    downs: list[tuple[int, int]],
) -> None:
    """Whatever the controller's memory has: what daytwo says without knowing it contains what the controller does."""
    past, up, down = (tuple(Past(ago(age), number) for age, number in one) for one in (asked, ups, downs))
    known = replace(EMPTY, recommendations=past, ups=up, downs=down)
    given_behavior = {} if behavior is None else {"behavior": behavior}
    bounds = {"minimum": least, "maximum": max(1, least + more), **given_behavior}
    current = min(max(current, bounds["minimum"], 1), bounds["maximum"])
    truth = limited(wanted, current, known, **bounds)
    assert truth.desired[0] == truth.desired[1] and not truth.unknown
    assert bounds["minimum"] <= truth.desired[0] <= bounds["maximum"]
    ceiling = max([wanted, *(one.number for one in past)])
    for partly in (
        ScalingHistory(),
        ScalingHistory(ceiling=ceiling),
        replace(known, recommendations_since=None),
        replace(known, changes_since=None),
    ):
        found = limited(wanted, current, partly, **bounds)
        assert found.desired[0] <= truth.desired[0] <= found.desired[1]
        assert bounds["minimum"] <= found.desired[0] <= found.desired[1] <= bounds["maximum"]
        assert found.desired[0] == found.desired[1] or found.unknown


# ---- what is not known


def test_scaling_up_needs_no_memory_unless_there_is_a_window() -> None:
    nothing = ScalingHistory()
    assert limited(8, 4, ScalingHistory(ceiling=4)).desired == (8, 8)
    assert limited(8, 4, nothing, maximum=8).desired == (8, 8)
    found = limited(8, 4, nothing, behavior={"scaleUp": {"stabilizationWindowSeconds": 60}})
    assert (found.desired, len(found.unknown)) == ((4, 8), 2)


def test_scaling_down_depends_on_what_was_recommended_before() -> None:
    found = limited(2, 5, ScalingHistory(ceiling=5))
    assert (found.desired, found.unknown) == ((2, 5), ("recommendations of the last 300 s, which only the controller's memory has",))
    # One that is known to be as high as now makes it certain.
    assert limited(2, 5, ScalingHistory((Past(ago(200), 5),), ceiling=5)).desired == (5, 5)
    assert limited(2, 5, ScalingHistory((Past(ago(400), 5),), recommendations_since=ago(400))).desired == (2, 2)
    # Somebody else changed the count: a higher recommendation may be in the window.
    assert limited(2, 5, ScalingHistory()).desired == (2, 10)


def test_changes_that_are_not_known_make_a_range() -> None:
    known = replace(EMPTY, changes_since=ago(30))
    found = limited(9, 4, known, behavior=UP_TWO)
    assert (found.desired, len(found.unknown)) == ((4, 9), 1)
    assert limited(9, 4, replace(EMPTY, changes_since=ago(60)), behavior=UP_TWO).desired == (6, 6)
