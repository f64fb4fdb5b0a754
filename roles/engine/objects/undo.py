"""The undo of a run, from the fields in its record. Pure.

It restores only what that run set. If someone else has changed a field since, it refuses, unless `force`. Objects that have their old
values already need no change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from roles.engine.commands import command
from roles.engine.kube import Object, uid
from roles.engine.objects.kind import Kind, ObjectChange, ObjectPath, ObjectPlan, foreign
from roles.engine.transaction import ChangedObject, ObjectsRecord

#: Why there is nothing to undo, by the object's outcome in the recorded run.
_NOTHING_TO_UNDO = {
    "reverted": "that run reverted it",
    "foreign": "someone else changed it during that run, and that run left it",
    "gone": "it was deleted during that run",
}
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
) -> ObjectPlan:
    """The plan that undoes a run. `live`: the objects of the record that exist, by path. `explain`: the change with what it means; it
    raises NotUndone."""
    plan = ObjectPlan()
    for one in record.objects:
        if one.outcome in _NOTHING_TO_UNDO:
            plan.unchanged.append((one.name, _NOTHING_TO_UNDO[one.outcome]))
            continue
        try:
            found = undone(one, kinds, live, force)
            if isinstance(found, str):
                plan.unchanged.append((one.name, found))
            else:
                plan.actions.append(explain(found))
        except (NotUndone, ValueError) as refused:
            # That run failed before it wrote the object, as far as its record shows.
            if one.outcome == "failed":
                plan.unchanged.append((one.name, "that run could not write it"))
            else:
                plan.refusals.append(f"{one.name}: {refused}")
    return plan


def undone(one: ChangedObject, kinds: Collection[Kind], live: Mapping[str, Object], force: bool) -> ObjectChange | str:
    """The change that undoes one object of a record, or why there is none. Raises NotUndone, ValueError: a node keeps the record."""
    if one.masked:
        raise NotUndone(
            f"{', '.join(one.masked)} had a value that looks like a secret, and a record has no secrets: restore it by hand, then run this"
            " again"
        )
    kind, place = next(((kind, place) for kind in kinds if (place := kind.place_of(one.path))), (None, ("", "")))
    said = zip(("kind", "namespace", "name"), (kind and kind.name, *place), strict=True)
    if kind is None or any(one.about.get(key, part) != part for key, part in said):
        raise NotUndone("the record names another path than its kind and name; undo it by hand")
    if other := [field.path for field in one.fields if not kind.writable.has_field(field.path)]:
        raise NotUndone(f"the record has {'.'.join(other[0]) or 'a field'}, which daytwo does not set there; undo it by hand")
    if why := kind.writable.refuse(one):
        raise NotUndone(f"the record has {why}; restore it by hand")
    found, before = live.get(one.path), {field.path: field.before for field in one.fields}
    make = partial(ObjectChange, kind, namespace=place[0], own_name=place[1], before=found)
    if found is None:
        if one.action in _GONE or kind.verb == "patch":
            return _GONE.get(one.action, _NOTHING_LEFT)
        return make("create", manifest=_old(kind, place, before), summary="recreate it: that run removed it")
    as_before = all(kind.has(found, path, value) for path, value in before.items())
    if one.action == "create":
        return _uncreate(one, kind, found, make, force)
    if one.action not in ("update", "assign") and kind.verb == "apply":
        if as_before:
            return "exists again, as before that run"
        if one.action == "replace":
            refuse_foreign(one, kind, found, force)
            return make("replace", manifest=_old(kind, place, before), summary="replace it")
        raise NotUndone("foreign: that run removed it, and someone else has created another one since; check it, and remove it first")
    if uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    if not one.fields:
        raise NotUndone("the record does not say what that run set; undo it by hand")
    if kind.yields and foreign(kind, found, one.fields):
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
    refuse_foreign(one, kind, found, force)
    return make("remove", manifest=None, summary="remove it: that run created it", notes=(kind.stays,) if kind.stays else ())


def _restore(one: ChangedObject, kind: Kind, found: Object, make: partial[ObjectChange], force: bool) -> ObjectChange:
    refuse_foreign(one, kind, found, force)
    if kind.verb == "patch":
        back = ObjectChange.of_fields(kind, found, {field.path: field.before for field in one.fields})
        return replace(back, summary=f"restore {back.summary}")
    manifest, kept = kind.restoring(found, one.fields)
    if kept and not force:
        owned = "; ".join(
            f"{'.'.join(path)} is also owned by {', '.join(kind.others(found, path)) or 'an unknown manager'}" for path in kept
        )
        raise NotUndone(f"{owned}, so it stays if daytwo omits it; change it there, or remove it with --data force=true")
    names = ", ".join(".".join(field.path[1:] if field.path[0] == "spec" else field.path) for field in one.fields)
    return make(one.action, manifest=manifest, summary=f"restore {names}", drops=kept)


class NotUndone(Exception):
    """Why an object cannot be restored, with the way out."""


def refuse_foreign(one: ChangedObject, kind: Kind, found: Object, force: bool) -> None:
    """Raises NotUndone if a field has neither its value from before the run nor the run's."""
    other = foreign(kind, found, one.fields)
    if not other or force:
        return
    now = kind.values(found)
    runs = [one.run_that_set(field.path, now.get(field.path)) if not kind.others(found, field.path) else "" for field in other]
    runs = list(dict.fromkeys(runs))
    said = "; ".join(kind.said(found, field) for field in other)
    if all(runs):
        raise NotUndone(
            f"changed since by {' and '.join(f'run {run}' for run in runs)}: {said}; undo that first:"
            f" {command('rollback', run=runs[-1])}, or overwrite it with --data force=true"
        )
    raise NotUndone(f"foreign: changed by someone else since: {said}; undo that first, or overwrite it with --data force=true")
