"""PodDisruptionBudgets: planned with what they allow and block, applied server-side, proven by kube-controller-manager's own numbers."""

from __future__ import annotations

from functools import partial

from roles.disruption_budgets.compliance import unmet_budget
from roles.disruption_budgets.listing import HEADERS, findings, rows
from roles.disruption_budgets.model import BUDGET, DATA_EXAMPLE, DesiredBudgets, read_budgets
from roles.disruption_budgets.plan import plan_budgets, plan_undo
from roles.disruption_budgets.write import BudgetWriter, read_live
from roles.engine.bridge import Fleet
from roles.engine.commands import command
from roles.engine.disruption import DisruptionObjects, budget_states, cluster_time, read_lint
from roles.engine.findings import render
from roles.engine.folding import counted
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.object_runs import Consents, ObjectRun, TimeLimit, cluster_session, desired_or_listing, planned_run, read_objects
from roles.engine.objects import ObjectPlan, Session
from roles.engine.runs import Ended, Options, Turns, deploying
from roles.engine.transaction import ObjectsRecord
from roles.engine.voice import show_lines

#: The name in the records of runs that this package undoes.
CAPABILITY = "disruption_budgets"


def _read(fleet: Fleet) -> tuple[Options, DesiredBudgets]:
    return desired_or_listing(fleet, read_budgets, DesiredBudgets, "disruption_budgets")


@deploying("Disruption budgets", _read, all_reachable=True, of_cluster=True)
def disruption_budgets(fleet: Fleet, asked: tuple[Options, DesiredBudgets]) -> Turns | Ended:
    """Apply the PodDisruptionBudgets in the inventory's data; without data, list those of the cluster, and change nothing.

    Data keys: disruption_budgets, allow_overlaps, force, only_objects, proof_timeout, kubeconfig, and take_over
    (roles/engine/runs/options.py). Raises DeployError before any write if the plan is refused.
    """
    if asked[1].disruption_budgets is None:
        return _listed(cluster_session(fleet, asked[1].kubeconfig))
    return Turns.of(_prepare(fleet, *asked), fleet, "apply, and compare the numbers")


def _prepare(fleet: Fleet, options: Options, desired: DesiredBudgets) -> ObjectRun:
    api = cluster_session(fleet, desired.kubeconfig)
    plan = plan_budgets(desired, _live(api, {one.namespace for one in desired.budgets}), read_objects(api, cluster_time))
    return _run(fleet, options, plan, api, desired, force=desired.force)


def _listed(api: Session) -> Ended:
    live, not_read = read_objects(api, lambda one: read_lint(one, {}))
    now = read_objects(api, cluster_time)
    states = budget_states(live, now)
    lines = [render.section("PodDisruptionBudgets", HEADERS, rows(states))]
    for key, found in findings(live, states, now):
        lines += render.beside(key, found)
    show_lines("\n".join([*lines, *render.not_known(not_read)]))
    return Ended(f"{counted(len(states), 'budget')}. To set one: {command('disruption_budgets', disruption_budgets=DATA_EXAMPLE)}")


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same fields since."""
    api = cluster_session(fleet, consents.kubeconfig)
    live = _live(api, {str(one.about.get("namespace", "")) for one in record.objects})
    plan = plan_undo(record, live, read_objects(api, cluster_time), force=consents.force)
    return _run(fleet, options, plan, api, record, force=consents.force)


def _live(api: Session, of: set[str]) -> DisruptionObjects:
    return read_objects(api, partial(read_live, namespaces=of))


def _run(
    fleet: Fleet,
    options: Options,
    plan: ObjectPlan,
    api: Session,
    asked: DesiredBudgets | ObjectsRecord,
    *,
    force: bool,
) -> ObjectRun:
    limit = TimeLimit.of(asked, "proof_timeout", DesiredBudgets)
    writer = BudgetWriter(api, force=force, proof_seconds=limit.seconds)
    return planned_run(fleet, options, plan, writer, asked, CAPABILITY, "budgets", limit=limit)


DATA_KEYS = (
    Declared(DesiredBudgets, ("disruption_budgets",), changes=Changes.OBJECTS, undo=Undo(undo, (BUDGET.writable,), DesiredBudgets)),
)

__all__ = [
    "BUDGET",
    "CAPABILITY",
    "DATA_KEYS",
    "DesiredBudgets",
    "disruption_budgets",
    "read_budgets",
    "read_live",
    "undo",
    "unmet_budget",
]
