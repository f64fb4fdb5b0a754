"""What each of these deploys begins with: the nodes looked at, whether --limit left them out or not, and a way to the API."""

from __future__ import annotations

from dataclasses import dataclass

from roles.objects import Session, open_session
from roles.proof import Survey, survey
from roles.rollout import Fleet, Remote, unreachable
from roles.rollout import remote as bridge


@dataclass(frozen=True)
class Reached:
    """`nodes` and `units` (of their kubelets) by the name of the node in the cluster."""

    found: Survey
    session: Session
    nodes: dict[str, Remote]
    units: dict[str, str]


def reach(fleet: Fleet, kubeconfig: str | None, wait: float) -> Reached:
    """Pods run where they run: all nodes of the inventory that answer are looked at. `wait`: seconds that the API may be away. Raises
    DeployError."""
    bridge.stop(unreachable(fleet))
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or none at all")
    there = [remote for remote in fleet.inventory if remote.connected or remote.connect()]
    found = survey(fleet, there)
    bridge.stop(found.refusals)
    return Reached(
        found,
        open_session(fleet, found, kubeconfig, wait),
        {node.kubelet.node_name: node.remote for node in found.nodes.values()},
        {node.kubelet.node_name: node.kubelet.unit_name for node in found.nodes.values()},
    )
