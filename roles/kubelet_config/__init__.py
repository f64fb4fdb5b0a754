"""Fields of the kubelets' configuration: checked against each kubelet's version, changed node by node, proven by /configz."""

from __future__ import annotations

from functools import partial

from roles.engine.bridge import Fleet, Remote
from roles.engine.inputs import Changes, Declared
from roles.engine.kubelet import KubeletState
from roles.engine.node_changes import ChangeDrains, change_nodes, from_data
from roles.engine.runs import Turns, deploying
from roles.kubelet_config import cgroups, model, plan
from roles.kubelet_config.carry_out import (
    FieldsRequest,
    KubeletFields,
    Settled,
    drained_change,
    predict_restart,
    restart_warnings,
    state_of,
    unreadable_node,
)
from roles.kubelet_config.compliance import unmet
from roles.kubelet_config.drained import warnings as drained_warnings
from roles.kubelet_config.impact import Impact, allocatable_impact
from roles.kubelet_config.model import DesiredFields, read_fields
from roles.kubelet_config.plan import restart_limits

_NOTHING = "no host has kubelet_config in its data; set it in group_data or with --data kubelet_config=maxPods=200"


@deploying("Kubelet configuration", lambda fleet: KubeletFields(from_data(fleet, _request, _NOTHING)))
def kubelet_config(fleet: Fleet, fields: KubeletFields) -> Turns:
    """Set the fields from the inventory's data (or --data kubelet_config=maxPods=200).

    Data keys: those of roles/kubelet_config/model.py and of roles/engine/runs/options.py. Raises DeployError before it writes to any
    node, if the plan is refused, or would evict pods without consent.
    """
    return change_nodes(fleet, fields)


def _request(remote: Remote) -> FieldsRequest | None:
    desired = read_fields(remote.name, remote.data)
    if desired is None:
        return None
    settle = partial(plan.settle, desired)
    return FieldsRequest(
        desired.model_dump(), settle, allocatable_impact, desired.chosen_nodes, desired.move_flags, desired.allow_evictions
    )


DATA_KEYS = (Declared(DesiredFields, ("kubelet_config",), changes=Changes.NODES), Declared(ChangeDrains, ("kubelet_config",)))

__all__ = [
    "DATA_KEYS",
    "DesiredFields",
    "FieldsRequest",
    "Impact",
    "KubeletFields",
    "KubeletState",
    "Settled",
    "allocatable_impact",
    "cgroups",
    "drained_change",
    "drained_warnings",
    "kubelet_config",
    "model",
    "predict_restart",
    "read_fields",
    "restart_limits",
    "restart_warnings",
    "state_of",
    "unmet",
    "unreadable_node",
]
