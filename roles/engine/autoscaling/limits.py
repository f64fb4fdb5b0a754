"""From what the metrics ask for to what the controller sets: stabilization windows, rate limits, minReplicas and maxReplicas. Pure.

kubernetes 1.36, pkg/controller/podautoscaler/horizontal.go: normalizeDesiredReplicas, stabilizeRecommendation,
normalizeDesiredReplicasWithBehaviors and what they call. The controller keeps its past in memory only; a new leader starts without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from roles.engine.autoscaling.model import Autoscaler, Condition, ScalingController, ScalingRules
from roles.engine.bounds import span

ABLE, LIMITED = "AbleToScale", "ScalingLimited"
READY_FOR_SCALE, UP_STABILIZED, DOWN_STABILIZED = "ReadyForNewScale", "ScaleUpStabilized", "ScaleDownStabilized"
WITHIN_RANGE, TOO_FEW, TOO_MANY = "DesiredWithinRange", "TooFewReplicas", "TooManyReplicas"
UP_LIMIT, DOWN_LIMIT = "ScaleUpLimit", "ScaleDownLimit"
_LIMIT_FACTOR, _LIMIT_MINIMUM = 2, 4
_NO_LIMIT = 10**12


@dataclass(frozen=True)
class Past:
    """One number at a time: a recommendation in pods, or a change in pods (never negative)."""

    at: datetime
    number: int


@dataclass(frozen=True)
class ScalingHistory:
    """What is known of the controller's memory about one autoscaler.

    `recommendations`: what the metrics asked for; `ups`, `downs`: changes of the count. `recommendations_since`, `changes_since`: from then
    on nothing is missing in these lists; None: anything may be missing. `ceiling`: no recommendation that is missing is higher than this;
    None: not known.
    """

    recommendations: tuple[Past, ...] = ()
    ups: tuple[Past, ...] = ()
    downs: tuple[Past, ...] = ()
    recommendations_since: datetime | None = None
    changes_since: datetime | None = None
    ceiling: int | None = None

    def has_recommendations(self, now: datetime, seconds: float) -> bool:
        """No recommendation of the last `seconds` is missing."""
        return _covers(self.recommendations_since, now, seconds)

    def has_changes(self, now: datetime, seconds: float) -> bool:
        """No change of the last `seconds` is missing."""
        return _covers(self.changes_since, now, seconds)


def _covers(since: datetime | None, now: datetime, seconds: float) -> bool:
    return seconds <= 0 or (since is not None and since <= now - span(seconds))


@dataclass(frozen=True)
class Limited:
    """What is left of a recommendation. `desired`: the lowest and the highest possible number; they are the same if enough of the history
    is known. `conditions`: of the lowest number if it is recommended to have fewer pods, else of the highest."""

    desired: tuple[int, int]
    conditions: tuple[Condition, ...]
    unknown: tuple[str, ...] = ()


def limit(
    recommended: int, current: int, autoscaler: Autoscaler, controller: ScalingController, history: ScalingHistory, now: datetime
) -> Limited:  # fmt: skip
    """Stabilize and limit what the metrics ask for."""
    if autoscaler.behavior is None:
        return _by_flags(recommended, current, autoscaler, controller, history, now)
    return _by_behavior(recommended, current, autoscaler, controller, history, now)


def _result(
    recommended: int, current: int, stable: tuple[int, int], ends: Sequence[tuple[int, str, str]], able: str, unknown: Sequence[str]
) -> Limited:
    """`ends`: of the lowest and the highest stabilized number: the count, and the reason and message of ScalingLimited."""
    index = 0 if recommended < current else 1
    count, reason, message = ends[index]
    changed = stable[index] != recommended
    conditions = (
        Condition(ABLE, True, able if changed else READY_FOR_SCALE, _ABLE_MESSAGES[able if changed else READY_FOR_SCALE]),
        Condition(LIMITED, count != stable[index], reason, message),
    )
    return Limited((min(ends[0][0], ends[1][0]), max(ends[0][0], ends[1][0])), conditions, tuple(unknown))


_ABLE_MESSAGES = {
    READY_FOR_SCALE: "recommended size matches current size",
    UP_STABILIZED: "recent recommendations were lower than current one, applying the lowest recent recommendation",
    DOWN_STABILIZED: "recent recommendations were higher than current one, applying the highest recent recommendation",
}
_LIMIT_MESSAGES = {
    WITHIN_RANGE: "the desired count is within the acceptable range",
    TOO_FEW: "the desired replica count is less than the minimum replica count",
    TOO_MANY: "the desired replica count is more than the maximum replica count",
    UP_LIMIT: "the desired replica count is increasing faster than the maximum scale rate",
    DOWN_LIMIT: "the desired replica count is decreasing faster than the maximum scale rate",
}


def _unknown(window: float) -> str:
    return f"recommendations of the last {window:g} s, which only the controller's memory has"


# ---- without spec.behavior


def _by_flags(
    recommended: int, current: int, autoscaler: Autoscaler, controller: ScalingController, history: ScalingHistory, now: datetime
) -> Limited:  # fmt: skip
    window = controller.downscale_stabilization
    cutoff = now - span(window)
    lowest = max([recommended, *(one.number for one in history.recommendations if one.at >= cutoff)])
    highest, unknown = lowest, list[str]()
    if not history.has_recommendations(now, window):
        highest = max(lowest, autoscaler.maximum if history.ceiling is None else min(history.ceiling, autoscaler.maximum))
    ends = [_by_rules(one, current, autoscaler) for one in (lowest, highest)]
    if ends[0][0] != ends[1][0]:
        unknown.append(_unknown(window))
    return _result(recommended, current, (lowest, highest), ends, DOWN_STABILIZED, unknown)


def _by_rules(desired: int, current: int, autoscaler: Autoscaler) -> tuple[int, str, str]:
    """convertDesiredReplicasWithRules."""
    rate = max(_LIMIT_FACTOR * current, _LIMIT_MINIMUM)
    most, why = (rate, UP_LIMIT) if autoscaler.maximum > rate else (autoscaler.maximum, TOO_MANY)
    if desired < autoscaler.minimum:
        return autoscaler.minimum, TOO_FEW, _LIMIT_MESSAGES[TOO_FEW]
    if desired > most:
        return most, why, _LIMIT_MESSAGES[why]
    return desired, WITHIN_RANGE, _LIMIT_MESSAGES[WITHIN_RANGE]


# ---- with spec.behavior


def _by_behavior(
    recommended: int, current: int, autoscaler: Autoscaler, controller: ScalingController, history: ScalingHistory, now: datetime
) -> Limited:  # fmt: skip
    assert autoscaler.behavior is not None
    up, down = autoscaler.behavior.up, autoscaler.behavior.down
    # The controller cuts the flag to whole seconds (maybeInitScaleDownStabilizationWindow).
    windows = float(up.window or 0), float(int(controller.downscale_stabilization) if down.window is None else down.window)
    after_up, after_down = (now - span(one) for one in windows)
    lowest_up = min([recommended, *(one.number for one in history.recommendations if one.at > after_up)])
    highest_down = max([recommended, *(one.number for one in history.recommendations if one.at > after_down)])
    ups, downs, unknown = [lowest_up], [highest_down], list[str]()
    if not history.has_recommendations(now, windows[0]):
        ups.append(0)
    if not history.has_recommendations(now, windows[1]):
        downs.append(max(highest_down, autoscaler.maximum if history.ceiling is None else history.ceiling))
    possible = sorted({_between(current, one, other) for one in ups for other in downs})
    stable = (possible[0], possible[-1])
    ends = []
    for lowest, one in ((True, stable[0]), (False, stable[1])):
        found, exact = _by_rate(one, current, autoscaler, history, now, lowest=lowest)
        ends.append(found)
        if not exact:
            unknown.append("changes of the count during the period of a policy, which only the controller's memory has")
    if stable[0] != stable[1]:
        unknown.insert(0, _unknown(max(windows)))
    if ends[0][0] == ends[1][0]:
        unknown = []
    able = UP_STABILIZED if recommended >= current else DOWN_STABILIZED
    return _result(recommended, current, stable, ends, able, list(dict.fromkeys(unknown)))


def _between(current: int, up: int, down: int) -> int:
    """stabilizeRecommendationWithBehaviors."""
    return min(max(current, up), down)


def _by_rate(
    desired: int, current: int, autoscaler: Autoscaler, history: ScalingHistory, now: datetime, *, lowest: bool
) -> tuple[tuple[int, str, str], bool]:
    """convertDesiredReplicasWithBehaviorRate, and whether enough of the history is known. If not: the lowest or the highest count that is
    possible."""
    assert autoscaler.behavior is not None
    if desired == current:
        return (desired, WITHIN_RANGE, _LIMIT_MESSAGES[WITHIN_RANGE]), True
    rules = autoscaler.behavior.up if desired > current else autoscaler.behavior.down
    exact = rules.select == "Disabled" or history.has_changes(now, rules.longest)
    if desired > current:
        most = max(rate_limit(current, rules, history, now, up=True), current)
        if not exact:
            most = current if lowest else autoscaler.maximum
        allowed, why = (most, UP_LIMIT) if autoscaler.maximum > most else (autoscaler.maximum, TOO_MANY)
        if desired > allowed:
            return (allowed, why, _LIMIT_MESSAGES[why]), exact
    else:
        least = min(rate_limit(current, rules, history, now, up=False), current)
        if not exact:
            least = autoscaler.minimum if lowest else current
        allowed, why = (least, DOWN_LIMIT) if autoscaler.minimum < least else (autoscaler.minimum, TOO_FEW)
        if desired < allowed:
            return (allowed, why, _LIMIT_MESSAGES[why]), exact
    return (desired, WITHIN_RANGE, _LIMIT_MESSAGES[WITHIN_RANGE]), exact


def rate_limit(current: int, rules: ScalingRules, history: ScalingHistory, now: datetime, *, up: bool) -> int:
    """The highest (`up`) or lowest count that the policies allow now (calculateScaleUpLimitWithScalingRules,
    calculateScaleDownLimitWithBehaviors)."""
    if rules.select == "Disabled":
        return current
    proposals = []
    for one in rules.policies:
        start = current - _changed(history.ups, one.period, now) + _changed(history.downs, one.period, now)
        if one.type == "Pods":
            proposals.append(start + one.value if up else start - one.value)
        elif up:
            proposals.append(math.ceil(start * (1 + one.value / 100)))
        else:
            # Go cuts towards 0.
            proposals.append(int(start * (1 - one.value / 100)))
    highest = (rules.select == "Min") != up
    return max(proposals, default=-_NO_LIMIT) if highest else min(proposals, default=_NO_LIMIT)


def _changed(events: Sequence[Past], period: int, now: datetime) -> int:
    cutoff = now - span(period)
    return sum(one.number for one in events if one.at > cutoff)
