"""What kube-controller-manager does with one HorizontalPodAutoscaler at this moment. Pure.

kubernetes 1.36, pkg/controller/podautoscaler/horizontal.go: reconcileAutoscaler, computeReplicasForMetrics, validateAndParseSelector; the
differences of 1.32 to 1.35 are in Controller and here. Reasons and messages are the controller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from roles.engine.autoscaling.calculator import MetricResult, calculate
from roles.engine.autoscaling.limits import ABLE, ScalingHistory, limit
from roles.engine.autoscaling.model import Autoscaler, Condition, HasConditions, LiveScale, NoReading, Reading, ScalingController
from roles.engine.kube import Object, namespace_and_name

ACTIVE, ZERO = "ScalingActive", "ScaledToZero"
ABOVE_MAXIMUM = "Current number of replicas above Spec.MaxReplicas"
BELOW_MINIMUM = "Current number of replicas below Spec.MinReplicas"
ALL_BELOW = "All metrics below target"


@dataclass(frozen=True)
class ScalingScene:
    """What one decision is made from. `scale`: None if it could not be read, then `scale_problem` says why; `pods`: all that the target's
    selector matches; `readings`: of the metrics, in their order; `shared_with`: other autoscalers that select some of these pods
    (NAMESPACE/NAME); `selector_problem`: why the selector of the scale cannot be read."""

    autoscaler: Autoscaler
    scale: LiveScale | None = None
    scale_problem: str = ""
    pods: Sequence[Object] = ()
    readings: Sequence[Reading] = ()
    shared_with: tuple[str, ...] = ()
    selector_problem: str = ""
    history: ScalingHistory = field(default_factory=ScalingHistory)


@dataclass(frozen=True)
class Decision(HasConditions):
    """What the controller does. `current`: the pods that the target wants now; None if its scale could not be read. `lowest` and `highest`:
    the bounds of the count that it sets; they are the same unless `unknown` says what is missing. `recommended`: what the metrics ask for,
    None if they are not asked or give nothing. `rows`: one for each metric, none if the metrics are not asked. `reason`: why it changes the
    count, "" if it does not. `failed`: why it cannot compute a count; then it changes nothing. `conditions`: as it sets them, except
    SucceededRescale, which follows a change. `behavior`: the autoscaler has `spec.behavior`."""

    current: int | None
    lowest: int
    highest: int
    recommended: int | None = None
    rows: tuple[MetricResult, ...] = ()
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    failed: str = ""
    unknown: tuple[str, ...] = ()
    behavior: bool = False

    @property
    def desired(self) -> int | None:
        """The count that it sets; None if that is not certain, or if it cannot compute one."""
        return self.lowest if self.lowest == self.highest and not self.failed else None

    @property
    def works(self) -> bool:
        """It has a count from all of its metrics, or needs none."""
        return not self.failed and all(one.valid for one in self.rows)

    @property
    def leading(self) -> MetricResult | None:
        """The metric that decides: the first with the highest proposal."""
        valid = [one for one in self.rows if one.proposal is not None]
        return max(valid, key=lambda one: one.proposal or 0, default=None)

    @property
    def text(self) -> str:
        """`stays at 3`, `scales from 3 to 5`, `scales to 2, or stays at 3`."""
        if self.failed:
            return f"stays at {self.current}: it cannot compute a count" if self.current is not None else "cannot read its target"
        if self.desired is not None:
            return f"stays at {self.current}" if self.desired == self.current else f"scales from {self.current} to {self.desired}"
        return f"sets between {self.lowest} and {self.highest} (now {self.current})"


def decide(scene: ScalingScene, controller: ScalingController, now: datetime) -> Decision:
    """The decision at `now`, which is the time of the control plane, with its zone."""
    return replace(_decide(scene, controller, now), behavior=scene.autoscaler.behavior is not None)


def _decide(scene: ScalingScene, controller: ScalingController, now: datetime) -> Decision:
    item = scene.autoscaler
    if scene.scale is None:
        message = f"the HPA controller was unable to get the target's current scale: {scene.scale_problem}"
        failed = Condition(ABLE, False, "FailedGetScale", message)
        return Decision(None, 0, 0, conditions=(failed,), failed=message)
    current = scene.scale.spec
    able = Condition(ABLE, True, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
    if current == 0 and not _asks_at_zero(item, controller):
        message = "scaling is disabled since the replica count of the target is zero"
        return Decision(0, 0, 0, conditions=(able, Condition(ACTIVE, False, "ScalingDisabled", message)))
    if current > item.maximum:
        return Decision(current, item.maximum, item.maximum, conditions=(able,), reason=ABOVE_MAXIMUM)
    if 0 < current < item.minimum:
        return Decision(current, item.minimum, item.minimum, conditions=(able,), reason=BELOW_MINIMUM)
    return _by_metrics(scene, scene.scale, controller, now, able)


def _asks_at_zero(item: Autoscaler, controller: ScalingController) -> bool:
    """At 0 pods the metrics count (shouldComputeMetricsForZeroReplicas)."""
    if not controller.marks_scale_to_zero:
        return item.minimum == 0
    condition = item.status.condition(ZERO)
    by_controller = controller.scale_to_zero and condition is not None and condition.status
    return by_controller and (item.minimum != 0 or item.may_be_zero)


def _by_metrics(scene: ScalingScene, scale: LiveScale, controller: ScalingController, now: datetime, able: Condition) -> Decision:
    item, current = scene.autoscaler, scale.spec
    broken = _selector_condition(scene, scale)
    if broken is not None:
        return Decision(current, current, current, conditions=(able, broken), failed=broken.message)
    rows = tuple(
        calculate(metric, reading, item, scale, scene.pods, controller, now)
        for metric, reading in zip(item.metrics, _readings(scene), strict=True)
    )
    invalid = [one for one in rows if not one.valid]
    recommended, name = 0, ""
    for one in rows:
        if one.proposal is not None and (recommended == 0 or one.proposal > recommended):
            recommended, name = one.proposal, one.name
    if len(invalid) == len(rows) or (invalid and recommended < current):
        first = invalid[0] if invalid else None
        condition = Condition(ACTIVE, False, first.reason if first else "", first.message if first else "it has no metrics")
        text = f"invalid metrics ({len(invalid)} invalid out of {len(rows)}), first error is: {condition.message}"
        return Decision(current, current, current, rows=rows, conditions=(able, condition), failed=text)
    active = Condition(ACTIVE, True, "ValidMetricFound", f"the HPA was able to successfully calculate a replica count from {name}")
    recommended = max(recommended, 0)
    limited = limit(recommended, current, item, controller, scene.history, now)
    lowest, highest = limited.desired
    if current == 0 and item.minimum and controller.marks_scale_to_zero:
        lowest, highest = max(lowest, item.minimum), max(highest, item.minimum)
    reason = f"{name if recommended else ''} above target" if recommended > current else ALL_BELOW if recommended < current else ""
    return Decision(
        current, lowest, highest, recommended, rows, (limited.conditions[0], active, limited.conditions[1]),
        reason if (lowest, highest) != (current, current) else "", unknown=limited.unknown,
    )  # fmt: skip


def _readings(scene: ScalingScene) -> Sequence[Reading]:
    """A reading for each metric."""
    missing = len(scene.autoscaler.metrics) - len(scene.readings)
    return [*scene.readings, *[NoReading("it was not read")] * missing][: len(scene.autoscaler.metrics)]


def _selector_condition(scene: ScalingScene, scale: LiveScale) -> Condition | None:
    """Why the pods of the target are not known, or not its own (validateAndParseSelector); None if they are."""
    if not scale.selector:
        return Condition(ACTIVE, False, "InvalidSelector", "the HPA target's scale is missing a selector")
    if scene.selector_problem:
        text = f"couldn't convert selector into a corresponding internal selector object: {scene.selector_problem}"
        return Condition(ACTIVE, False, "InvalidSelector", text)
    if scene.shared_with:
        names = " ".join(sorted([scene.autoscaler.key, *scene.shared_with]))
        text = f"pods by selector {scale.selector} are controlled by multiple HPAs: [{names}]"
        return Condition(ACTIVE, False, "AmbiguousSelector", text)
    return None


def shared(pods: Mapping[str, Sequence[Object]]) -> dict[str, tuple[str, ...]]:
    """Of each autoscaler (NAMESPACE/NAME) the others that select one of its pods. `pods`: those that each one's target selects."""
    by_pod: dict[tuple[str, str], set[str]] = {}
    for key, found in pods.items():
        for pod in found:
            by_pod.setdefault(namespace_and_name(pod), set()).add(key)
    return {key: tuple(sorted({one for pod in found for one in by_pod[namespace_and_name(pod)]} - {key})) for key, found in pods.items()}
