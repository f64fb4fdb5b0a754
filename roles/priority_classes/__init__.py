"""PriorityClasses, and the workloads that use them: planned with the API server's dry run, applied server-side, read back."""

from __future__ import annotations

from roles.engine.bridge import Fleet
from roles.engine.commands import command
from roles.engine.findings import render
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.object_runs import Consents, ObjectRun, TimeLimit, cluster_session, desired_or_listing, planned_run, read_objects
from roles.engine.objects import ObjectPlan, Session
from roles.engine.runs import Ended, Options, Turns, deploying
from roles.engine.transaction import ObjectsRecord
from roles.engine.voice import show_lines
from roles.priority_classes.class_facts import ObservedClasses
from roles.priority_classes.compliance import unmet_class, unmet_workload
from roles.priority_classes.listing import HEADERS, rows
from roles.priority_classes.model import CLASS, WORKLOADS, DesiredClasses, read_classes
from roles.priority_classes.plan import plan_classes, plan_undo
from roles.priority_classes.write import Writer, read_live

#: The name in the records of runs that this package undoes.
CAPABILITY = "priority_classes"


def _read(fleet: Fleet) -> tuple[Options, DesiredClasses]:
    return desired_or_listing(fleet, read_classes, DesiredClasses, "priority_classes or workloads")


@deploying("Priority classes", _read, all_reachable=True, of_cluster=True)
def priority_classes(fleet: Fleet, asked: tuple[Options, DesiredClasses]) -> Turns | Ended:
    """Apply the PriorityClasses in the inventory's data, and assign them to workloads; without data, list those of the cluster, and change
    nothing.

    Data keys: priority_classes, workloads, replace, prune, force, only_objects, rollout_timeout, kubeconfig, and take_over
    (roles/engine/runs/options.py). Raises DeployError before any write if the plan is refused.
    """
    if not asked[1].asks:
        return _listed(cluster_session(fleet, asked[1].kubeconfig))
    return Turns.of(_prepare(fleet, *asked), fleet, "apply, and read back")


def _prepare(fleet: Fleet, options: Options, desired: DesiredClasses) -> ObjectRun:
    api = cluster_session(fleet, desired.kubeconfig)
    plan = plan_classes(desired, read_objects(api, read_live))
    return _run(fleet, options, plan, api, desired, force=desired.force)


def _listed(api: Session) -> Ended:
    listed = rows(read_objects(api, read_live))
    show_lines(render.section("PriorityClasses", HEADERS, listed))
    classes = f"{len(listed)} {'PriorityClass' if len(listed) == 1 else 'PriorityClasses'}"
    return Ended(f"{classes}. To set one: {command('priority_classes', priority_classes='web=1000')}")


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy, with its time limits. Raises DeployError if someone else has changed the same
    fields since."""
    api = cluster_session(fleet, consents.kubeconfig)
    seconds = TimeLimit.of(record, "rollout_timeout", DesiredClasses).seconds
    plan = plan_undo(record, read_objects(api, read_live), force=consents.force, rollout_seconds=seconds)
    return _run(fleet, options, plan, api, record, force=consents.force)


def _run(
    fleet: Fleet, options: Options, plan: ObjectPlan, api: Session, asked: DesiredClasses | ObjectsRecord, *, force: bool
) -> ObjectRun:
    limit = TimeLimit.of(asked, "rollout_timeout", DesiredClasses)
    writer = Writer(api, force=force, rollout_timeout=limit.seconds)
    return planned_run(fleet, options, plan, writer, asked, CAPABILITY, "classes", limit=limit, leaving=writer.leaving)


#: What an undo may write.
_WRITES = (CLASS.writable, *(kind.writable for kind in WORKLOADS.values()))
DATA_KEYS = (Declared(DesiredClasses, ("priority_classes",), changes=Changes.OBJECTS, undo=Undo(undo, _WRITES, DesiredClasses)),)

__all__ = [
    "CAPABILITY",
    "CLASS",
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
