"""Where the running components are asked: the API of a control-plane node, and the components' own ports there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from roles.engine.api import (
    TIMEOUT,
    Api,
    ApiConnectionLost,
    ApiError,
    Credentials,
    EtcdAccess,
    EtcdError,
    EtcdHealth,
    Forbidden,
    ForwardingForbidden,
    GateMetric,
    KubeconfigError,
    KubectlApi,
    Members,
    NodeUsage,
    NotFound,
    PodStatus,
    RunCommand,
    TunnelApi,
    Unusable,
    component_metrics,
    etcd_access,
    kubelet_config,
    kubelet_metrics,
    list_objects,
    node_lease,
    node_pods,
    node_usage,
    parse_kubeconfig,
)
from roles.engine.bridge import Remote, RemoteError
from roles.engine.control_plane import Component
from roles.engine.editing import last_flag
from roles.engine.node import Observation
from roles.engine.timeouts import patient

T = TypeVar("T")

# Where kubeadm puts admin identities, beside the controller-manager's own: super-admin.conf (1.29 and later) needs no RBAC.
ADMIN_FILES = ("super-admin.conf", "admin.conf")
# A single control plane is away for about 40 s while its apiserver restarts.
API_WAIT_SECONDS = 60.0
# One look at an apiserver or at etcd before a change, and the pause before the next one.
LOOK_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 1.0
# A command on the node, in the place of a tunnel.
RUN_SECONDS = 60
# Where each apiserver writes the address it serves at (pkg/controlplane/reconcilers; the label: discovery/v1 LabelServiceName).
_ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=" + quote(
    "kubernetes.io/service-name=kubernetes", safe=""
)
_PUT_OUT = re.compile(r'^kubelet_(?:evictions|preemptions)\{[^}]*signal="([^"]*)"[^}]*\} ([0-9.e+]+)', re.MULTILINE)
_UNPROVEN = "or go on without having seen it, by --data allow_unproven=true"


class NoApi(Exception):
    """No control-plane node of the inventory can be asked; says why."""


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
    """Why a change of the control plane has to wait. `passing`: it may be gone a moment later; `unproven`: nothing is known to
    be broken, only it could not be looked at."""

    text: str
    passing: bool
    unproven: bool


class Cluster:
    """The cluster as seen from the control-plane nodes of the inventory. Keys stay in memory.

    `apiservers` counts the nodes that were added and run one.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _ApiNode] = {}
        self._servers: dict[str, _Server] = {}
        self._forbidden: dict[tuple[str, tuple[str, int]], ForwardingForbidden] = {}
        self._why: list[str] = []
        self._gates: dict[tuple[str, str], dict[str, GateMetric]] = {}
        self.apiservers = 0

    def add(self, remote: Remote, seen: Observation, components: dict[str, Component]) -> None:
        """A node that was looked at; one with an apiserver and an admin kubeconfig can be asked."""
        if "kube-apiserver" not in components:
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
            self._why.append(f"{remote.name}: no usable {' or '.join(ADMIN_FILES)} beside the controller-manager's kubeconfig")

    def _at(self, host: str, component: str) -> Api:
        """A component of a node. Made anew for each use: the SSH connection may be another one by now."""
        node = self._nodes[host]
        return self._through(node, node.components[component].address, component == "kube-apiserver")

    def _through(self, node: _ApiNode, address: tuple[str, int], verify: bool = True, timeout: float = TIMEOUT) -> Api:
        """What serves at `address` as seen from a node; without `verify` no apiserver, and kubectl is no way to it."""
        host = node.remote.name
        try:
            # One that was lost while others were worked on.
            node.remote.ensure_connected()
        except RemoteError as error:
            raise ApiConnectionLost(host, "/", f"the SSH connection to it was lost: {error}", "connect to the node again") from error
        if (host, address) not in self._forbidden:
            transport = node.remote.transport
            if transport is None and verify and not node.remote.by_ssh:
                return KubectlApi(_runner(node.remote), address, host, node.kubeconfig_path)
            if transport is None or not transport.is_active():
                raise ApiConnectionLost(host, "/", "there is no SSH connection to go through", "connect to the node again")
            tunnel = TunnelApi(transport, node.credentials, address, host, verify=verify)
            try:
                tunnel.probe(timeout)
                return tunnel
            except ForwardingForbidden as error:
                self._forbidden[(host, address)] = error
        if not verify:
            raise self._forbidden[(host, address)]
        return KubectlApi(_runner(node.remote), address, host, node.kubeconfig_path)

    def api(self, wait: float = API_WAIT_SECONDS) -> Api:
        """The API of the first control-plane node that answers. One that is the only one, and lost connections, are given `wait` seconds.
        Raises NoApi."""
        until = time.monotonic() + patient(wait)
        while True:
            tried, lost = list(self._why), False
            for host in self._nodes:
                try:
                    api = self._at(host, "kube-apiserver")
                    api.get_raw("/readyz", wait=0 if len(self._nodes) > 1 else wait)
                    return api
                except Forbidden:
                    return api  # it serves; what may be read shows with each request
                except ApiError as error:
                    tried.append(str(error))
                    lost = lost or isinstance(error, ApiConnectionLost)
            if not lost or time.monotonic() >= until:
                break
            time.sleep(LOOK_AGAIN_SECONDS)
        raise NoApi("; ".join(tried) or "no control-plane node could be looked at (the inventory has them in a group named control_plane)")

    def _asked(self, ask: Callable[[Api], T], find: Callable[[], Api] | None = None) -> T:
        """What the API says, or what `find` finds; asked again, over a new connection, where that was lost in the middle."""
        until = time.monotonic() + patient(API_WAIT_SECONDS)
        while True:
            try:
                return ask((find or self.api)())
            except ApiConnectionLost:
                if time.monotonic() >= until:
                    raise
                time.sleep(LOOK_AGAIN_SECONDS)

    def effective(self, host: str, component: str, node_name: str) -> dict[str, GateMetric]:
        """The gates as the running process has them. Raises ApiError or NoApi."""
        self._gates.pop((host, component), None)
        if component == "kubelet":
            found = self._asked(lambda api: kubelet_metrics(api, node_name, wait=API_WAIT_SECONDS))
        elif host not in self._nodes:
            raise NoApi("; ".join(self._why) or f"{host} cannot be asked")
        else:
            found = self._asked(lambda api: component_metrics(api, wait=API_WAIT_SECONDS), lambda: self._at(host, component))
        self._gates[host, component] = found.gates
        return found.gates

    def last_effective(self, host: str, component: str) -> dict[str, GateMetric]:
        """The gates as `effective` found them the last time; {} where it could not read them then, or was not called."""
        return self._gates.get((host, component), {})

    def configuration(self, node_name: str) -> dict[str, Any]:
        """The whole KubeletConfiguration as the node's running kubelet has it (/configz). Raises ApiError or NoApi."""
        return self._asked(lambda api: kubelet_config(api, node_name, wait=API_WAIT_SECONDS))

    def put_out(self, node_name: str) -> dict[str, int]:
        """How many pods the node's kubelet has evicted, or preempted for critical ones, since it started: by signal or resource.
        Raises ApiError or NoApi."""
        path = f"/api/v1/nodes/{quote(node_name, safe='')}/proxy/metrics"
        return put_out(self._asked(lambda api: api.get_raw(path, wait=API_WAIT_SECONDS)).decode("utf-8", "replace"))

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes as the API has them now, by name. Raises ApiError or NoApi; an API that is away is not waited for."""
        return {str(node["metadata"]["name"]): node for node in list_objects(self.api(wait=0), "/api/v1/nodes")}

    def component_version(self, host: str, component: str) -> str | None:
        """What a component of a control-plane node says that it is, as v1.36.3: itself, and no other of its kind. None where it does not
        say. Raises ApiError or NoApi."""
        if host not in self._nodes:
            raise NoApi("; ".join(self._why) or f"{host} cannot be asked")
        api = self._at(host, component)
        if component == "kube-apiserver":
            return str(api.get_json("/version").get("gitVersion") or "")
        return component_metrics(api).version

    def kubelet_versions(self) -> dict[str, str]:
        """The version of each node's kubelet, as v1.36.3, by the node's name. Raises ApiError or NoApi."""
        return {
            str(node["metadata"]["name"]): str(node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", ""))
            for node in self._asked(lambda api: list_objects(api, "/api/v1/nodes", wait=API_WAIT_SECONDS))
        }

    def usage(self, node_name: str) -> NodeUsage:
        """What a node holds and uses now. Raises ApiError or NoApi."""
        return self._asked(lambda api: node_usage(api, node_name, wait=API_WAIT_SECONDS))

    def ready(self, host: str) -> None:
        """The node's own apiserver answers /readyz with 200. Raises ApiError."""
        self._asked(lambda api: api.get_raw("/readyz", wait=API_WAIT_SECONDS), lambda: self._at(host, "kube-apiserver"))

    def lease_renewed(self, node_name: str) -> datetime | None:
        """When the node's kubelet last renewed its lease, by the node's own clock. Raises ApiError or NoApi."""
        return self._asked(lambda api: node_lease(api, node_name, wait=API_WAIT_SECONDS)).renewed

    def pods(self, node_name: str) -> list[PodStatus]:
        """The pods on a node, as the API has them. Raises ApiError or NoApi."""
        return self._asked(lambda api: node_pods(api, node_name, wait=API_WAIT_SECONDS))

    def control_plane_ready(self, host: str, wait: float, *, allow_unproven: bool = False) -> str | None:
        """None where the control plane can do without `host` for the time of a change; else a text that says what is not well,
        where, why, and what to do.

        Well is: every apiserver but that of `host` answers /readyz with 200, those that only the cluster knows of too, and every
        voting member of etcd is healthy, that of `host` included: a majority stays when it is lost after all. What passes by
        itself is waited for, up to `wait` seconds. With `allow_unproven`, what could not be looked at does not count, such as an
        etcd whose certificates are not on the node; what is seen to be broken always does.
        """
        until = time.monotonic() + wait
        while True:
            found = [*self._apiserver_problems(host), *self._etcd_problems()]
            over = time.monotonic() >= until
            # What may still pass is waited for in any case: an apiserver that starts answers 403 at first.
            problems = [problem for problem in found if not (allow_unproven and problem.unproven and (over or not problem.passing))]
            if not problems:
                return None
            if over or not all(problem.passing for problem in problems):
                return "; ".join(problem.text + (f", {_UNPROVEN}" if problem.unproven else "") for problem in problems)
            time.sleep(LOOK_AGAIN_SECONDS)

    def etcd_summary(self) -> str:
        """How etcd is now, in one line for a plan: `etcd: 3 of 3 members healthy, quorum 2`."""
        try:
            health = self._etcd()
        except EtcdError as error:
            return f"etcd: {'NOT PROVEN: ' if error.unproven else ''}{error.rule}; {error.way_out}"
        return "; ".join([f"etcd: {health}", *(f"{member}: {error.rule}" for member, error in health.unhealthy)])

    def _etcd(self) -> EtcdHealth:
        """As the first node whose apiserver's etcd endpoints answer sees it. Raises EtcdError."""
        failed = []
        for server in self._servers.values():
            try:
                if isinstance(server.etcd, EtcdError):
                    raise server.etcd
                server.remote.ensure_connected()
                return Members(server.etcd, server.remote.transport, _runner(server.remote)).health(LOOK_SECONDS)
            except EtcdError as error:
                failed.append(error)
            except RemoteError as error:
                failed.append(EtcdError(server.remote.name, str(error), "connect to the node again"))
        if not failed:
            raise EtcdError(
                "-", "no node of the inventory runs a kube-apiserver", "have them in a group named control_plane", unproven=True
            )
        raise EtcdError.joined(failed)

    def _etcd_problems(self) -> Iterator[_Problem]:
        try:
            health = self._etcd()
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
        # The node whose turn it is comes last: it is asked only where nobody else can be.
        hosts = sorted(self._nodes, key=lambda name: name == but)
        for name, server in self._servers.items():
            if name != but:
                # Without an admin kubeconfig of its own it is asked with another's, through its own connection.
                node = self._nodes.get(name) or replace(self._nodes[hosts[0]], remote=server.remote)
                yield from self._not_ready(node, server.component.address, f"the kube-apiserver of {name}")
        try:
            asked, others = self._elsewhere(hosts)
        except ApiError as error:
            text = f"which apiservers there are besides those of the inventory is not known: {error.host}: {error.rule}; {error.way_out}"
            yield _problem(text, error)
            return
        except RemoteError as error:
            yield _Problem(f"which apiservers there are besides those of the inventory is not known: {error}", False, False)
            return
        for address in others:
            what = f"the kube-apiserver at {address[0]}:{address[1]}, which no node of the inventory has (default/kubernetes names it),"
            yield from self._not_ready(self._nodes[asked], address, what)

    def _not_ready(self, node: _ApiNode, address: tuple[str, int], what: str) -> Iterator[_Problem]:
        try:
            node.remote.ensure_connected()
            self._through(node, address, timeout=LOOK_SECONDS).get_raw("/readyz", LOOK_SECONDS)
        except ApiError as error:
            yield _problem(f"{what} is not ready: {error.rule}; {error.way_out}", error)
        except RemoteError as error:
            yield _Problem(f"{what} cannot be asked: {error}; mend the connection to the node", False, False)

    def _elsewhere(self, hosts: Iterable[str]) -> tuple[str, list[tuple[str, int]]]:
        """The host that told, and the addresses and ports of the apiservers that no node of the inventory has.

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


def put_out(metrics: str) -> dict[str, int]:
    """From a kubelet's /metrics (pkg/kubelet/metrics: kubelet_evictions, kubelet_preemptions); a signal with none is left out."""
    return {signal: int(float(number)) for signal, number in _PUT_OUT.findall(metrics) if float(number) > 0}


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
        rule = f"the answer lacks a field or has an odd one ({type(error).__name__}: {error})"
        raise Unusable(api.host, _ENDPOINTS, rule, "look at it: kubectl get endpointslices -n default") from error


def _own_addresses(apiserver: Component) -> set[str]:
    """The addresses that the apiserver's flags name."""
    return {value for name in ("advertise-address", "bind-address") if (value := last_flag(apiserver.process.argv, name))}


def _node_addresses(api: Api, node_name: str) -> set[str]:
    """The addresses of a node, as its kubelet tells them. Without flags an apiserver takes that of the default route."""
    try:
        found = api.get_json(f"/api/v1/nodes/{quote(node_name, safe='')}", LOOK_SECONDS)
    except NotFound:
        return set()
    return {str(entry.get("address")) for entry in (found.get("status") or {}).get("addresses") or ()}


def _runner(remote: Remote) -> RunCommand:
    def run(command: str) -> tuple[bool, str, str]:
        answer = remote.run(command, timeout=patient(RUN_SECONDS))
        return answer.code == 0, "\n".join(answer.stdout), "\n".join(answer.stderr)

    return run
