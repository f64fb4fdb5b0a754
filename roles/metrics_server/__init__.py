"""The metrics API: what it needs is checked first, then metrics-server is applied from the operator's own image, and proven."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from roles.engine import bridge, table
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.kube import Object
from roles.engine.object_runs import (
    Consents,
    ObjectRun,
    TimeLimit,
    cluster_session,
    connect_servers,
    desired_of_cluster,
    planned_run,
    recorded_objects,
)
from roles.engine.objects import Session
from roles.engine.runs import Ended, Options, Turns, deploying
from roles.engine.transaction import ObjectsRecord
from roles.engine.voice import show, show_lines
from roles.metrics_server import facts, health
from roles.metrics_server.manifests import KINDS, objects, own_pod
from roles.metrics_server.model import DesiredServer, read_server
from roles.metrics_server.places import places
from roles.metrics_server.plan import plan_objects, plan_undo
from roles.metrics_server.preflight import ClusterNeeds, Preflight, in_one_line, judge, unspread
from roles.metrics_server.write import ServerWriter

#: The name in the records of runs that this package undoes.
CAPABILITY = "metrics_server"
_UNHEALTHY = 2


@dataclass(frozen=True)
class Asked:
    """What the inventory asks for; `server` None: nothing, and an installation of somebody else is checked."""

    server: DesiredServer | None


def _read(fleet: Fleet) -> tuple[Options, Asked]:
    return desired_of_cluster(fleet, lambda hosts: Asked(read_server(hosts)), "")


@deploying("Metrics server", _read, all_reachable=True, of_cluster=True)
def metrics_server(fleet: Fleet, asked: tuple[Options, Asked]) -> Turns | Ended:
    """Apply the metrics-server of the inventory's data, and prove it; or check the one that somebody else has installed.

    Data keys: those of roles/metrics_server/model.py, and take_over (roles/engine/runs/options.py). Raises DeployError before any
    write if the cluster lacks something that it needs. Ends pyinfra with exit code 0 or 2 if there is nothing to write: 2 if the metrics
    API does not work.
    """
    options, desired = asked[0], asked[1].server
    found, session = connect_servers(fleet, desired.kubeconfig if desired else None)
    with bridge.refusing(ApiFailure, "the cluster cannot be read: "):
        installed = facts.read_installed(session)
        needs = facts.read_needs(found, session)
        if installed is not None:
            return _adopted(session, installed, needs, desired)
        if desired is None:
            raise bridge.refusals(unasked(judge(needs, None, datetime.now(UTC))))
        return _own(fleet, options, desired, session, needs)


def unasked(judged: Preflight) -> list[str]:
    """What to say if no data asks for metrics-server: also what the cluster lacks for it, so that the first look shows all."""
    return [
        "the cluster has no metrics API, and no host has metrics_server in its data; set it in group_data/all.py, or with"
        " --data metrics_server=registry.example.com/metrics-server:v0.9.0",
        *in_one_line(judged.refusals),
    ]


def _own(fleet: Fleet, options: Options, desired: DesiredServer, session: Session, needs: ClusterNeeds) -> Turns | Ended:
    server = desired.metrics_server
    judged, found = judge(needs, desired, datetime.now(UTC)), places(needs.nodes, needs.pods, own_pod(server, len(needs.nodes)))
    able = len(found.able)
    if not able:
        judged.refusals.append(
            "no node can run a pod of metrics-server: none runs Linux and is Ready, schedulable, without taints and large enough"
        )
    replicas = server.replicas or found.replicas
    if replicas > able > 0:
        judged.refusals.append(f"metrics_server.replicas is {replicas}, each on a node of its own, and {able} nodes can run one")
    bridge.stop(in_one_line(judged.refusals))
    wanted = objects(server, replicas, len(needs.nodes))
    # Those of two replicas are all that there may be.
    live = _live(session, [one.path for one in objects(server, 2, len(needs.nodes))])
    plan = plan_objects(wanted, live, force=desired.force)
    limit = TimeLimit.of(desired, "proof_timeout", DesiredServer)
    writer = ServerWriter(session, force=desired.force, seconds=limit.seconds, serves=True)
    judged.warnings += found.lacking(replicas, asked=server.replicas is not None)
    _show_judged(judged, [f"{replicas} of {able} nodes that can run it", *(f"note: {one}" for one in unspread(needs.servers, replicas))])
    run = planned_run(fleet, options, plan, writer, desired, CAPABILITY, "objects", limit=limit)
    if plan.actions:
        return Turns.of(run, fleet, "apply, and wait for fresh metrics")
    return _show_health(health.look(session))


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same objects since."""
    session = cluster_session(fleet, consents.kubeconfig)
    live = recorded_objects(session, record, KINDS.values())
    limit = TimeLimit.of(record, "proof_timeout", DesiredServer)
    plan = plan_undo(record, live, force=consents.force)
    serves = any(one.what != "remove" for one in plan.actions)
    writer = ServerWriter(session, force=consents.force, seconds=limit.seconds, serves=serves)
    return planned_run(fleet, options, plan, writer, record, CAPABILITY, "objects", limit=limit)


def _live(session: Session, paths: list[str]) -> dict[str, Object]:
    return {path: found for path in paths if (found := session.fetch(path)) is not None}


# ---- what is shown


def _show_judged(judged: Preflight, more: list[str]) -> None:
    show("\nWhat metrics-server needs:")
    for text in (*judged.fine, *more):
        show(f"  {text}")
    for text in judged.warnings:
        show(f"WARNING {text}")


def _adopted(session: Session, installed: health.Installed, needs: ClusterNeeds, desired: DesiredServer | None) -> Ended:
    """Somebody else's installation: only checked. 2 if it does not work."""
    show(f"\nThe metrics API is served by {installed.where}, set up by {installed.owner}: daytwo only checks it, and changes nothing.")
    if desired is not None:
        show(health.WAY_TO_OWN)
    found = health.look(session, health.resolution(installed.deployment))
    judged = judge(needs, None, datetime.now(UTC))
    if found.problems:
        for text in (*judged.refusals, *judged.warnings):
            show(f"WARNING {text}")
    budget = installed.deployment is not None and facts.has_budget(session, installed.deployment)
    able = places(needs.nodes, (), facts.pod_of(installed.deployment)).able if installed.deployment is not None else []
    for text in health.remarks(installed, len(able), budget):
        show(f"WARNING {text}")
    return _show_health(found)


def _show_health(found: health.MetricsHealth) -> Ended:
    rows = [["metrics API", "does not work" if found.problems else "works", "; ".join(found.problems) or found.proof]]
    show_lines("\n" + table.render(["what", "outcome", "proof"], rows))
    return Ended("the metrics API does not work", _UNHEALTHY) if found.problems else Ended("the metrics API works")


#: What an undo may write.
_WRITES = tuple(kind.writable for kind in KINDS.values())
DATA_KEYS = (Declared(DesiredServer, ("metrics_server",), changes=Changes.OBJECTS, undo=Undo(undo, _WRITES, DesiredServer)),)

__all__ = ["CAPABILITY", "DATA_KEYS", "DesiredServer", "metrics_server", "read_server", "undo"]
