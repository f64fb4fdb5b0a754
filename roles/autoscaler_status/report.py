"""The report: a line for each autoscaler and metric, and its JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from roles.autoscaler_status.model import (
    AdviceReport,
    AutoscalersReport,
    ControllerReport,
    HorizontalReport,
    MetricReport,
    ProblemReport,
    TargetReport,
    VerticalReport,
)
from roles.engine.autoscaling import JudgedAutoscaler, JudgedVertical, MetricResult, ScalingController, turns
from roles.engine.autoscaling.look import AutoscalerLook

HEADERS = ("autoscaler", "target", "pods", "min-max", "metric", "now/target", "asks for", "why")


VERTICAL_HEADERS = ("autoscaler", "target", "mode", "recommended", "next")


def name(one: JudgedAutoscaler | JudgedVertical) -> str:
    return one.autoscaler.key if isinstance(one, JudgedAutoscaler) else str(one.vertical)


def vertical_rows(found: Sequence[JudgedVertical]) -> list[list[str]]:
    """One for each VerticalPodAutoscaler."""
    return [
        [
            one.vertical.key,
            str(one.vertical.target),
            one.vertical.mode,
            "; ".join(map(str, one.vertical.advice or ())) or "-",
            one.outlook.text,
        ]
        for one in found
    ]


def rows(found: Sequence[JudgedAutoscaler], controller: ScalingController) -> list[list[str]]:
    """One for each metric of each autoscaler; one for an autoscaler whose metrics are not asked."""
    return [line for judged in found for line in _rows(judged, controller)]


def _rows(judged: JudgedAutoscaler, controller: ScalingController) -> Iterator[list[str]]:
    item, decision = judged.autoscaler, judged.decision
    pods = "?" if decision.current is None else str(decision.current)
    head = [item.key, str(item.target), pods, f"{item.minimum}-{item.maximum}"]
    if not decision.rows:
        yield [*head, "-", "-", "-", why(judged)]
    for number, row in enumerate(decision.rows):
        asks = "nothing" if row.proposal is None else str(row.proposal)
        text = why(judged) if number == 0 else ""
        change = str(turns(row, judged, controller)) if row.valid else f"{row.reason}: {row.why}"
        yield [*(head if number == 0 else [item.key, "", "", ""]), row.metric.title, row.now, asks, "; ".join(filter(None, (text, change)))]


def why(judged: JudgedAutoscaler) -> str:
    """Why it has this count, in a few words."""
    decision = judged.decision
    text = decision.text
    limited = decision.condition("ScalingLimited")
    able = decision.condition("AbleToScale")
    if decision.failed:
        return text
    if decision.reason:
        text += f" ({decision.reason})"
    elif not decision.rows and (active := decision.condition("ScalingActive")) is not None:
        text += f" ({active.message})"
    elif not decision.unknown and able is not None and able.reason in ("ScaleUpStabilized", "ScaleDownStabilized"):
        text += f" ({able.message})"
    if not decision.unknown and limited is not None and limited.status:
        text += f"; limited: {limited.message}"
    if decision.unknown:
        text += f"; not known: {'; '.join(decision.unknown)}"
    return text


def as_document(seen: AutoscalerLook) -> AutoscalersReport:
    controller, now = seen.controller, seen.now
    return AutoscalersReport(
        now=now.isoformat(timespec="seconds"),
        controller=ControllerReport(
            minor=controller.minor,
            tolerance=controller.tolerance,
            downscale_stabilization_seconds=controller.downscale_stabilization,
            cpu_initialization_seconds=controller.cpu_initialization,
            readiness_delay_seconds=controller.readiness_delay,
            sync_seconds=controller.sync_period,
            leads_since=controller.leads_since.isoformat() if controller.leads_since else None,
            idle=controller.idle.why if controller.idle else None,
        ),
        autoscalers=tuple(_one(judged, controller, now) for judged in seen.judged),
        vertical_autoscalers=tuple(map(_vertical, seen.verticals)),
        not_known=tuple(seen.not_known),
    )


def _vertical(judged: JudgedVertical) -> VerticalReport:
    item = judged.vertical
    return VerticalReport(
        namespace=item.namespace,
        name=item.name,
        target=TargetReport(kind=item.target.kind, name=item.target.name),
        mode=item.mode,
        works=judged.works,
        recommended=tuple(
            AdviceReport(container=one.container, target=_amounts(one.target), lower=_amounts(one.lower), upper=_amounts(one.upper))
            for one in item.advice or ()
        ),
        state=judged.outlook.state,
        next=judged.outlook.text,
        conditions=tuple(item.conditions),
        problems=tuple(map(ProblemReport.of, judged.problems)),
    )


def _amounts(found: Mapping[str, Fraction]) -> dict[str, float]:
    return {resource: float(amount) for resource, amount in found.items()}


def _one(judged: JudgedAutoscaler, controller: ScalingController, now: datetime) -> HorizontalReport:
    item, decision = judged.autoscaler, judged.decision
    return HorizontalReport(
        namespace=item.namespace,
        name=item.name,
        target=TargetReport(kind=item.target.kind, name=item.target.name),
        min=item.minimum,
        max=item.maximum,
        works=judged.works,
        current=decision.current,
        desired=decision.desired,
        lowest=decision.lowest,
        highest=decision.highest,
        recommended=decision.recommended,
        controller_desired=item.status.desired,
        why=why(judged),
        failed=decision.failed or None,
        conditions=tuple(decision.conditions),
        metrics=tuple(_metric(row, judged, controller, now) for row in decision.rows),
        problems=tuple(map(ProblemReport.of, judged.problems)),
        not_known=tuple(decision.unknown),
    )


def _metric(row: MetricResult, judged: JudgedAutoscaler, controller: ScalingController, now: datetime) -> MetricReport:
    turn = turns(row, judged, controller)
    return MetricReport(
        type=row.metric.type,
        name=row.metric.name,
        container=row.metric.container or None,
        target=row.metric.target,
        now=row.now,
        utilization=row.utilization,
        value_thousandths=row.current,
        asks_for=row.proposal,
        up_above=turn.up or None,
        down_below=turn.down or None,
        counted_pods=row.groups.ready,
        unready=tuple(row.groups.unready),
        missing=tuple(row.groups.missing),
        ignored=tuple(row.groups.ignored),
        oldest_sample_seconds=None if row.at is None else round((now - row.at).total_seconds()),
        problem=row.message or None,
    )
