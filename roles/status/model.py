"""The state of a cluster, typed: the text, the JSON (docs/reference/status.schema.json) and the page are made from it. Pure."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from roles.engine.inputs import Frozen
from roles.engine.inputs.values import Output, TextJsonOrHtml
from roles.engine.runs import ChangeReport, Document


class StatusOptions(Frozen):
    """The data keys of deploys/status.py."""

    format: TextJsonOrHtml = "text"
    output: Output = None


class ClusterReport(Document):
    """What names the cluster."""

    name: str | None = Field(
        default=None, description="clusterName in kubeadm's ClusterConfiguration; kubeadm's own default is `kubernetes`"
    )
    endpoint: str | None = Field(default=None, description="controlPlaneEndpoint there; else the address of an API server")


class Cordon(Document):
    """`by`: a field manager, or `run NAME`, with its purpose."""

    by: str
    since: str | None = Field(default=None, description="RFC 3339")


class LastRun(Document):
    """The newest change of a node's own files and processes."""

    run: str
    state: str = Field(description="confirmed, reverted, refused, ...")
    age_seconds: int | None = Field(default=None, description="since its state was written, by the node's own clock")


class InFlightReport(Document):
    """A change of the node that is not over."""

    run: str
    text: str


class NodeReport(Document):
    """One node. What only the API says is null if it was not read; what only the node says, if it did not answer."""

    host: str
    answers: bool = Field(default=True, description="false: only the API speaks of it, as of a machine that is off")
    name: str | None = Field(default=None, description="of its Node")
    ready: bool | None = None
    why_not_ready: str | None = None
    cordoned: Cordon | None = None
    wake_by: str | None = Field(
        default=None, description="when a machine that daytwo turned off must be awake, RFC 3339; null: it is not off"
    )
    pressures: tuple[str, ...] | None = None
    needs_reboot: bool | None = Field(default=None, description="null: nothing on the node can say it")
    why_reboot: str = ""
    last_run: LastRun | None = Field(default=None, description="null: none is recorded")
    in_flight: tuple[InFlightReport, ...] = ()
    kubelet: str | None = Field(default=None, description="the version that its Node has")
    runtime: str | None = None


class ComponentReport(Document):
    """A process: the kubelet, or a component of the control plane. `reads`: its file of configuration, or its manifest."""

    host: str
    kind: str
    component: str
    version: str | None
    pid: int
    age_seconds: float
    state: str
    reads: str


class GateReport(Document):
    """A feature gate that a file or a flag sets. `differs`: the process does not have the value."""

    host: str
    component: str
    gate: str
    set_to: bool
    in_effect: bool | None = Field(description="null: not known")
    differs: bool
    source: str | None


class DifferenceReport(Document):
    """What the next `kubeadm upgrade` would change."""

    host: str
    component: str
    setting: str
    configmap: str
    says: str
    files: str
    process: str | None


class SourceReport(Document):
    """A file that settings come from; both are null if it does not exist."""

    host: str
    path: str
    mode: str | None
    sha256: str | None


class ResourceReport(Document):
    """How much of a resource a node has. cpu in thousandths of a core, memory in bytes, pods."""

    resource: str
    allocatable: int
    requested: int = Field(description="by all pods on the node that are not over")
    used: int | None = Field(default=None, description="from the metrics API; null: it has no value")


class CapacityReport(Document):
    """A node of the cluster, also one that is no host of the run."""

    name: str
    resources: tuple[ResourceReport, ...]


class BudgetReport(Document):
    """A PodDisruptionBudget, with the numbers that kube-controller-manager computes."""

    namespace: str
    name: str
    allowed: int = Field(description="evictions that it allows now")
    healthy: int
    needed: int
    why: str
    never: str = Field(description="why no pod of it can ever be evicted")


class AutoscalerReport(Document):
    """A HorizontalPodAutoscaler or VerticalPodAutoscaler; deploys/autoscaler_status.py shows more."""

    name: str
    target: str
    now: str = Field(description="pods of lowest to highest; or the mode")
    why: str
    works: bool
    problems: tuple[str, ...] = ()


class UnreadSection(Document):
    """What could not be read of the whole, and why."""

    section: str
    why: str


class WholeReport(Document):
    """What only the JSON and the page have. null: it could not be read, and `unread` says why."""

    audit: dict[str, Any] = Field(description="as docs/reference/audit.schema.json describes it; with certificates and the eviction order")
    capacity: tuple[CapacityReport, ...] | None
    budgets: tuple[BudgetReport, ...] | None
    autoscalers: tuple[AutoscalerReport, ...] | None
    runs: tuple[ChangeReport, ...] = Field(description="the newest last")
    unread: tuple[UnreadSection, ...] = ()


class StatusReport(Document):
    """The whole state. `warnings`: what needs attention, each with the command that shows more or ends it; `failures`: nodes that could not
    be read; `not_known`: what else could not be read."""

    form: Literal[1] = 1
    made: str = Field(description="RFC 3339, the operator's clock")
    cluster: ClusterReport
    nodes: tuple[NodeReport, ...]
    components: tuple[ComponentReport, ...]
    gates: tuple[GateReport, ...]
    kubeadm: tuple[DifferenceReport, ...]
    kubeadm_note: str = Field(description="why there is no difference to kubeadm's ConfigMaps")
    sources: tuple[SourceReport, ...]
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = Field(default=(), description="processes with a component's name that are not the node's own")
    not_known: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    whole: WholeReport | None = Field(default=None, description="null in what the text is made from")

    @property
    def unread(self) -> tuple[str, ...]:
        """What could not be read, in sentences: then the exit status is 1."""
        more = self.whole.unread if self.whole is not None else ()
        return (*self.failures, *(f"{one.section}: {one.why}" for one in more))
