"""The report, from what was read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.audit import certificates, configmaps, drift, idle, versions
from roles.audit.model import ComponentReport, FindingReport, NodeReport, Report, Source, in_order
from roles.audit.node_view import NodeView, flat
from roles.audit.rules import AuditRule
from roles.desired import NodeDesired
from roles.engine.autoscaling import JudgedAutoscaler, JudgedVertical
from roles.engine.bounds import EARLIEST, moment
from roles.engine.disruption import BudgetState
from roles.engine.findings import Finding, Place
from roles.engine.kube import Object
from roles.engine.kubeadm_config import StoredSettings
from roles.engine.kubelet.pending import ANY_FLAGS, pending_arguments
from roles.engine.kubelet.values import shown
from roles.engine.node import Observation
from roles.engine.node_lint import lint
from roles.engine.proof import Cluster
from roles.engine.transaction import Refusal
from roles.eviction import NodeOrder, order_report
from roles.feature_gates import Catalogue


@dataclass
class Collected:
    """All that was read. `desired`: by host; `held`: the certificates of each host; `requests`: for certificates; `findings`: of what is no
    view; `failures`: nodes that could not be read; `not_known`: what else could not be determined.

    What a page of the whole cluster shows besides: `seen`: by host, the observation with the versions, or its error; `cluster`: None before
    it is known; `not_theirs`: hosts that are not the Node that they name; `pods`, `budgets`, `autoscalers`: None if they could not be read;
    `unread`: why not, by what could not be read."""

    views: list[NodeView] = field(default_factory=list)
    desired: dict[str, NodeDesired] = field(default_factory=dict)
    lasting: StoredSettings | None = None
    orders: list[NodeOrder] = field(default_factory=list)
    held: dict[str, tuple[certificates.NodeCertificate, ...]] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    not_known: list[str] = field(default_factory=list)
    seen: dict[str, Observation | Exception] = field(default_factory=dict)
    cluster: Cluster | None = None
    not_theirs: Mapping[str, Refusal] = field(default_factory=dict)
    pods: Sequence[Object] | None = None
    budgets: Sequence[BudgetState] | None = None
    autoscalers: Sequence[JudgedAutoscaler | JudgedVertical] | None = None
    unread: dict[str, str] = field(default_factory=dict)

    def miss(self, what: str, why: object) -> None:
        """It could not be read."""
        self.not_known.append(f"{what}: {why}")
        self.unread.setdefault(what, str(why))


def report(seen: Collected, catalogue: Catalogue, *, made: str, target: int | None = None) -> Report:
    """All findings of all nodes. `made`: when, RFC 3339; `target`: the minor of the planned upgrade."""
    found = [*seen.findings, *drift.siblings(seen.views)]
    for view in seen.views:
        found += _of_node(view, seen.desired.get(view.host, NodeDesired()), catalogue, target)
    if seen.lasting is not None:
        found += configmaps.findings(seen.lasting, seen.views, catalogue, target)
    now = moment(made) or EARLIEST
    for host, own in seen.held.items():
        found += certificates.findings(host, own, now)
    found += certificates.waiting(seen.requests, now, certificates.serving(seen.views, seen.held))
    return Report(
        made=made,
        target_version=None if target is None else f"v1.{target}",
        nodes=tuple(_node(view, seen.held.get(view.host, ())) for view in seen.views),
        configmaps=configmaps.settings(seen.lasting) if seen.lasting else (),
        findings=in_order(map(FindingReport.of, found), [view.host for view in seen.views]),
        eviction=tuple(map(order_report, seen.orders)),
        not_known=tuple(dict.fromkeys([*seen.not_known, *_not_known(seen.views, catalogue)])),
        failures=tuple(seen.failures),
    )


def _of_node(view: NodeView, desired: NodeDesired, catalogue: Catalogue, target: int | None) -> Iterator[Finding]:
    if view.refusal is not None and view.kind == "unreadable":
        yield AuditRule.UNREADABLE.found(Place(view.host, "kubelet", file=view.refusal.file), view.why)
    yield from on_node(view)
    yield from drift.findings(view, desired)
    yield from versions.findings(view, catalogue, target)
    yield from idle.findings(view)


def on_node(view: NodeView) -> Sequence[Finding]:
    """What is wrong on a node, whatever the inventory wants."""
    running = view.running.get("kubelet")
    return lint(view.seen, view.found, view.components, view.unclear, view.manifests, view.configuration, running)


def _not_known(views: Sequence[NodeView], catalogue: Catalogue) -> Iterator[str]:
    for view in views:
        yield from (f"{view.host}: {sentence}" for sentence in view.seen.ignored)
        if view.kind == "unsupported":
            yield f"{view.host}: {view.why}"
        if view.is_read and view.known_minor is None:
            version = view.processes["kubelet"].version or "unknown"
            yield f"{view.host} kubelet: fields and flags: the table does not have its version ({version})"
        if view.is_read and pending_arguments(view.kubelet) is None:
            yield f"{view.host} kubelet: whether it runs with the arguments of its unit: {ANY_FLAGS}"
        for component, process in view.processes.items():
            if process.minor is None or not catalogue.covers(process.minor):
                yield f"{view.host} {component}: gates: the catalogue does not have its version ({process.version or 'unknown'})"


def _node(view: NodeView, held: Sequence[certificates.NodeCertificate]) -> NodeReport:
    components = [
        ComponentReport(
            name=name,
            version=process.version,
            pid=process.pid,
            effective={gate: found.enabled for gate, found in sorted(view.running[name].items())} if view.running.get(name) else None,
        )
        for name, process in view.processes.items()
    ]
    configuration = view.configuration
    return NodeReport(
        name=view.host,
        node_name=view.kubelet.node_name if view.is_read else None,
        groups=view.groups,
        kind=view.kind,
        why=view.why or None,
        os=view.seen.os,
        components=tuple(components),
        gates=view.gates,
        settings=view.settings,
        effective=None if configuration is None else {name: shown(value, name) for name, value in sorted(flat(configuration).items())},
        sources=tuple(_sources(view)),
        certificates=certificates.reports(held),
    )


def _sources(view: NodeView) -> Iterator[Source]:
    if not view.is_read:
        return
    manifests = (one.path for one in view.manifests if one.file.data is not None)
    for path in dict.fromkeys((*view.kubelet.source_paths, *manifests)):
        file = view.seen.file(path)
        exists = file is not None and file.sha256 is not None
        yield Source(path=path, mode=f"{file.mode:04o}" if file and exists else "", sha256=file.sha256 if file else None)
