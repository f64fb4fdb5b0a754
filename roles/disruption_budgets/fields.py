"""The fields of a PodDisruptionBudget: what it has, what a manifest sets, who owns them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from roles.disruption_budgets.model import manifest_of
from roles.engine.kube import FIELD_MANAGER, Object, namespace_and_name, uid
from roles.engine.kube.field_managers import is_own, managers, only_ours, others
from roles.engine.object_changes import ObjectPath
from roles.engine.transaction import ChangedField

#: The fields that daytwo sets. The selector is one field: the API server replaces it as a whole (LabelSelector is atomic).
SELECTOR, MAX, MIN, POLICY = (
    ("spec", "selector"),
    ("spec", "maxUnavailable"),
    ("spec", "minAvailable"),
    ("spec", "unhealthyPodEvictionPolicy"),
)
SPEC = (SELECTOR, MAX, MIN, POLICY)
MAPS = ("labels", "annotations")


def values(found: Object | None) -> dict[ObjectPath, Any]:
    """The fields of a budget by path, without unset ones; labels and annotations too, which a recreated budget gets back. None: there is
    no budget."""
    if found is None:
        return {}
    spec = found.get("spec") or {}
    fields: dict[ObjectPath, Any] = {path: spec[path[1]] for path in SPEC if spec.get(path[1]) is not None}
    for key in MAPS:
        fields |= {("metadata", key, name): value for name, value in (found["metadata"].get(key) or {}).items()}
    return fields


def field_managers(found: Object, path: ObjectPath) -> list[str]:
    """The owners of a field, as `manager` or `manager (Update)`."""
    return managers(found, *(f"f:{part}" for part in path))


def other_owners(found: Object, path: ObjectPath) -> list[str]:
    """The owners of a field other than daytwo."""
    return others(found, *(f"f:{part}" for part in path))


def is_ours(found: Object) -> bool:
    """daytwo created this budget: no other manager owns anything of its spec (kube-controller-manager owns its status)."""
    return is_own(found, "f:spec")


def creators(found: Object) -> str:
    """The managers of the spec, for a message."""
    return ", ".join(managers(found, "f:spec")) or "an unknown manager"


def after_apply(manifest: Mapping[str, Any], found: Object | None) -> dict[ObjectPath, Any]:
    """The fields after an apply of `manifest`: fields of others stay; fields that only daytwo had set, and that the manifest does not have,
    are removed."""
    fields = values(manifest)
    for path, value in values(found).items():
        if path not in fields and not only_ours(found or {}, *(f"f:{part}" for part in path)):
            fields[path] = value
    return fields


def as_manifest(namespace: str, name: str, fields: Mapping[ObjectPath, Any]) -> dict[str, Any]:
    """The manifest with these fields."""
    manifest = manifest_of(namespace, name, {path[1]: value for path, value in fields.items() if path[0] == "spec"})
    for key in MAPS:
        found = {path[2]: value for path, value in fields.items() if path[:2] == ("metadata", key)}
        if found:
            manifest["metadata"][key] = found
    return manifest


def as_object(manifest: Mapping[str, Any], found: Object | None, fields: Mapping[ObjectPath, Any]) -> dict[str, Any]:
    """The budget with the `fields` that it will have, for the computation of its numbers: with the status of now."""
    namespace, name = namespace_and_name(manifest)
    made = as_manifest(namespace, name, {path: value for path, value in fields.items() if path[0] == "spec"})
    old = found or {}
    made["metadata"] |= {"generation": int((old.get("metadata") or {}).get("generation") or 0) + 1}
    return {**made, "status": old.get("status") or {}}


def owned(found: Object) -> dict[ObjectPath, Any]:
    """The fields of the spec that daytwo owns, alone or with others: an apply that omits one gives up its ownership."""
    return {path: value for path, value in values(found).items() if path[0] == "spec" and FIELD_MANAGER in field_managers(found, path)}


def restoring(found: Object, changed: Iterable[ChangedField]) -> tuple[dict[str, Any], list[ObjectPath]]:
    """The manifest that restores the changed fields of a budget to their values before, and keeps all other fields that daytwo owns; and
    the fields that it cannot restore, since someone else owns them too."""
    namespace, name = namespace_and_name(found)
    wanted, back = owned(found), list(changed)
    for one in back:
        wanted.pop(one.path, None)
        if one.before is not None and one.path[0] == "spec":
            wanted[one.path] = one.before
    manifest = as_manifest(namespace, name, wanted)
    manifest["metadata"]["uid"] = uid(found)
    result = after_apply(manifest, found)
    return manifest, [one.path for one in back if result.get(one.path) != one.before]


def changes(before: Object | None, after: Mapping[ObjectPath, Any]) -> list[ChangedField]:
    """The fields that differ; all of them for a created or removed budget."""
    old = values(before)
    return [ChangedField(path, old.get(path), after.get(path)) for path in {**old, **after} if old.get(path) != after.get(path)]
