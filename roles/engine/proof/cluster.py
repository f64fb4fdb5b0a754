"""Queries to the running components: through the API of a control-plane node, and at the components' own ports there."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from roles.engine.api import (
    TIMEOUT,
    Api,
    ApiConnectionLost,
    ApiError,
    ApiFailure,
    Forbidden,
    GateMetric,
    KubectlApi,
    NoApi,
    NotFound,
    RunCommand,
    find_object,
    list_objects,
)
from roles.engine.api.errors import ForwardingForbidden, KubeconfigError, KubeletDistrusted, Unusable
from roles.engine.api.kubeconfig import Credentials, parse_kubeconfig
from roles.engine.api.nodes import (
    NodeUsage,
    PodStatus,
    ProcessMetrics,
    component_metrics,
    kubelet_config,
    kubelet_metrics,
    node_lease,
    node_pods,
    node_usage,
    node_with_pods,
)
from roles.engine.bounds import read_json
from roles.engine.bridge import Remote, at_once
from roles.engine.control_plane import Component
from roles.engine.editing import last_flag
from roles.engine.kube import is_ready
from roles.engine.kube.fields import name_of, node_addresses, spec_of
from roles.engine.kube.workloads import node_path
from roles.engine.node import Observation
from roles.engine.node.virtual import virtual_mark
from roles.engine.proof.kept import ANY, APISERVER, At, KeptConnections
from roles.engine.remote import RemoteError
from roles.engine.timeouts import API_WAIT, LOOK_AGAIN, Deadline, patient
from roles.engine.tunnels import TunnelApi
from roles.engine.tunnels.etcd import EtcdAccess, EtcdError, EtcdHealth, Members, etcd_access

T = TypeVar("T")

# kubeadm's admin identities, in the directory of the controller-manager's kubeconfig: super-admin.conf (1.29 and later) needs no RBAC.
ADMIN_FILES = ("super-admin.conf", "admin.conf")
# The time limit of one check of an apiserver or of etcd before a change.
LOOK_SECONDS = 10.0
# How long a kubelet may need until it answers through an API server that has just started.
REACH_SECONDS = 20.0
# Queries that follow each other so closely share one API and its connection. A changed component is healthy for longer than this before
# it is proven (STABLE_SECONDS), so the connection is never one to the process before.
RECENT_SECONDS = 5.0
# A command on the node, instead of a tunnel.
RUN_SECONDS = 60
# Each apiserver writes its address here (pkg/controlplane/reconcilers; the label: discovery/v1 LabelServiceName).
_ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=" + quote(
    "kubernetes.io/service-name=kubernetes", safe=""
)
_EVICTIONS = re.compile(r'^kubelet_(?:evictions|preemptions)\{[^}]*signal="([^"]*)"[^}]*\} ([0-9.e+]+)', re.MULTILINE)
_UNPROVEN = "or continue without this check: --data allow_unproven=true"


@dataclass(frozen=True)
class _ApiNode:
    remote: Remote
    credentials: Credentials
    kubeconfig_path: str
    components: dict[str, Component]


@dataclass(frozen=True)
class _Server:
    """A node of the inventory that runs an apiserver, whether or not it has an admin kubeconfig."""

    remote: Remote
    component: Component
    etcd: EtcdAccess | EtcdError


@dataclass(frozen=True)
class _Problem:
    """Why a change of the control plane has to wait. `passing`: it may go away by itself; `unproven`: nothing is known to be broken, but
    it could not be checked."""

    text: str
    passing: bool
    unproven: bool


class Cluster:
    """The cluster as seen from the control-plane nodes of the inventory. Keys stay in memory.

    `apiservers` counts the added nodes that run an apiserver.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _ApiNode] = {}
        self._servers: dict[str, _Server] = {}
        self._forbidden: dict[tuple[str, tuple[str, int]], ForwardingForbidden] = {}
        self._why: list[str] = []
        self._gates: dict[tuple[str, str], Mapping[str, GateMetric]] = {}
        self._recent: tuple[float, Api] | None = None
        self._kept: KeptConnections | None = None
        self._read: dict[At, ProcessMetrics] = {}
        self._listed: dict[str, dict[str, Any]] = {}
        self.apiservers = 0

    def kept(self) -> Cluster:
        """The same cluster, for reading what is there: its requests share a few connections to all API servers, and may be made at the same
        time; nodes are listed once. A proof of a new process needs new connections: an answer over a kept one may come from an API server
        that is already ending."""
        made = copy.copy(self)
        made._kept = KeptConnections(made._nodes, made._connection, made._first_ready)
        made._read, made._listed = {}, {}
        return made

    def add(self, remote: Remote, seen: Observation, components: dict[str, Component]) -> None:
        """Add an observed node; a control-plane node of the inventory with an apiserver and an admin kubeconfig can be queried."""
        if "kube-apiserver" not in components:
            return
        if not remote.is_control_plane:
            # Root on any host can show such a process, and an admin kubeconfig of its own.
            self._why.append(f"{remote.name}: it runs a kube-apiserver, but is not in the inventory's group control_plane: it is not asked")
            return
        self.apiservers += 1
        apiserver = components["kube-apiserver"]
        try:
            etcd: EtcdAccess | EtcdError = etcd_access(remote.name, apiserver.process.argv, seen.data)
        except EtcdError as error:
            etcd = error
        self._servers[remote.name] = _Server(remote, apiserver, etcd)
        for name in ADMIN_FILES:
            for path, file in seen.files.items():
                if path.endswith(f"/{name}") and file.data is not None and remote.name not in self._nodes:
                    try:
                        self._nodes[remote.name] = _ApiNode(remote, parse_kubeconfig(file.data), path, components)
                    except KubeconfigError as error:
                        self._why.append(f"{remote.name}: {path}: {error}")
        if remote.name not in self._nodes:
            self._why.append(f"{remote.name}: no usable {' or '.join(ADMIN_FILES)} in the directory of the controller-manager's kubeconfig")

    def _connection(self, at: At) -> tuple[Api, bool]:
        """A connection to a component; and whether it is an API server that may answer for the cluster, which is asked first."""
        api = self._at(*at)
        if at[1] != APISERVER:
            return api, False
        try:
            api.get_raw("/readyz")
        except Forbidden:
            pass  # it serves; each request shows what may be read
        except ApiConnectionLost:
            raise
        except ApiError:
            return api, False
        return api, True

    def _at(self, host: str, component: str) -> Api:
        """A component of a node. Created again for each use: the SSH connection may be a new one by now."""
        node = self._nodes[host]
        return self._through(node, node.components[component].address, component)

    def _through(self, node: _ApiNode, address: tuple[str, int], component: str = APISERVER, timeout: float = TIMEOUT) -> Api:
        """The component at `address` as seen from a node. kubectl reaches API servers only."""
        host, by_kubectl = node.remote.name, component == APISERVER
        try:
            # The connection may have been lost while other nodes changed.
            node.remote.ensure_connected()
        except RemoteError as error:
            raise ApiConnectionLost(host, "/", f"the SSH connection to it was lost: {error}", "fix the connection to the node") from error
        if (host, address) not in self._forbidden:
            transport = node.remote.transport
            if transport is None and by_kubectl and not node.remote.uses_ssh:
                return KubectlApi(_asking(node.remote), address, host, node.kubeconfig_path)
            if transport is None and not node.remote.uses_ssh:
                # Not a lost connection: there never is one, and kubectl reaches API servers only.
                raise NoApi(f"{host}: {address[0]}:{address[1]} can be asked over SSH only, and this host is not reached by SSH")
            if transport is None or not transport.is_active():
                raise ApiConnectionLost(host, "/", "there is no SSH connection to it", "fix the connection to the node")
            tunnel = TunnelApi(transport, node.credentials, address, host, component=component)
            try:
                tunnel.probe(timeout)
                return tunnel
            except ForwardingForbidden as error:
                self._forbidden[(host, address)] = error
        if not by_kubectl:
            raise self._forbidden[(host, address)]
        return KubectlApi(_asking(node.remote), address, host, node.kubeconfig_path)

    def api(self, wait: float = API_WAIT) -> Api:
        """The API of the first control-plane node that answers. Waits up to `wait` seconds for a single control-plane node, and for lost
        connections. If connections are kept, one of these. Raises NoApi."""
        if self._kept is not None:
            return self._kept.ask(lambda api: api, wait=wait)
        return self._first_ready(list(self._nodes), wait)

    def _first_ready(self, hosts: Sequence[str], wait: float) -> Api:
        deadline = Deadline(wait)
        while True:
            tried, lost = list(self._why), False
            for host in hosts:
                try:
                    api = self._at(host, APISERVER)
                    api.get_raw("/readyz", wait=0 if len(hosts) > 1 else wait)
                    return api
                except Forbidden:
                    return api  # it serves; each request shows what may be read
                except ApiError as error:
                    tried.append(str(error))
                    lost = lost or isinstance(error, ApiConnectionLost)
            if not lost or deadline.over:
                break
            deadline.pause(LOOK_AGAIN)
        raise NoApi("; ".join(tried) or "no control-plane node could be read (the inventory needs them in a group named control_plane)")

    def query(self, ask: Callable[[Api], T], at: At = ANY) -> T:
        """The answer of the API, or of the component `at` (host, component); asks again over a new connection if the connection was
        lost."""
        deadline = Deadline(API_WAIT)
        while True:
            try:
                if self._kept is not None:
                    return self._kept.ask(ask, at, API_WAIT)
                return ask(self._recent_api() if at == ANY else self._at(*at))
            except KubeletDistrusted as error:
                if (server := self._servers.get(error.host)) is not None:
                    error.authority = last_flag(server.component.process.argv, "kubelet-certificate-authority") or ""
                raise
            except ApiConnectionLost as error:
                self._recent = None
                deadline.pause(LOOK_AGAIN, late=error)

    def _recent_api(self) -> Api:
        """The API of the previous queries, found a moment ago; or, as `api`, another one. Raises NoApi."""
        if self._recent is None or time.monotonic() - self._recent[0] > RECENT_SECONDS:
            api = self.api()
            self._recent = time.monotonic(), api
        return self._recent[1]

    def effective(self, host: str, component: str, node_name: str) -> Mapping[str, GateMetric]:
        """The gates as the running process has them. Raises ApiFailure."""
        self._gates.pop((host, component), None)
        if component == "kubelet":
            found = self.query(lambda api: kubelet_metrics(api, node_name, wait=API_WAIT))
        else:
            at = self._known(host, component)
            found = self._read.pop(at) if at in self._read else self.query(lambda api: component_metrics(api, wait=API_WAIT), at)
        self._gates[host, component] = found.gates
        return found.gates

    def _known(self, host: str, component: str) -> tuple[str, str]:
        if host not in self._nodes:
            raise NoApi("; ".join(self._why) or f"{host} cannot be queried: no kube-apiserver was found on it")
        return host, component

    def last_effective(self, host: str, component: str) -> Mapping[str, GateMetric]:
        """The result of the last call of `effective`; {} if that failed, or if there was none."""
        return self._gates.get((host, component), {})

    def configuration(self, node_name: str) -> dict[str, Any]:
        """The whole KubeletConfiguration as the node's running kubelet has it (/configz). Raises ApiFailure."""
        return self.query(lambda api: kubelet_config(api, node_name, wait=API_WAIT))

    def flagz(self, host: str, component: str) -> Mapping[str, str]:
        """The flags of a running component as it prints them (/flagz; on by default since 1.36); {} if it does not, or if this identity
        may not read them. Raises ApiConnectionLost or NoApi."""
        return flag_values(self._optional(host, component, "/flagz"))

    def component_configuration(self, host: str, component: str) -> dict[str, Any] | None:
        """The configuration of a running controller-manager or scheduler (/configz, of several components together); None if it does not
        tell. Raises ApiConnectionLost or NoApi."""
        if component == "kube-apiserver":
            return None
        try:
            found = read_json(self._optional(host, component, "/configz") or "null")
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def own_scheduler_configurations(self) -> dict[str, dict[str, Any] | None]:
        """By host, of the schedulers that run with --config: their configuration (/configz); None if it could not be read."""
        found: dict[str, dict[str, Any] | None] = {}
        for host, node in self._nodes.items():
            scheduler = node.components.get("kube-scheduler")
            if scheduler is None or last_flag(scheduler.process.argv, "config") is None:
                continue
            try:
                found[host] = self.component_configuration(host, "kube-scheduler")
            except ApiFailure:
                found[host] = None
        return found

    def _optional(self, host: str, component: str, path: str) -> str:
        """What a component answers to a GET; "" if it refuses."""
        try:
            return self.query(lambda api: api.get_raw(path), self._known(host, component)).decode("utf-8", "replace")
        except ApiConnectionLost:
            raise
        except ApiError:
            return ""

    def answering(self, node_names: Iterable[str], at: At = ANY, wait: float = 0.0) -> dict[str, str]:
        """Whether kubelets answer through an API server (`at`: its host and component; any by default): by the name of the node, why not
        ("": it does). Raises NoApi."""
        found: dict[str, str] = {}
        for name in node_names:
            path = f"{node_path(name)}/proxy/healthz"
            # One that does not answer is waited for; meanwhile the others have had that time too.
            patience = 0.0 if any(found.values()) else wait
            try:
                self.query(lambda api: api.get_raw(path, LOOK_SECONDS, wait=patience), at)  # noqa: B023 - asked at once
                found[name] = ""
            except ApiError as error:
                found[name] = f"{error.rule}; {error.way_out}"
        return found

    def ready_nodes(self) -> list[str]:
        """The names of the nodes with a kubelet that are Ready now. Raises ApiFailure."""
        listed = self.query(lambda api: _nodes(api, API_WAIT))
        return [name for name, node in listed.items() if virtual_mark(node) is None and is_ready(node)]

    def serving(self) -> list[str]:
        """The hosts whose API servers can be asked."""
        return list(self._nodes)

    def evictions(self, node_name: str) -> dict[str, int]:
        """How many pods the node's kubelet has evicted, or preempted for critical ones, since it started: by signal or resource.
        Raises ApiFailure."""
        path = f"{node_path(node_name)}/proxy/metrics"
        return evictions(self.query(lambda api: api.get_raw(path, wait=API_WAIT)).decode("utf-8", "replace"))

    def node(self, node_name: str) -> dict[str, Any]:
        """A node as the API has it. Raises ApiFailure."""
        return self.query(lambda api: api.get_json(node_path(node_name)))

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes as the API has them now, or as they were when they were first listed over kept connections: by name, without images and
        (of nodes that nobody has cordoned) managedFields. Does not wait for an API that is down. Raises ApiFailure."""
        if not self._listed:
            if self._kept is None:
                return _nodes(self.api(wait=0))
            self._listed = self._kept.ask(_nodes)
        return self._listed

    def object(self, path: str) -> dict[str, Any] | None:
        """One object by its path; None if it does not exist. Raises ApiFailure."""
        return self.query(lambda api: find_object(api, path, wait=API_WAIT))

    def last_nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes as `nodes` has listed them over kept connections; {} if that failed, or was not asked for."""
        return self._listed

    def component_version(self, host: str, component: str) -> str | None:
        """The version that this component of this control-plane node reports, as v1.36.3; None if it reports none. Raises ApiError or
        NoApi."""
        at = self._known(host, component)
        if component == "kube-apiserver":
            return str(self.query(lambda api: api.get_json("/version"), at).get("gitVersion") or "")
        found = self.query(component_metrics, at)
        if self._kept is not None:
            self._read[at] = found  # the next question is about its gates
        return found.version

    def doors(self) -> list[tuple[Remote, str, tuple[str, int]]]:
        """The control-plane nodes that can be asked: each one's connection, the CA of its admin kubeconfig (PEM), and the address of its
        API server as seen from it."""
        return [(node.remote, node.credentials.authority, node.components["kube-apiserver"].address) for node in self._nodes.values()]

    def known_nodes(self) -> dict[str, dict[str, Any]]:
        """As `nodes`, but waits for an API that is down, unless they were listed before. Raises ApiFailure."""
        return self._listed or self.query(lambda api: _nodes(api, API_WAIT))

    def node_with_pods(self, node_name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A node and all pods on it, as the API has them. Raises ApiFailure."""
        return self.query(lambda api: node_with_pods(api, node_name, wait=API_WAIT))

    def usage(self, node_name: str, wait: float = API_WAIT) -> NodeUsage:
        """The current capacity and usage of a node; an error that may pass is waited for, for `wait` seconds. Raises ApiFailure."""
        return self.query(lambda api: node_usage(api, node_name, wait=wait))

    def ready(self, host: str) -> None:
        """The node's own apiserver answers /readyz with 200. Raises ApiError."""
        self.query(lambda api: api.get_raw("/readyz", wait=API_WAIT), (host, "kube-apiserver"))

    def lease_renewed(self, node_name: str) -> datetime | None:
        """When the node's kubelet last renewed its lease, by the node's own clock. Raises ApiFailure."""
        return self.query(lambda api: node_lease(api, node_name, wait=API_WAIT)).renewed

    def pods(self, node_name: str) -> list[PodStatus]:
        """The pods on a node, as the API has them. Raises ApiFailure."""
        return self.query(lambda api: node_pods(api, node_name, wait=API_WAIT))

    def control_plane_ready(self, host: str, wait: float, *, allow_unproven: bool = False) -> str | None:
        """None if the control plane can work without `host` during a change; else a text that says what is wrong, where, why, and
        what to do.

        Required: every apiserver except that of `host` answers /readyz with 200, also those that only the cluster knows; and every
        voting member of etcd is healthy, also that of `host`: if it is lost after all, a majority remains. Waits up to `wait`
        seconds for problems that may go away. With `allow_unproven`, what could not be checked does not count, such as an etcd
        whose certificates are not on the node; what is known to be broken always counts.
        """
        deadline = Deadline(wait, as_given=True)
        while True:
            found = [*self._apiserver_problems(host), *self._etcd_problems()]
            over = deadline.over
            # Always wait for problems that may go away: an apiserver that starts answers 403 at first.
            problems = [problem for problem in found if not (allow_unproven and problem.unproven and (over or not problem.passing))]
            if not problems:
                return None
            if over or not all(problem.passing for problem in problems):
                return "; ".join(problem.text + (f", {_UNPROVEN}" if problem.unproven else "") for problem in problems)
            deadline.pause(LOOK_AGAIN)

    def etcd_summary(self) -> str:
        """The current state of etcd, in one line for a plan: `etcd: 3 of 3 members healthy, quorum 2`."""
        try:
            health = self.etcd_health()
        except EtcdError as error:
            return f"etcd: {'NOT PROVEN: ' if error.unproven else ''}{error.rule}; {error.way_out}"
        return "; ".join([f"etcd: {health}", *(f"{member}: {error.rule}" for member, error in health.unhealthy)])

    def etcd_health(self) -> EtcdHealth:
        """The health of etcd, as seen from all control-plane nodes; the worst answer counts. Raises EtcdError."""
        seen: list[EtcdHealth] = []
        failed: list[EtcdError] = []
        for answer in at_once([partial(_etcd_from, server) for server in self._servers.values()]):
            if isinstance(answer, EtcdHealth):
                seen.append(answer)
            elif isinstance(answer, EtcdError):
                failed.append(answer)
            elif isinstance(answer, Exception):
                raise answer
        # A node without etcd's certificates knows nothing; one that asks and gets no answer does, unless the others name the sick member.
        health = worst_health(seen) if seen else None
        known = [error for error in failed if not error.unproven]
        if health is not None and (health.unhealthy or not known):
            return health
        if not failed:
            raise EtcdError(
                "-", "no node of the inventory runs a kube-apiserver", "put those in a group named control_plane", unproven=True
            )
        raise EtcdError.joined(known or failed)

    def _etcd_problems(self) -> Iterator[_Problem]:
        try:
            health = self.etcd_health()
        except EtcdError as error:
            yield _Problem(f"the members of etcd are not known: {error.rule}; {error.way_out}", error.passing, error.unproven)
            return
        for member, wrong in health.unhealthy:
            text = f"etcd member {member} is not healthy, as seen from {wrong.host}: {wrong.rule}; {wrong.way_out} (etcd: {health})"
            yield _Problem(text, wrong.passing, wrong.unproven)

    def _apiserver_problems(self, but: str) -> Iterator[_Problem]:
        if not self._nodes:
            why = "; ".join(self._why) or "no node of the inventory runs a kube-apiserver"
            yield _Problem(f"no apiserver can be asked: {why}", False, True)
            return
        # The node that will change comes last: it is asked only if no other can be.
        hosts = sorted(self._nodes, key=lambda name: name == but)
        for name, server in self._servers.items():
            if name != but:
                # Without its own admin kubeconfig it is asked with that of another node, through its own connection.
                node = self._nodes.get(name) or replace(self._nodes[hosts[0]], remote=server.remote)
                yield from self._not_ready(node, server.component.address, f"the kube-apiserver of {name}")
        try:
            asked, others = self._elsewhere(hosts)
        except ApiError as error:
            text = f"apiservers that are not in the inventory could not be listed: {error.host}: {error.rule}; {error.way_out}"
            yield _problem(text, error)
            return
        except RemoteError as error:
            yield _Problem(f"apiservers that are not in the inventory could not be listed: {error}", False, False)
            return
        for address in others:
            what = f"the kube-apiserver at {address[0]}:{address[1]}, which is not in the inventory (default/kubernetes names it),"
            yield from self._not_ready(self._nodes[asked], address, what)

    def _not_ready(self, node: _ApiNode, address: tuple[str, int], what: str) -> Iterator[_Problem]:
        try:
            node.remote.ensure_connected()
            self._through(node, address, timeout=LOOK_SECONDS).get_raw("/readyz", LOOK_SECONDS)
        except ApiError as error:
            yield _problem(f"{what} is not ready: {error.rule}; {error.way_out}", error)
        except RemoteError as error:
            yield _Problem(f"{what} cannot be asked: {error}; fix the connection to the node", False, False)

    def _elsewhere(self, hosts: Iterable[str]) -> tuple[str, list[tuple[str, int]]]:
        """The host that answered, and the addresses and ports of the apiservers that are not in the inventory.

        Raises ApiError, RemoteError.
        """
        failed: ApiError | RemoteError | None = None
        for host in hosts:
            try:
                self._nodes[host].remote.ensure_connected()
                api = self._through(self._nodes[host], self._servers[host].component.address, timeout=LOOK_SECONDS)
                found = _addresses(api, api.get_json(_ENDPOINTS, LOOK_SECONDS))
                own = set().union(*(_own_addresses(server.component) for server in self._servers.values()))
                if all(address in own for address, _ in found):
                    return host, []
                for server in self._servers.values():
                    own |= _node_addresses(api, server.component.node_name)
                return host, [(address, port) for address, port in found if address not in own]
            except (ApiError, RemoteError) as error:
                failed = failed or error
        assert failed is not None  # there is at least one host
        raise failed


def listed_nodes(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The nodes as the API has them; {} if they cannot be listed."""
    try:
        return cluster.nodes()
    except ApiFailure:
        return {}


def _etcd_from(server: _Server) -> EtcdHealth:
    """All members, asked through one control-plane node. Raises EtcdError."""
    if isinstance(server.etcd, EtcdError):
        raise server.etcd
    try:
        server.remote.ensure_connected()
        return Members(server.etcd, server.remote.transport, _runner(server.remote)).health(LOOK_SECONDS)
    except RemoteError as error:
        raise EtcdError(server.remote.name, str(error), "fix the connection to the node") from error


def worst_health(seen: Sequence[EtcdHealth]) -> EtcdHealth:
    """What several control-plane nodes see, as one: a member is healthy only if all of them say so. Raises EtcdError if they do not name
    the same members."""
    sets = {frozenset((member.id, member.learner) for member in health.members) for health in seen}
    if len(sets) > 1:
        counts = ", ".join(sorted(str(len(members)) for members in sets))
        raise EtcdError(
            "-",
            f"the control-plane nodes do not name the same members of etcd ({counts})",
            "see `etcdctl member list` on each",
            passing=True,
        )
    unhealthy = {member.id: (member, error) for health in reversed(seen) for member, error in health.unhealthy}
    return EtcdHealth(seen[0].members, tuple(unhealthy.values()))


def flag_values(text: str) -> dict[str, str]:
    """From a component's /flagz, whose separator differs from start to start (k8s.io/apiserver/pkg/server/flagz/textserializer.go)."""
    return {name: value.strip() for name, value in re.findall(r"^([a-z][\w-]*)(?::|=| )(.*)$", text, re.MULTILINE)}


def evictions(metrics: str) -> dict[str, int]:
    """From a kubelet's /metrics (pkg/kubelet/metrics: kubelet_evictions, kubelet_preemptions), without signals that have none."""
    return {signal: int(float(number)) for signal, number in _EVICTIONS.findall(metrics) if float(number) > 0}


def _nodes(api: Api, wait: float = 0.0) -> dict[str, dict[str, Any]]:
    """By name. Lists of images and of managers are most of a node. Nobody asks for them, but for who has cordoned a node."""
    found = {name_of(node): node for node in list_objects(api, "/api/v1/nodes", wait=wait)}
    for node in found.values():
        if not spec_of(node).get("unschedulable"):
            node["metadata"].pop("managedFields", None)
        (node.get("status") or {}).pop("images", None)
    return found


def _problem(text: str, error: ApiError) -> _Problem:
    # An apiserver that has just started answers 403 until it has read its RBAC rules.
    passing = error.passing or isinstance(error, Forbidden)
    return _Problem(text, passing, not error.passing and not isinstance(error, ApiConnectionLost))


def _addresses(api: Api, slices: dict[str, Any]) -> list[tuple[str, int]]:
    """Every address and port of the slices of one Service, in order."""
    try:
        return sorted(
            {
                (address, int(port["port"]))
                for item in slices["items"]
                for port in item.get("ports") or ()
                for endpoint in item.get("endpoints") or ()
                for address in endpoint["addresses"]
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        rule = f"the answer has a missing or invalid field ({type(error).__name__}: {error})"
        raise Unusable(api.host, _ENDPOINTS, rule, "check it: kubectl get endpointslices -n default") from error


def _own_addresses(apiserver: Component) -> set[str]:
    """The addresses in the apiserver's flags."""
    return {value for name in ("advertise-address", "bind-address") if (value := last_flag(apiserver.process.argv, name))}


def _node_addresses(api: Api, node_name: str) -> set[str]:
    """The addresses of a node, as its kubelet reports them. Without flags an apiserver uses that of the default route."""
    try:
        found = api.get_json(node_path(node_name), LOOK_SECONDS)
    except NotFound:
        return set()
    return {address for _, address in node_addresses(found)}


def _runner(remote: Remote) -> RunCommand:
    def run(command: str) -> tuple[bool, str, str]:
        answer = remote.run(command, timeout=patient(RUN_SECONDS))
        return answer.code == 0, "\n".join(answer.stdout), "\n".join(answer.stderr)

    return run


def _asking(remote: Remote) -> RunCommand:
    """For requests, which a lost connection ends as it ends those through a tunnel."""

    def run(command: str) -> tuple[bool, str, str]:
        try:
            return _runner(remote)(command)
        except RemoteError as error:
            raise ApiConnectionLost(remote.name, "/", str(error), "fix the connection to the node") from error

    return run
