"""The plan: which objects are created or updated, and the undo of a recorded run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from roles.engine.bounds import read_json
from roles.engine.kube import Object, field_managers
from roles.engine.kube.field_managers import FIELD_MANAGER, managers
from roles.engine.kube.fields import name_of
from roles.engine.objects import ObjectChange, ObjectPath, ObjectPlan, undo_plan
from roles.engine.transaction import ObjectsRecord
from roles.metrics_server.manifests import API_SERVICE, FIELD, KINDS, WantedServer, differing, identified, kept


class ServerChange(ObjectChange):
    """A change whose record has one field: what daytwo sets of the object, as a manifest without its name and kind."""

    @property
    def had(self) -> Mapping[ObjectPath, Any]:
        """What the object had of the fields that this change sets, and of those that daytwo had set before: an apply that no longer names
        one removes it."""
        if self.before is None:
            return {}
        known = kept(identified(self.manifest), self.before) if self.manifest is not None else {}
        return {FIELD: merged(known, applied(self.before))}

    @property
    def text(self) -> str:
        dead = f"; kubectl delete apiservice {API_SERVICE} if it is dead" if self.kind.name == "APIService" else ""
        return f"{self.name} as before{dead}"

    def meddled(self, found: Object) -> str:
        return "" if self.kind.marked(found) else "somebody else owns it now: left as it is"


def plan_objects(wanted: list[WantedServer], live: Mapping[str, Object], *, force: bool) -> ObjectPlan:
    """`live`: the objects that exist, by path."""
    plan = ObjectPlan()
    for one in wanted:
        found = live.get(one.path)
        if found is None:
            plan.actions.append(_change("create", one, None, "create it"))
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
        plan.actions.append(_change("update", one, found, f"set {', '.join(sorted({*fields}))}"))
    plan.actions += _dropped(wanted, live)
    return plan


def _change(what: Literal["create", "update"], one: WantedServer, found: Object | None, summary: str) -> ServerChange:
    kind = KINDS[one.kind]
    return ServerChange(kind, what, kind.namespace, one.own_name, found, one.manifest, summary)


def _dropped(wanted: list[WantedServer], live: Mapping[str, Object]) -> list[ServerChange]:
    """Objects of daytwo's that one replica does not have: a budget would forbid every drain of its node."""
    paths = {one.path for one in wanted}
    return [
        ServerChange(kind, "remove", kind.namespace, name_of(found), found, None, "remove it: the data no longer ask for it")
        for path, found in live.items()
        if path not in paths and (kind := KINDS[str(found.get("kind"))]).marked(found)
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


def plan_undo(record: ObjectsRecord, live: Mapping[str, Object], *, force: bool) -> ObjectPlan:
    """The plan that undoes a run, the last object first: the APIService goes before its server, or it would be dead for a moment."""
    plan = undo_plan(record, KINDS.values(), live, force=force, explain=_explained)
    plan.actions = plan.actions[::-1]
    plan.actions.sort(key=lambda one: list(KINDS).index(one.kind.name), reverse=True)
    return plan


def _explained(change: ObjectChange) -> ServerChange:
    made = ServerChange(**vars(change))
    if made.before is None or made.manifest is None or made.what != "update":
        return made
    return replace(made, summary=f"restore {', '.join(sorted({*differing(identified(made.manifest), made.before)}))}")
