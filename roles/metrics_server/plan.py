"""The plan: which objects are created or updated, and the undo of a recorded run. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from roles.engine.bounds import read_json
from roles.engine.kube import Object, field_managers, uid
from roles.engine.kube.field_managers import FIELD_MANAGER, managers
from roles.engine.kube.fields import meta_of, name_of
from roles.engine.kube.names import object_name
from roles.engine.objects import NotUndone, ObjectChange, ObjectPlan, What, judged
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord, Writable
from roles.metrics_server.manifests import API_SERVICE, FIELD, KINDS, NAME, WantedServer, differing, kept, namespace_of, objects, path_of
from roles.metrics_server.model import MetricsServer


@dataclass(frozen=True)
class ServerChange(ObjectChange):
    """A change whose record has one field: what daytwo sets of the object, as a manifest without its name and kind."""

    @classmethod
    def of(cls, what: What, kind: str, name: str, before: Object | None, manifest: Mapping[str, Any] | None, summary: str) -> ServerChange:
        return cls(KINDS[kind], what, namespace_of(kind), name, before, manifest, summary)

    @property
    def key(self) -> str:
        return self.own_name

    @property
    def was(self) -> dict[str, Any] | None:
        """What the object had of the fields that this change sets, and of those that daytwo had set before: an apply that no longer names
        one removes it. None: there was no object."""
        if self.before is None:
            return None
        known = kept(identified(self.manifest), self.before) if self.manifest is not None else {}
        return dict(merged(known, applied(self.before)))

    @property
    def wanted(self) -> dict[str, Any]:
        return identified(self.manifest) if self.manifest is not None else {}

    @property
    def fields(self) -> list[ChangedField]:
        return [ChangedField(FIELD, self.was, self.wanted or None)]

    @property
    def text(self) -> str:
        dead = f"; kubectl delete apiservice {API_SERVICE} if it is dead" if self.kind.name == "APIService" else ""
        return f"{self.name} as before{dead}"

    @property
    def about(self) -> dict[str, str]:
        version = str((self.manifest or self.before or {}).get("apiVersion", ""))
        own = {key: one for key, one in super().about.items() if key in ("path", "uid", "kind")}
        return {**own, "object_name": self.own_name, "version": version}

    def is_as_before(self, found: Object | None) -> bool:
        return found is not None and not differing(self.was or {}, found)

    def differing(self, found: Object) -> list[str]:
        return differing(self.wanted, found)

    def meddled(self, found: Object) -> str:
        return "" if self.kind.marked(found) else "somebody else owns it now: left as it is"

    def reverting(self, found: Object) -> dict[str, Any]:
        return as_manifest(self.kind.version, self.kind.name, self.own_name, self.was or {})


def identified(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without what is no setting."""
    found = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    found["metadata"] = {key: value for key, value in meta_of(manifest).items() if key in ("labels", "annotations")}
    return found


def plan_objects(wanted: list[WantedServer], live: Mapping[str, Object], *, force: bool) -> ObjectPlan[ServerChange]:
    """`live`: the objects that exist, by path."""
    plan = ObjectPlan[ServerChange]()
    for one in wanted:
        found = live.get(one.path)
        if found is None:
            plan.actions.append(ServerChange.of("create", one.kind, one.own_name, None, one.manifest, "create it"))
            continue
        if not KINDS[one.kind].marked(found) and not force:
            owners = ", ".join(managers(found, "f:metadata", "f:labels")) or "nobody knows who"
            plan.refusals.append(
                f"{one.name} exists, and daytwo has not created it ({owners}); remove it, or take it over with --data force=true"
            )
            continue
        wanted_fields = identified(one.manifest)
        fields = [*differing(wanted_fields, found), *differing(applied(found), wanted_fields)]
        if not fields:
            plan.unchanged.append((one.name, "read back: as wanted"))
            continue
        plan.actions.append(ServerChange.of("update", one.kind, one.own_name, found, one.manifest, f"set {', '.join(sorted({*fields}))}"))
    plan.actions += _dropped(wanted, live)
    return plan


def _dropped(wanted: list[WantedServer], live: Mapping[str, Object]) -> list[ServerChange]:
    """Objects of daytwo's that one replica does not have: a budget would forbid every drain of its node."""
    paths = {one.path for one in wanted}
    return [
        ServerChange.of("remove", kind, name_of(found), found, None, "remove it: the data no longer ask for it")
        for path, found in live.items()
        if path not in paths and (kind := str(found.get("kind"))) and KINDS[kind].marked(found)
    ]


def applied(found: Object) -> dict[str, Any]:
    """The settings of an object that daytwo has applied, by metadata.managedFields."""
    for entry in field_managers.entries(found):
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply":
            return identified({"metadata": {}, **_picked(entry.get("fieldsV1") or {}, found)})
    return {}


def _picked(fields: Mapping[str, Any], value: Any) -> Any:
    """The parts of a value that FieldsV1 names: `f:NAME` a field, `k:{...}` an item of a list by its keys (structured-merge-diff)."""
    inner = {name: one for name, one in fields.items() if name != "."}
    if not inner:
        return value
    if isinstance(value, Mapping):
        return {name[2:]: _picked(one, value[name[2:]]) for name, one in inner.items() if name.startswith("f:") and name[2:] in value}
    if isinstance(value, list):
        found = []
        for item in value:
            for name, one in inner.items():
                keys = read_json(name[2:]) if name.startswith("k:") else None
                if keys is not None and isinstance(item, Mapping) and all(item.get(key) == text for key, text in keys.items()):
                    found.append({**keys, **_picked(one, item)})
        return found
    return value


def merged(first: Any, second: Any) -> Any:
    """Both, where they do not name the same field."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return {**second, **{key: merged(value, second[key]) if key in second else value for key, value in first.items()}}
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [merged(one, other) for one, other in zip(first, second, strict=True)]
    return first


# ---- the undo


def plan_way_back(record: ObjectsRecord, live: Mapping[str, Object], *, force: bool) -> ObjectPlan[ServerChange]:
    """The plan that undoes a run, the last object first: the APIService goes before its server, or it would be dead for a moment."""
    plan = ObjectPlan[ServerChange]()
    found = [one for item in record.objects if (one := judged(plan, item, lambda item: _undone(item, live, force))) is not None]
    plan.actions = found[::-1]
    plan.actions.sort(key=lambda one: list(KINDS).index(one.kind.name), reverse=True)
    return plan


#: What differs between the installations of daytwo: everything else is as it ships it.
_FREE = frozenset(("image", "replicas", "requests", "imagePullSecrets", "affinity", "maxUnavailable"))


@cache
def _shipped() -> dict[str, Mapping[str, Any]]:
    return {one.path: one.manifest for one in objects(MetricsServer(image="registry.example.com/metrics-server:v0"), 2, 1)}


def not_shipped(one: ChangedObject) -> str:
    """What a recorded object had that daytwo does not ship: another role, subject, rule, command or privilege; "" if nothing."""
    path, shipped = recorded_path(one), _shipped()
    if one.path != path or path not in shipped:
        return f"{one.path}, which daytwo does not ship"
    for field in one.fields:
        if found := _beyond(field.before or {}, identified(shipped[path])):
            return f"{', '.join(found)}, other than daytwo ships"
    version = shipped[path]["apiVersion"]
    return "" if one.about.get("version") in ("", version) else f"{one.about.get('version')!r}, which is not {version}"


def _beyond(found: Any, shipped: Any, path: str = "") -> list[str]:
    if isinstance(found, Mapping) and isinstance(shipped, Mapping):
        names = {key: f"{path}.{key}" if path else str(key) for key in found if key not in _FREE}
        unknown = [name for key, name in names.items() if key not in shipped]
        return [*unknown, *(one for key, name in names.items() if key in shipped for one in _beyond(found[key], shipped[key], name))]
    if isinstance(found, list) and isinstance(shipped, list) and len(found) == len(shipped):
        pairs = enumerate(zip(found, shipped, strict=True))
        return [one for number, pair in pairs for one in _beyond(*pair, f"{path}[{number}]")]
    return [] if found == shipped else [path]


#: What an undo may write.
WRITES = tuple(Writable(f"{posixpath.dirname(path_of(kind, NAME))}/*", (FIELD,), not_shipped) for kind in KINDS)


def recorded_path(one: ChangedObject) -> str:
    """The path of a recorded object, from its kind and name: a node keeps the record. Raises ValueError."""
    kind, name = str(one.about.get("kind", "")), str(one.about.get("object_name", ""))
    if kind not in KINDS:
        raise ValueError(f"the record names the kind {kind!r}, which this deploy does not write")
    for part in name.split(":"):
        object_name(part)
    return path_of(kind, name)


def _undone(one: ChangedObject, live: Mapping[str, Object], force: bool) -> ServerChange | str:
    """Raises NotUndone, ValueError."""
    path = recorded_path(one)
    kind, name, found = str(one.about["kind"]), str(one.about["object_name"]), live.get(path)
    field = next((field for field in one.fields if field.path == FIELD), None)
    if field is None or not isinstance(field.after, Mapping | None):
        raise ValueError("the record does not say what that run set")
    if one.action == "remove":
        if found is not None:
            return "exists again"
        manifest = _manifest(one, field.before or {}, kind)
        return ServerChange.of("create", kind, name, None, manifest, "recreate it: that run removed it")
    if found is None:
        return "is gone already"
    if one.uid and uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    if one.action == "create":
        if not KINDS[kind].marked(found) and not force:
            raise NotUndone("foreign: somebody else owns it now; remove it by hand, or with --data force=true")
        return ServerChange.of("remove", kind, name, found, None, "remove it: that run created it")
    before, after = field.before or {}, field.after or {}
    if not differing(before, found):
        return "already has the values from before that run"
    if (changed := differing(after, found)) and not force:
        raise NotUndone(
            f"foreign: changed by someone else since: {', '.join(changed)}; undo that first, or overwrite it with --data force=true"
        )
    manifest = _manifest(one, before, kind)
    return ServerChange.of("update", kind, name, found, manifest, f"restore {', '.join(sorted({*differing(before, found)}))}")


def _manifest(one: ChangedObject, settings: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The manifest that sets what a record has. Raises ValueError for one that daytwo does not ship."""
    if why := not_shipped(one):
        raise ValueError(f"the record has {why}; restore it by hand")
    return as_manifest(str(one.about.get("version", "")), kind, str(one.about["object_name"]), settings)


def as_manifest(version: str, kind: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """An object with these settings, which have its labels, but neither its name nor its kind."""
    metadata = {"name": name, **meta_of(settings)}
    if namespace := namespace_of(kind):
        metadata["namespace"] = namespace
    return {**settings, "apiVersion": version, "kind": kind, "metadata": metadata}
