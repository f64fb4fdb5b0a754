"""What an audit reads: each node once, and the running processes through the API. It changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from roles import pod_resize, sleeping
from roles.audit import other_rooms
from roles.audit.certificates import REQUESTS, NodeCertificate, read_certificates
from roles.audit.examine import Collected
from roles.audit.node_view import NodeView, view_of, wanted
from roles.desired import read_valid
from roles.engine import kubeadm_config
from roles.engine.api import Api, ApiFailure, NoApi, list_objects
from roles.engine.autoscaling.look import any_autoscaler, look_at, managers_of
from roles.engine.bridge import Fleet, Remote, whole
from roles.engine.disruption import KINDS_OF_LINT, budget_states, cluster_time, lint, read_lint
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of, node_of_host
from roles.engine.node import ObservationError, look
from roles.engine.outage import lint_places
from roles.engine.proof import Cluster, ObservedNode, Reported, claims, known_nodes, reported
from roles.engine.remote import RemoteError
from roles.engine.starting import Cause, Obstacle
from roles.engine.transaction import Refusal
from roles.engine.tunnels.etcd import EtcdError
from roles.eviction import NodeOrder, node_order, usage

#: In Collected.unread: all that the API says.
API = "effective values, kubeadm's ConfigMaps, pods that differ from their template, and disruption"


def collect(fleet: Fleet, *, with_order: bool, glance: bool = False) -> Collected:
    """Read the nodes of the run, in the inventory's order. `with_order`: also the eviction order of their pods; `glance`: also what
    roles/engine/node/look.py asks then."""
    found = Collected(failures=[f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable])
    helpers = fleet.helpers()
    each = [*fleet.targets, *helpers]
    seen = fleet.each(each, lambda remote: view_of(look(remote, wanted, glance=glance), _groups(remote)), doing="read")
    views: dict[str, NodeView] = {}
    looked: dict[str, ObservedNode] = {}
    foreign: list[Refusal] = []
    for remote in each:
        one = seen[remote.name]
        if isinstance(one, Exception):
            if not isinstance(one, (Refusal, ObservationError, RemoteError)):
                raise one
            if remote in fleet.targets:
                found.failures.append(str(one))
                found.seen[remote.name] = one
            continue
        looked[remote.name] = ObservedNode(remote, one.seen, one.found, one.components)
        if remote in fleet.targets:
            foreign += claims(remote, one.components)
            views[remote.name] = one
            found.desired[remote.name] = read_valid(remote.name, remote.data)
    known = known_nodes(
        [looked[host] for host in views], fleet.each, fleet.inventory, [one for host, one in looked.items() if host not in views]
    )
    found.cluster, found.not_theirs = known.cluster, known.not_theirs
    found.seen |= {host: known.seen[host] for host in views}
    claiming = {one.host for one in foreign}
    made = (view_of(known.seen[host], one.groups) for host, one in views.items())
    found.views += [one.as_worker() if one.host in claiming else one for one in made]
    found.findings += other_rooms.identities([*foreign, *known.not_theirs.values()])
    _ask(fleet, known.cluster, found, with_order, known.not_theirs)
    _certificates(fleet, found)
    return found


def _groups(remote: Remote) -> list[str]:
    return sorted(set(remote.groups) - {"all"})


def _ask(fleet: Fleet, cluster: Cluster, found: Collected, with_order: bool, not_theirs: Collection[str]) -> None:
    """What the running processes report, if the API can be asked; `not_theirs`: hosts about which it says nothing."""
    if not any(one.is_read for one in found.views):
        return
    try:
        api = cluster.api()
    except (NoApi, RemoteError) as error:
        found.miss(API, error)
        return
    nodes = {one.host: one for one in found.views if one.is_read and one.host not in not_theirs}
    remotes = [remote for remote in fleet.targets if remote.name in nodes]
    asked = whole(fleet.each(remotes, lambda remote: _reported(cluster, nodes[remote.name])))
    for number, one in enumerate(found.views):
        if (its := asked.get(one.host)) is not None:
            found.views[number] = replace(one, running=its.gates, configuration=its.configuration)
            found.not_known += [f"{one.host} {name}: effective {what}: {error}" for (name, what), error in its.unknown.items()]
    with _or_not_known(found, "kubeadm's ConfigMaps"):
        found.lasting = kubeadm_config.read_stored(cluster.object)
    try:
        found.findings += other_rooms.members(cluster.etcd_health())
    except EtcdError as error:
        if error.unproven:
            found.not_known.append(str(error))
        else:
            found.findings += other_rooms.members(error)
    unfit, unread = other_rooms.read_mismatches(fleet, cluster, found.views)
    found.findings += other_rooms.unfit(unfit)
    found.not_known += unread
    _workloads(api, fleet, cluster, found)
    _autoscalers(api, cluster, found)
    if with_order:
        _orders(fleet, cluster, remotes, nodes, found)


def _certificates(fleet: Fleet, found: Collected) -> None:
    """The certificates of each node, and what stands in the way of its next start."""
    by_host = {one.host: one for one in found.views if one.is_read}
    remotes = [remote for remote in fleet.targets if remote.name in by_host]

    def read_both(remote: Remote) -> tuple[tuple[NodeCertificate, ...], tuple[Obstacle, ...] | None]:
        return read_certificates(remote, by_host[remote.name]), other_rooms.read_obstacles(remote, by_host[remote.name])

    for host, read in fleet.each(remotes, read_both).items():
        if isinstance(read, RemoteError):
            found.not_known.append(f"{host}: certificates, and its next start: {str(read).removeprefix(f'{host}: ')}")
        elif isinstance(read, Exception):
            raise read
        else:
            found.held[host], obstacles = read
            found.findings += other_rooms.starts(obstacles or ())
            found.not_known += [f"{host}: {one.why}" for one in obstacles or () if one.cause is Cause.unproven]
            if obstacles is None:
                found.not_known.append(f"{host}: whether its kubelet would start again, and new pods start: it gave no whole answer")


@contextmanager
def _or_not_known(found: Collected, what: str) -> Iterator[None]:
    """What cannot be read inside is not known."""
    try:
        yield
    except (ApiFailure, ValueError) as error:
        found.miss(what, error)


def _hosts(fleet: Fleet, nodes: Iterable[Object]) -> dict[str, str]:
    """By the name of the Node, also of a host that does not answer."""
    named = {name_of(node): node for node in nodes}
    found = {one.name: node_of_host(one.name, one.address, named) for one in fleet.inventory}
    return {name_of(node): host for host, node in found.items() if node is not None}


def _workloads(api: Api, fleet: Fleet, cluster: Cluster, found: Collected) -> None:
    """Pods that differ from their template, and what blocks drains. Each kind is listed once."""
    with _or_not_known(found, "pods that differ from their template, and disruption"):
        objects = {kind: list_objects(api, path) for kind, path in pod_resize.NEEDED.items()}
        found.pods, now = objects["Pod"], cluster_time(api)
        with _or_not_known(found, "cordons"):
            objects["Node"] = list_objects(api, KINDS_OF_LINT["Node"])
            found.findings += other_rooms.cordons(objects["Node"], now)
            found.findings += sleeping.findings(objects["Node"], now, sleeping.newest_minor(api), _hosts(fleet, objects["Node"]))
        with _or_not_known(found, "pods that differ from their template"):
            found.findings += other_rooms.resized(pod_resize.find(objects))
        with _or_not_known(found, "requests for certificates"):
            found.requests = list_objects(api, REQUESTS)
        with _or_not_known(found, "disruption"):
            live, problems = read_lint(api, objects)
            found.not_known += [f"some rules of disruption: {problem}" for problem in problems]
            found.budgets = states = budget_states(live, now)
            listed = lint(live, states, now)
            with _or_not_known(found, "disruption"):
                live = lint_places.read_places(api, live, cluster.own_scheduler_configurations)
                listed, not_known = lint_places.with_places(listed, live, states, now)
                found.not_known += not_known
            found.findings += listed


def _autoscalers(api: Api, cluster: Cluster, found: Collected) -> None:
    """What is wrong with autoscalers. Their controller is read only if there are some."""
    with _or_not_known(found, "autoscalers"):
        if not any_autoscaler(api):
            found.autoscalers = ()
        else:
            seen = look_at(api, cluster.effective, managers_of({one.host: one.components for one in found.views}))
            found.autoscalers = seen.all
            found.findings += (problem for one in seen.all for problem in one.problems)
            found.not_known += [f"autoscalers: {text}" for text in seen.not_known]


def _reported(cluster: Cluster, one: NodeView) -> Reported:
    return reported(cluster, one.host, one.kubelet.node_name, one.components)


def _orders(fleet: Fleet, cluster: Cluster, remotes: Sequence[Remote], nodes: Mapping[str, NodeView], found: Collected) -> None:
    def order(remote: Remote) -> NodeOrder:
        name = nodes[remote.name].kubelet.node_name
        processes: Any
        try:
            processes = usage.look(remote)
        except (ObservationError, RemoteError) as error:
            processes = error
        return cluster.query(lambda api: node_order(api, name, processes))

    for host, made in fleet.each(remotes, order).items():
        if isinstance(made, NodeOrder):
            found.orders.append(made)
        elif isinstance(made, (ApiFailure, ValueError, RemoteError)):
            found.miss(f"{host}: eviction order", made)
        else:
            raise made
