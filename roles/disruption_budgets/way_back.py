"""The undo of a run on PodDisruptionBudgets, from the fields in its record. Pure.

It restores only what that run set. If someone else has changed a field since, it refuses, unless `force`. Budgets that have their old
values already need no action.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from roles.disruption_budgets.fields import MAPS, MAX, MIN, SPEC, as_manifest, creators, is_ours, other_owners, restoring, values
from roles.disruption_budgets.model import EXAMPLE, budget_path
from roles.disruption_budgets.plan import BudgetAction, budgets_by_key, explain, removals_last
from roles.engine.disruption import DisruptionObjects
from roles.engine.kube import Object, uid
from roles.engine.kube.names import namespaced_name
from roles.engine.object_changes import NotUndone, ObjectPlan, judged, refuse_foreign
from roles.engine.transaction import ChangedObject, ObjectsRecord, Writable

#: What an undo may write.
WRITES = (Writable("/apis/policy/v1/namespaces/*/poddisruptionbudgets/*", (*SPEC, *(("metadata", key, "*") for key in MAPS))),)


def plan_way_back(record: ObjectsRecord, live: DisruptionObjects, now: datetime, *, force: bool) -> ObjectPlan[BudgetAction]:
    """The plan that undoes a run. `live`: the objects of the namespaces in the record."""
    plan = ObjectPlan[BudgetAction]()
    there = budgets_by_key(live)
    found = [one for item in record.objects if (one := judged(plan, item, lambda item: _undone(item, there, force))) is not None]
    if not plan.refusals:
        # What was there before that run is restored, also if it was bad; the notes say so.
        explain(plan, removals_last(found), live, now, consent=True, allow_overlaps=True)
    return plan


def namespaces(record: ObjectsRecord) -> set[str]:
    """The namespaces of the budgets in a record."""
    return {str(one.about.get("namespace", "")) for one in record.objects}


def _undone(one: ChangedObject, there: Mapping[str, Object], force: bool) -> BudgetAction | str:
    """Raises NotUndone, and ValueError for an invalid name: a node keeps the record."""
    namespace, _, name = namespaced_name(str(one.about.get("namespace", "")), str(one.about.get("name", "")), EXAMPLE).partition("/")
    found = there.get(f"{namespace}/{name}")
    make = partial(BudgetAction, namespace=namespace, budget=name, path=budget_path(namespace, name))
    match one.action:
        case "create":
            return _uncreate(one, found, make, force)
        case "update":
            return _restore(one, found, make, force)
    if found is not None:
        if all(values(found).get(field.path) == field.before for field in one.fields):
            return "exists again, as before that run"
        raise NotUndone("foreign: that run removed it, and someone else has created another one since; check it, and remove it first")
    manifest = as_manifest(namespace, name, {field.path: field.before for field in one.fields if field.before is not None})
    return make("create", before=None, manifest=manifest, summary="recreate it: that run removed it")


def _uncreate(one: ChangedObject, found: Object | None, make: partial[BudgetAction], force: bool) -> BudgetAction | str:
    if found is None:
        return "is gone already"
    if not is_ours(found) and not force:
        raise NotUndone(
            f"foreign: {creators(found)} owns it now; leave it, remove it by hand, or remove it with --data force=true"
        )  # fmt: skip
    _foreign(one, found, force)
    return make("remove", before=found, manifest=None, summary="remove it: that run created it")


def _restore(one: ChangedObject, found: Object | None, make: partial[BudgetAction], force: bool) -> BudgetAction | str:
    if found is None:
        return "is gone; there is nothing to restore"
    if uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    now = values(found)
    if all(now.get(field.path) == field.before for field in one.fields):
        return "already has the values from before that run"
    _foreign(one, found, force)
    manifest, kept = restoring(found, one.fields)
    drops = kept[0] if force and len(kept) == 1 and kept[0] in (MIN, MAX) else None
    if kept and drops is None:
        owned = "; ".join(
            f"{'.'.join(path)} is also owned by {', '.join(other_owners(found, path)) or 'an unknown manager'}" for path in kept
        )
        raise NotUndone(f"{owned}, so it stays if daytwo omits it; change it there, or remove it with --data force=true")
    names = ", ".join(field.path[-1] for field in one.fields)
    return make("update", before=found, manifest=manifest, summary=f"restore {names}", drops=drops)


def _foreign(one: ChangedObject, found: Object, force: bool) -> None:
    """Raises NotUndone if someone else has changed it since."""
    refuse_foreign(one.fields, values(found), partial(other_owners, found), force)
