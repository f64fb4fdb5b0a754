"""Node-pressure eviction: the kubelet's thresholds, the desired ones, and their effect on a node."""

from __future__ import annotations

from functools import partial

from roles.engine.bridge import Fleet, Remote
from roles.engine.editing import ABSENT
from roles.engine.inputs import Changes, Declared
from roles.engine.node_changes import ChangeDrains, change_nodes, from_data
from roles.engine.runs import Turns, deploying
from roles.engine.transaction import Refusal
from roles.eviction import model, usage, wanted
from roles.eviction.compliance import defaults_of, unmet
from roles.eviction.impact import eviction_impact
from roles.eviction.model import DesiredThresholds, read_thresholds
from roles.eviction.order import SIGNAL_TITLES, NodeOrder, OrderReport, OrderRow, OrdersReport, amount, order_report, reason
from roles.eviction.order_deploy import OrderOptions, eviction_order, node_order
from roles.eviction.picture import gauges
from roles.eviction.predict import readings
from roles.kubelet_config import FieldsRequest, KubeletFields, KubeletState, Settled, restart_limits

_NOTHING = "no host has eviction settings in its data; set them in group_data or with --data eviction_hard=memory.available=500Mi"


@deploying("Eviction thresholds", lambda fleet: KubeletFields(from_data(fleet, _request, _NOTHING)))
def eviction(fleet: Fleet, thresholds: KubeletFields) -> Turns:
    """Set the eviction thresholds from the inventory's data (or --data eviction_hard=memory.available=500Mi).

    Data keys: those of roles/eviction/model.py and of roles/engine/runs/options.py. Raises DeployError before it writes to any node, if
    the plan is refused, or would evict without consent.
    """
    return change_nodes(fleet, thresholds)


def _request(remote: Remote) -> FieldsRequest | None:
    desired = read_thresholds(remote.name, remote.data)
    if desired is None:
        return None
    return FieldsRequest(
        desired.model_dump(), partial(_settle, desired), eviction_impact, desired.chosen_nodes, desired.move_flags, desired.allow_evictions,
        wanted.lasting
    )  # fmt: skip


def _settle(desired: DesiredThresholds, state: KubeletState) -> Settled:
    now = state.configuration
    defaults = defaults_of(state.kubelet)
    capacity = {signal: reading.capacity for signal, reading in readings(state.summary).items()}
    problems = wanted.problems(state.host, desired, now, capacity, defaults)
    if problems:
        raise Refusal.of(state.host, problems)
    fields = {name: ABSENT if value is None else value for name, value in wanted.fields(desired, now, defaults).items()}
    expected = wanted.expected(desired, now, defaults)
    notes = tuple(wanted.notes(desired, now, capacity, defaults))
    settled = Settled(fields, expected, _summary(desired), notes, wanted.named(desired))
    restart_limits(state, settled)
    return settled


def _summary(desired: DesiredThresholds) -> str:
    """The settings that the operator named, in the flag's form."""
    parts = []
    for key, value in desired.model_dump(exclude_defaults=True).items():
        if not key.startswith("eviction_"):
            continue
        if isinstance(value, dict):
            entries = ",".join(f"{signal}={'absent' if text is None else text}" for signal, text in value.items())
            parts.append(f"{key}={entries}")
        else:
            parts.append(f"{key}={value}")
    return ", ".join(parts)


DOCUMENTS = {"eviction_order": OrdersReport}
DATA_KEYS = (
    Declared(DesiredThresholds, ("eviction",), changes=Changes.NODES),
    Declared(ChangeDrains, ("eviction",)),
    Declared(OrderOptions, ("eviction_order",)),
)

__all__ = [
    "DATA_KEYS",
    "DOCUMENTS",
    "SIGNAL_TITLES",
    "DesiredThresholds",
    "NodeOrder",
    "OrderReport",
    "OrderRow",
    "amount",
    "eviction",
    "eviction_impact",
    "eviction_order",
    "gauges",
    "model",
    "node_order",
    "order_report",
    "read_thresholds",
    "reason",
    "unmet",
    "usage",
]
