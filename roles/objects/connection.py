"""How a deploy on the cluster's objects gets at the API: through any control-plane node, or with a kubeconfig of the operator's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import paramiko

from roles.api import Api, ApiError, KubeconfigError, TunnelApi, parse_kubeconfig
from roles.proof import NoApi, Survey
from roles.rollout import remote as bridge
from roles.rollout.remote import Fleet, Remote, RemoteError


def connection(fleet: Fleet, found: Survey, kubeconfig: str | None) -> Callable[[], Api]:
    """How to get at the API, anew for each use; what comes back raises NoApi or ApiError. With a `kubeconfig`, the control-plane nodes
    must be among the nodes that were looked at. Raises DeployError where there is no way."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane]
    if kubeconfig is None:
        if not found.cluster.apiservers:
            raise bridge.refusals([_no_apiserver(servers)])

        def through_any() -> Api:
            for remote in servers:
                # One that stays away is passed over: the others are asked.
                with contextlib.suppress(RemoteError):
                    _transport(remote)
            return found.cluster.api()

        return through_any
    try:
        credentials = parse_kubeconfig(Path(kubeconfig).expanduser().read_bytes())
    except (OSError, KubeconfigError) as error:
        raise bridge.refusals([f"kubeconfig={kubeconfig}: {error}"]) from None
    nodes = {host: node for host, node in found.nodes.items() if "kube-apiserver" in node.components}

    def connect() -> Api:
        tried: list[str] = []
        for host, node in nodes.items():
            try:
                transport = _transport(node.remote)
                if transport is None:
                    tried.append(f"{host}: there is no SSH connection to go through")
                    continue
                # Where forwarding is forbidden there is no other way: these credentials are not for the node's disk.
                api = TunnelApi(transport, credentials, node.components["kube-apiserver"].address, host)
                api.probe()
                return api
            except (ApiError, RemoteError) as error:
                tried.append(str(error))
        raise NoApi("; ".join(tried) or _no_apiserver(servers))

    return connect


def _no_apiserver(servers: Sequence[Remote]) -> str:
    if not servers:
        return "the inventory has no control-plane node to reach the API by; have them in a group named control_plane"
    names = ", ".join(remote.name for remote in servers)
    return f"the API is down: no kube-apiserver runs on {names}; look there: `crictl ps -a`, `journalctl -u kubelet`"


def _transport(remote: Remote) -> paramiko.Transport | None:
    """The connection to a node, made anew where it was lost. Raises RemoteError."""
    remote.ensure_connected()
    return remote.transport
