"""The nodes of a cluster as its work needs them: machines woken when pods wait for room, taken away when they are not needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roles.consolidation import model as of_machines
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.files import state_folder
from roles.engine.inputs import Declared
from roles.engine.kube import uid
from roles.engine.lease import ApiLease, Holding
from roles.engine.object_runs import connect_servers, open_session
from roles.engine.objects import Session
from roles.engine.runs import Ended, Turns, deploying, one
from roles.engine.transaction import Refusal
from roles.engine.voice import show, show_lines
from roles.node_autoscaler.child import Child
from roles.node_autoscaler.cluster import Cluster
from roles.node_autoscaler.model import NodeAutoscalerOptions
from roles.node_autoscaler.passing import Passing, Record
from roles.node_autoscaler.watching import Watching

#: One loop for a cluster.
NAMESPACE, LEASE = "kube-system", "daytwo-node-autoscaler"
_UID = re.compile(r"[0-9a-f-]{36}")


@dataclass(frozen=True)
class _Asked:
    options: NodeAutoscalerOptions
    machines: of_machines.Machines


def _read(fleet: Fleet) -> _Asked:
    with bridge.refusing(Refusal):
        machines = of_machines.read_machines([(remote.name, remote.data) for remote in fleet.inventory])
    return _Asked(one(NodeAutoscalerOptions)(fleet), machines)


@deploying("Node autoscaler", _read, of_cluster=True)
def node_autoscaler(fleet: Fleet, asked: _Asked) -> Turns | Ended:
    """Decide once, or pass after pass, which machines wake and which nodes go, and carry that out.

    Data keys: those of roles/node_autoscaler/model.py, and `cost`, `watts` and `power` of each host. Raises DeployError for data that does
    not have the cost of each host, and if the cluster or the record of earlier decisions cannot be read.
    """
    options = asked.options
    for remote in [remote for remote in fleet.unreachable if not remote.is_control_plane]:
        fleet.expect_away(remote)  # its machine may be off
    found, session = connect_servers(fleet, options.kubeconfig)
    record = Record(state_folder("node-autoscaler") / f"{_of_cluster(session)}.json")
    with bridge.refusing(Refusal):
        cluster = Cluster(fleet, session, asked.machines, shadowed=options.verify == "scheduler")
    # Its requests are never repeated: what a holder does not know in time counts as lost.
    lease = ApiLease(open_session(fleet, found, options.kubeconfig, wait=0.0).asked, NAMESPACE, LEASE)
    holding = Holding(lease)
    passing = Passing(cluster, options, record, _child, lambda: holding.term)
    if bridge.only_plans():
        with bridge.refusing((ApiFailure, OSError, ValueError), "no decision: "):
            decision = passing.plan()
        return Ended(f"PLANNED, nothing was written (--dry): {decision.line}", 1 if decision.kind == "stop" else 0)
    watching = Watching(passing, holding, float(options.pass_interval) if options.watch else None)
    every = f"every {options.pass_interval} s, until it is stopped" if options.watch else "once"
    show(f"\nDecides {every} which machines wake and which nodes go, and carries it out. Its decisions: {record.path}")
    return Turns({fleet.targets[0].name}, lambda host: watching.run(), "decide, wake and consolidate")


def _child(deploy: str, data: Mapping[str, str], named: Callable[[str], object]) -> Child:
    return Child(deploy, data, lambda line: show_lines(f"  | {line}"), named)


def _of_cluster(session: Session) -> str:
    """A name of the cluster that no other one has. Raises DeployError."""
    with bridge.refusing((ApiFailure, ValueError), "the cluster cannot be read: "):
        found = session.fetch("/api/v1/namespaces/kube-system")
        if found is None or not _UID.fullmatch(uid(found)):
            raise ValueError("namespace kube-system has no UID")
        return uid(found)


# What changes are the deploys that it starts.
DATA_KEYS = (Declared(NodeAutoscalerOptions, ("node_autoscaler",)),)

__all__ = ["DATA_KEYS", "node_autoscaler"]
