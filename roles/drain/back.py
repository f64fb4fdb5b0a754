"""The runs that uncordon nodes, and give Deployments their replicas back: deploys/uncordon.py, and undos of drains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from roles.drain.run import CAPABILITY
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, show
from roles.engine.kube import Object
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.object_changes import (
    Consents,
    FieldChange,
    ObjectPlan,
    ObjectRun,
    Session,
    connect_cluster,
    object_report,
    show_plan,
)
from roles.engine.outage import CORDON, SURGE, UNCORDON, node_path, plan_cordon_again, plan_undo, recorded_surges, undo_steps
from roles.engine.rollout import Options, Stage
from roles.engine.transaction import ObjectsRecord, new_run_id, this_run


def uncordon_run(
    fleet: Fleet, options: Options, session: Session, plan: ObjectPlan[FieldChange], wanted: Mapping[str, Any],
    capability: str = UNCORDON, undoes: str = "",
) -> ObjectRun:  # fmt: skip
    """The run, with its plan shown. Raises DeployError if the plan or the API server refuses it."""
    bridge.stop(plan.refusals)
    steps, warnings = undo_steps(session, plan)
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
        warnings=warnings,
    )
    show_plan(run, plan)
    return run


def undo_drain(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a drain: its cordons and surges. Evicted pods do not come back. Raises DeployError."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    plan = plan_undo(record, _read(session, [one.path for one in record.objects if one.action in (CORDON, SURGE)]))
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
