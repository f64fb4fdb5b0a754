"""Restarts of workloads by their templates, one after another: each keeps its budgets, and is proven, or undone and the run halts."""

from __future__ import annotations

from collections.abc import Collection

from roles.engine.api import Api, list_objects
from roles.engine.bridge import Fleet
from roles.engine.disruption import cluster_time, read_disruption
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.kube import uid
from roles.engine.kube.workloads import COLLECTIONS, namespaced
from roles.engine.object_runs import Consents, ObjectRun, TimeLimit, cluster_session, desired_of_cluster, planned_run, read_objects
from roles.engine.objects import NotDone, ObjectChange, ObjectPlan, Session, TemplateWriter
from roles.engine.runs import Options, Turns, deploying
from roles.engine.transaction import ObjectsRecord
from roles.engine.voice import show
from roles.restart.plan import KINDS, RestartOptions, RestartWorld, plan_restart, plan_undo, read_restart, unsafe

#: The name in the records of runs that this package undoes.
CAPABILITY = "restart"


def _read(fleet: Fleet) -> tuple[Options, RestartOptions]:
    missing = "no workload is named; name some with --data restart=NAMESPACE/KIND/NAME, or with --data workload_selector=NAMESPACE/LABELS"
    return desired_of_cluster(fleet, read_restart, missing)


@deploying("Restart", _read, all_reachable=True, of_cluster=True)
def restart(fleet: Fleet, asked: tuple[Options, RestartOptions]) -> Turns:
    """Restart the named workloads, one after another.

    Data keys: those of roles/restart/plan.py, and take_over (roles/engine/runs/options.py). Raises DeployError before any write if the
    plan is refused.
    """
    options, wanted = asked
    session = cluster_session(fleet, wanted.kubeconfig)
    plan = plan_restart(wanted, read_objects(session, lambda api: read_world(api, wanted.namespaces, wanted.workload_selector)))
    return Turns.of(_run(fleet, options, plan, session, wanted), fleet, "restart, and wait for new pods")


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has restarted a workload since."""
    session = cluster_session(fleet, consents.kubeconfig)
    namespaces = {place[0] for one in record.objects for kind in KINDS.values() if (place := kind.place_of(one.path))}
    world = read_objects(session, lambda api: read_world(api, namespaces))
    seconds = TimeLimit.of(record, "rollout_timeout", RestartOptions).seconds
    plan = plan_undo(record, world, force=consents.force, seconds=seconds)
    return _run(fleet, options, plan, session, record)


def _run(fleet: Fleet, options: Options, plan: ObjectPlan, session: Session, asked: RestartOptions | ObjectsRecord) -> ObjectRun:
    limit = TimeLimit.of(asked, "rollout_timeout", RestartOptions)
    writer = Restarter(session, force=True, seconds=limit.seconds, say=show)
    again = "" if isinstance(asked, ObjectsRecord) else "restart those that are left; the same command restarts all of them again"
    return planned_run(fleet, options, plan, writer, asked, CAPABILITY, "templates", limit=limit, again=again)


def read_world(api: Api, namespaces: Collection[str], selector: str | None = None) -> RestartWorld:
    """Raises ApiError."""
    live = read_disruption(api, namespaces, {"DaemonSet": COLLECTIONS["DaemonSet"]})
    quotas = list_objects(api, "/api/v1/resourcequotas", namespaces)
    namespace, _, labels = (selector or "").partition("/")
    paths = [namespaced(COLLECTIONS[kind], namespace) for kind in KINDS] if selector else []
    selected = {uid(one) for path in paths for one in list_objects(api, path, labels=labels)}
    return RestartWorld(live, quotas, selected, cluster_time(api))


class Restarter(TemplateWriter):
    said = "restart time"

    def ready(self, change: ObjectChange) -> None:
        """The restarts before this one took their time: its budgets must still allow it."""
        world = self.session.asked(lambda api: read_world(api, [change.namespace]))
        if change.before is not None and (problems := [*unsafe(change.kind.name, change.before, world, world.states)]):
            raise NotDone("; ".join(problems))


_WRITES = tuple(kind.writable for kind in KINDS.values())
DATA_KEYS = (Declared(RestartOptions, ("restart",), changes=Changes.OBJECTS, undo=Undo(undo, _WRITES, RestartOptions)),)

__all__ = ["CAPABILITY", "DATA_KEYS", "restart", "undo"]
