"""What each of these deploys begins with: the nodes looked at, whether --limit left them out or not, and a way to the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roles.api import Api
from roles.objects import connection
from roles.proof import Survey, survey
from roles.rollout import Fleet, Remote, unreachable
from roles.rollout import remote as bridge


@dataclass(frozen=True)
class Reached:
    """`nodes` and `units` (of their kubelets) by the name of the node in the cluster."""

    found: Survey
    connect: Callable[[], Api]
    nodes: dict[str, Remote]
    units: dict[str, str]


def reach(fleet: Fleet, kubeconfig: str | None) -> Reached:
    """Pods run where they run: all nodes of the inventory that answer are looked at. Raises DeployError."""
    bridge.stop(unreachable(fleet))
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or none at all")
    there = [remote for remote in fleet.inventory if remote.connected or remote.connect()]
    found = survey(fleet, there)
    bridge.stop(found.refusals)
    return Reached(
        found,
        connection(fleet, found, kubeconfig),
        {node.kubelet.node_name: node.remote for node in found.nodes.values()},
        {node.kubelet.node_name: node.kubelet.unit_name for node in found.nodes.values()},
    )


def driver(fleet: Fleet) -> str:
    """The host whose turn stands for the cluster."""
    return next((remote for remote in fleet.targets if remote.is_control_plane), fleet.targets[0]).name
