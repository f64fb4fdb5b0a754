"""Pure: a problem from one JSON document: {"nodes": [Node], "pods": [Pod], "pdbs": [PodDisruptionBudget],
"off": [{"name", "cost", "capacity", "labels"}], "cost": {NODE: PRICE}}."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roles.engine.kube import Object
from roles.engine.kube.fields import annotations_of, meta_of, name_of, status_of
from roles.engine.packing.model import HOSTNAME, Machine, Problem

_KEYS = ("nodes", "pods", "pdbs", "off", "cost", "policy")
_READY = ({"type": "Ready", "status": "True"},)
#: The annotation of a node that stays (cluster-autoscaler, FAQ.md).
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


def read(document: Mapping[str, Any]) -> Problem:
    """Raises ValueError with one line that says what is wrong."""
    if not isinstance(document, Mapping):
        raise ValueError(f"the document is not an object with the keys {', '.join(_KEYS)}")
    if unknown := sorted(str(key) for key in document if key not in _KEYS):
        raise ValueError(f"unknown key {unknown[0]}; the keys are {', '.join(_KEYS)}")
    nodes, prices = [_with_conditions(one) for one in _objects(document, "nodes")], document.get("cost") or {}
    if not isinstance(prices, Mapping):
        raise ValueError("cost is not an object of nodes and prices")
    on = [Machine(name_of(one), _price(prices.get(name_of(one)), name_of(one)), one) for one in nodes]
    off = [_sleeping(one) for one in _listed(document, "off")]
    keep = {one.name: SCALE_DOWN_DISABLED for one in on if annotations_of(one.node).get(SCALE_DOWN_DISABLED) == "true"}
    return Problem((*on, *off), tuple(_objects(document, "pods")), tuple(_objects(document, "pdbs")), keep)


def _listed(document: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = document.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise ValueError(f"{key} is not a list of objects")
    return found


def _objects(document: Mapping[str, Any], key: str) -> Sequence[Object]:
    found = _listed(document, key)
    for number, one in enumerate(found):
        if not all(isinstance(one.get(part) or {}, Mapping) for part in ("metadata", "spec", "status")):
            raise ValueError(f"{key}[{number}]: metadata, spec and status are objects")
        if not isinstance(meta_of(one).get("name"), str):
            raise ValueError(f"{key}[{number}] has no metadata.name")
    return [one if "spec" in one else {**one, "spec": {}} for one in found]


def _with_conditions(node: Object) -> Object:
    """A node of which only the room is written is Ready."""
    status = status_of(node)
    return node if "conditions" in status else {**node, "status": {**status, "conditions": _READY}}


def _price(price: Any, name: str) -> float:
    if isinstance(price, bool) or not isinstance(price, int | float):
        raise ValueError(f"cost of {name}: {'it is missing' if price is None else f'{price!r} is not a number'}")
    return float(price)


def _sleeping(machine: Mapping[str, Any]) -> Machine:
    name, capacity, labels = machine.get("name"), machine.get("capacity"), machine.get("labels") or {}
    if not isinstance(name, str) or not name:
        raise ValueError("a machine of off has no name")
    if not isinstance(capacity, Mapping) or not isinstance(labels, Mapping):
        raise ValueError(f"machine {name} of off: capacity and labels are objects")
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOSTNAME: name} | dict(labels)}, "spec": {},
        "status": {"allocatable": capacity, "capacity": capacity, "conditions": _READY},
    }  # fmt: skip
    return Machine(name, _price(machine.get("cost"), name), node, off=True)
