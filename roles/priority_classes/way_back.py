"""The undo of a run on PriorityClasses and workloads, from the fields in its record. Pure.

It restores only what that run set. If someone else has changed a field since, it refuses, unless `force`. Objects that have their old
values already need no action.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from roles.engine import kube
from roles.engine.kube import Object, field_managers, workloads
from roles.engine.object_changes import NotUndone, ObjectPath, ObjectPlan, judged, refuse_foreign, workload_rollout
from roles.engine.transaction import ChangedObject, ObjectsRecord, Writable
from roles.priority_classes import class_facts, compliance, fields
from roles.priority_classes.class_facts import ObservedClasses
from roles.priority_classes.fields import CLASS_OF_PODS
from roles.priority_classes.model import Workload
from roles.priority_classes.plan import Action, assign, ordered, removal_notes

#: What an undo may write.
WRITES = (
    Writable(
        "/apis/scheduling.k8s.io/v1/priorityclasses/*",
        (
            compliance.VALUE,
            compliance.POLICY,
            compliance.DESCRIPTION,
            compliance.DEFAULT,
            *(("metadata", key, "*") for key in compliance.MAPS),
        ),
    ),
    Writable("/apis/apps/v1/namespaces/*/*/*", (CLASS_OF_PODS,)),
)


def plan_way_back(record: ObjectsRecord, live: ObservedClasses, *, force: bool, rollout_seconds: float) -> ObjectPlan[Action]:
    """The plan that undoes a run. `rollout_seconds`: the time limit of each roll-out."""
    plan, changing, assigning, removing = ObjectPlan[Action](), list[Action](), list[Action](), list[Action]()
    workloads = [one for one in record.objects if one.action == "assign"]
    classes = [one for one in record.objects if one.action != "assign"]
    coming = {_name(one) for one in classes if one.action == "remove"}
    for one in workloads:
        found = judged(plan, one, lambda one: _workload(one, live, coming, force, rollout_seconds))
        assigning += [found] if found is not None else []
    leaving = {kube.uid(action.before) for action in assigning if action.before is not None}
    for one in classes:
        if (found := judged(plan, one, lambda one: _class(one, live, leaving, force))) is not None:
            (removing if found.what == "remove" else changing).append(found)
    # As in any plan: create classes before the workloads that name them, and remove them after these.
    plan.actions = ordered(changing, assigning, removing)
    return plan


def _name(one: ChangedObject) -> str:
    return one.path.rpartition("/")[2]


def _foreign(one: ChangedObject, now: Mapping[ObjectPath, Any], found: Object, force: bool) -> None:
    """Raises NotUndone if someone else has changed it since."""
    refuse_foreign(one, now, partial(fields.owners, found), force)


# ---- classes


def _class(one: ChangedObject, live: ObservedClasses, leaving: Collection[str], force: bool) -> Action | str:
    """Raises NotUndone."""
    found = live.classes.get(_name(one))
    if one.action == "create":
        return _uncreate(one, found, live, leaving, force)
    if one.action == "update" and found is None:
        return "is gone; there is nothing to restore"
    now = compliance.values(found)
    if found is not None and all(now.get(field.path) == field.before for field in one.fields):
        return "already has the values from before that run"
    if one.action == "update" and found is not None:
        _foreign(one, now, found, force)
        return _restore(one, found)
    wanted = fields.as_class(_name(one), {field.path: field.before for field in one.fields if field.before is not None})
    if found is None:
        return Action("create", one.name, one.path, None, wanted.manifest(), f"recreate it, value {wanted.value}", (), wanted)
    if one.action == "remove":
        raise NotUndone("foreign: that run removed it, and someone else has created another one since; check it, and remove it first")
    _foreign(one, now, found, force)
    notes = (
        "deleted and recreated; in between, pods that name it cannot be created",
        f"running pods keep their number ({class_facts.value_of(found)}, {class_facts.policy_of(found)})",
    )
    summary = f"replace it: value {class_facts.value_of(found)} -> {wanted.value}"
    return Action("replace", one.name, one.path, found, wanted.manifest(), summary, notes, wanted)


def _uncreate(one: ChangedObject, found: Object | None, live: ObservedClasses, leaving: Collection[str], force: bool) -> Action | str:
    """Raises NotUndone."""
    if found is None:
        return "is gone already"
    if not class_facts.is_ours(found):
        owners = ", ".join(field_managers.managers(found, "f:value")) or "an unknown manager"
        raise NotUndone(
            f"foreign: it is owned by {owners} now, and daytwo removes only classes that it created; leave it, or remove it by hand"
        )
    _foreign(one, compliance.values(found), found, force)
    after = live.users(_name(one), () if class_facts.is_default(found) else leaving)
    if after.any:
        raise NotUndone(
            f"{after}; daytwo never removes a class in use: give these another class first, or undo the run that gave them this one"
        )
    return Action("remove", one.name, one.path, found, None, "remove it: that run created it", removal_notes(found, live.users(_name(one))))


def _restore(one: ChangedObject, found: Object) -> Action:
    """The changed fields as before, and all other fields that daytwo owns: an apply removes fields that it omits. Raises NotUndone."""
    applied = fields.owned(found) | {("value",): class_facts.value_of(found)}
    for field in one.fields:
        applied.pop(field.path, None)
        if field.before is not None:
            applied[field.path] = field.before
    wanted = fields.as_class(_name(one), applied)
    # The resource version: a later change is not overwritten unseen.
    manifest = {**wanted.manifest(), "metadata": {**wanted.manifest()["metadata"], "resourceVersion": kube.version(found)}}
    names = ", ".join(".".join(field.path) for field in one.fields)
    action = Action("update", one.name, one.path, found, manifest, f"restore {names}", (), wanted)
    result = fields.expected(action)
    if kept := [field.path for field in one.fields if result.get(field.path) != field.before]:
        owned = "; ".join(
            f"{'.'.join(path)} is also owned by {', '.join(fields.owners(found, path)) or 'an unknown manager'}" for path in kept
        )
        raise NotUndone(f"{owned}, so it stays if daytwo omits it; set it there")
    return action


# ---- workloads


def _workload(one: ChangedObject, live: ObservedClasses, coming: Collection[str], force: bool, rollout_seconds: float) -> Action | str:
    """Raises NotUndone."""
    kind, namespace, name = (str(one.about.get(key)) for key in ("kind", "namespace", "name"))
    found = live.find(kind, namespace, name)
    if found is None:
        return "is gone; there is nothing to restore"
    if kube.uid(found) != one.uid:
        return "was recreated since; it stays as it is"
    (field,) = one.fields
    old, has = str(field.before or ""), workloads.class_of(kind, found)
    if has == old:
        return f"has {old or 'no class'} already"
    _foreign(one, {CLASS_OF_PODS: has or None}, found, force)
    problems = []
    if old and old not in live.classes and old not in coming:
        problems.append(f"its old class, PriorityClass {old}, is gone, so no pod could be created with it; create it first")
    if not old and not field_managers.only_ours(found, *(f"f:{part}" for part in CLASS_OF_PODS)):
        owners = ", ".join(fields.owners(found, CLASS_OF_PODS)) or "an unknown manager"
        problems.append(f"it had no class, but the field is also owned by {owners}, so daytwo cannot remove it; remove it there")
    # Health is not required here: that run may be the cause of a bad state.
    if (why := workload_rollout.why_no_rollout(kind, found)) is not None:
        problems.append(why)
    if problems:
        raise NotUndone("; ".join(problems))
    item = Workload(namespace=namespace, kind=kind, name=name, priority_class=old or has).model_copy(update={"priority_class": old})
    return assign(item, found, live, old or "none", rollout_seconds)
