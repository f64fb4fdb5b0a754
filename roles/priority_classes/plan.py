"""The plan: from the desired and the observed state to actions, refusals and notes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roles.engine import kube
from roles.engine.inputs import did_you_mean
from roles.engine.kube import Object, workloads
from roles.engine.kube.field_managers import managers
from roles.engine.kube.workloads import class_of
from roles.engine.object_changes import ObjectPlan, workload_rollout
from roles.priority_classes.class_facts import ObservedClasses, Usage, is_default, is_ours, policy_of, value_of
from roles.priority_classes.compliance import default_after, immutable, unmet_class, unmet_workload
from roles.priority_classes.model import CLASSES_PATH, SYSTEM_PREFIX, DesiredClasses, PriorityClass, Workload, workload_key

What = Literal["create", "update", "replace", "remove", "assign"]
_API_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1"}


@dataclass(frozen=True)
class Action:
    """One write. `before` is the object as it was read (None: it does not exist), `manifest` what to apply (None: remove the object);
    `notes` are its effects. `shown` is the diff from the API server's dry run, if there was one.

    `first`: the manifest of the dry run, if the API server accepts the real one only after an earlier action.
    """

    what: What
    name: str
    path: str
    before: Object | None
    manifest: Mapping[str, Any] | None
    summary: str
    notes: tuple[str, ...] = ()
    wanted: PriorityClass | None = None
    workload: Workload | None = None
    first: Mapping[str, Any] | None = None
    shown: str = ""


def plan_classes(desired: DesiredClasses, live: ObservedClasses) -> ObjectPlan[Action]:
    """The plan. The API server's dry run later adds refusals that only it knows (conflicts of managers, admission)."""
    plan = ObjectPlan[Action]()
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
    plan.actions = ordered(changing, assigning, [removed[name] for name in sorted(removed)])
    return plan


def _check_only(desired: DesiredClasses, live: ObservedClasses, plan: ObjectPlan[Action]) -> None:
    if desired.only is None:
        return
    known = [*(item.name for item in desired.priority_classes or ()), *(item.key for item in desired.workloads)]
    chosen = [*(item.name for item in desired.classes), *(item.key for item in desired.chosen_workloads)]
    for name in desired.only:
        if not (workload_key(name) in chosen or (name in live.classes and desired.drops(name))):
            plan.refusals.append(
                f"only: {name!r} is not a class or workload of the data{did_you_mean(name, known) or f'; the data has {_list(known)}'}"
            )


def _list(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


# ---- classes


def _class(item: PriorityClass, desired: DesiredClasses, live: ObservedClasses, plan: ObjectPlan[Action]) -> Action | None:
    found = live.classes.get(item.name)
    name = f"PriorityClass {item.name}"
    notes = _default_notes(item, found)
    if found is None:
        return Action("create", name, item.path, None, item.manifest(), f"create it, value {item.value}", notes, item)
    fixed = immutable(item, found)
    if fixed:
        return _replace(item, found, fixed, desired, live, plan, notes)
    unmet = unmet_class(item, found)
    if unmet is None:
        owner = "" if is_ours(found) else f" (created by {_list(managers(found, 'f:value'))})"
        plan.unchanged.append((name, f"as wanted{owner}"))
        return None
    # The resource version: a later change is not overwritten unseen.
    manifest = _with(item.manifest(), resourceVersion=kube.version(found))
    return Action("update", name, item.path, found, manifest, f"set {_list(unmet.fields)}", notes, item)


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
    plan: ObjectPlan[Action],
    notes: tuple[str, ...],
) -> Action | None:
    name, usage = f"PriorityClass {item.name}", live.users(item.name)
    why = f"{name}: {' and '.join(fixed)}: Kubernetes never changes these in place; it is {usage}"
    if not desired.replace:
        plan.refusals.append(
            f"{why}; give the new value another name and move the workloads to it (data key workloads), or delete and recreate the class "
            "with --data replace=true: running pods then keep the old number"
        )
        return None
    if not is_ours(found) and not desired.force:
        plan.refusals.append(
            f"{name}: replace would delete a class that {_list(managers(found, 'f:value'))} created; "
            "change it there, choose another name, or take it over with --data force=true"
        )
        return None
    lost = [key for key in ("description", "globalDefault") if found.get(key) and item.manifest().get(key) is None]
    lost += [
        key
        for key, wanted in (("labels", item.labels), ("annotations", item.annotations))
        if set(found["metadata"].get(key) or {}) - set(wanted)
    ]
    keeps = f"running pods keep the old number until they are recreated ({value_of(found)}, {policy_of(found)})"
    effects = (
        "deleted and recreated; in between, pods that name it cannot be created",
        f"{keeps}: {_list(usage.pods)}" if usage.pods else "no running pod has it",
        *([f"fields of the old class that the data does not have are lost: {_list(lost)}"] if lost else []),
        *([f"new pods of its workloads get the new number: {_list(usage.workloads)}"] if usage.workloads else []),
    )
    summary = f"replace it: {' and '.join(fixed)} in place"
    return Action("replace", name, item.path, found, item.manifest(), summary, (*effects, *notes), item)


def _with(manifest: Mapping[str, Any], **metadata: str) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], **{key: value for key, value in metadata.items() if value}}}


def _one_default(desired: DesiredClasses, live: ObservedClasses, removed: Mapping[str, Action], plan: ObjectPlan[Action]) -> None:
    """Refuses a second globalDefault, and names the first. The API server refuses it too, except in a race."""
    wanted = {item.name: item for item in desired.classes}
    defaults = [item.name for item in desired.classes if default_after(item, live.classes.get(item.name))]
    others = [name for name, found in sorted(live.classes.items()) if is_default(found) and name not in wanted and name not in removed]
    for name in others if defaults else ():
        found = live.classes[name]
        plan.refusals.append(
            f"PriorityClass {defaults[0]}: globalDefault is set on {name!r} in the cluster already (value {value_of(found)}, "
            f"set by {_list(managers(found, 'f:globalDefault'))}), and a cluster has only one; remove it from {name!r} first "
            f"(add that class to the data with globalDefault false), or leave it out here"
        )
    if not others and len(defaults) > 1:
        plan.refusals.append(f"{' and '.join(defaults)} would both be globalDefault; set globalDefault to false on one of them")


# ---- dropped classes


def _removals(desired: DesiredClasses, live: ObservedClasses, moving: Collection[str], plan: ObjectPlan[Action]) -> dict[str, Action]:
    removed = {}
    for name, found in sorted(live.classes.items()):
        if not desired.drops(name) or name.startswith(SYSTEM_PREFIX):
            continue
        shown = f"PriorityClass {name}"
        if not is_ours(found):
            if desired.only is not None:
                plan.refusals.append(
                    f"{shown}: {_list(managers(found, 'f:value'))} created it, and daytwo removes only classes that it created"
                )
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
            removed[name] = Action(
                "remove", shown, f"{CLASSES_PATH}/{name}", found, None, "remove it: no longer in the data",
                removal_notes(found, now),
            )  # fmt: skip
    return removed


def removal_notes(found: Object, now: Usage) -> tuple[str, ...]:
    notes = []
    if now.any:
        notes.append(f"{now}; these get another class in this run, and daytwo checks again before it removes this one")
    if now.old_revisions:
        notes.append(f"old revisions name it, and a roll-back to one of them could no longer create pods: {_list(now.old_revisions)}")
    if is_default(found):
        notes.append("it is the globalDefault: new pods without a class then get the priority 0, or that of the next globalDefault")
    return tuple(notes)


# ---- workloads


def _workload(
    item: Workload, desired: DesiredClasses, live: ObservedClasses, removed: Mapping[str, Action], plan: ObjectPlan[Action]
) -> Action | None:
    name = f"{item.kind} {item.namespace}/{item.name}"
    found = live.find(item.kind, item.namespace, item.name)
    if found is None:
        there = [str(other["metadata"]["name"]) for other in live.of(item.kind) if other["metadata"].get("namespace") == item.namespace]
        near = did_you_mean(item.name, there) or f"; that namespace has {_list(sorted(there))}"
        plan.refusals.append(f"{name}: it does not exist{near}")
        return None
    wanted = next((other for other in desired.classes if other.name == item.priority_class), None)
    in_cluster = live.classes.get(item.priority_class)
    problems = []
    if item.priority_class in removed or (wanted is None and in_cluster is None):
        known = [*(other.name for other in desired.classes), *(key for key in live.classes if key not in removed)]
        why = "this run removes it" if item.priority_class in removed else f"it does not exist{did_you_mean(item.priority_class, known)}"
        problems.append(f"PriorityClass {item.priority_class!r}: {why}; add it to priority_classes, or use one of {_list(sorted(known))}")
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
    return assign(item, found, live, f"{item.priority_class} ({value})", desired.rollout_seconds)


def assign(item: Workload, found: Object, live: ObservedClasses, becomes: str, rollout_seconds: float) -> Action:
    """The action that gives a workload its class, or none if `item` has none. `becomes` is that class as text."""
    count, current = workloads.replicas(item.kind, found), class_of(item.kind, found)
    old = live.classes.get(current)
    was = f"{current} ({value_of(old)})" if old is not None else current or "none"
    notes = (
        f"recreates its pods, {count} of them ({workload_rollout.how_it_rolls(item.kind, found)})"
        if count
        else "it has no pods now, so none is recreated",
        f"waits {rollout_seconds:g} s for the roll-out, then for the old pods to end; "
        "a failed roll-out is undone, which recreates the pods again",
    )
    manifest = assignment(item, found, item.priority_class or None)
    name = f"{item.kind} {item.namespace}/{item.name}"
    # The API server checks the class only when pods are created: the dry run works before the class exists.
    return Action("assign", name, item.path, found, manifest, f"class {was} -> {becomes}", notes, None, item)


def assignment(item: Workload, found: Object, priority_class: str | None) -> dict[str, Any]:
    """The manifest that gives a workload its class: this one field, and the UID, so that an apply never creates a deleted workload.

    None omits the field: the API server removes it if only daytwo had set it. Server-side apply fits here, since others own the rest of the
    object: if another manager owns this field, the API server refuses and names it, and does the same for their next apply. A JSON patch
    would overwrite their value silently, and be overwritten silently.
    """
    manifest: dict[str, Any] = {
        "apiVersion": _API_VERSIONS[item.kind],
        "kind": item.kind,
        "metadata": {"name": item.name, "namespace": item.namespace, "uid": kube.uid(found)},
    }
    if priority_class is not None:
        manifest["spec"] = {"template": {"spec": {"priorityClassName": priority_class}}}
    return manifest


def ordered(changing: list[Action], assigning: list[Action], removing: list[Action]) -> list[Action]:
    """The order of a plan's actions: the old default before its successor; a class is created before the workloads that name it, and
    removed after them."""

    def frees(action: Action) -> bool:
        return action.before is not None and is_default(action.before)

    def becomes(action: Action) -> bool:
        wanted = action.wanted
        return wanted is not None and default_after(wanted, action.before) and not (action.before and is_default(action.before))

    leaving = [action for action in removing if frees(action)] + [
        action for action in changing if frees(action) and action.wanted is not None and not default_after(action.wanted, action.before)
    ]
    coming = [action for action in changing if becomes(action)]
    if leaving:
        coming = [_without_default(action) for action in coming]
    names = {action.name for action in (*leaving, *coming)}
    rest = [action for action in changing if action.name not in names]
    return [*leaving, *rest, *coming, *assigning, *(action for action in removing if action.name not in names)]


def _without_default(action: Action) -> Action:
    """The action without globalDefault in its dry run: the API server would refuse it while the old default exists."""
    assert action.manifest is not None
    first = {key: value for key, value in action.manifest.items() if key != "globalDefault"}
    return Action(
        action.what, action.name, action.path, action.before, action.manifest, action.summary,
        (*action.notes, "the dry run omits its globalDefault, since the old default still exists"), action.wanted, None, first,
    )  # fmt: skip
