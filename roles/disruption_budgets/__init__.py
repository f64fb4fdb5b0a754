"""PodDisruptionBudgets: planned with what they allow and block, applied server-side, proven by kube-controller-manager's own numbers."""

from __future__ import annotations

from functools import partial

from roles.disruption_budgets.compliance import UnmetBudget, unmet_budget
from roles.disruption_budgets.model import DEFAULT_PROOF_SECONDS, DesiredBudgets, read_budgets
from roles.disruption_budgets.plan import BudgetAction, plan_budgets
from roles.disruption_budgets.way_back import WRITES, namespaces, plan_way_back
from roles.disruption_budgets.write import BudgetWriter, read_live
from roles.engine import bridge, kube
from roles.engine.api import Api
from roles.engine.bridge import Fleet, show
from roles.engine.disruption import DisruptionObjects, cluster_time
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.object_changes import (
    Consents,
    ObjectPlan,
    ObjectRun,
    Session,
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

#: The name in the records of runs that this package undoes.
CAPABILITY = "disruption_budgets"


def _read(fleet: Fleet) -> tuple[Options, DesiredBudgets]:
    return desired_of_cluster(fleet, read_budgets, "no host has disruption_budgets in its data; set them in group_data/all.py")


@deploying("Disruption budgets", _read, all_reachable=True, of_cluster=True)
def disruption_budgets(fleet: Fleet, asked: tuple[Options, DesiredBudgets]) -> Turns:
    """Apply the PodDisruptionBudgets in the inventory's data.

    Data keys: disruption_budgets, allow_overlaps, force, only, proof_timeout, kubeconfig, and take_over
    (roles/engine/rollout/options.py). Raises DeployError before any write if the plan is refused.
    """
    return Turns.of(_prepare(fleet, *asked), fleet, "apply, and compare the numbers")


def _prepare(fleet: Fleet, options: Options, desired: DesiredBudgets) -> ObjectRun:
    api = cluster_session(fleet, desired.kubeconfig)
    plan = plan_budgets(desired, _live(api, {one.namespace for one in desired.budgets}), read_objects(api, cluster_time))
    timeout = desired.proof_timeout if "proof_timeout" in desired.model_fields_set else None
    writer = BudgetWriter(api, force=desired.force, proof_seconds=desired.proof_seconds)
    return _run(fleet, options, plan, writer, {"cluster": desired.model_dump()}, timeout, desired.force)


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same fields since."""
    api = cluster_session(fleet, consents.kubeconfig)
    timeout = record.about.get("proof_timeout")
    plan = plan_way_back(record, _live(api, namespaces(record)), read_objects(api, cluster_time), force=consents.force)
    writer = BudgetWriter(api, force=consents.force, proof_seconds=unless_set(timeout or DEFAULT_PROOF_SECONDS, timeout is not None))
    show(f"\nUndoing run {record.run}")
    return _run(fleet, options, plan, writer, {"undo": record.run}, timeout, consents.force, record.change)


def _live(api: Session, of: set[str]) -> DisruptionObjects:
    return read_objects(api, partial(read_live, namespaces=of))


def _run(
    fleet: Fleet,
    options: Options,
    plan: ObjectPlan[BudgetAction],
    writer: BudgetWriter,
    wanted: dict[str, object],
    proof_timeout: int | None,
    force: bool,
    undoes: str = "",
) -> ObjectRun:
    bridge.stop(plan.refusals)
    plan.actions = dry_run(plan.actions, writer.session, partial(_shown, force=force))
    run = ObjectRun(
        this_run(new_run_id(), wanted),
        [Stage(writer.steps(plan.actions))],
        fleet,
        options.take_over,
        lambda run: object_report.show_objects_end(run, plan.rest),
        capability=CAPABILITY,
        about={"proof_timeout": proof_timeout},
        leaving=lambda: f"written budgets stay; to undo them: {run.undo}",
        undoes=undoes,
    )
    show_plan(run, plan)
    return run


def _shown(action: BudgetAction, api: Api, *, force: bool) -> str:
    name = f"PodDisruptionBudget/{action.key}"
    if action.manifest is None:
        assert action.before is not None
        api.delete(action.path, kube.uid(action.before), dry_run=True)
        return object_diff(action.before, None, name)
    if action.drops is not None:
        # The apply alone would be refused while the budget has the other limit: the dry run is one patch.
        patch = {"metadata": {"uid": action.manifest["metadata"]["uid"]}, "spec": {**action.manifest["spec"], action.drops[-1]: None}}
        return object_diff(action.before, api.patch(action.path, patch, dry_run=True), name)
    return object_diff(action.before, api.apply(action.path, action.manifest, force=force, dry_run=True), name)


DATA_KEYS = (Declared(DesiredBudgets, ("disruption_budgets",), changes=Changes.OBJECTS, undo=Undo(undo, WRITES, DesiredBudgets)),)

__all__ = [
    "CAPABILITY",
    "DATA_KEYS",
    "DesiredBudgets",
    "UnmetBudget",
    "disruption_budgets",
    "read_budgets",
    "read_live",
    "undo",
    "unmet_budget",
]
