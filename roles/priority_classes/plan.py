"""The plan: from the desired and the observed state to actions, refusals and notes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from roles.engine import kube
from roles.engine.folding import or_none
from roles.engine.inputs import did_you_mean
from roles.engine.kube import Object, workloads
from roles.engine.kube.field_managers import managers
from roles.engine.kube.fields import annotations_of, labels_of, name_of, namespace_of, with_meta
from roles.engine.kube.names import not_one_of
from roles.engine.kube.workloads import class_of
from roles.engine.objects import NotUndone, ObjectChange, ObjectPlan, undo_plan, workload_rollout
from roles.engine.transaction import ObjectsRecord
from roles.priority_classes.class_facts import ObservedClasses, Usage, is_default, policy_of, value_of
from roles.priority_classes.compliance import default_after, immutable, unmet_class, unmet_workload
from roles.priority_classes.model import (
    CLASS,
    CLASS_OF_PODS,
    DEFAULT,
    SYSTEM_PREFIX,
    VALUE,
    WORKLOADS,
    DesiredClasses,
    PriorityClass,
    Workload,
)


def plan_classes(desired: DesiredClasses, live: ObservedClasses) -> ObjectPlan:
    """The plan. The API server's dry run later adds refusals that only it knows (conflicts of managers, admission)."""
    plan = ObjectPlan()
    try:
        desired = desired.settled(lambda kind, *place: live.find(kind, *place) is not None)
    except ValueError as error:
        plan.refusals.append(f"workloads: {error}")
        return plan
    _check_only(desired, live, plan)
    moving = {
        kube.uid(found)
        for item in desired.chosen_workloads
        if unmet_workload(item, live) and (found := live.find(item.kind, item.namespace, item.name)) is not None
    }
    removed = _removals(desired, live, moving, plan)
    _one_default(desired, live, removed, plan)
    changing = [action for item in desired.classes if (action := _class(item, desired, live, plan)) is not None]
    assigning = [action for item in desired.chosen_workloads if (action := _workload(item, desired, live, removed, plan)) is not None]
    plan.actions = ordered([*changing, *assigning, *(removed[name] for name in sorted(removed))])
    return plan


def _check_only(desired: DesiredClasses, live: ObservedClasses, plan: ObjectPlan) -> None:
    if desired.only_objects is None:
        return
    known = [*(item.name for item in desired.priority_classes or ()), *(item.key for item in desired.workloads)]
    for name in desired.only_objects:
        if not (name in live.classes and desired.drops(name)):
            plan.refusals += filter(None, [not_one_of(name, known, "no class or workload")])


# ---- classes


def _class(item: PriorityClass, desired: DesiredClasses, live: ObservedClasses, plan: ObjectPlan) -> ObjectChange | None:
    found = live.classes.get(item.name)
    name = f"PriorityClass {item.name}"
    notes = _default_notes(item, found)
    if found is None:
        return ObjectChange(CLASS, "create", "", item.name, None, item.manifest(), f"create it, value {item.value}", notes)
    fixed = immutable(item, found)
    if fixed:
        return _replace(item, found, fixed, desired, live, plan, notes)
    unmet = unmet_class(item, found)
    if unmet is None:
        plan.unchanged.append((name, CLASS.as_wanted(found)))
        return None
    return ObjectChange(CLASS, "update", "", item.name, found, item.manifest(), f"set {or_none(unmet.fields)}", notes)


def _default_notes(item: PriorityClass, found: Object | None) -> tuple[str, ...]:
    before, after = found is not None and is_default(found), default_after(item, found)
    if after and not before:
        return (f"new pods without a class then get {item.name} ({item.value}); existing pods keep their priority",)
    if before and not after:
        return ("new pods without a class then get the priority 0, or that of the next globalDefault",)
    return ()


def _replace(
    item: PriorityClass,
    found: Object,
    fixed: list[str],
    desired: DesiredClasses,
    live: ObservedClasses,
    plan: ObjectPlan,
    notes: tuple[str, ...],
) -> ObjectChange | None:
    name, usage = f"PriorityClass {item.name}", live.users(item.name)
    why = f"{name}: {' and '.join(fixed)}: Kubernetes never changes these in place; it is {usage}"
    if not desired.replace:
        plan.refusals.append(
            f"{why}; give the new value another name and move the workloads to it (data key workloads), or delete and recreate the class "
            "with --data replace=true. Running pods then keep the old number"
        )
        return None
    if not CLASS.is_ours(found) and not desired.force:
        plan.refusals.append(
            f"{name}: replace would delete a class that {CLASS.creators(found)} created; "
            "change it there, choose another name, or take it over with --data force=true"
        )
        return None
    lost = [key for key in ("description", "globalDefault") if found.get(key) and item.manifest().get(key) is None]
    lost += [
        key
        for key, has, wanted in (("labels", labels_of(found), item.labels), ("annotations", annotations_of(found), item.annotations))
        if set(has) - set(wanted)
    ]
    keeps = f"running pods keep the old number until they are recreated ({value_of(found)}, {policy_of(found)})"
    effects = (
        "deleted and recreated; in between, pods that name it cannot be created",
        f"{keeps}: {or_none(usage.pods)}" if usage.pods else "no running pod has it",
        *([f"fields of the old class that the data does not have are lost: {or_none(lost)}"] if lost else []),
        *([f"new pods of its workloads get the new number: {or_none(usage.workloads)}"] if usage.workloads else []),
    )
    summary = f"replace it: {' and '.join(fixed)} in place"
    return ObjectChange(CLASS, "replace", "", item.name, found, item.manifest(), summary, (*effects, *notes))


def _one_default(desired: DesiredClasses, live: ObservedClasses, removed: Mapping[str, ObjectChange], plan: ObjectPlan) -> None:
    """Refuses a second globalDefault, and names the first. The API server refuses it too, except in a race."""
    wanted = {item.name: item for item in desired.classes}
    defaults = [item.name for item in desired.classes if default_after(item, live.classes.get(item.name))]
    others = [name for name, found in sorted(live.classes.items()) if is_default(found) and name not in wanted and name not in removed]
    for name in others if defaults else ():
        found = live.classes[name]
        plan.refusals.append(
            f"PriorityClass {defaults[0]}: globalDefault is set on {name!r} in the cluster already (value {value_of(found)}, "
            f"set by {or_none(managers(found, 'f:globalDefault'))}), and a cluster has only one. Remove it from {name!r} first "
            f"(add that class to the data with globalDefault false), or leave it out here"
        )
    if not others and len(defaults) > 1:
        plan.refusals.append(f"{' and '.join(defaults)} would both be globalDefault; set globalDefault to false on one of them")


# ---- dropped classes


def _removals(desired: DesiredClasses, live: ObservedClasses, moving: Collection[str], plan: ObjectPlan) -> dict[str, ObjectChange]:
    removed = {}
    for name, found in sorted(live.classes.items()):
        if not desired.drops(name) or name.startswith(SYSTEM_PREFIX):
            continue
        shown = f"PriorityClass {name}"
        if not CLASS.is_ours(found):
            if desired.only_objects is not None:
                plan.refusals.append(f"{shown}: {CLASS.creators(found)} created it, and daytwo removes only classes that it created")
            continue
        # A default class is removed before its successor is written, and so before any workload leaves it.
        now, after = live.users(name), live.users(name, () if is_default(found) else moving)
        if not desired.prune:
            plan.kept.append((shown, f"dropped from the data, created by daytwo, {now}; to remove it: --data prune=true"))
        elif after.any:
            plan.refusals.append(
                f"{shown}: dropped from the data, but {after}; daytwo never removes a class in use: give these another class first "
                "(data key workloads), or add it to the data again"
            )
        else:
            why = "remove it: no longer in the data"
            removed[name] = ObjectChange(CLASS, "remove", "", name, found, None, why, removal_notes(found, now))
    return removed


def removal_notes(found: Object, now: Usage) -> tuple[str, ...]:
    notes = []
    if now.any:
        notes.append(f"{now}; these get another class in this run, and daytwo checks again before it removes this one")
    if now.old_revisions:
        notes.append(f"old revisions name it, and a roll-back to one of them could no longer create pods: {or_none(now.old_revisions)}")
    if is_default(found):
        notes.append("it is the globalDefault: new pods without a class then get the priority 0, or that of the next globalDefault")
    return tuple(notes)


# ---- workloads


def _workload(
    item: Workload, desired: DesiredClasses, live: ObservedClasses, removed: Mapping[str, ObjectChange], plan: ObjectPlan
) -> ObjectChange | None:
    name = f"{item.kind} {item.namespace}/{item.name}"
    found = live.find(item.kind, item.namespace, item.name)
    if found is None:
        there = [name_of(other) for other in live.of(item.kind) if namespace_of(other) == item.namespace]
        near = did_you_mean(item.name, there) or f"; that namespace has {or_none(sorted(there))}"
        plan.refusals.append(f"{name}: it does not exist{near}")
        return None
    wanted = next((other for other in desired.classes if other.name == item.priority_class), None)
    in_cluster = live.classes.get(item.priority_class)
    problems = []
    if item.priority_class in removed or (wanted is None and in_cluster is None):
        known = [*(other.name for other in desired.classes), *(key for key in live.classes if key not in removed)]
        why = "this run removes it" if item.priority_class in removed else f"it does not exist{did_you_mean(item.priority_class, known)}"
        problems.append(f"PriorityClass {item.priority_class!r}: {why}; add it to priority_classes, or use one of {or_none(sorted(known))}")
    current = class_of(item.kind, found)
    if not problems and unmet_workload(item, live) is None:
        plan.unchanged.append((name, f"has {current}"))
        return None
    value = wanted.value if wanted is not None else value_of(in_cluster) if in_cluster is not None else None
    spec = workloads.template(item.kind, found)
    if spec.get("priority") not in (None, value):
        problems.append(f"its template sets priority {spec['priority']} itself, and the API refuses such pods; remove that first")
    problems += workload_rollout.rollout_problems(item.kind, found)
    if problems:
        plan.refusals += [f"{name}: {problem}" for problem in problems]
        return None
    kind = WORKLOADS[item.kind]
    manifest = kind.manifest(item.namespace, item.name, {CLASS_OF_PODS: item.priority_class})
    manifest = with_meta(manifest, uid=kube.uid(found))
    change = ObjectChange(kind, "assign", item.namespace, item.name, found, manifest, "")
    return assigned(change, live, f"{item.priority_class} ({value})", desired.limit("rollout_timeout"))


def assigned(change: ObjectChange, live: ObservedClasses, becomes: str, rollout_seconds: float) -> ObjectChange:
    """The change of a workload's class with what it means. `becomes` is the class as text."""
    kind, found = change.kind.name, change.before
    assert found is not None
    current = class_of(kind, found)
    old = live.classes.get(current)
    was = f"{current} ({value_of(old)})" if old is not None else current or "none"
    notes = workload_rollout.rollout_notes(kind, found, workloads.replicas(kind, found), rollout_seconds)
    # The API server checks the class only when pods are created: the dry run works before the class exists.
    return replace(change, summary=f"class {was} -> {becomes}", notes=notes)


def ordered(changes: Sequence[ObjectChange]) -> list[ObjectChange]:
    """The order of a plan's changes: the old default before its successor; a class is created before the workloads that name it, and
    removed after them."""

    def was_default(change: ObjectChange) -> bool:
        return change.before is not None and is_default(change.before)

    assigning = [one for one in changes if one.what == "assign"]
    classes = [one for one in changes if one.what != "assign"]
    leaving = [one for one in classes if was_default(one) and DEFAULT not in one.after]
    leaving.sort(key=lambda one: one.what != "remove")
    coming = [one for one in classes if DEFAULT in one.after and not was_default(one)]
    rest = [one for one in classes if one not in leaving and one not in coming]
    if leaving:
        coming = [_without_default(one) for one in coming]
    removing = [one for one in rest if one.what == "remove"]
    return [*leaving, *(one for one in rest if one.what != "remove"), *coming, *assigning, *removing]


def _without_default(change: ObjectChange) -> ObjectChange:
    """The change without globalDefault in its dry run: the API server would refuse it while the old default exists."""
    assert change.manifest is not None
    trial = {key: value for key, value in change.manifest.items() if key != "globalDefault"}
    notes = (*change.notes, "the dry run omits its globalDefault, since the old default still exists")
    return replace(change, trial=trial, notes=notes)


# ---- the undo


def plan_undo(record: ObjectsRecord, live: ObservedClasses, *, force: bool, rollout_seconds: float) -> ObjectPlan:
    """The plan that undoes a run. `rollout_seconds`: the time limit of each roll-out."""
    there = {CLASS.path_of("", name): found for name, found in live.classes.items()}
    there |= {kind.path_of(*kube.namespace_and_name(found)): found for kind in WORKLOADS.values() for found in live.of(kind.name)}
    coming = {one.path.rpartition("/")[2] for one in record.objects if one.action == "remove"}

    def of_workload(change: ObjectChange) -> ObjectChange:
        if change.what != "assign" or change.before is None:
            return change
        old = str(change.after.get(CLASS_OF_PODS) or "")
        if old and old not in live.classes and old not in coming:
            raise NotUndone(f"its old class, PriorityClass {old}, is gone, so no pod could be created with it; create it first")
        # Health is not required here: that run may be the cause of a bad state.
        if (why := workload_rollout.why_no_rollout(change.kind.name, change.before)) is not None:
            raise NotUndone(why)
        return assigned(change, live, old or "none", rollout_seconds)

    def of_class(change: ObjectChange) -> ObjectChange:
        found = change.before
        if change.what == "create" or found is None:
            return replace(change, summary=f"recreate it, value {change.after[VALUE]}")
        if change.what == "replace":
            notes = (
                "deleted and recreated; in between, pods that name it cannot be created",
                f"running pods keep their number ({value_of(found)}, {policy_of(found)})",
            )
            return replace(change, summary=f"replace it: value {value_of(found)} -> {change.after[VALUE]}", notes=notes)
        if change.what != "remove":
            return change
        after = live.users(change.own_name, () if is_default(found) else leaving)
        if after.any:
            raise NotUndone(
                f"{after}; daytwo never removes a class in use: give these another class first, or undo the run that gave them this one"
            )
        return replace(change, notes=removal_notes(found, live.users(change.own_name)))

    moved = [one for one in record.objects if one.action == "assign"]
    plan = undo_plan(replace(record, objects=tuple(moved)), WORKLOADS.values(), there, force=force, explain=of_workload)
    leaving = {kube.uid(one.before) for one in plan.actions if one.before is not None}
    classes = tuple(one for one in record.objects if one not in moved)
    of_classes = undo_plan(replace(record, objects=classes), (CLASS,), there, force=force, explain=of_class)
    return ObjectPlan(
        ordered([*plan.actions, *of_classes.actions]),
        [*plan.unchanged, *of_classes.unchanged],
        refusals=[*plan.refusals, *of_classes.refusals],
    )
