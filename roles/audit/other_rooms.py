"""What other rooms judge, as findings of the audit: whom the cluster can rely on, the next start of a node, settings that do not fit each
other, pods that were resized. Pure, but for what begins with `read_`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from roles.audit.node_view import NodeView
from roles.audit.rules import AuditRule
from roles.engine import pairs, starting
from roles.engine.bridge import Fleet, Remote
from roles.engine.findings import Finding, Place, Severity
from roles.engine.harmless import one_line
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of
from roles.engine.node_changes import read_picture, servers
from roles.engine.outage import node_fate
from roles.engine.pairs import Mismatch, Picture
from roles.engine.proof import Cluster
from roles.engine.starting import Cause, Obstacle, Stops
from roles.engine.table import brief_age
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal
from roles.engine.tunnels.etcd import EtcdError, EtcdHealth
from roles.pod_resize import Drift, resources_text
from roles.sleeping import asleep

#: Seconds after which a cordon may have been forgotten: a maintenance takes a day at most.
FORGOTTEN_AFTER = 24 * 3600


def identities(foreign: Iterable[Refusal]) -> Iterator[Finding]:
    """Hosts that a change would be refused for: with processes of a control plane that the inventory does not know, or another node's
    name."""
    for one in foreign:
        yield AuditRule.IDENTITY.found(Place(one.host), one.message, one.way_out)


def members(etcd: EtcdHealth | EtcdError | None) -> Iterator[Finding]:
    """Members of etcd that do not answer: `critical` where it has lost its quorum, or loses it with one member more."""
    if isinstance(etcd, EtcdError):
        yield AuditRule.ETCD.found(Place(None, "etcd"), f"{etcd.host}: {etcd.rule}", etcd.way_out)
    elif etcd is not None:
        severity = Severity.warning if etcd.voting - len(etcd.unhealthy) > etcd.quorum else Severity.critical
        for member, wrong in etcd.unhealthy:
            why = f"not healthy, as seen from {wrong.host}: {wrong.rule} ({etcd})"
            yield AuditRule.ETCD.found(Place(None, "etcd", str(member)), why, wrong.way_out, severity)


def read_obstacles(remote: Remote, view: NodeView) -> tuple[Obstacle, ...] | None:
    """None if it is not known. Raises RemoteError."""
    needs = starting.node_needs(view.kubelet, view.components.values())
    if needs is None:
        return None
    facts = starting.answer(needs, remote.run("sh -s", stdin=starting.question(needs), timeout=patient(starting.SECONDS + 30)).stdout)
    return tuple(starting.judge(remote.name, needs, facts)) if facts.complete else None


def starts(obstacles: Iterable[Obstacle]) -> Iterator[Finding]:
    """The dates of a component's certificates are findings of their own (certificates.py); what is not proven is not known."""
    for one in obstacles:
        if one.cause not in (Cause.certificate, Cause.unproven):
            path = one.subject if one.subject.startswith("/") else None
            where = Place(
                one.host, None if one.is_of_record else one.component, None if path else one.subject, path, value=one.value or None
            )
            yield AuditRule.START.found(where, one.rule, one.way_out, Severity.note if one.stops is Stops.note else None)


def read_mismatches(fleet: Fleet, cluster: Cluster, views: Sequence[NodeView]) -> tuple[list[Mismatch], list[str]]:
    """The pairs that do not fit, and what could not be read of them."""
    remotes: Mapping[str, Remote] = {remote.name: remote for remote in fleet.targets}
    reading = read_picture(fleet, cluster, remotes, pairs.PAIRS, picture_of(views))
    found = pairs.mismatches(reading.picture)
    unread = [*reading.problems, *(pairs.sentence(one) for one in found if not one.is_known)]
    return [one for one in found if one.is_known], [f"settings that must fit each other: {problem}" for problem in unread]


def picture_of(views: Iterable[NodeView]) -> Picture:
    """What the views have: flags, and the fields that the kubelets run with."""
    known = [(view, view.kubelet) for view in views if view.is_read]
    return Picture(
        tuple(one for view, kubelet in known for one in servers(kubelet.seen.host, kubelet, view.components)),
        tuple(pairs.kubelet_side(kubelet, pairs.FIELDS, view.effective) for view, kubelet in known),
    )


def unfit(found: Iterable[Mismatch]) -> Iterator[Finding]:
    """A finding for each host that has the first side of a pair of its own node, else one for the cluster."""
    for one in found:
        for host in one.here if one.pair.own else (one.here[0] if len(one.here) == 1 else None,):
            where = Place(host, one.pair.here.owner, one.pair.name, value=pairs.text(one.values[0]))
            yield AuditRule.PAIR.found(where, pairs.sentence(one, host or ""), one.pair.way_out, one.pair.found or one.pair.severity)


def cordons(nodes: Iterable[Object], now: datetime) -> Iterator[Finding]:
    """Cordons that may have been forgotten. `now`: the control plane's time. Those of machines that are off have due dates instead."""
    for fate in (node_fate(node) for node in nodes if asleep(node) is None):
        age = (now - fate.since).total_seconds() if fate.since is not None else None
        if fate.cordon and (age is None or not 0 <= age <= FORGOTTEN_AFTER):
            by = f"run {fate.by}" if fate.cordon == "ours" else fate.by
            why = f"cordoned by {by}, " + (f"for {brief_age(age)}" if age is not None and age >= 0 else "and it is not known since when")
            yield AuditRule.CORDON.found(Place(None, "node", name_of(fate.item)), one_line(why), fate.way_out)


def resized(drifts: Sequence[Drift]) -> Iterator[Finding]:
    """One for each container of a workload whose pods were resized and whose template was not, for the cluster and not for a node: the pods
    can be on any node."""
    for drift in drifts:
        has = dict.fromkeys(resources_text(resources) for _, resources in drift.pods)
        many = f"{len(drift.pods)} pods have" if len(drift.pods) != 1 else "1 pod has"
        value = f"{drift.workload}, container {drift.container}: {many} {'; or '.join(has)} (request/limit)"
        why = f"its template says {resources_text(drift.template)}: a pod that a drain or a roll-out recreates gets that"
        yield AuditRule.RESIZE.found(Place(None, name=drift.workload, value=value), why)
