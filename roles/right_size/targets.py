"""What else decides about a workload's requests: VerticalPodAutoscalers, shown beside, and HorizontalPodAutoscalers, whose utilization is a
share of the request: their targets, what they become with the new requests, and how these are written and undone.

Source: pkg/controller/podautoscaler/replica_calculator.go: the utilization is use over request, so a target has to change with the request.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roles.autoscalers import KINDS
from roles.engine.autoscaling import HPA, ODD, Autoscaler, MetricSpec
from roles.engine.autoscaling.vertical import Vertical
from roles.engine.context import StepContext
from roles.engine.kube import Object, field_managers, namespace_and_name, uid
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.objects import ChangedByOthers, Gone, ObjectChange, ObjectWriter, Session
from roles.engine.transaction import ChangedField, ChangedObject
from roles.right_size.workloads import Amounts, SizedWorkload

#: The first part of the path of a recorded field that is of an autoscaler: then its name.
AUTOSCALER = "autoscalers"
# kube-controller-manager's --horizontal-pod-autoscaler-downscale-stabilization, if it is not set.
_WINDOW = 300.0
_METRICS = ("spec", "metrics")
_SCALER = KINDS[HPA]
#: A strategic merge patch replaces the list.
METRICS_OF_OTHERS = replace(_SCALER, sets=(_METRICS,), maps=(), verb="patch")


@dataclass(frozen=True)
class Recommended:
    """A VerticalPodAutoscaler's recommendation for one container. `mode`: whether it applies it (Off: no)."""

    name: str
    mode: str
    target: Amounts
    low: Amounts
    high: Amounts


@dataclass(frozen=True)
class UtilizationTarget:
    """A utilization that the HorizontalPodAutoscaler `name` keeps: percent of the request of `resource`, of all containers or of
    `container`."""

    name: str
    resource: str
    percent: int
    container: str = ""


def recommendations(items: Iterable[Object]) -> dict[tuple[SizedWorkload, str], Recommended]:
    """By workload and container. What cannot be read of one is left out."""
    found = {}
    for item in items:
        with contextlib.suppress(*ODD):
            one = Vertical.of(item)
            workload = SizedWorkload(one.target.kind, one.namespace, one.target.name)
            for advice in filter(lambda advice: advice.target, one.advice or ()):
                sides = (Amounts.of(side) for side in (advice.target, advice.lower, advice.upper))
                found[workload, advice.container] = Recommended(one.name, one.mode, *sides)
    return found


def utilization_targets(items: Iterable[Object]) -> dict[SizedWorkload, list[UtilizationTarget]]:
    """By workload. What cannot be read of one is left out."""
    found: dict[SizedWorkload, list[UtilizationTarget]] = {}
    for item in items:
        with contextlib.suppress(*ODD):
            one = Autoscaler.of(item)
            workload = SizedWorkload(one.target.kind, one.namespace, one.target.name)
            for target in filter(None, (_target(one.name, metric) for metric in one.metrics)):
                found.setdefault(workload, []).append(target)
    return found


def _target(name: str, metric: MetricSpec) -> UtilizationTarget | None:
    if not metric.is_resource or metric.utilization is None or metric.name not in ("cpu", "memory"):
        return None
    return UtilizationTarget(name, metric.name, metric.utilization, metric.container)


def corrected(target: UtilizationTarget, before: int, after: int) -> int:
    """The percentage at which the autoscaler wants the same number of pods: `before` and `after` are the requests that it counts."""
    return max(1, round(target.percent * before / after))


def kept_by(target: UtilizationTarget, before: Mapping[str, Amounts], after: Mapping[str, Amounts]) -> int | None:
    """The percentage with which it wants as many pods when the requests of containers change; None if one that it counts has none."""
    counted = [name for name in before if target.container in ("", name)]
    amounts = [[side[name].of_resource(target.resource) for name in counted] for side in (before, after)]
    if not counted or any(amount is None for side in amounts for amount in side):
        return None
    was, becomes = (sum(amount or 0 for amount in side) for side in amounts)
    return corrected(target, was, becomes) if was != becomes and becomes else target.percent


# ---- what changes


@dataclass(frozen=True)
class TargetChange:
    """The metrics of a HorizontalPodAutoscaler before and after. `text`: what changes, for people; `window`: seconds for which it waits
    before it removes pods."""

    name: str
    path: str
    uid: str
    before: Sequence[Any]
    after: Sequence[Any]
    text: str
    window: float = _WINDOW

    @property
    def rises(self) -> bool:
        """A percentage gets higher: pods that still have the old request then look idle to it."""
        return self.meanwhile != list(self.after)

    def wrote(self, metrics: Sequence[Any]) -> bool:
        """Whether an autoscaler with these metrics is as it was before this change, or as this change made it."""
        return list(metrics) in (list(self.before), self.meanwhile, list(self.after))

    @property
    def meanwhile(self) -> list[Any]:
        """The metrics while some pods have the old requests and some the new ones: of each metric the lower percentage, so that an
        autoscaler never wants fewer pods than before. `before` if these are other metrics."""
        before, after = list(self.before), list(self.after)
        if [_with_percent(metric, 0) for metric in before] != [_with_percent(metric, 0) for metric in after]:
            return before
        return [new if _percent(new) < _percent(old) else old for old, new in zip(before, after, strict=True)]

    @property
    def field(self) -> dict[str, Any]:
        """For the record."""
        return {"path": [AUTOSCALER, self.name, "metrics"], "before": list(self.before), "after": list(self.after)}


def target_changes(
    workload: SizedWorkload, before: Mapping[str, Amounts], after: Mapping[str, Amounts], items: Iterable[Object]
) -> list[TargetChange]:
    """The autoscalers of a workload whose utilization targets have to change with its requests (by container)."""
    found = []
    for item in items:
        if not utilization_targets([item]).get(workload):
            continue
        metrics = metrics_of(item)
        new = [_corrected(metric, before, after) for metric in metrics]
        if texts := [text for _, text in new if text]:
            path, written = _SCALER.path_of(workload.namespace, name_of(item)), [metric for metric, _ in new]
            found.append(TargetChange(name_of(item), path, uid(item), metrics, written, ", ".join(texts), _window(item)))
    return found


def metrics_of(item: Object) -> list[Any]:
    return list(spec_of(item).get("metrics") or ())


def _window(item: Object) -> float:
    behavior = Autoscaler.of(item).behavior
    return _WINDOW if behavior is None or behavior.down.window is None else float(behavior.down.window)


def _corrected(metric: Object, before: Mapping[str, Amounts], after: Mapping[str, Amounts]) -> tuple[Any, str]:
    """A metric with its new percentage, and what changes; as it is, and "", if it is no utilization or stays."""
    target = _target("", MetricSpec.of(metric))
    new = kept_by(target, before, after) if target is not None else None
    if target is None or new in (None, target.percent):
        return metric, ""
    return _with_percent(metric, new or 0), f"{target.resource} {target.percent} % -> {new} %"


def _percent(metric: Any) -> int:
    """The utilization that a metric keeps; 0: it keeps none."""
    return MetricSpec.of(metric).utilization or 0


def _with_percent(metric: Any, percent: int) -> Any:
    """The same metric with another utilization; as it is if it keeps none."""
    if not _percent(metric):
        return metric
    changed = copy.deepcopy(dict(metric))
    source = changed["containerResource" if metric["type"] == "ContainerResource" else "resource"]
    source["target"]["averageUtilization"] = percent
    return changed


# ---- written, and undone


def write_target(session: Session, change: TargetChange, metrics: Sequence[Any], context: StepContext) -> None:
    """Write an autoscaler's metrics: those before the change, meanwhile, or after it. The run has recorded them. Raises NotDone and what
    derives from it, RevertFailed, ApiFailure."""
    there = session.fetch(change.path)
    if there is None or uid(there) != change.uid:
        raise Gone(f"the HorizontalPodAutoscaler {change.name} was deleted meanwhile")
    if metrics_of(there) == list(metrics):
        return
    if not change.wrote(metrics_of(there)):
        raise ChangedByOthers(f"someone else changed the metrics of the HorizontalPodAutoscaler {change.name} meanwhile")
    ObjectWriter(session, force=False).carry_out(_metrics_change(there, list(metrics)), context.beginning())


def _metrics_change(there: Object, metrics: list[Any]) -> ObjectChange:
    """An autoscaler whose metrics are daytwo's is applied, so that it stays one that daytwo applies; of others, only these are patched."""
    if not field_managers.is_own(there, *_SCALER.v1(_METRICS)):
        return ObjectChange.of_fields(METRICS_OF_OTHERS, there, {_METRICS: metrics})
    manifest, _ = _SCALER.restoring(there, [ChangedField(_METRICS, metrics, None)])
    return ObjectChange(_SCALER, "update", *namespace_and_name(there), there, manifest, "")


def recorded_targets(changed: ChangedObject) -> list[TargetChange]:
    """The targets of a recorded workload, as their undo. Raises ValueError if the record is incomplete."""
    try:
        uids: Mapping[str, str] = changed.about.get(AUTOSCALER) or {}
        namespace = str(changed.about["namespace"])
        return [
            TargetChange(name, _SCALER.path_of(namespace, name), str(uids[name]), list(one.after), list(one.before), "")
            for one in changed.fields
            if one.path[0] == AUTOSCALER and (name := one.path[1])
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the record of {changed.name} lacks something ({type(error).__name__}: {error}); undo it by hand") from error
