"""The JSON document of deploys/right_size.py: docs/reference/right_size.schema.json is generated from it."""

from __future__ import annotations

from pydantic import Field

from roles.engine.runs import Document
from roles.right_size.evidence import UseEvidence
from roles.right_size.recommend import Decision, Pattern
from roles.right_size.targets import Recommended


class RequestAndLimit(Document):
    """CPU in thousandths of a core, memory in bytes; null: not set."""

    request: int | None
    limit: int | None


class RangeReport(Document):
    """What it was seen to need; null: not known."""

    low: int | None
    high: int | None


class ResourceReport(Document):
    """CPU in thousandths of a core, or memory in bytes."""

    now: RequestAndLimit
    range: RangeReport
    pattern: Pattern
    decision: Decision
    advice: RequestAndLimit = Field(description="as `now` if nothing should change")
    target: int | None = Field(description="the request that fits what was seen, also if min_span holds it back")
    why: str


class WastedReport(Document):
    """Requested by all of its pods, and not seen to be needed."""

    share: float = Field(description="of what all nodes can give, CPU and memory added")
    cpu: int = Field(description="thousandths of a core")
    memory: int = Field(description="bytes")


class ContainerReport(Document):
    """One container of one workload."""

    kind: str
    namespace: str
    name: str
    container: str
    pods: tuple[str, ...]
    restarts: int
    guaranteed: bool = Field(description="the QoS class of its pods is Guaranteed")
    pods_differ: bool = Field(description="not all pods have the same requests and limits; `now` is what most have")
    cpu: ResourceReport
    memory: ResourceReport
    seen: UseEvidence
    vpa: Recommended | None = Field(description="what a VerticalPodAutoscaler recommends")
    wasted: WastedReport
    dangers: tuple[str, ...]
    critical: bool = Field(description="it was killed for its memory, or its memory leaks")
    notes: tuple[str, ...]


class RightSizeReport(Document):
    """All containers of the cluster or of some workloads: the critical ones first, then those in danger, then by what is wasted."""

    form: int = Field(description="grows when readers have to change")
    made: str = Field(description="RFC 3339, the operator's clock")
    cluster: str = Field(description="what names the cluster in the samples")
    containers: tuple[ContainerReport, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...] = Field(description="what could not be read")
