"""PriorityClasses, and the workloads that use them: planned with the API server's dry run, applied server-side, read back."""

from __future__ import annotations

from functools import partial

from roles.engine import bridge, kube
from roles.engine.api import Api
from roles.engine.bridge import Fleet, show
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.object_changes import (
    Consents,
    ObjectPlan,
    ObjectRun,
    cluster_session,
    desired_of_cluster,
    dry_run,
    object_diff,
    object_report,
    read_objects,
    show_plan,
)
from roles.engine.rollout import Options, Stage, Turns, deploying
from roles.engine.timeouts import unless_set
from roles.engine.transaction import ObjectsRecord, new_run_id, this_run
from roles.priority_classes import way_back
from roles.priority_classes.class_facts import ObservedClasses
from roles.priority_classes.compliance import unmet_class, unmet_workload
from roles.priority_classes.model import DesiredClasses, read_classes
from roles.priority_classes.plan import Action, plan_classes
from roles.priority_classes.write import Writer, read_live

#: The name in the records of runs that this package undoes.
CAPABILITY = "priority_classes"


def _read(fleet: Fleet) -> tuple[Options, DesiredClasses]:
    missing = "no host has priority_classes or workloads in its data; set them in group_data, or with --data priority_classes=NAME=VALUE"
    return desired_of_cluster(fleet, read_classes, missing)


@deploying("Priority classes", _read, all_reachable=True, of_cluster=True)
def priority_classes(fleet: Fleet, asked: tuple[Options, DesiredClasses]) -> Turns:
    """Apply the PriorityClasses in the inventory's data, and assign them to workloads.

    Data keys: priority_classes, workloads, replace, prune, force, only, rollout_timeout, kubeconfig, and take_over
    (roles/engine/rollout/options.py). Raises DeployError before any write if the plan is refused.
    """
    return Turns.of(_prepare(fleet, *asked), fleet, "apply, and read back")


def _prepare(fleet: Fleet, options: Options, desired: DesiredClasses) -> ObjectRun:
    api = cluster_session(fleet, desired.kubeconfig)
    plan = plan_classes(desired, read_objects(api, read_live))
    bridge.stop(plan.refusals)
    plan.actions = dry_run(plan.actions, api, partial(_shown, force=desired.force))
    writer = Writer(api, force=desired.force, rollout_timeout=desired.rollout_seconds)
    timeout = desired.rollout_timeout if "rollout_timeout" in desired.model_fields_set else None
    run = _run(fleet, options, plan, writer, {"cluster": desired.model_dump()}, timeout)
    show_plan(run, plan)
    return run


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy, with its time limits. Raises DeployError if someone else has changed the same
    fields since."""
    api = cluster_session(fleet, consents.kubeconfig)
    timeout = record.about.get("rollout_timeout")
    seconds = unless_set(timeout or DesiredClasses.model_fields["rollout_timeout"].default, timeout is not None)
    plan = way_back.plan_way_back(record, read_objects(api, read_live), force=consents.force, rollout_seconds=seconds)
    bridge.stop(plan.refusals)
    plan.actions = dry_run(plan.actions, api, partial(_shown, force=consents.force))
    writer = Writer(api, force=consents.force, rollout_timeout=seconds)
    run = _run(fleet, options, plan, writer, {"undo": record.run}, timeout, record.change)
    show(f"\nUndoing run {record.run}")
    show_plan(run, plan)
    return run


def _run(
    fleet: Fleet,
    options: Options,
    plan: ObjectPlan[Action],
    writer: Writer,
    wanted: dict[str, object],
    rollout_timeout: int | None,
    undoes: str = "",
) -> ObjectRun:
    return ObjectRun(
        this_run(new_run_id(), wanted),
        [Stage(writer.steps(plan.actions))],
        fleet,
        options.take_over,
        lambda run: object_report.show_objects_end(run, plan.rest),
        capability=CAPABILITY,
        about={"rollout_timeout": rollout_timeout},
        leaving=writer.leaving,
        undoes=undoes,
        warnings=writer.rolling.warnings,
    )


def _shown(action: Action, api: Api, *, force: bool) -> str:
    name = action.name.replace(" ", "/")
    if action.before is not None and action.what in ("remove", "replace"):
        api.delete(action.path, kube.uid(action.before), version=kube.version(action.before), dry_run=True)
    if action.manifest is None:
        return object_diff(action.before, None, name)
    if action.what == "replace":
        # An apply on the existing class would be refused: only the deletion can have a dry run.
        return object_diff(action.before, action.manifest, name)
    after = api.apply(action.path, action.first or action.manifest, force=force, dry_run=True)
    if action.first is not None:
        after["globalDefault"] = True
    return object_diff(action.before, after, name)


DATA_KEYS = (Declared(DesiredClasses, ("priority_classes",), changes=Changes.OBJECTS, undo=Undo(undo, way_back.WRITES, DesiredClasses)),)

__all__ = [
    "CAPABILITY",
    "DATA_KEYS",
    "DesiredClasses",
    "ObservedClasses",
    "priority_classes",
    "read_classes",
    "read_live",
    "undo",
    "unmet_class",
    "unmet_workload",
]
