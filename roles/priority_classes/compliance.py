"""Compares the desired objects with those of the cluster. Pure."""

from __future__ import annotations

from typing import Any

from roles.engine.findings import Unmet
from roles.engine.kube import Object, field_managers, workloads
from roles.engine.object_changes import ObjectPath
from roles.priority_classes import class_facts
from roles.priority_classes.class_facts import ObservedClasses
from roles.priority_classes.model import PREEMPTS, PriorityClass, Workload

VALUE, POLICY, DESCRIPTION, DEFAULT = ("value",), ("preemptionPolicy",), ("description",), ("globalDefault",)
MAPS = ("labels", "annotations")


def unmet_class(item: PriorityClass, found: Object | None) -> Unmet | None:
    """How the class differs from the data; None if it does not."""
    if found is None:
        return Unmet(item.name, why="does not exist")
    differ = _differences(item, found)
    value = f" (it is {class_facts.value_of(found)}, wanted {item.value})" if "value" in differ else ""
    return Unmet(item.name, tuple(differ), value) if differ else None


def unmet_workload(item: Workload, live: ObservedClasses) -> Unmet | None:
    """How the workload differs from the data; None if it does not."""
    found = live.find(item.kind, item.namespace, item.name)
    has = None if found is None else workloads.class_of(item.kind, found)
    why = "does not exist" if has is None else f"its class is {has or 'none'}, wanted {item.priority_class}"
    return None if has == item.priority_class else Unmet(item.key, why=why)


def _differences(item: PriorityClass, found: Object) -> list[str]:
    """The fields in which a class differs from the data, including fields that daytwo set before and that are no longer in the data."""
    now, then = values(found), applied(item, found)
    differ = {path[1] if path[0] == "metadata" else path[0] for path in {**now, **then} if now.get(path) != then.get(path)}
    return [name for name in ("value", "preemptionPolicy", "description", "globalDefault", *MAPS) if name in differ]


def values(found: Object | None) -> dict[ObjectPath, Any]:
    """The fields of a class by path, without unset and empty ones. None: there is no class."""
    if found is None:
        return {}
    fields: dict[ObjectPath, Any] = {VALUE: class_facts.value_of(found), POLICY: class_facts.policy_of(found)}
    if found.get("description"):
        fields[DESCRIPTION] = str(found["description"])
    if class_facts.is_default(found):
        fields[DEFAULT] = True
    for key in MAPS:
        fields |= {("metadata", key, name): value for name, value in (found["metadata"].get(key) or {}).items()}
    return fields


def applied(item: PriorityClass, found: Object) -> dict[ObjectPath, Any]:
    """The fields of a class after an apply: fields of others stay; fields that only daytwo had set, and that are no longer in the data, are
    removed."""
    fields = values(item.manifest())
    fields[POLICY] = wanted_policy(item, found)
    if item.description is None and not field_managers.only_ours(found, "f:description"):
        fields |= {path: value for path, value in values(found).items() if path == DESCRIPTION}
    fields.pop(DEFAULT, None)
    if default_after(item, found):
        fields[DEFAULT] = True
    for key in MAPS:
        for name, value in (found["metadata"].get(key) or {}).items():
            if not field_managers.only_ours(found, "f:metadata", f"f:{key}", f"f:{name}"):
                fields.setdefault(("metadata", key, name), value)
    return fields


def wanted_policy(item: PriorityClass, found: Object) -> str:
    """The preemptionPolicy after an apply: if the data does not set it, it returns to the default if only daytwo had set it."""
    if item.preemption_policy is not None:
        return item.preemption_policy
    return PREEMPTS if field_managers.only_ours(found, "f:preemptionPolicy") else class_facts.policy_of(found)


def immutable(item: PriorityClass, found: Object) -> list[str]:
    """The required changes that the API does not allow (ValidatePriorityClassUpdate)."""
    changes = []
    if class_facts.value_of(found) != item.value:
        changes.append(f"value is {class_facts.value_of(found)} and cannot become {item.value}")
    if class_facts.policy_of(found) != wanted_policy(item, found):
        changes.append(f"preemptionPolicy is {class_facts.policy_of(found)} and cannot become {wanted_policy(item, found)}")
    return changes


def default_after(item: PriorityClass, found: Object | None) -> bool:
    """Whether a class is the globalDefault once it is applied."""
    if item.global_default is not None:
        return item.global_default
    if found is not None and immutable(item, found):
        return False  # it is recreated from the data only
    return found is not None and class_facts.is_default(found) and not field_managers.only_ours(found, "f:globalDefault")
