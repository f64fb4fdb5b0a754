"""What a pass reads of the cluster, and what the cluster's own scheduler says about a set of machines."""

from __future__ import annotations

from roles.consolidation import hosts_of, kept, model, plan
from roles.engine.bridge import Fleet
from roles.engine.inputs import read_model
from roles.engine.kube import full_name
from roles.engine.kube.fields import name_of
from roles.engine.objects import Session
from roles.engine.outage import cluster_time, read_drain
from roles.engine.power.model import HostPower
from roles.engine.proof import survey
from roles.engine.shadow import KINDS_OF_SHADOW, Move, shadow_control_plane
from roles.node_autoscaler.decide import Situation
from roles.node_autoscaler.decision import Decision
from roles.sleeping import due_now


class Cluster:
    """`machines`: what the inventory says of their cost. `shadowed`: a pass reads what a shadow control plane needs, too."""

    def __init__(self, fleet: Fleet, session: Session, machines: model.Machines, *, shadowed: bool) -> None:
        self._fleet, self._session, self._machines = fleet, session, machines
        self._more = KINDS_OF_SHADOW if shadowed else None
        self._switched = {
            remote.name for remote in fleet.inventory if read_model(remote.name, remote.data, HostPower).power is not None
        }  # fmt: skip

    def look(self) -> Situation:
        """Raises ApiFailure, and ValueError for an object that cannot be read."""
        live, now = read_drain(self._session, self._more), cluster_time(self._session)
        hosts = hosts_of(live.of("Node"), self._fleet.inventory)
        keeper = kept.Keeper(live, now, servers={node for node, host in hosts.items() if host.is_control_plane}, known=hosts)
        switched = [node for node, host in hosts.items() if host.name in self._switched]
        named = {node: host.name for node, host in hosts.items()}
        return Situation(keeper, self._machines, named, switched, due=due_now(live.of("Node"), now))

    def confirms(self, now: Situation, decision: Decision) -> str:
        """Why the cluster's scheduler would not place the pods that machines are woken for; "" if it does. Raises ShadowError."""
        remotes = [remote for remote in self._fleet.inventory if remote.is_control_plane and (remote.connected or remote.connect())]
        found = survey(self._fleet, remotes)
        live = now.keeper.live
        waiting = {full_name(pod) for pod in now.pending} - decision.nowhere.keys()
        objects = {
            **live.objects,
            "Node": [plan.awake(node) if name_of(node) in decision.nodes else node for node in live.of("Node")],
            "Pod": [pod for pod in live.of("Pod") if full_name(pod) not in waiting],
        }
        moves = [Move(None, pod) for pod in now.pending if full_name(pod) in waiting]
        with shadow_control_plane(found.observed.values(), objects) as shadow:
            verdict = shadow.ask([moves])
        refused = [one for one in verdict.pods if one.name in decision.pods and one.state != "placed"]
        return str(refused[0]) if refused else ""
