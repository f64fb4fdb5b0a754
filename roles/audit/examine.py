"""The report, from what was read. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roles.audit import certificates, configmaps, drift, idle, next_start, paired, resized, stale, strays, trust, versions
from roles.audit.drift import HostDesired
from roles.audit.model import ComponentReport, FindingReport, NodeReport, Report, Source, in_order
from roles.audit.rules import AuditRule
from roles.audit.view import View, flat
from roles.engine.api import EtcdError, EtcdHealth
from roles.engine.autoscaling import JudgedAutoscaler, JudgedVertical
from roles.engine.bounds import EARLIEST, moment
from roles.engine.findings import Finding, Place
from roles.engine.kubeadm_config import StoredSettings
from roles.engine.kubelet import shown
from roles.engine.pairs import Mismatch
from roles.engine.starting import Obstacle
from roles.engine.transaction import Refusal
from roles.eviction import NodeOrder, order_as_json
from roles.feature_gates import Catalogue
from roles.pod_resize import Drift


def report(
    views: Sequence[View],
    desired: Mapping[str, HostDesired],
    lasting: StoredSettings | None,
    catalogue: Catalogue,
    *,
    made: str,
    target: int | None = None,
    drifts: Sequence[Drift] = (),
    disruption: Sequence[Finding] = (),
    autoscalers: Sequence[JudgedAutoscaler | JudgedVertical] = (),
    orders: Sequence[NodeOrder] = (),
    held: Mapping[str, Sequence[certificates.NodeCertificate]] | None = None,
    obstacles: Sequence[Obstacle] = (),
    requests: Sequence[Mapping[str, Any]] = (),
    unfit: Sequence[Mismatch] = (),
    foreign: Sequence[Refusal] = (),
    etcd: EtcdHealth | EtcdError | None = None,
    not_known: Sequence[str] = (),
    failures: Sequence[str] = (),
) -> Report:
    """All findings of all nodes. `desired` and `held`, the certificates, by host; `made`: when, RFC 3339; `target`: the minor of the
    planned upgrade; `requests`: for certificates; `foreign`: hosts that claim what they are not."""
    found = [*trust.identities(foreign), *trust.members(etcd)]
    for view in views:
        found += _of_node(view, desired.get(view.host, HostDesired()), catalogue, target)
    found += drift.siblings(views)
    found += next_start.findings(obstacles)
    if lasting is not None:
        found += configmaps.findings(lasting, views, catalogue, target)
    found += resized.findings(drifts)
    found += disruption
    found += (one for judged in autoscalers for one in judged.problems)
    found += paired.findings(unfit)
    now, held = moment(made) or EARLIEST, held or {}
    for host, own in held.items():
        found += certificates.findings(host, own, now)
    found += certificates.waiting(requests, now, certificates.serving(views, held))
    return Report(
        made=made,
        target_version=None if target is None else f"v1.{target}",
        nodes=tuple(_node(view, held.get(view.host, ())) for view in views),
        configmaps=configmaps.settings(lasting) if lasting else (),
        findings=in_order(map(FindingReport.of, found), [view.host for view in views]),
        eviction=tuple(order_as_json(order) for order in orders),
        not_known=tuple(dict.fromkeys([*not_known, *_not_known(views, catalogue)])),
        failures=tuple(failures),
    )


def _of_node(view: View, desired: HostDesired, catalogue: Catalogue, target: int | None) -> Iterator[Finding]:
    if view.kind == "unreadable":
        yield AuditRule.UNREADABLE.found(Place(view.host, "kubelet", file=_named(view)), view.why)
    yield from stale.findings(view)
    yield from strays.findings(view)
    yield from drift.findings(view, desired)
    yield from versions.findings(view, catalogue, target)
    yield from idle.findings(view)


def _named(view: View) -> str | None:
    """The file that the reason names first."""
    first = view.why.partition(":")[0].split(" ")[-1].partition(",")[0]
    return first if posixpath.isabs(first) else None


def _not_known(views: Sequence[View], catalogue: Catalogue) -> Iterator[str]:
    for view in views:
        yield from (f"{view.host}: {sentence}" for sentence in view.seen.ignored)
        if view.kind == "unsupported":
            yield f"{view.host}: {view.why}"
        if view.kubelet is not None and view.known_minor is None:
            version = view.processes["kubelet"].version or "unknown"
            yield f"{view.host} kubelet: fields and flags: the table does not have its version ({version})"
        for component, process in view.processes.items():
            if process.minor is None or not catalogue.covers(process.minor):
                yield f"{view.host} {component}: gates: the catalogue does not have its version ({process.version or 'unknown'})"


def _node(view: View, held: Sequence[certificates.NodeCertificate]) -> NodeReport:
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
        node_name=view.kubelet.node_name if view.kubelet else None,
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


def _sources(view: View) -> Iterator[Source]:
    found = view.kubelet
    if found is None:
        return
    paths = [unit.path for unit in (found.sources.fragment, *found.sources.dropins)]
    paths += [file.path for file in found.service.environment_files]
    paths += [*([found.config_path] if found.config_path else []), *found.dropin_paths]
    paths += [manifest.path for manifest in view.manifests]
    for path in dict.fromkeys(paths):
        file = view.seen.file(path)
        exists = file is not None and file.sha256 is not None
        yield Source(path=path, mode=f"{file.mode:04o}" if file and exists else "", sha256=file.sha256 if file else None)
