"""The fields of autoscalers: what they have, what a manifest sets, who owns them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from roles.engine.autoscaling import HPA, HPAS_PATH, VPA, VPAS_PATH
from roles.engine.kube import FIELD_MANAGER, Object, uid
from roles.engine.kube.field_managers import is_own, managers, others
from roles.engine.object_changes import ObjectPath
from roles.engine.transaction import ChangedField

API_VERSIONS = {HPA: "autoscaling/v2", VPA: "autoscaling.k8s.io/v1"}
COLLECTIONS = {HPA: HPAS_PATH, VPA: VPAS_PATH}
#: The fields of a spec that daytwo sets, each as a whole.
SPEC = ("scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior", "targetRef", "updatePolicy", "resourcePolicy")
MAPS = ("labels", "annotations")


def path_of(kind: str, namespace: str, name: str) -> str:
    head, _, resource = COLLECTIONS[kind].rpartition("/")
    return f"{head}/namespaces/{quote(namespace, safe='')}/{resource}/{quote(name, safe='')}"


def manifest_of(kind: str, namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": dict(spec)}


def values(found: Object | None) -> dict[ObjectPath, Any]:
    """The fields of an autoscaler by path, without unset ones; labels and annotations too, which a recreated one gets back. None: there is
    no such object."""
    if found is None:
        return {}
    spec = found.get("spec") or {}
    fields: dict[ObjectPath, Any] = {("spec", one): spec[one] for one in SPEC if spec.get(one) is not None}
    for key in MAPS:
        fields |= {("metadata", key, name): value for name, value in (found["metadata"].get(key) or {}).items()}
    return fields


def field_managers(found: Object, path: ObjectPath) -> list[str]:
    """The owners of a field or of a part of it, as `manager` or `manager (Update)`."""
    return managers(found, *(f"f:{part}" for part in path))


def other_owners(found: Object, path: ObjectPath) -> list[str]:
    """The owners of a field other than daytwo."""
    return others(found, *(f"f:{part}" for part in path))


def is_ours(found: Object) -> bool:
    """daytwo created it: no other manager owns anything of its spec."""
    return is_own(found, "f:spec")


def creators(found: Object) -> str:
    """The managers of the spec, for a message."""
    return ", ".join(managers(found, "f:spec")) or "an unknown manager"


def as_manifest(kind: str, namespace: str, name: str, fields: Mapping[ObjectPath, Any]) -> dict[str, Any]:
    """The manifest with these fields."""
    manifest = manifest_of(kind, namespace, name, {path[1]: value for path, value in fields.items() if path[0] == "spec"})
    for key in MAPS:
        found = {path[2]: value for path, value in fields.items() if path[:2] == ("metadata", key)}
        if found:
            manifest["metadata"][key] = found
    return manifest


def owned(found: Object) -> dict[ObjectPath, Any]:
    """The fields of the spec that daytwo owns, alone or with others: an apply that omits one gives up its ownership."""
    return {path: value for path, value in values(found).items() if path[0] == "spec" and FIELD_MANAGER in field_managers(found, path)}


def restoring(kind: str, found: Object, changed: Iterable[ChangedField]) -> dict[str, Any]:
    """The manifest that restores the changed fields to their values before, and keeps all other fields that daytwo owns. Fields that were
    not set, and that someone else owns too, stay: the dry run shows it."""
    wanted = owned(found)
    for one in changed:
        wanted.pop(one.path, None)
        if one.before is not None and one.path[0] == "spec":
            wanted[one.path] = one.before
    manifest = as_manifest(kind, str(found["metadata"]["namespace"]), str(found["metadata"]["name"]), wanted)
    manifest["metadata"]["uid"] = uid(found)
    return manifest


def changes(before: Mapping[ObjectPath, Any], after: Mapping[ObjectPath, Any]) -> list[ChangedField]:
    """The fields that differ; all of them for a created or removed object."""
    return [ChangedField(path, before.get(path), after.get(path)) for path in {**before, **after} if before.get(path) != after.get(path)]
