"""All that can be said about each autoscaler at one moment: the decision, the problems, and what would change the count. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from roles.engine.autoscaling.calculator import MetricResult
from roles.engine.autoscaling.decide import Decision, ScalingScene, decide
from roles.engine.autoscaling.model import ODD, Autoscaler, ScalingController, amount
from roles.engine.autoscaling.problems import not_judged, problems
from roles.engine.autoscaling.read import ScalingWorld
from roles.engine.findings import Finding, Severity
from roles.engine.placement import ClusterView


@dataclass(frozen=True)
class JudgedAutoscaler:
    """One autoscaler. `problems`: the worst first."""

    scene: ScalingScene
    decision: Decision
    problems: tuple[Finding, ...]

    @property
    def autoscaler(self) -> Autoscaler:
        return self.scene.autoscaler

    @property
    def works(self) -> bool:
        """Nothing stops it: no problem is critical, and each metric has a value."""
        return self.decision.works and all(one.severity is not Severity.critical for one in self.problems)

    @property
    def differs(self) -> str:
        """How the controller's own count differs from the computed one; "" if it may be the same. A sync that comes next may still "
        "set it."""
        said, found = self.autoscaler.status.desired, self.decision
        if found.failed or found.current is None or said is None or found.lowest <= said <= found.highest:
            return ""
        return f"the controller set {said} when it last looked, and daytwo computes now: {found.text}"


def judge(world: ScalingWorld, controller: ScalingController, now: datetime, view: ClusterView | None = None) -> list[JudgedAutoscaler]:
    """All autoscalers that were read, each by itself: one that cannot be judged hides no other. `view`: the nodes and pods of the cluster;
    without it, no room is looked for."""
    found = []
    for scene in world.scenes:
        try:
            decision = decide(scene, controller, now)
            found.append(JudgedAutoscaler(scene, decision, tuple(problems(scene, decision, controller, world, now, view))))
        except ODD as error:
            item = scene.autoscaler
            problem = not_judged(str(item), error)
            decision = Decision(scene.scale.spec if scene.scale else None, 0, item.maximum, unknown=(problem.why,))
            found.append(JudgedAutoscaler(scene, decision, (problem,)))
    return found


@dataclass(frozen=True)
class TurningPoints:
    """Above which value of a metric the count goes up, and below which it goes down, as an operator reads it: `66%`; "" if no value of it
    does. If pods are unready or without a sample, more is needed."""

    up: str = ""
    down: str = ""

    def __str__(self) -> str:
        parts = [f"up above {self.up}" if self.up else "", f"down below {self.down}" if self.down else ""]
        return ", ".join(filter(None, parts)) or "no value of it changes the count"


def turns(row: MetricResult, judged: JudgedAutoscaler, controller: ScalingController) -> TurningPoints:
    """What would change the count, by this metric alone: the tolerance, and the rounding up to whole pods."""
    item, current = judged.autoscaler, judged.decision.current or 0
    shared = row.metric.average is not None and row.metric.type in ("Object", "External")
    pods = judged.scene.scale.status if shared and judged.scene.scale is not None else row.groups.ready or current
    if not pods or not current:
        return TurningPoints()
    tolerance = controller.tolerances(item)
    up = _value(row, max(1 + tolerance[0], current / pods)) if current < item.maximum else ""
    down = _value(row, min(1 - tolerance[1], (current - 1) / pods)) if current > max(item.minimum, 0) and current > 1 else ""
    return TurningPoints(up, down)


def _value(row: MetricResult, ratio: float) -> str:
    metric = row.metric
    if metric.utilization is not None and metric.average is None:
        return f"{round(metric.utilization * ratio, 1):g}%"
    target = metric.average if metric.average is not None and metric.target_type != "Value" else metric.value
    return amount(metric.name if metric.is_resource else "", round((target or 0) * ratio))
