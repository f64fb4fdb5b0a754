"""What a reading of the cluster found, and the report that is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roles.engine import bridge, control_plane, kubeadm_config, kubelet
from roles.engine.api import ApiFailure, NoApi
from roles.engine.bridge import Fleet, Remote
from roles.engine.kube.fields import name_of, node_of_host
from roles.engine.kubeadm_config import StoredSettings
from roles.engine.node import Observation, look
from roles.engine.node_changes import cordoned_for_change, fates_of
from roles.engine.proof import Cluster, ObservedNode, Reported, SurveyedNode, claims, known_nodes, reported, surveyed
from roles.engine.runs import seen_holder
from roles.engine.transaction import Refusal, in_flight
from roles.status import tables
from roles.status.model import StatusReport
from roles.status.nodes import NodeGlance
from roles.status.tables import Running


@dataclass
class Reading:
    """`seen`: by host, the observation or its error; `nodes`: those that could be read, `own` without those that are not the Node that they
    name. `running`: the gates of running processes; `stored`: kubeadm's ConfigMaps, None if they could not be read."""

    seen: Mapping[str, Observation | Exception]
    cluster: Cluster
    nodes: Sequence[SurveyedNode] = ()
    own: Sequence[SurveyedNode] = ()
    running: Running = field(default_factory=dict)
    stored: StoredSettings | None = None
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    not_known: list[str] = field(default_factory=list)

    def take(self, remotes: Iterable[Remote]) -> list[SurveyedNode]:
        """The nodes whose observations can be used; what is wrong with the others is a failure."""
        found = []
        for remote in remotes:
            seen = self.seen[remote.name]
            try:
                if isinstance(seen, Exception):
                    raise Refusal.of(remote.name, [seen])
                found.append(node := surveyed(remote, seen))
                self.warnings += map(str, claims(remote, node.components))
                missing = {name: refusal for name, refusal in node.control.refusals.items() if name not in node.components}
                self.failures += map(str, missing.values())
                self.warnings += [f"{remote.name}: {warning}" for name, warning in node.control.said if name not in missing]
            except Refusal as refusal:
                self.failures.append(str(refusal))
                if not isinstance(seen, Exception):
                    # A change in flight can be the cause.
                    self.failures += [f"{remote.name}: {sentence}" for sentence in in_flight(seen.changes, seen.boot_id, seen.uptime)]
        return found


def read(fleet: Fleet) -> Reading:
    """What the text shows: each node once, and the API for the versions, the gates and kubeadm's ConfigMaps. Control-plane nodes that
    --limit leaves out only serve the API."""
    helpers = fleet.helpers()
    seen = fleet.each([*fleet.targets, *helpers], lambda remote: look(remote, kubelet.wanted, glance=True), doing="read")
    found = Reading(seen, Cluster(), failures=[f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable])
    looked, serving = found.take(fleet.targets), Reading(seen, Cluster()).take(helpers)
    known = known_nodes([*map(_observed, looked)], fleet.each, fleet.inventory, [*map(_observed, serving)])
    found.cluster, found.nodes = known.cluster, [surveyed(one.remote, known.seen[one.remote.name]) for one in looked]
    found.warnings += map(str, known.not_theirs.values())
    found.own = [node for node in found.nodes if node.remote.name not in known.not_theirs]
    found.running, found.not_known = _effective(fleet, found.own, found.cluster)
    try:
        found.stored = kubeadm_config.read_stored(found.cluster.object)
        found.not_known += [f"kubeadm's ConfigMaps: {problem}" for problem in found.stored.problems.values()]
    except ApiFailure as error:
        found.not_known.append(f"kubeadm's ConfigMaps: {error}")
    return found


def _observed(one: SurveyedNode) -> ObservedNode:
    return ObservedNode(one.remote, one.seen, one.kubelet, one.components)


def _effective(fleet: Fleet, nodes: Sequence[SurveyedNode], cluster: Cluster) -> tuple[Running, list[str]]:
    """The gates that the running processes report; and notes on what could not be read."""
    by_host = {node.remote.name: node for node in nodes}

    def ask(remote: Remote) -> Reported:
        node = by_host[remote.name]
        return reported(cluster, remote.name, node.kubelet.node_name, node.components, configuration=False)

    found = bridge.whole(fleet.each([node.remote for node in nodes], ask, doing="asked for the gates of"))
    unknown = [(f"{host} {name}", why) for host, one in found.items() for (name, _), why in one.unknown.items()]
    notes = [f"{'effective gates' if isinstance(why, NoApi) else where}: {why}" for where, why in unknown]
    return {host: one.gates for host, one in found.items()}, list(dict.fromkeys(notes))


def report(fleet: Fleet, found: Reading, made: str, now: float) -> StatusReport:
    """`made`: RFC 3339; `now`: the same in seconds since 1970."""
    nodes, warnings = [], list(found.warnings)
    for glance in _glances(fleet, found):
        nodes.append(one := glance.report())
        warnings += glance.attention(one, now)
    kubeadm, note = tables.differences(found.nodes, found.running, found.stored)
    return StatusReport(
        made=made,
        cluster=tables.cluster(found.stored, found.nodes),
        nodes=tuple(nodes),
        components=tuple(one for node in found.nodes for one in tables.components(node)),
        gates=tuple(one for node in found.nodes for one in tables.gates(node, found.running)),
        kubeadm=tuple(kubeadm),
        kubeadm_note=note,
        sources=tuple(one for node in found.nodes for one in tables.sources(node)),
        warnings=(*warnings, *_holder(fleet, found)),
        ignored=tuple(line for remote in fleet.targets for line in _ignored(remote.name, found)),
        not_known=tuple(found.not_known),
        failures=tuple(found.failures),
    )


def _glances(fleet: Fleet, found: Reading) -> list[NodeGlance]:
    """The nodes of the run, as the versions were read. Of a host that does not answer, the API may know the Node."""
    fates, made = fates_of(found.cluster), []
    own = {node.remote.name: node for node in found.own}
    taken = {node.kubelet.node_name for node in found.nodes}
    silent = {remote.name for remote in fleet.unreachable} | {host for host, seen in found.seen.items() if isinstance(seen, Exception)}
    free = {name: fate.item for name, fate in fates.items() if name not in taken}
    for remote in (one for one in fleet.inventory if one.name in {*own, *silent}):
        host = remote.name
        node = own.get(host)
        silent_node = node_of_host(host, remote.address, free) if node is None else None
        name = node.kubelet.node_name if node is not None else name_of(silent_node) if silent_node is not None else ""
        fate = fates.get(name)
        item, run = (fate.item, cordoned_for_change(fate)) if fate is not None else (None, "")
        made.append(NodeGlance(host, node.seen if node is not None else None, item, fate, run))
    return made


def _holder(fleet: Fleet, found: Reading) -> list[str]:
    """Which run holds the lock of the cluster; only the host of the lock can say that."""
    seen = found.seen.get(fleet.lock_host.name)
    if not isinstance(seen, Observation) or seen.glance is None or seen.glance.lock is None:
        return []
    return [seen_holder(seen.host, seen.glance.lock, seen.boot_id, seen.uptime)]


def _ignored(host: str, found: Reading) -> list[str]:
    """Sentences about processes that have a component's name and that daytwo ignores or does not change."""
    node = next((node for node in found.nodes if node.remote.name == host), None)
    seen = found.seen.get(host)
    if node is not None:
        listed = control_plane.ignored_files(node.kubelet, node.components)
    else:
        listed = seen.ignored if isinstance(seen, Observation) else []
    return [f"{host}: {sentence}" for sentence in listed]
