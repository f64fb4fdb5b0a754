"""The fields of a PriorityClass or a workload that a change sets: for the record, and for the undo. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.engine.kube import FIELD_MANAGER, Object, field_managers, workloads
from roles.engine.object_changes import ObjectPath
from roles.priority_classes.compliance import DEFAULT, DESCRIPTION, POLICY, VALUE, applied, values
from roles.priority_classes.model import PREEMPTS, PriorityClass
from roles.priority_classes.plan import Action

#: The field in which a workload names the class of its pods.
CLASS_OF_PODS: ObjectPath = ("spec", "template", "spec", "priorityClassName")


def changed(action: Action) -> list[dict[str, Any]]:
    """The fields that an action changes: {"path": [...], "before": ..., "after": ...}, None: not set. For a replaced class all fields,
    since it is deleted and recreated."""
    if action.workload is not None:
        old = workloads.class_of(action.workload.kind, action.before) if action.before is not None else ""
        return [{"path": list(CLASS_OF_PODS), "before": old or None, "after": action.workload.priority_class or None}]
    before = values(action.before)
    after = expected(action)
    return [
        {"path": list(path), "before": before.get(path), "after": after.get(path)}
        for path in dict.fromkeys([*before, *after])
        if action.what == "replace" or before.get(path) != after.get(path)
    ]


def expected(action: Action) -> dict[ObjectPath, Any]:
    """The fields of the class after the action."""
    item, found = action.wanted, action.before
    if item is None or action.what == "remove":
        return {}
    return applied(item, found) if action.what == "update" and found is not None else values(item.manifest())


def as_class(name: str, fields: Mapping[ObjectPath, Any]) -> PriorityClass:
    """The class with these fields. Raises ValueError (pydantic) if the API would refuse it."""
    if VALUE not in fields:
        raise ValueError("the record does not say its value; restore it by hand")
    policy = fields.get(POLICY)
    return PriorityClass(
        name=name,
        value=fields[VALUE],
        description=fields.get(DESCRIPTION),
        global_default=fields.get(DEFAULT),
        # The API server fills in the default, which has no owner.
        preemption_policy=None if policy == PREEMPTS else policy,
        labels={path[2]: value for path, value in fields.items() if path[:2] == ("metadata", "labels")},
        annotations={path[2]: value for path, value in fields.items() if path[:2] == ("metadata", "annotations")},
    )


def owned(found: Object) -> dict[ObjectPath, Any]:
    """The fields that daytwo owns, alone or with others: an apply that omits one gives up its ownership."""
    own = {}
    for path, value in values(found).items():
        if any(one == FIELD_MANAGER for one in field_managers.managers(found, *(f"f:{part}" for part in path))):
            own[path] = value
    return own


def owners(found: Object, path: ObjectPath) -> list[str]:
    """The managers of a field other than daytwo."""
    return field_managers.others(found, *(f"f:{part}" for part in path))
