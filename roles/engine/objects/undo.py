"""The undo of a run on whole objects, from the fields in its record. Pure.

It restores only what that run set. If someone else has changed a field since, it refuses, unless `force`. Objects that have their old
values already need no change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from roles.engine.kube import Object, uid
from roles.engine.objects.kind import Kind, ObjectChange
from roles.engine.objects.planned import NotUndone, ObjectPath, ObjectPlan, judged, refuse_foreign
from roles.engine.transaction import ChangedObject, ObjectsRecord

#: Why there is nothing to undo, by what that run did to an object that does not exist now.
_NOTHING_LEFT = "is gone; there is nothing to restore"
_GONE = {"create": "is gone already", "update": _NOTHING_LEFT, "assign": _NOTHING_LEFT}


def undo_plan(
    record: ObjectsRecord,
    kinds: Collection[Kind],
    live: Mapping[str, Object],
    *,
    force: bool,
    explain: Callable[[ObjectChange], ObjectChange] = lambda change: change,
) -> ObjectPlan[ObjectChange]:
    """The plan that undoes a run. `live`: the objects of the record that exist, by path. `explain`: the change with what it means; it
    raises NotUndone."""
    plan = ObjectPlan[ObjectChange]()

    def judge(one: ChangedObject) -> ObjectChange | str:
        found = undone(one, kinds, live, force)
        return found if isinstance(found, str) else explain(found)

    found = (judged(plan, item, judge) for item in record.objects)
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
    if other := [field.path for field in one.fields if not kind.writable.has_field(field.path)]:
        raise NotUndone(f"the record has {'.'.join(other[0]) or 'a field'}, which daytwo does not set there; undo it by hand")
    found, before = live.get(one.path), {field.path: field.before for field in one.fields}
    make = partial(ObjectChange, kind, namespace=place[0], own_name=place[1], before=found)
    if found is None:
        if one.action in _GONE:
            return _GONE[one.action]
        return make("create", manifest=_old(kind, place, before), summary="recreate it: that run removed it")
    now = kind.values(found)
    as_before = all(now.get(path) == value for path, value in before.items())
    if one.action == "create":
        return _uncreate(one, kind, found, make, force)
    if one.action not in ("update", "assign"):
        if as_before:
            return "exists again, as before that run"
        if one.action == "replace":
            refuse_foreign(one, now, partial(kind.others, found), force)
            return make("replace", manifest=_old(kind, place, before), summary="replace it")
        raise NotUndone("foreign: that run removed it, and someone else has created another one since; check it, and remove it first")
    if uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    if not one.fields:
        raise NotUndone("the record does not say what that run set; undo it by hand")
    if kind.yields and any(now.get(field.path) not in (field.before, field.after) for field in one.fields):
        return "was changed by someone else since; it stays as it is"
    return "already has the values from before that run" if as_before else _restore(one, kind, found, make, force)


def _old(kind: Kind, place: tuple[str, str], before: Mapping[ObjectPath, Any]) -> dict[str, Any]:
    if left := [path for path in kind.always if before.get(path) is None]:
        raise NotUndone(f"the record does not say its {left[0][-1]}; restore it by hand")
    return kind.manifest(*place, {path: value for path, value in before.items() if value is not None})


def _uncreate(one: ChangedObject, kind: Kind, found: Object, make: partial[ObjectChange], force: bool) -> ObjectChange:
    if not kind.is_ours(found) and kind.only_own:
        raise NotUndone(f"foreign: it is owned by {kind.creators(found)} now, and {kind.only_own}; leave it, or remove it by hand")
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
    names = ", ".join(".".join(field.path[1:] if field.path[0] == "spec" else field.path) for field in one.fields)
    return make(one.action, manifest=manifest, summary=f"restore {names}", drops=kept)
