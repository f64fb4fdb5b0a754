"""The runs that uncordon nodes, and give Deployments their replicas back: deploys/uncordon.py, and undos of drains."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from roles.drain.model import UncordonOptions
from roles.drain.run import CAPABILITY
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.object_runs import Consents, ObjectRun, connect_cluster, planned_run
from roles.engine.objects import ObjectPlan, Session
from roles.engine.outage import CORDON, SURGE, UNCORDON, EndWriter, node_path, plan_cordon_again, plan_undo, recorded_surges
from roles.engine.rollout import Options
from roles.engine.transaction import ObjectsRecord


def uncordon_run(
    fleet: Fleet, options: Options, session: Session, plan: ObjectPlan, asked: UncordonOptions | ObjectsRecord,
    capability: str = UNCORDON,
) -> ObjectRun:  # fmt: skip
    """The run, with its plan shown. Raises DeployError if the plan or the API server refuses it."""
    then = "run the same command again to continue"
    return planned_run(fleet, options, plan, EndWriter(session), asked, capability, "changes", then=then)


def undo_drain(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a drain: its cordons and surges. Evicted pods do not come back. Raises DeployError."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    plan = plan_undo(record, _read(session, [one.path for one in record.objects if one.action in (CORDON, SURGE)]))
    return uncordon_run(fleet, options, session, plan, record, CAPABILITY)


def undo_uncordon(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that cordons again what a run of deploys/uncordon.py uncordoned. Raises DeployError."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    nodes = tuple(one for one in record.objects if one.path.startswith(node_path("")))
    there = _read(session, [one.path for one in nodes])
    plan = plan_cordon_again(replace(record, objects=nodes), there, force=consents.force)
    return uncordon_run(fleet, options, session, plan, record)


def read_for_uncordon(
    session: Session, names: Collection[str]
) -> tuple[dict[str, Object | None], list[Object], list[Object], list[Object]]:
    """The nodes by name, all Deployments, the other nodes, and the recorded surges. Raises DeployError."""
    try:
        deployments: list[Object] = list(session.fetch_all(COLLECTIONS["Deployment"]))
        nodes: dict[str, Object] = {name_of(one): one for one in session.fetch_all("/api/v1/nodes")}
        others = [one for name, one in nodes.items() if name not in names]
        return {name: nodes.get(name) for name in names}, deployments, others, recorded_surges(session, deployments)
    except ApiFailure as error:
        raise bridge.refusals([f"the nodes cannot be read: {error}"]) from None


def _read(session: Session, paths: Collection[str]) -> dict[str, Object]:
    try:
        return {path: found for path in paths if (found := session.fetch(path)) is not None}
    except ApiFailure as error:
        raise bridge.refusals([f"the objects of that run cannot be read: {error}"]) from None
