"""What an audit reads: each node once, and the running processes through the API. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from roles import pod_resize
from roles.audit import next_start, paired, resized, trust
from roles.audit.certificates import REQUESTS, NodeCertificate, read_certificates
from roles.audit.drift import HostDesired
from roles.audit.examine import Collected
from roles.audit.view import View, view, wanted
from roles.engine import kubeadm_config
from roles.engine.api import Api, ApiError, ApiFailure, GateMetric, list_objects
from roles.engine.api.etcd import EtcdError
from roles.engine.autoscaling.look import any_autoscaler, look_at, managers_of
from roles.engine.bridge import Fleet, Remote, RemoteError, whole
from roles.engine.disruption import budget_states, cluster_time, lint, read_lint
from roles.engine.findings import Finding
from roles.engine.node import ObservationError, look
from roles.engine.outage import read_places, with_places
from roles.engine.proof import Cluster, NoApi, ObservedNode, claims, identified
from roles.engine.starting import Cause, Obstacle
from roles.engine.transaction import Refusal
from roles.eviction import NodeOrder, model, node_order, usage
from roles.feature_gates.model import read_gates
from roles.kubelet_config.model import read_fields

T = TypeVar("T")


def collect(fleet: Fleet, *, with_order: bool) -> Collected:
    """Read the nodes of the run, in the inventory's order. `with_order`: also the eviction order of their pods."""
    found = Collected(failures=[f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable])
    # Also read the control plane that --limit excludes: the API is there.
    helpers = [remote for remote in fleet.others if remote.is_control_plane and (remote.connected or remote.connect())]
    seen = fleet.each([*fleet.targets, *helpers], lambda remote: view(look(remote, wanted), _groups(remote)), doing="read")
    cluster = Cluster()
    views: dict[str, View] = {}
    foreign: list[Refusal] = []
    for remote in (*fleet.targets, *helpers):
        one = seen[remote.name]
        if isinstance(one, Exception):
            if not isinstance(one, (Refusal, ObservationError, RemoteError)):
                raise one
            if remote in fleet.targets:
                found.failures.append(str(one))
            continue
        cluster.add(remote, one.seen, dict(one.components))
        claimed = claims(remote, one.components)
        if remote in fleet.targets:
            foreign += claimed
            views[remote.name] = one
            found.desired[remote.name] = _desired(remote)
    cluster = cluster.kept()
    looked = [ObservedNode(remote, its.seen, its.kubelet, its.components) for remote in fleet.targets if (its := views.get(remote.name))]
    known, not_theirs = identified(cluster, looked, fleet.each, fleet.inventory)
    claiming = {one.host for one in foreign}
    made = (view(known[host], one.groups) for host, one in views.items())
    found.views += [one.as_worker() if one.host in claiming else one for one in made]
    found.findings += trust.identities([*foreign, *not_theirs.values()])
    _ask(fleet, cluster, found, with_order, not_theirs)
    _certificates(fleet, found)
    return found


def _groups(remote: Remote) -> list[str]:
    return sorted(set(remote.groups) - {"all"})


def _desired(remote: Remote) -> HostDesired:
    problems: list[str] = []

    def tried(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except Refusal as refusal:
            problems.append(refusal.text)
            return None

    name, data = remote.name, remote.data
    gates = tried(lambda: read_gates(name, data))
    fields = tried(lambda: read_fields(name, data))
    eviction = tried(lambda: model.read_thresholds(name, data))
    return HostDesired(gates, fields, eviction, tuple(dict.fromkeys(problems)))


def _ask(fleet: Fleet, cluster: Cluster, found: Collected, with_order: bool, not_theirs: Collection[str]) -> None:
    """What the running processes report, if the API can be asked; `not_theirs`: hosts about which it says nothing."""
    if not any(one.kubelet for one in found.views):
        return
    try:
        api = cluster.api()
    except (NoApi, RemoteError) as error:
        found.not_known.append(f"effective values, kubeadm's ConfigMaps, pods that differ from their template, and disruption: {error}")
        return
    nodes = {one.host: one for one in found.views if one.kubelet is not None and one.host not in not_theirs}
    remotes = [remote for remote in fleet.targets if remote.name in nodes]
    asked = whole(fleet.each(remotes, lambda remote: _running(cluster, nodes[remote.name])))
    for number, one in enumerate(found.views):
        if one.host in asked:
            running, configuration, problems = asked[one.host]
            found.views[number] = replace(one, running=running, configuration=configuration)
            found.not_known += problems
    try:
        found.lasting = kubeadm_config.read_stored(cluster.object)
    except ApiFailure as error:
        found.not_known.append(f"kubeadm's ConfigMaps: {error}")
    try:
        found.findings += trust.members(cluster.etcd_health())
    except EtcdError as error:
        if error.unproven:
            found.not_known.append(str(error))
        else:
            found.findings += trust.members(error)
    unfit, unread = paired.read_mismatches(fleet, cluster, found.views)
    found.findings += paired.findings(unfit)
    found.not_known += unread
    _workloads(api, cluster, found)
    _autoscalers(api, cluster, found)
    if with_order:
        _orders(fleet, cluster, remotes, nodes, found)


def _certificates(fleet: Fleet, found: Collected) -> None:
    """The certificates of each node, and what stands in the way of its next start."""
    by_host = {one.host: one for one in found.views if one.kubelet is not None}
    remotes = [remote for remote in fleet.targets if remote.name in by_host]

    def read_both(remote: Remote) -> tuple[tuple[NodeCertificate, ...], tuple[Obstacle, ...] | None]:
        return read_certificates(remote, by_host[remote.name]), next_start.read_obstacles(remote, by_host[remote.name])

    for host, read in fleet.each(remotes, read_both).items():
        if isinstance(read, RemoteError):
            found.not_known.append(f"{host}: certificates, and its next start: {str(read).removeprefix(f'{host}: ')}")
        elif isinstance(read, Exception):
            raise read
        else:
            found.held[host], obstacles = read
            found.findings += next_start.findings(obstacles or ())
            found.not_known += [f"{host}: {one.why}" for one in obstacles or () if one.cause is Cause.unproven]
            if obstacles is None:
                found.not_known.append(f"{host}: whether its kubelet would start again, and new pods start: it gave no whole answer")


def _workloads(api: Api, cluster: Cluster, found: Collected) -> None:
    """Pods that differ from their template, and what blocks drains. Each kind is listed once."""
    try:
        objects = {kind: list_objects(api, path) for kind, path in pod_resize.NEEDED.items()}
    except ApiError as error:
        found.not_known.append(f"pods that differ from their template, and disruption: {error}")
        return
    try:
        found.findings += resized.findings(pod_resize.find(objects))
    except ValueError as error:
        found.not_known.append(f"pods that differ from their template: {error}")
    try:
        found.requests = list_objects(api, REQUESTS)
    except ApiError as error:
        found.not_known.append(f"requests for certificates: {error}")
    listed: list[Finding] = []
    try:
        live, problems = read_lint(api, objects)
        now = cluster_time(api)
        states = budget_states(live, now)
        listed = lint(live, states, now)
        found.not_known += [f"some rules of disruption: {problem}" for problem in problems]
        listed, not_known = with_places(listed, read_places(api, live, cluster), states, now)
        found.not_known += not_known
    except (ApiError, RemoteError, ValueError) as error:
        found.not_known.append(f"disruption: {error}")
    found.findings += listed


def _autoscalers(api: Api, cluster: Cluster, found: Collected) -> None:
    """What is wrong with autoscalers. Their controller is read only if there are some."""
    try:
        if any_autoscaler(api):
            seen = look_at(api, cluster, managers_of({one.host: one.components for one in found.views}))
            found.findings += (problem for one in seen.all for problem in one.problems)
            found.not_known += [f"autoscalers: {text}" for text in seen.not_known]
    except (ApiFailure, RemoteError, ValueError) as error:
        found.not_known.append(f"autoscalers: {error}")


_Running = tuple[Mapping[str, Mapping[str, GateMetric]], Mapping[str, Any] | None, list[str]]


def _running(cluster: Cluster, one: View) -> _Running:
    assert one.kubelet is not None  # _ask selects the nodes with a kubelet
    running: dict[str, Mapping[str, GateMetric]] = {}
    configuration: Mapping[str, Any] | None = None
    problems: list[str] = []
    for component in one.processes:
        try:
            running[component] = cluster.effective(one.host, component, one.kubelet.node_name)
        except ApiFailure as error:
            problems.append(f"{one.host} {component}: effective gates: {error}")
    try:
        configuration = cluster.configuration(one.kubelet.node_name)
    except ApiFailure as error:
        problems.append(f"{one.host} kubelet: effective configuration: {error}")
    return running, configuration, problems


def _orders(fleet: Fleet, cluster: Cluster, remotes: Sequence[Remote], nodes: Mapping[str, View], found: Collected) -> None:
    def order(remote: Remote) -> NodeOrder:
        one = nodes[remote.name]
        assert one.kubelet is not None  # _ask selects the nodes with a kubelet
        processes: Any
        try:
            processes = usage.look(remote)
        except (ObservationError, RemoteError) as error:
            processes = error
        name = one.kubelet.node_name
        return cluster.query(lambda api: node_order(api, name, processes))

    for host, made in fleet.each(remotes, order).items():
        if isinstance(made, NodeOrder):
            found.orders.append(made)
        elif isinstance(made, (ApiFailure, ValueError, RemoteError)):
            found.not_known.append(f"{host}: eviction order: {made}")
        else:
            raise made
