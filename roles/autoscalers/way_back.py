"""The undo of a run on autoscalers, from the fields in its record. Pure.

It restores only what that run set. If someone else has changed a field since, it refuses, unless `force`. Objects that have their old
values already need no action. The counts of workloads are not restored: the controller changes them all the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from roles.autoscalers.fields import API_VERSIONS, MAPS, SPEC, as_manifest, creators, is_ours, other_owners, path_of, restoring, values
from roles.autoscalers.model import EXAMPLE
from roles.autoscalers.plan import STAYS, AutoscalerAction
from roles.engine.autoscaling import LAST_APPLIED
from roles.engine.bounds import read_json
from roles.engine.kube import Object, uid
from roles.engine.kube.names import RESOURCES_OF_KINDS, namespaced_name
from roles.engine.object_changes import NotUndone, ObjectPlan, judged, refuse_foreign
from roles.engine.transaction import ChangedObject, ObjectsRecord, Writable

_PATH = re.compile(r"/apis/(apps|autoscaling|autoscaling\.k8s\.io)/v[0-9]/namespaces/[a-z0-9-]+/[a-z]+/[a-z0-9.-]+\Z")


def plan_way_back(record: ObjectsRecord, there: Mapping[str, Object], *, force: bool) -> ObjectPlan[AutoscalerAction]:
    """The plan that undoes a run. `there`: the objects of the record that exist, by path."""
    plan = ObjectPlan[AutoscalerAction]()
    plan.actions = [one for item in record.objects if (one := judged(plan, item, lambda item: _undone(item, there, force))) is not None]
    return plan


def _only_replicas(one: ChangedObject) -> str:
    """The annotation of `kubectl apply` may differ by the replicas that daytwo takes out of it, and by nothing else."""
    try:
        before, after = (_without_replicas(side) for field in one.fields for side in (field.before, field.after))
    except (TypeError, ValueError, AttributeError, LookupError):
        return f"{LAST_APPLIED} with what is no manifest"
    return "" if before == after else f"{LAST_APPLIED} with other changes than of its replicas"


def _without_replicas(text: Any) -> dict[str, Any]:
    found = read_json(text)
    return {**found, "spec": {key: value for key, value in found["spec"].items() if key != "replicas"}}


_FIELDS = (*(("spec", name) for name in SPEC), *(("metadata", key, "*") for key in MAPS))
#: What an undo may write.
WRITES = (
    *(Writable(path_of(kind, "x", "x").replace("/x/", "/*/").removesuffix("x") + "*", _FIELDS) for kind in API_VERSIONS),
    *(
        Writable(f"/apis/apps/v1/namespaces/*/{RESOURCES_OF_KINDS[kind]}/*", (("metadata", "annotations", LAST_APPLIED),), _only_replicas)
        for kind in ("Deployment", "StatefulSet")
    ),
)


def paths(record: ObjectsRecord) -> list[str]:
    """The paths of the objects in a record, which a node keeps: only those that can be one of this deploy's."""
    return [one.path for one in record.objects if _PATH.match(one.path)]


def workload_path(kind: str, namespace: str, name: str) -> str:
    """The path of a Deployment or StatefulSet; "" for other kinds. (A DaemonSet has no scale.)"""
    return f"/apis/apps/v1/namespaces/{namespace}/{RESOURCES_OF_KINDS[kind]}/{name}" if kind in ("Deployment", "StatefulSet") else ""


def _undone(one: ChangedObject, there: Mapping[str, Object], force: bool) -> AutoscalerAction | str:
    """Raises NotUndone, and ValueError for an invalid name: a node keeps the record."""
    kind = str(one.about.get("kind", ""))
    namespace, _, name = namespaced_name(str(one.about.get("namespace", "")), str(one.about.get("name", "")), EXAMPLE).partition("/")
    found = there.get(one.path)
    if kind not in API_VERSIONS:
        return _unsettle(one, found, partial(AutoscalerAction, kind=kind, namespace=namespace, own_name=name, path=one.path))
    path = path_of(kind, namespace, name)
    if path != one.path:
        raise NotUndone("the record names another path than its kind and name; undo it by hand")
    make = partial(AutoscalerAction, kind=kind, namespace=namespace, own_name=name, path=path)
    match one.action:
        case "create":
            return _uncreate(one, found, make, force)
        case "update":
            return _restore(one, found, make, force)
    if found is not None:
        if all(values(found).get(field.path) == field.before for field in one.fields):
            return "exists again, as before that run"
        raise NotUndone("foreign: that run removed it, and someone else has created another one since; check it, and remove it first")
    manifest = as_manifest(kind, namespace, name, {field.path: field.before for field in one.fields if field.before is not None})
    return make("create", before=None, manifest=manifest, summary="recreate it: that run removed it")


def _uncreate(one: ChangedObject, found: Object | None, make: partial[AutoscalerAction], force: bool) -> AutoscalerAction | str:
    if found is None:
        return "is gone already"
    if not is_ours(found) and not force:
        raise NotUndone(
            f"foreign: {creators(found)} owns it now; leave it, remove it by hand, or remove it with --data force=true"
        )  # fmt: skip
    refuse_foreign(one.fields, values(found), partial(other_owners, found), force)
    notes = (STAYS[make.keywords["kind"]],)
    return make("remove", before=found, manifest=None, summary="remove it: that run created it", notes=notes)


def _restore(one: ChangedObject, found: Object | None, make: partial[AutoscalerAction], force: bool) -> AutoscalerAction | str:
    if found is None:
        return "is gone; there is nothing to restore"
    if uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    now = values(found)
    if all(now.get(field.path) == field.before for field in one.fields):
        return "already has the values from before that run"
    refuse_foreign(one.fields, now, partial(other_owners, found), force)
    manifest = restoring(make.keywords["kind"], found, one.fields)
    names = ", ".join(".".join(field.path[1:]) for field in one.fields)
    return make("update", before=found, manifest=manifest, summary=f"restore {names}")


def _unsettle(one: ChangedObject, found: Object | None, make: partial[AutoscalerAction]) -> AutoscalerAction | str:
    """The annotation of `kubectl apply` gets its replicas back. Raises NotUndone."""
    if one.path != workload_path(make.keywords["kind"], make.keywords["namespace"], make.keywords["own_name"]):
        raise NotUndone("the record names another path than its kind and name; undo it by hand")
    if found is None or uid(found) != one.uid:
        return "is gone, or was recreated since; it stays as it is"
    field = one.fields[0] if len(one.fields) == 1 else None
    if field is None or field.path != ("metadata", "annotations", LAST_APPLIED):
        raise NotUndone("the record has a field that this deploy does not set; undo it by hand")
    now = (found["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if now != field.after:
        return "was applied again since; its annotation stays as it is"
    patch = {"metadata": {"uid": uid(found), "annotations": {LAST_APPLIED: field.before}}}
    return make(
        "update",
        before=found,
        manifest=None,
        summary="restore the annotation of `kubectl apply`",
        after={field.path: field.before},
        patch=patch,
    )
