"""Takes nodes out of service: cordon, evict in waves, wait for the replacements, prove; and brings them back into service."""

from __future__ import annotations

from roles.drain import verify
from roles.drain.model import DrainOptions, UncordonOptions, chosen_nodes
from roles.drain.run import DrainRun
from roles.drain.undo import UNDO_DRAIN, UNDO_UNCORDON, plan_uncordon, uncordon_run
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.bridge.tasks import Pool
from roles.engine.disruption import DisruptionObjects
from roles.engine.folding import counted
from roles.engine.inputs import Changes, Declared
from roles.engine.kube.fields import name_of, node_of_host
from roles.engine.object_runs import ConnectedCluster, connect_cluster, dry_run
from roles.engine.objects import Session
from roles.engine.outage import DrainConsents, Drainer, DrainPlan, Mark, PodFate, ask_again, cluster_time, plan_drain, plan_text, read_drain
from roles.engine.outage.evicting import try_eviction
from roles.engine.runs import Options, Turns, deploying, with_options
from roles.engine.shadow import KINDS_OF_SHADOW
from roles.engine.transaction import new_run_id, this_run
from roles.engine.voice import show, show_lines

# Dry runs of evictions at the same time.
_ASKED_AT_ONCE = 8
_UNREAD = "the cluster's objects cannot be read: "


@deploying("Drain", with_options(DrainOptions))
def drain(fleet: Fleet, asked: tuple[Options, DrainOptions]) -> Turns:
    """Cordon the named nodes, and evict their pods in waves.

    Data keys: those of DrainOptions (roles/drain/model.py), and take_over (roles/engine/runs/options.py). Raises DeployError before any
    write if the plan is refused.
    """
    options, wanted = asked
    reached = connect_cluster(fleet, wanted.kubeconfig)
    consents, session = wanted, reached.session
    names = _nodes(fleet, reached, wanted.nodes)
    live = _read(session, wanted)
    plan = _plan(session, live, names, consents)
    info = this_run(new_run_id(), {"cluster": wanted.model_dump()})
    drainer = Drainer(session, plan, consents, Mark(info.id))
    show(f"\nPlan of run {info.id}: {counted(len(plan.nodes), 'node')} to drain: {', '.join(node.name for node in plan.nodes)}")
    if refusals := plan.refusals or ask_again([plan], consents):
        show_lines(plan_text(plan))
        bridge.stop(refusals)
    answers = _preflight(session, plan)
    show_lines(plan_text(plan, answers))
    if wanted.verify == "scheduler":
        verdict = verify.ask_scheduler(reached.found, live, plan)
        show_lines(verify.text(verdict))
        bridge.stop(verify.refusals(verdict, consents))
    dry_run(drainer.cordon_changes(), session, drainer.cordons.tried)
    run = DrainRun(info, drainer, fleet, options.take_over, keep_cordon=wanted.keep_cordon)
    return Turns.of(run, fleet, "cordon, evict, and prove")


@deploying("Uncordon", with_options(UncordonOptions))
def uncordon(fleet: Fleet, asked: tuple[Options, UncordonOptions]) -> Turns:
    """Uncordon the named nodes, and end what an interrupted drain of them left.

    Data keys: those of UncordonOptions (roles/drain/model.py), and take_over. Raises DeployError before any write if someone else has
    cordoned a node.
    """
    options, wanted = asked
    reached = connect_cluster(fleet, wanted.kubeconfig, asks_workers=False)
    names = _nodes(fleet, reached, wanted.nodes)
    plan = plan_uncordon(reached.session, names, force=wanted.force)
    run = uncordon_run(fleet, options, reached.session, plan, wanted)
    return Turns.of(run, fleet, "uncordon, and read back")


def _nodes(fleet: Fleet, reached: ConnectedCluster, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    limited = [remote.name for remote in fleet.targets] if fleet.others else []
    try:
        known = {name_of(node): node for node in reached.session.fetch_all("/api/v1/nodes")}
        free = {name: node for name, node in known.items() if name not in reached.names.values()}
        silent = (remote for remote in fleet.inventory if remote.name not in reached.names)
        found = {remote.name: name_of(node) for remote in silent if (node := node_of_host(remote.name, remote.address, free)) is not None}
        return chosen_nodes(asked, limited, {**reached.names, **found}, known)
    except ValueError as error:
        raise bridge.refusals([error]) from None
    except ApiFailure as error:
        raise bridge.refusals([f"the nodes cannot be read: {error}"]) from None


def _read(session: Session, wanted: DrainOptions) -> DisruptionObjects:
    with bridge.refusing(ApiFailure, _UNREAD):
        return read_drain(session, KINDS_OF_SHADOW if wanted.verify == "scheduler" else None)


def _plan(session: Session, live: DisruptionObjects, nodes: tuple[str, ...], consents: DrainConsents) -> DrainPlan:
    with bridge.refusing(ApiFailure, _UNREAD):
        return plan_drain(live, nodes, consents, cluster_time(session))


def _preflight(session: Session, plan: DrainPlan) -> dict[str, str]:
    """What the API server answers to a dry run of each eviction, by UID. It asks each alone: the sum is the plan's. Raises DeployError."""
    answers: dict[str, str] = {}
    errors: list[str] = []
    pool = Pool(_ASKED_AT_ONCE)

    def ask(one: PodFate) -> None:
        try:
            answers[one.uid] = try_eviction(session, one.pod)
        except ApiFailure as error:
            errors.append(f"pod {one.name}: {error}")

    for one in plan.leaving:
        if one.fate == "evicted":
            pool.spawn(ask, one)
    pool.join()
    bridge.stop(errors)
    return answers


DATA_KEYS = (
    Declared(DrainOptions, ("drain",), changes=Changes.OBJECTS, undo=UNDO_DRAIN),
    Declared(UncordonOptions, ("uncordon",), changes=Changes.OBJECTS, undo=UNDO_UNCORDON),
)

__all__ = [
    "DATA_KEYS",
    "drain",
    "uncordon",
    "verify",
]
