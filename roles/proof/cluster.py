"""Where the running components are asked: the API of a control-plane node, and the components' own ports there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from roles.api import (
    Api,
    ApiError,
    Credentials,
    Forbidden,
    ForwardingForbidden,
    GateMetric,
    KubeconfigError,
    KubectlApi,
    Pod,
    Run,
    TunnelApi,
    component_metrics,
    kubelet_metrics,
    node_lease,
    node_pods,
    parse_kubeconfig,
)
from roles.api.errors import ConnectionLost
from roles.control_plane import Component
from roles.observe import Observation
from roles.rollout.remote import Remote

# Where kubeadm puts admin identities, beside the controller-manager's own: super-admin.conf (1.29 and later) needs no RBAC.
ADMIN_FILES = ("super-admin.conf", "admin.conf")
# A single control plane is away for about 40 s while its apiserver restarts.
API_WAIT_SECONDS = 60.0


class NoApi(Exception):
    """No control-plane node of the inventory can be asked; says why."""


@dataclass(frozen=True)
class _Node:
    remote: Remote
    credentials: Credentials
    kubeconfig_path: str
    components: dict[str, Component]


class Cluster:
    """The cluster as seen from the control-plane nodes of the inventory. Keys stay in memory.

    `apiservers` counts the nodes that were added and run one.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._forbidden: dict[str, ForwardingForbidden] = {}
        self._why: list[str] = []
        self.apiservers = 0

    def add(self, remote: Remote, seen: Observation, components: dict[str, Component]) -> None:
        """A node that was looked at; one with an apiserver and an admin kubeconfig can be asked."""
        if "kube-apiserver" not in components:
            return
        self.apiservers += 1
        for name in ADMIN_FILES:
            for path, file in seen.files.items():
                if path.endswith(f"/{name}") and file.data is not None and remote.name not in self._nodes:
                    try:
                        self._nodes[remote.name] = _Node(remote, parse_kubeconfig(file.data), path, components)
                    except KubeconfigError as error:
                        self._why.append(f"{remote.name}: {path}: {error}")
        if remote.name not in self._nodes:
            self._why.append(f"{remote.name}: no usable {' or '.join(ADMIN_FILES)} beside the controller-manager's kubeconfig")

    def _at(self, host: str, component: str) -> Api:
        """A component of a node. Made anew for each use: the SSH connection may be another one by now."""
        node = self._nodes[host]
        address = node.components[component].address
        verify = component == "kube-apiserver"
        if host not in self._forbidden:
            transport = node.remote.transport
            if transport is None or not transport.is_active():
                raise ConnectionLost(host, "/", "there is no SSH connection to go through", "connect to the node again")
            tunnel = TunnelApi(transport, node.credentials, address, host, verify=verify)
            try:
                tunnel.probe()
                return tunnel
            except ForwardingForbidden as error:
                self._forbidden[host] = error
        if not verify:
            raise self._forbidden[host]
        return KubectlApi(_runner(node.remote), address, host, node.kubeconfig_path)

    def api(self) -> Api:
        """The API of the first control-plane node that answers. Raises NoApi."""
        tried = list(self._why)
        for host in self._nodes:
            try:
                api = self._at(host, "kube-apiserver")
                api.get_raw("/readyz", wait=0 if len(self._nodes) > 1 else API_WAIT_SECONDS)
                return api
            except Forbidden:
                return api  # it serves; what may be read shows with each request
            except ApiError as error:
                tried.append(str(error))
        raise NoApi("; ".join(tried) or "the inventory has no control-plane node (a group named control_plane)")

    def effective(self, host: str, component: str, node_name: str) -> dict[str, GateMetric]:
        """The gates as the running process has them. Raises ApiError or NoApi."""
        if component == "kubelet":
            return kubelet_metrics(self.api(), node_name, wait=API_WAIT_SECONDS).gates
        if host not in self._nodes:
            raise NoApi("; ".join(self._why) or f"{host} cannot be asked")
        return component_metrics(self._at(host, component), wait=API_WAIT_SECONDS).gates

    def ready(self, host: str) -> None:
        """The node's own apiserver answers /readyz with 200. Raises ApiError."""
        self._at(host, "kube-apiserver").get_raw("/readyz", wait=API_WAIT_SECONDS)

    def lease_renewed(self, node_name: str) -> datetime | None:
        """When the node's kubelet last renewed its lease, by the node's own clock. Raises ApiError or NoApi."""
        return node_lease(self.api(), node_name, wait=API_WAIT_SECONDS).renewed

    def pods(self, node_name: str) -> list[Pod]:
        """The pods on a node, as the API has them. Raises ApiError or NoApi."""
        return node_pods(self.api(), node_name, wait=API_WAIT_SECONDS)


def _runner(remote: Remote) -> Run:
    def run(command: str) -> tuple[bool, str, str]:
        answer = remote.run(command, timeout=60)
        return answer.code == 0, "\n".join(answer.stdout), "\n".join(answer.stderr)

    return run
