"""The way back: uncordon nodes, and give Deployments their replicas back, for deploys/uncordon.py and for roll-backs of drains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from roles.drain.run import CAPABILITY, undo_notes
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, show
from roles.engine.kube import Object, full_name
from roles.engine.kube.field_managers import managers
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.object_changes import (
    Consents,
    FieldChange,
    ObjectPlan,
    ObjectRun,
    Session,
    connect_cluster,
    dry_run,
    field_way_back,
    object_report,
    show_plan,
)
from roles.engine.outage import (
    CORDON,
    DELETE,
    EVICT,
    MARKS,
    PROVE,
    SURGE,
    SURGED_BY,
    CordonWriter,
    EndingWriter,
    cordon_back,
    cordon_fields,
    doubt,
    left_surges,
    mark_before,
    mark_of,
    node_fate,
    node_path,
    recorded_surges,
    run_of,
    uncordon_change,
    unsurge_change,
)
from roles.engine.rollout import Options, Stage
from roles.engine.transaction import ChangedObject, ObjectsRecord, Writable, new_run_id, this_run

UNCORDON = "uncordon"
#: What an undo may write: cordons and surges, each with its mark. Of pods it reads only how they ended.
WRITES = (
    Writable("/api/v1/nodes/*", (("spec", "unschedulable"), *MARKS)),
    Writable("/apis/apps/v1/namespaces/*/deployments/*", (("spec", "replicas"), ("metadata", "annotations", SURGED_BY))),
    *(
        Writable(path, ((EVICT, "*"), (DELETE, "*")))
        for path in ("/api/v1/nodes/*", "/api/v1/namespaces/*/pods/*", "/apis/apps/v1/namespaces/*/*/*")
    ),
)
# Of so many marks of surges that do not count the plan speaks.
_MOST_DOUBTS = 5


def plan_uncordon(
    nodes: Mapping[str, Object | None],
    deployments: Collection[Object],
    others: Collection[Object] = (),
    surges: Collection[Object] = (),
    *,
    force: bool,
) -> ObjectPlan[FieldChange]:
    """The plan of deploys/uncordon.py: `nodes` by name, as they are now; `deployments`: all of the cluster; `surges`: those that records of
    runs have (recorded_surges). Those are ended that the runs that cordoned these nodes have left, and those of pods of these nodes by runs
    whose mark no node has any more (`others`: the other nodes). Pure."""
    plan, runs = ObjectPlan[FieldChange](), set[str]()
    for name, node in nodes.items():
        if node is None:
            plan.refusals.append(f"the cluster has no node {name}")
            continue
        fate = node_fate(node)
        if fate.cordon == "theirs" and not force:
            plan.refusals.append(f"Node {name}: {fate.by} cordoned it, not daytwo; uncordon it there, or with --data force=true")
        elif (change := uncordon_change(node)) is None:
            plan.unchanged.append((f"Node {name}", "it is not cordoned"))
        else:
            plan.actions.append(change)
        runs |= fate.mark.runs if fate.mark is not None else set()
    elsewhere = {run for fate in map(node_fate, others) if fate.mark is not None for run in fate.mark.runs}
    left = [one for one in surges if (run := run_of(one["mark"])) in runs or (one["node"] in nodes and run not in elsewhere)]
    plan.actions = [*left_surges(deployments, left), *plan.actions]
    doubts = [(full_name(one), why) for one in deployments if (why := doubt(one, surges))]
    plan.unchanged += [(f"Deployment {name}", why) for name, why in doubts[:_MOST_DOUBTS]]
    if len(doubts) > _MOST_DOUBTS:
        plan.unchanged.append(("Deployments", f"{len(doubts) - _MOST_DOUBTS} more have marks of surges that do not count"))
    return plan


def plan_way_back(record: ObjectsRecord, there: Mapping[str, Object]) -> ObjectPlan[FieldChange]:
    """The plan that undoes a drain: `there` are its objects as they are now, by path. Pure."""
    plan, moved = ObjectPlan[FieldChange](), dict[str, str]()
    for one in record.objects:
        if one.action in (CORDON, SURGE):
            change = _back(one, there.get(one.path), record.run)
            if isinstance(change, str):
                plan.unchanged.append((one.name, change))
            else:
                plan.actions.append(change)
        elif one.action != PROVE and one.outcome == "done":
            moved[one.name] = one.outcome
    plan.actions.sort(key=lambda change: change.name.startswith("Node "))
    if moved:
        plan.unchanged.append(("evicted", undo_notes(moved)))
    return plan


def _back(one: ChangedObject, found: Object | None, run: str) -> FieldChange | str:
    """The write that undoes a step, or why there is none."""
    if found is None or found["metadata"].get("uid") != one.uid:
        return "is gone, or was recreated since"
    if one.action == SURGE:
        if run_of(mark_of(found)) != run:
            return "it has its own number of replicas"
        return unsurge_change(found) or "it has its own number of replicas"
    back = cordon_back(found, {run}, mark_before(one.fields))
    return back.change or back.why


# ---- the runs


def uncordon_run(
    fleet: Fleet, options: Options, session: Session, plan: ObjectPlan[FieldChange], wanted: Mapping[str, Any],
    capability: str = UNCORDON, undoes: str = "",
) -> ObjectRun:  # fmt: skip
    """The run, with its plan shown. Raises DeployError if the plan or the API server refuses it."""
    bridge.stop(plan.refusals)
    cordons, surges = CordonWriter(session, force=True), EndingWriter(session, force=True)

    def writer(change: FieldChange) -> CordonWriter | EndingWriter:
        return cordons if _action(change) == UNCORDON else surges

    plan.actions = dry_run(plan.actions, session, lambda change, api: writer(change).tried(change, api))
    steps = [step for change in plan.actions for step in writer(change).steps([change], _action(change))]
    run = ObjectRun(
        this_run(new_run_id(), wanted),
        [Stage(tuple(steps))],
        fleet,
        options.take_over,
        lambda run: object_report.show_objects_end(run, plan.rest),
        capability=capability,
        about={},
        leaving=lambda: "written changes stay; run the same command again to continue",
        undoes=undoes,
        warnings=cordons.warnings,
    )
    show_plan(run, plan)
    return run


def _action(change: FieldChange) -> str:
    return UNCORDON if change.name.startswith("Node ") else "end surge"


def undo_drain(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a drain: its cordons and surges. Evicted pods do not come back. Raises DeployError."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    plan = plan_way_back(record, _read(session, [one.path for one in record.objects if one.action in (CORDON, SURGE)]))
    show(f"\nUndoing run {record.run}")
    return uncordon_run(fleet, options, session, plan, {"undo": record.run}, CAPABILITY, record.change)


def undo_uncordon(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that cordons again what a run of deploys/uncordon.py uncordoned. Raises DeployError."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    nodes = tuple(one for one in record.objects if one.path.startswith(node_path("")))
    there = _read(session, [one.path for one in nodes])
    plan = plan_cordon_again(replace(record, objects=nodes), there, force=consents.force)
    show(f"\nUndoing run {record.run}")
    return uncordon_run(fleet, options, session, plan, {"undo": record.run}, UNCORDON, record.change)


def plan_cordon_again(record: ObjectsRecord, there: Mapping[str, Object], *, force: bool) -> ObjectPlan[FieldChange]:
    """The plan that undoes a run of deploys/uncordon.py: `there` are its nodes as they are now, by path. A cordon that someone has set
    since stays theirs: it gets no mark. Pure."""
    since = {path: fate for path, node in there.items() if (fate := node_fate(node)).cordon == "theirs"}
    own = tuple(one for one in record.objects if one.path not in since)
    plan = field_way_back(
        replace(record, objects=own), there, cordon_fields,
        lambda item, path: managers(item, *(f"f:{part}" for part in path)), force=force,
    )  # fmt: skip
    kept = [one for one in record.objects if one.path in since]
    plan.unchanged += [(one.name, f"{since[one.path].by} has cordoned it since: that cordon stays") for one in kept]
    return plan


def read_for_uncordon(
    session: Session, names: Collection[str]
) -> tuple[dict[str, Object | None], list[Object], list[Object], list[Object]]:
    """The nodes by name, all Deployments, the other nodes, and the recorded surges. Raises DeployError."""
    try:
        deployments: list[Object] = list(session.fetch_all(COLLECTIONS["Deployment"]))
        nodes: dict[str, Object] = {str(one["metadata"]["name"]): one for one in session.fetch_all("/api/v1/nodes")}
        others = [one for name, one in nodes.items() if name not in names]
        return {name: nodes.get(name) for name in names}, deployments, others, recorded_surges(session, deployments)
    except ApiFailure as error:
        raise bridge.refusals([f"the nodes cannot be read: {error}"]) from None


def _read(session: Session, paths: Collection[str]) -> dict[str, Object]:
    try:
        return {path: found for path in paths if (found := session.fetch(path)) is not None}
    except ApiFailure as error:
        raise bridge.refusals([f"the objects of that run cannot be read: {error}"]) from None
