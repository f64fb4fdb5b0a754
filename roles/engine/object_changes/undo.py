"""The undo of a run on whole objects, from the fields in its record. Pure.

It restores only what that run set. If someone else has changed a field since, it refuses, unless `force`. Objects that have their old
values already need no change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from roles.engine.kube import Object, uid
from roles.engine.object_changes.kind import Kind, ObjectChange
from roles.engine.object_changes.planned import NotUndone, ObjectPlan, judged, refuse_foreign
from roles.engine.transaction import ChangedObject, ObjectsRecord

#: Why there is nothing to undo, by what that run did to an object that does not exist now.
_GONE = {"create": "is gone already", "update": "is gone; there is nothing to restore"}


def undo_plan(record: ObjectsRecord, kinds: Collection[Kind], live: Mapping[str, Object], *, force: bool) -> ObjectPlan[ObjectChange]:
    """The plan that undoes a run. `live`: the objects of the record that exist, by path."""
    plan = ObjectPlan[ObjectChange]()
    found = (judged(plan, item, lambda item: undone(item, kinds, live, force)) for item in record.objects)
    plan.actions = [change for change in found if change is not None]
    return plan


def recorded_paths(record: ObjectsRecord, kinds: Collection[Kind]) -> list[str]:
    """The paths of the objects in a record that can be of these kinds."""
    return [one.path for one in record.objects if any(kind.place_of(one.path) for kind in kinds)]


def undone(one: ChangedObject, kinds: Collection[Kind], live: Mapping[str, Object], force: bool) -> ObjectChange | str:
    """The change that undoes one object of a record, or why there is none. Raises NotUndone: a node keeps the record."""
    kind, place = next(((kind, place) for kind in kinds if (place := kind.place_of(one.path))), (None, ("", "")))
    said = zip(("kind", "namespace", "name"), (kind and kind.name, *place), strict=True)
    if kind is None or any(one.about.get(key, part) != part for key, part in said):
        raise NotUndone("the record names another path than its kind and name; undo it by hand")
    found, before = live.get(one.path), {field.path: field.before for field in one.fields}
    make = partial(ObjectChange, kind, namespace=place[0], own_name=place[1], before=found)
    if found is None:
        if one.action in _GONE:
            return _GONE[one.action]
        manifest = kind.manifest(*place, {path: value for path, value in before.items() if value is not None})
        return make("create", manifest=manifest, summary="recreate it: that run removed it")
    now = kind.values(found)
    as_before = all(now.get(path) == value for path, value in before.items())
    if one.action == "create":
        return _uncreate(one, kind, found, make, force)
    if one.action != "update":
        if as_before:
            return "exists again, as before that run"
        raise NotUndone("foreign: that run removed it, and someone else has created another one since; check it, and remove it first")
    if uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    if not one.fields:
        raise NotUndone("the record does not say what that run set; undo it by hand")
    if kind.yields and any(now.get(field.path) not in (field.before, field.after) for field in one.fields):
        return "was changed by someone else since; it stays as it is"
    return "already has the values from before that run" if as_before else _restore(one, kind, found, make, force)


def _uncreate(one: ChangedObject, kind: Kind, found: Object, make: partial[ObjectChange], force: bool) -> ObjectChange:
    if not kind.is_ours(found) and not force:
        raise NotUndone(f"foreign: {kind.creators(found)} owns it now; leave it, remove it by hand, or remove it with --data force=true")
    refuse_foreign(one, kind.values(found), partial(kind.others, found), force)
    return make("remove", manifest=None, summary="remove it: that run created it", notes=(kind.stays,) if kind.stays else ())


def _restore(one: ChangedObject, kind: Kind, found: Object, make: partial[ObjectChange], force: bool) -> ObjectChange:
    refuse_foreign(one, kind.values(found), partial(kind.others, found), force)
    manifest, kept = kind.restoring(found, one.fields)
    if kept and not force:
        owned = "; ".join(
            f"{'.'.join(path)} is also owned by {', '.join(kind.others(found, path)) or 'an unknown manager'}" for path in kept
        )
        raise NotUndone(f"{owned}, so it stays if daytwo omits it; change it there, or remove it with --data force=true")
    names = ", ".join(".".join(field.path[1:]) for field in one.fields)
    return make("update", manifest=manifest, summary=f"restore {names}", drops=kept)
