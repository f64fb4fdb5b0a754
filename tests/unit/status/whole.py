"""A report of a whole cluster, whose every name may be hostile."""

from __future__ import annotations

from roles.audit import Report
from roles.engine.runs import ChangeReport
from roles.eviction import NodeOrder
from roles.status import StatusReport
from roles.status.model import (
    AutoscalerReport,
    BudgetReport,
    CapacityReport,
    ClusterReport,
    ComponentReport,
    Cordon,
    InFlightReport,
    LastRun,
    NodeReport,
    ResourceReport,
    UnreadSection,
    WholeReport,
)
from roles.status.page import page
from tests.unit.audit.fleet import MADE


def status(audited: Report, name: str = "w1", **whole: object) -> StatusReport:
    """`name`: stands wherever a node or an object of the API may write."""
    bars = (
        ResourceReport(resource="cpu", allocatable=2000, requested=2500, used=500),
        ResourceReport(resource="pods", allocatable=0, requested=0),
    )
    node = NodeReport(
        host=name, name=name, ready=False, why_not_ready=name, cordoned=Cordon(by=name, since="2026-11-21T11:00:00+00:00"), pressures=(name,),
        needs_reboot=True, why_reboot=name, last_run=LastRun(run=name, state=name, age_seconds=7200), in_flight=(InFlightReport(run=name, text=name),),
        kubelet=name, runtime=name,
    )  # fmt: skip
    parts = {
        "audit": audited.model_dump(mode="json"),
        "capacity": (CapacityReport(name=name, resources=bars),),
        "budgets": (BudgetReport(namespace="shop", name=name, allowed=0, healthy=1, needed=1, why=name, never=name),),
        "autoscalers": (AutoscalerReport(name=name, target=name, now=name, why=name, works=False, problems=(name,)),),
        "runs": (ChangeReport.model_validate(dict.fromkeys(ChangeReport.model_fields, name) | {"of_cluster": False}),),
    }
    return StatusReport(
        made=MADE, cluster=ClusterReport(name=name, endpoint=name), nodes=(node,), warnings=(name,), not_known=(name,),
        components=(ComponentReport(host=name, kind="kubeadm", component=name, version=name, pid=1, age_seconds=5, state=name, reads=name),),
        gates=(), kubeadm=(), kubeadm_note="", sources=(), whole=WholeReport.model_validate(parts | whole),
    )  # fmt: skip


def shown(audited: Report, orders: list[NodeOrder], name: str = "w1", **whole: object) -> str:
    return page(status(audited, name, **whole), audited, orders)


UNREAD = (UnreadSection(section="disruption", why="it answered 500"),)
