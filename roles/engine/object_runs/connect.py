"""How a deploy reaches the API: through the control-plane nodes of its inventory, or as the operator."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roles.engine import bridge
from roles.engine.api import Api, ApiError, NoApi
from roles.engine.api.errors import ForwardingForbidden, KubeconfigError
from roles.engine.api.kubeconfig import parse_kubeconfig
from roles.engine.bridge import Fleet, Remote
from roles.engine.bridge.channels import Transport
from roles.engine.objects import Session
from roles.engine.proof import Survey, survey
from roles.engine.remote import RemoteError
from roles.engine.runs import unreachable
from roles.engine.timeouts import API_WAIT, patient
from roles.engine.transaction import RunInfo, change_id
from roles.engine.transaction.change_script import HOME
from roles.engine.transaction.record import OBJECTS_KIND, RunRecord, parse_events
from roles.engine.tunnels import TunnelApi
from roles.engine.voice import show

# Of a record on the host of the lock: bytes, and seconds to read it.
MOST_RECORD, RECORD_SECONDS = 4 << 20, 30
_A_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


@dataclass(frozen=True)
class KeptRecords:
    """Records of runs on objects. `keeper`: the host whose records count, if there is one."""

    keeper: Remote | None
    _kept: dict[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    def __call__(self, run: str) -> tuple[Mapping[str, Any], ...]:
        """The events of a run, from the operator's own record, or from that of the keeper; () if neither has it, or can be read.
        `run` may be any text that an object claims."""
        if not _A_RUN.fullmatch(run):
            return ()
        with contextlib.suppress(OSError):
            return parse_events(RunRecord(RunInfo(run, "", "", "", "", "")).path.read_bytes()).events
        if run not in self._kept:
            self._kept[run] = self._of_keeper(run)
        return self._kept[run]

    def _of_keeper(self, run: str) -> tuple[Mapping[str, Any], ...]:
        if self.keeper is None:
            return ()
        path = f"{HOME}/changes/{change_id(run, 'cluster', OBJECTS_KIND)}/record.jsonl"
        try:
            self.keeper.ensure_connected()
            answer = self.keeper.run("sh -s", stdin=f"head -c {MOST_RECORD} {path} 2>/dev/null\n", timeout=patient(RECORD_SECONDS))
        except RemoteError:
            return ()
        return parse_events("\n".join([*answer.stdout, ""]).encode()).events


@dataclass(frozen=True)
class ConnectedCluster:
    """`nodes` and `units` (the unit names of the kubelets) by the node's name in the cluster; `names` are those node names by host."""

    found: Survey
    session: Session
    nodes: dict[str, Remote]
    units: dict[str, str]
    names: dict[str, str]


def connect_cluster(fleet: Fleet, kubeconfig: str | None, wait: float = API_WAIT, *, asks_workers: bool = True) -> ConnectedCluster:
    """Read all nodes of the inventory that answer, also those that --limit excludes (a refused worker of these is left out, with a
    warning), and open a session to the API, which may be away for `wait` seconds. Without `asks_workers` one that does not answer is no
    reason to stop: its machine may be off. Raises DeployError."""
    away = [] if asks_workers else [one for one in fleet.unreachable if not one.is_control_plane and one is not fleet.lock_host]
    for remote in away:
        fleet.expect_away(remote)
    bridge.stop(unreachable(fleet))
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or leave --limit out")
    skipped = {remote.name for remote in (*fleet.unreachable, *away)}
    answering = [remote for remote in fleet.inventory if remote.name not in skipped and (remote.connected or remote.connect())]
    return connect_some(fleet, answering, kubeconfig, wait)


def connect_some(fleet: Fleet, remotes: Sequence[Remote], kubeconfig: str | None, wait: float = API_WAIT) -> ConnectedCluster:
    """The same for a run that reads only these hosts, and the control plane. Raises DeployError."""
    found = survey(fleet, remotes)
    bridge.stop(found.refusals)
    for why in found.left_out:
        show(f"WARNING --limit leaves this host out, and nothing that it says counts in this run: {why}")
    return ConnectedCluster(
        found,
        open_session(fleet, found, kubeconfig, wait),
        {node.kubelet.node_name: node.remote for node in found.nodes.values()},
        {node.kubelet.node_name: node.kubelet.unit_name for node in found.nodes.values()},
        {host: node.kubelet.node_name for host, node in found.nodes.items()},
    )


def connect_servers(fleet: Fleet, kubeconfig: str | None) -> tuple[Survey, Session]:
    """The control plane, and a session. Nodes are read only where the operator's own identity (`kubeconfig`) needs their addresses: then
    the control-plane nodes that answer. Raises DeployError."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane] if kubeconfig is not None else []
    found = survey(fleet, [remote for remote in servers if remote.connected or remote.connect()])
    bridge.stop(found.refusals)
    return found, open_session(fleet, found, kubeconfig)


def open_session(fleet: Fleet, found: Survey, kubeconfig: str | None, wait: float = API_WAIT) -> Session:
    """Connect through any control-plane node. `kubeconfig` is a file on the operator's machine whose identity is used; then `found` must
    include the control-plane nodes. Raises DeployError if no way to the API exists."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane]
    if kubeconfig is None:
        if not found.cluster.apiservers:
            raise bridge.refusals([_no_apiserver(servers)])

        def through_any() -> Api:
            for remote in servers:
                # Skip a node that stays away, and try the others.
                with contextlib.suppress(RemoteError):
                    remote.ensure_connected()
            return found.cluster.api()

        return Session(through_any, wait, found.cluster.own_scheduler_configurations, KeptRecords(fleet.keeper))
    with bridge.refusing((OSError, KubeconfigError), f"kubeconfig={kubeconfig}: "):
        credentials = parse_kubeconfig(Path(kubeconfig).expanduser().read_bytes())
    nodes = {host: node for host, node in found.nodes.items() if node.remote.is_control_plane and "kube-apiserver" in node.components}

    def as_operator() -> Api:
        tried: list[str] = []
        forbidden: list[ForwardingForbidden] = []
        for host, node in nodes.items():
            try:
                transport = _transport(node.remote)
                if transport is None:
                    tried.append(f"{host}: there is no SSH connection to forward through")
                    continue
                # If forwarding is forbidden there is no other way: daytwo never writes these credentials to the node's disk.
                api = TunnelApi(transport, credentials, node.components["kube-apiserver"].address, host)
                api.probe()
                return api
            except ForwardingForbidden as error:
                forbidden.append(error)
            except (ApiError, RemoteError) as error:
                tried.append(str(error))
        if forbidden and not tried:
            raise forbidden[0]  # waiting does not help
        raise NoApi("; ".join([*tried, *map(str, forbidden)]) or _no_apiserver(servers))

    return Session(as_operator, wait, found.cluster.own_scheduler_configurations, KeptRecords(fleet.keeper))


def _no_apiserver(servers: Sequence[Remote]) -> str:
    if not servers:
        return "the inventory has no control-plane node to reach the API through; add the nodes to a group named control_plane"
    names = ", ".join(remote.name for remote in servers)
    return f"the API is down: no kube-apiserver runs on {names}; check there: `crictl ps -a`, `journalctl -u kubelet`"


def _transport(remote: Remote) -> Transport | None:
    """The connection to a node; reconnects if it was lost. Raises RemoteError."""
    remote.ensure_connected()
    return remote.transport
