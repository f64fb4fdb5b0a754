"""The JSON document of deploys/autoscaler_status.py: docs/reference/autoscaler_status.schema.json is generated from it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field

from roles.engine.autoscaling import Condition
from roles.engine.findings import Finding, Severity
from roles.engine.runs import Document

# By resource: cpu in cores, memory in bytes.
_Amounts = dict[str, float]


class ProblemReport(Document):
    """A finding about an autoscaler."""

    rule: str
    severity: Severity
    objects: tuple[str, ...] = Field(description="KIND NAMESPACE/NAME, the main one first")
    why: str
    way_out: str

    @classmethod
    def of(cls, found: Finding) -> Self:
        return cls(rule=str(found.rule), severity=found.severity, objects=tuple(found.objects), why=found.why, way_out=found.way_out)


class TargetReport(Document):
    kind: str
    name: str


class ControllerReport(Document):
    """The running kube-controller-manager."""

    minor: int
    tolerance: float
    downscale_stabilization_seconds: float
    cpu_initialization_seconds: float
    readiness_delay_seconds: float
    sync_seconds: float
    leads_since: str | None = Field(description="RFC 3339; null: not known")
    idle: str | None = Field(description="why no controller looks at autoscalers")


class MetricReport(Document):
    type: str
    name: str
    container: str | None
    target: str
    now: str
    utilization: int | None = Field(description="percent")
    value_thousandths: int | None
    asks_for: int | None = Field(description="pods; null: nothing")
    up_above: str | None = Field(description="the value above which the count goes up")
    down_below: str | None = Field(description="the value below which the count goes down")
    counted_pods: int
    unready: tuple[str, ...]
    missing: tuple[str, ...] = Field(description="pods without a sample")
    ignored: tuple[str, ...]
    oldest_sample_seconds: int | None
    problem: str | None


class HorizontalReport(Document):
    """A HorizontalPodAutoscaler. `lowest` and `highest`: the bounds of the count that its controller sets."""

    namespace: str
    name: str
    target: TargetReport
    min: int
    max: int
    works: bool
    current: int | None = Field(description="pods that the target wants now")
    desired: int | None = Field(description="the count that its controller sets; null: not certain, or none")
    lowest: int
    highest: int
    recommended: int | None = Field(description="what the metrics ask for")
    controller_desired: int | None = Field(description="what its status says")
    why: str
    failed: str | None = Field(description="why no count can be computed")
    conditions: tuple[Condition, ...]
    metrics: tuple[MetricReport, ...]
    problems: tuple[ProblemReport, ...]
    not_known: tuple[str, ...]


class AdviceReport(Document):
    """What is recommended for a container: by resource, cpu in cores, memory in bytes."""

    container: str
    target: _Amounts
    lower: _Amounts
    upper: _Amounts


class VerticalReport(Document):
    """A VerticalPodAutoscaler. `next`: what its updater does next."""

    namespace: str
    name: str
    target: TargetReport
    mode: str
    works: bool
    recommended: tuple[AdviceReport, ...]
    state: Literal["acts", "waits", "done", "off"]
    next: str
    conditions: tuple[Condition, ...]
    problems: tuple[ProblemReport, ...]


class AutoscalersReport(Document):
    """All autoscalers of the cluster, or of some namespaces."""

    now: str = Field(description="RFC 3339, the API server's clock")
    controller: ControllerReport
    autoscalers: tuple[HorizontalReport, ...]
    vertical_autoscalers: tuple[VerticalReport, ...]
    not_known: tuple[str, ...]
