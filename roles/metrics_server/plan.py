"""The plan: which objects are created or updated, and the undo of a recorded run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roles.engine.api import FIELD_MANAGER
from roles.engine.object_changes import NotUndone, Object, ObjectPlan, judged, managers, object_name, uid
from roles.engine.transaction import ChangedObject, ObjectsRecord
from roles.metrics_server.manifests import COLLECTIONS, Wanted, differing, kept, path_of

What = Literal["create", "update", "remove"]
#: The record has one field for an object: what daytwo sets of it.
FIELD = ("manifest",)


@dataclass(frozen=True)
class ServerAction:
    """One write. `before`: the object as it was read, None if it does not exist; `manifest`: what to apply, None: remove it."""

    what: What
    kind: str
    name: str
    path: str
    before: Object | None
    manifest: Mapping[str, Any] | None
    summary: str
    notes: tuple[str, ...] = ()
    shown: str = ""

    @property
    def was(self) -> dict[str, Any] | None:
        """What the object had of the fields that this action sets."""
        if self.before is None or self.manifest is None:
            return None
        return dict(kept(identified(self.manifest), self.before))


def identified(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without what is no setting."""
    found = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    found["metadata"] = {key: value for key, value in manifest["metadata"].items() if key in ("labels", "annotations")}
    return found


def plan_objects(wanted: list[Wanted], live: Mapping[str, Object], *, force: bool) -> ObjectPlan[ServerAction]:
    """`live`: the objects that exist, by path."""
    plan = ObjectPlan[ServerAction]()
    for one in wanted:
        found = live.get(one.path)
        if found is None:
            plan.actions.append(ServerAction("create", one.kind, one.name, one.path, None, one.manifest, "create it"))
            continue
        if not is_ours(found) and not force:
            owners = ", ".join(managers(found, "f:metadata", "f:labels")) or "nobody knows who"
            plan.refusals.append(
                f"{one.name} exists, and daytwo has not created it ({owners}); remove it, or take it over with --data force=true"
            )
            continue
        fields = differing(identified(one.manifest), found)
        if not fields:
            plan.unchanged.append((one.name, "read back: as wanted"))
            continue
        plan.actions.append(
            ServerAction("update", one.kind, one.name, one.path, found, one.manifest, f"set {', '.join(sorted({*fields}))}")
        )
    return plan


def is_ours(found: Object) -> bool:
    """daytwo has applied it."""
    return any(
        entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
        for entry in found["metadata"].get("managedFields") or ()
    )


# ---- the undo


def plan_way_back(record: ObjectsRecord, live: Mapping[str, Object], *, force: bool) -> ObjectPlan[ServerAction]:
    """The plan that undoes a run, the last object first: the APIService goes before its server, or it would be dead for a moment."""
    plan = ObjectPlan[ServerAction]()
    found = [judged(plan, one, lambda one: _undone(one, live, force)) for one in record.objects]
    plan.actions = [one for one in reversed(found) if one is not None]
    return plan


def recorded_path(one: ChangedObject) -> str:
    """The path of a recorded object, from its kind and name: a node keeps the record. Raises ValueError."""
    kind, name = str(one.about.get("kind", "")), str(one.about.get("object_name", ""))
    if kind not in COLLECTIONS:
        raise ValueError(f"the record names the kind {kind!r}, which this deploy does not write")
    for part in name.split(":"):
        object_name(part)
    return path_of(kind, name)


def _undone(one: ChangedObject, live: Mapping[str, Object], force: bool) -> ServerAction | str:
    """Raises NotUndone, ValueError."""
    path = recorded_path(one)
    kind, found = str(one.about["kind"]), live.get(path)
    field = next((field for field in one.fields if field.path == FIELD), None)
    if field is None or not isinstance(field.after, Mapping | None):
        raise ValueError("the record does not say what that run set")
    if one.action == "remove":
        if found is not None:
            return "exists again"
        raise NotUndone("that run removed it; run deploys/metrics_server.py with the old data to install it again")
    if found is None:
        return "is gone already"
    if one.uid and uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    if one.action == "create":
        if not is_ours(found) and not force:
            raise NotUndone("foreign: somebody else owns it now; remove it by hand, or with --data force=true")
        return ServerAction("remove", kind, one.name, path, found, None, "remove it: that run created it")
    before, after = field.before or {}, field.after or {}
    if not differing(before, found):
        return "already has the values from before that run"
    if (changed := differing(after, found)) and not force:
        raise NotUndone(
            f"foreign: changed by someone else since: {', '.join(changed)}; undo that first, or overwrite it with --data force=true"
        )
    metadata = {"name": found["metadata"]["name"], **(before.get("metadata") or {})}
    if "namespace" in found["metadata"]:
        metadata["namespace"] = found["metadata"]["namespace"]
    manifest = {**before, "apiVersion": str(one.about.get("version", "")), "kind": kind, "metadata": metadata}
    return ServerAction("update", kind, one.name, path, found, manifest, f"restore {', '.join(sorted({*differing(before, found)}))}")
