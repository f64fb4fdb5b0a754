"""The fields of a PriorityClass, or of a workload, that a change is about: for the record, and for the way back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.engine.api import FIELD_MANAGER
from roles.engine.object_changes import Object, ObjectPath, api_object
from roles.priority_classes import class_facts
from roles.priority_classes.compliance import default_after, wanted_policy
from roles.priority_classes.model import PREEMPTS, PriorityClass
from roles.priority_classes.plan import Action

#: Where a workload names the class of its pods.
CLASS_OF_PODS: ObjectPath = ("spec", "template", "spec", "priorityClassName")
_VALUE, _POLICY, _DESCRIPTION, _DEFAULT = (("value",), ("preemptionPolicy",), ("description",), ("globalDefault",))
_MAPS = ("labels", "annotations")


def changed(action: Action) -> list[dict[str, Any]]:
    """What an action changes: {"path": [...], "before": ..., "after": ...}, None where it is not set. Of a class that is replaced all of
    its fields, since it goes and comes."""
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
    """What a class says, by the path of each field; what is not set, or says nothing, is left out. None: there is no class."""
    if found is None:
        return {}
    said: dict[ObjectPath, Any] = {_VALUE: class_facts.value_of(found), _POLICY: class_facts.policy_of(found)}
    if found.get("description"):
        said[_DESCRIPTION] = str(found["description"])
    if class_facts.is_default(found):
        said[_DEFAULT] = True
    for key in _MAPS:
        said |= {("metadata", key, name): value for name, value in (found["metadata"].get(key) or {}).items()}
    return said


def expected(action: Action) -> dict[ObjectPath, Any]:
    """What the class of an action will say once it is carried out: others' fields stay, and those that daytwo alone had set, and that are
    wanted no more, go."""
    item, found = action.wanted, action.before
    if item is None or action.what == "remove":
        return {}
    said = values(item.manifest())
    if action.what != "update" or found is None:
        return said
    said[_POLICY] = wanted_policy(item, found)
    if item.description is None and not api_object.only_ours(found, "f:description"):
        said |= {path: value for path, value in values(found).items() if path == _DESCRIPTION}
    said.pop(_DEFAULT, None)
    if default_after(item, found):
        said[_DEFAULT] = True
    for key in _MAPS:
        for name, value in (found["metadata"].get(key) or {}).items():
            if not api_object.only_ours(found, "f:metadata", f"f:{key}", f"f:{name}"):
                said.setdefault(("metadata", key, name), value)
    return said


def as_class(name: str, said: Mapping[ObjectPath, Any]) -> PriorityClass:
    """The class that says this. Raises ValueError (pydantic) where the API would refuse it."""
    policy = said.get(_POLICY)
    return PriorityClass(
        name=name,
        value=said[_VALUE],
        description=said.get(_DESCRIPTION),
        global_default=said.get(_DEFAULT),
        # The default is filled in by the API server, and owned by nobody.
        preemption_policy=None if policy == PREEMPTS else policy,
        labels={path[2]: value for path, value in said.items() if path[:2] == ("metadata", "labels")},
        annotations={path[2]: value for path, value in said.items() if path[:2] == ("metadata", "annotations")},
    )


def owned(found: Object) -> dict[ObjectPath, Any]:
    """Those of its values that daytwo owns, alone or with others: what an apply leaves out of these goes."""
    own = {}
    for path, value in values(found).items():
        if any(one == FIELD_MANAGER for one in api_object.managers(found, *(f"f:{part}" for part in path))):
            own[path] = value
    return own


def owners(found: Object, path: ObjectPath) -> list[str]:
    """The field managers of one field, but for daytwo."""
    return [one for one in api_object.managers(found, *(f"f:{part}" for part in path)) if one != FIELD_MANAGER]
