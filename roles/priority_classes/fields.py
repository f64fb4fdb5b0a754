"""The fields of a PriorityClass or a workload that a change sets: for the record, and for the undo. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.engine.api import FIELD_MANAGER
from roles.engine.object_changes import Object, ObjectPath, api_object
from roles.priority_classes import class_facts
from roles.priority_classes.compliance import default_after, wanted_policy
from roles.priority_classes.model import PREEMPTS, PriorityClass
from roles.priority_classes.plan import Action

#: The field in which a workload names the class of its pods.
CLASS_OF_PODS: ObjectPath = ("spec", "template", "spec", "priorityClassName")
_VALUE, _POLICY, _DESCRIPTION, _DEFAULT = (("value",), ("preemptionPolicy",), ("description",), ("globalDefault",))
_MAPS = ("labels", "annotations")


def changed(action: Action) -> list[dict[str, Any]]:
    """The fields that an action changes: {"path": [...], "before": ..., "after": ...}, None: not set. For a replaced class all fields,
    since it is deleted and recreated."""
    if action.workload is not None:
        old = api_object.class_of(action.workload.kind, action.before) if action.before is not None else ""
        return [{"path": list(CLASS_OF_PODS), "before": old or None, "after": action.workload.priority_class or None}]
    before = values(action.before)
    after = expected(action)
    return [
        {"path": list(path), "before": before.get(path), "after": after.get(path)}
        for path in dict.fromkeys([*before, *after])
        if action.what == "replace" or before.get(path) != after.get(path)
    ]


def values(found: Object | None) -> dict[ObjectPath, Any]:
    """The fields of a class by path, without unset and empty ones. None: there is no class."""
    if found is None:
        return {}
    fields: dict[ObjectPath, Any] = {_VALUE: class_facts.value_of(found), _POLICY: class_facts.policy_of(found)}
    if found.get("description"):
        fields[_DESCRIPTION] = str(found["description"])
    if class_facts.is_default(found):
        fields[_DEFAULT] = True
    for key in _MAPS:
        fields |= {("metadata", key, name): value for name, value in (found["metadata"].get(key) or {}).items()}
    return fields


def expected(action: Action) -> dict[ObjectPath, Any]:
    """The fields of the class after the action: fields of others stay; fields that only daytwo had set, and that are no longer in the data,
    are removed."""
    item, found = action.wanted, action.before
    if item is None or action.what == "remove":
        return {}
    fields = values(item.manifest())
    if action.what != "update" or found is None:
        return fields
    fields[_POLICY] = wanted_policy(item, found)
    if item.description is None and not api_object.only_ours(found, "f:description"):
        fields |= {path: value for path, value in values(found).items() if path == _DESCRIPTION}
    fields.pop(_DEFAULT, None)
    if default_after(item, found):
        fields[_DEFAULT] = True
    for key in _MAPS:
        for name, value in (found["metadata"].get(key) or {}).items():
            if not api_object.only_ours(found, "f:metadata", f"f:{key}", f"f:{name}"):
                fields.setdefault(("metadata", key, name), value)
    return fields


def as_class(name: str, fields: Mapping[ObjectPath, Any]) -> PriorityClass:
    """The class with these fields. Raises ValueError (pydantic) if the API would refuse it."""
    policy = fields.get(_POLICY)
    return PriorityClass(
        name=name,
        value=fields[_VALUE],
        description=fields.get(_DESCRIPTION),
        global_default=fields.get(_DEFAULT),
        # The API server fills in the default, which has no owner.
        preemption_policy=None if policy == PREEMPTS else policy,
        labels={path[2]: value for path, value in fields.items() if path[:2] == ("metadata", "labels")},
        annotations={path[2]: value for path, value in fields.items() if path[:2] == ("metadata", "annotations")},
    )


def owned(found: Object) -> dict[ObjectPath, Any]:
    """The fields that daytwo owns, alone or with others: an apply that omits one gives up its ownership."""
    own = {}
    for path, value in values(found).items():
        if any(one == FIELD_MANAGER for one in api_object.managers(found, *(f"f:{part}" for part in path))):
            own[path] = value
    return own


def owners(found: Object, path: ObjectPath) -> list[str]:
    """The managers of a field other than daytwo."""
    return [one for one in api_object.managers(found, *(f"f:{part}" for part in path)) if one != FIELD_MANAGER]
