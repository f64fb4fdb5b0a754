"""The runs that uncordon nodes, and give Deployments their replicas back: deploys/uncordon.py, and undos of drains."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from roles.drain.model import UncordonOptions
from roles.drain.run import CAPABILITY
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.inputs import Undo
from roles.engine.kube import Object
from roles.engine.kube.workloads import node_path
from roles.engine.object_runs import Consents, ObjectRun, connect_cluster, planned_run
from roles.engine.objects import ObjectPlan, Session
from roles.engine.outage import undo
from roles.engine.runs import Options
from roles.engine.transaction import ObjectsRecord


def plan_uncordon(session: Session, names: Collection[str], *, force: bool) -> ObjectPlan:
    """The plan for these nodes, by name. Raises DeployError."""
    with bridge.refusing(ApiFailure, "the nodes cannot be read: "):
        return undo.plan_uncordon(*undo.read_for_uncordon(session, names), force=force)


def uncordon_run(
    fleet: Fleet, options: Options, session: Session, plan: ObjectPlan, asked: UncordonOptions | ObjectsRecord,
    capability: str = undo.UNCORDON,
) -> ObjectRun:  # fmt: skip
    """The run, with its plan shown. Raises DeployError if the plan or the API server refuses it."""
    then = "run the same command again to continue"
    return planned_run(fleet, options, plan, undo.EndWriter(session), asked, capability, "changes", then=then)


def undo_drain(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a drain: its cordons and surges. Evicted pods do not come back. Raises DeployError."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    plan = undo.plan_undo(record, _read(session, undo.held(record)))
    return uncordon_run(fleet, options, session, plan, record, CAPABILITY)


def undo_uncordon(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that cordons again what a run of deploys/uncordon.py uncordoned. Raises DeployError."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    nodes = tuple(one for one in record.objects if one.path.startswith(node_path("")))
    there = _read(session, [one.path for one in nodes])
    plan = undo.plan_cordon_again(replace(record, objects=nodes), there, force=consents.force)
    return uncordon_run(fleet, options, session, plan, record)


def _read(session: Session, paths: Collection[str]) -> dict[str, Object]:
    with bridge.refusing(ApiFailure, "the objects of that run cannot be read: "):
        return {path: found for path in paths if (found := session.fetch(path)) is not None}


UNDO_DRAIN, UNDO_UNCORDON = Undo(undo_drain, undo.WRITES), Undo(undo_uncordon, undo.WRITES)
