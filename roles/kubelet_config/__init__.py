"""Fields of the kubelets' configuration: checked against each kubelet's own version, changed node by node, proven by /configz."""

from __future__ import annotations

from functools import partial

from pyinfra.api.deploy import deploy

from roles.kubelet_config import plan
from roles.kubelet_config.carry_out import Prepared, Settled, Wish, after, brings, drive, prepare, state_of, unreadable
from roles.kubelet_config.model import Desired, read
from roles.kubelet_config.outlook import Outlook, allocatable_outlook, restart_outlook
from roles.kubelet_config.plan import needs_no_more
from roles.kubelet_config.restart import brought, with_brought
from roles.kubelet_config.state import State
from roles.kubelet_config.unmet import unmet
from roles.rollout import remote as bridge
from roles.rollout.remote import Fleet, Remote

_NOTHING = "no host has kubelet_config in its data; set it in group_data or with --data kubelet_config=maxPods=200"


@deploy("Kubelet configuration")  # type: ignore[untyped-decorator]
def kubelet_config() -> None:
    """Set the fields that the inventory's data (or --data kubelet_config=maxPods=200) wants.

    Data keys: those of roles/kubelet_config/model.py and of roles/rollout/options.py. Raises DeployError, before any node is
    written to, where the plan is refused, or would put pods out without consent.
    """
    drive("kubelet configuration", bridge.once("kubelet_config", _prepare), "change, prove, or put back")


def _prepare(fleet: Fleet) -> Prepared:
    return prepare(fleet, _wish, _NOTHING)


def _wish(remote: Remote) -> Wish | None:
    desired = read(remote.name, remote.data)
    if desired is None:
        return None
    settle = partial(plan.settle, desired)
    return Wish(desired.model_dump(), settle, restart_outlook, desired.only, desired.move_flags, desired.allow_evictions)


__all__ = [
    "Desired",
    "Outlook",
    "Prepared",
    "Settled",
    "State",
    "Wish",
    "after",
    "allocatable_outlook",
    "brings",
    "brought",
    "drive",
    "kubelet_config",
    "needs_no_more",
    "prepare",
    "read",
    "state_of",
    "unmet",
    "unreadable",
    "with_brought",
]
