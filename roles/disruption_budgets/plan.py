"""The plan: from the desired and the observed budgets to actions, refusals and what each change means for drains. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from roles.disruption_budgets.compliance import NoSelector, differences, other_limit, selector_of
from roles.disruption_budgets.model import BUDGET, Budget, DesiredBudgets
from roles.engine import kube
from roles.engine.disruption import (
    PDB,
    BudgetState,
    DisruptionObjects,
    DisruptionRule,
    budget_states,
    lifted_by,
    lint_budget,
    overlaps,
    pods_per_node,
)
from roles.engine.disruption.budgets import Budgets
from roles.engine.findings import Finding
from roles.engine.folding import or_none, shortened
from roles.engine.kube import Object, full_name
from roles.engine.kube.fields import generation_of, status_of, with_meta
from roles.engine.kube.names import RESOURCES_OF_KINDS, not_one_of
from roles.engine.objects import ObjectChange, ObjectPlan, undo_plan
from roles.engine.transaction import ObjectsRecord

#: Rules of the lint that a plan warns about: the budget can never, or often not, allow an eviction.
_WARNS = frozenset(
    (
        DisruptionRule.ALLOWS_NONE,
        DisruptionRule.NEEDS_ALL,
        DisruptionRule.AUTOSCALER_MINIMUM,
        DisruptionRule.SELECTS_NOTHING,
        DisruptionRule.SELECTS_EVERYTHING,
        DisruptionRule.NO_SCALE,
        DisruptionRule.UNHEALTHY_DEADLOCK,
    )
)  # fmt: skip
_FEW_NODES = 8


def plan_budgets(desired: DesiredBudgets, live: DisruptionObjects, now: datetime) -> ObjectPlan:
    """The plan. The API server's dry run later adds refusals that only it knows (conflicts of managers, admission).

    `live`: the objects of all namespaces in the data. `now`: for evictions that are under way.
    """
    plan = ObjectPlan()
    _check_only(desired, plan)
    found = [action for item in desired.budgets if (action := _action(item, desired, live, plan)) is not None]
    if plan.refusals:
        return plan
    explain(plan, removals_last(found), live, now, consent=False, allow_overlaps=desired.allow_overlaps)
    return plan


def _check_only(desired: DesiredBudgets, plan: ObjectPlan) -> None:
    known = [one.key for one in desired.disruption_budgets or ()]
    for name in desired.only_objects or ():
        plan.refusals += filter(None, [not_one_of(name, known, "not a budget")])


def budgets_by_key(live: DisruptionObjects) -> dict[str, Object]:
    """The budgets as they are, by NAMESPACE/NAME."""
    return {full_name(item): item for item in live.of(PDB)}


def _action(item: Budget, desired: DesiredBudgets, live: DisruptionObjects, plan: ObjectPlan) -> ObjectChange | None:
    found = budgets_by_key(live).get(item.key)
    name = f"{PDB} {item.key}"
    if item.absent:
        return BUDGET.removal((item.namespace, item.name), found, plan, force=desired.force)
    try:
        selector = selector_of(item, live)
    except NoSelector as error:
        plan.refusals.append(f"{name}: {error}")
        return None
    manifest = item.manifest(selector)
    if found is None:
        rule = f"maxUnavailable {item.max_unavailable}" if item.max_unavailable is not None else f"minAvailable {item.min_available}"
        return ObjectChange(BUDGET, "create", item.namespace, item.name, None, manifest, f"create it, {rule}")
    drops = other_limit(item, found)
    if drops is not None and not desired.force:
        owners = or_none(BUDGET.others(found, drops))
        plan.refusals.append(
            f"{name}: it has {drops[-1]} from {owners}, and a budget has either minAvailable or maxUnavailable; change it there, or "
            "take it over with --data force=true"
        )
        return None
    # The resource version is no precondition: kube-controller-manager writes the status of a budget all the time.
    manifest = with_meta(manifest, uid=kube.uid(found))
    differ = differences(manifest, found, drops)
    if not differ:
        plan.unchanged.append((name, BUDGET.as_wanted(found)))
        return None
    also = f", which {or_none(BUDGET.others(found, drops))} may set again" if drops is not None else ""
    summary = f"set {or_none(differ)}{also}"
    return ObjectChange(BUDGET, "update", item.namespace, item.name, found, manifest, summary, drops=(drops,) if drops else ())


def plan_undo(record: ObjectsRecord, live: DisruptionObjects, now: datetime, *, force: bool) -> ObjectPlan:
    """The plan that undoes a run. `live`: the objects of the namespaces in the record."""
    there = {BUDGET.path_of(*kube.namespace_and_name(item)): item for item in live.of(PDB)}
    plan = undo_plan(record, (BUDGET,), there, force=force)
    found, plan.actions = plan.actions, []
    if not plan.refusals:
        # What was there before that run is restored, also if it was bad; the notes say so.
        explain(plan, removals_last(found), live, now, consent=True, allow_overlaps=True)
    return plan


# ---- what it means


def explain(
    plan: ObjectPlan,
    actions: Sequence[ObjectChange],
    live: DisruptionObjects,
    now: datetime,
    *,
    consent: bool,
    allow_overlaps: bool,
) -> None:
    """Add the actions to the plan, each with what it allows now and then. Refuse pods with two budgets, unless `allow_overlaps`, and
    budgets that kube-controller-manager could not compute, unless `consent`."""
    before, then = budget_states(live, now), budget_states(changed(live, actions), now)
    for action in actions:
        old, new = before.named(action.key), then.named(action.key)
        if new is not None and new.problem and not consent:
            plan.refusals.append(
                f"{action.name}: kube-controller-manager could not compute it, and would allow no eviction: {new.problem}; let it select "
                "only pods of Deployments, ReplicaSets, StatefulSets and ReplicationControllers, or use min_available with a number"
            )
            continue
        settled = new.settled() if new is not None else None
        warnings = _warnings(changed(live, actions), settled, now)
        plan.actions.append(replace(action, notes=(*_allows(old, settled, live), *warnings)))
    touched = {f"{PDB} {action.key}" for action in actions if action.what != "remove"}
    for problem in _overlaps(then, touched):
        if allow_overlaps:
            plan.actions = [
                _noted(action, f"WARNING: {problem.why}") if action.name in problem.objects else action for action in plan.actions
            ]
        else:
            plan.refusals.append(f"{' and '.join(problem.objects)}: {problem.why}; {problem.way_out}, or --data allow_overlaps=true")


def removals_last(actions: Iterable[ObjectChange]) -> list[ObjectChange]:
    """In between, a pod may have two budgets, so that it cannot be evicted; the other way round it would have none."""
    return sorted(actions, key=lambda action: action.manifest is None)


def _noted(action: ObjectChange, note: str) -> ObjectChange:
    return replace(action, notes=(*action.notes, note))


def _overlaps(states: Budgets, touched: Collection[str]) -> Iterable[Finding]:
    """Overlaps of budgets that this run writes; what others have is for the audit."""
    return (problem for problem in overlaps(states) if any(name in touched for name in problem.objects))


def changed(live: DisruptionObjects, actions: Sequence[ObjectChange]) -> DisruptionObjects:
    """The objects as they will be after the actions."""
    found = budgets_by_key(live)
    for action in actions:
        if action.manifest is None:
            found.pop(action.key, None)
        else:
            found[action.key] = _as_object(action)
    return replace(live, objects={**live.objects, PDB: tuple(found.values())})


def _as_object(change: ObjectChange) -> dict[str, Any]:
    """The budget that it will be, for the computation of its numbers: with the status of now."""
    made, old = BUDGET.manifest(change.namespace, change.own_name, change.after), change.before or {}
    return {**with_meta(made, generation=generation_of(old) + 1), "status": status_of(old)}


def _allows(old: BudgetState | None, new: BudgetState | None, live: DisruptionObjects) -> list[str]:
    notes = [f"now: {_state(old)}" if old is not None else "now: no such budget"]
    if new is None:
        return [*notes, "after: its pods have no budget of this name, and nothing limits their evictions"]
    return [*notes, f"after: {_state(new)}", *_drains(new, live)]


def _state(state: BudgetState) -> str:
    selects = f"selects {len(state.pods)} pod{'' if len(state.pods) == 1 else 's'} ({state.selector})"
    return f"allows {state.disruptions_allowed} ({state.why}); {selects}; pods that are not Ready: {state.policy}"


def _drains(state: BudgetState, live: DisruptionObjects) -> list[str]:
    nodes = pods_per_node(state)
    blocked = state.disruptions_allowed == 0
    held = {node: number for node, number in sorted(nodes.items()) if number > state.disruptions_allowed}
    if not held:
        return ["blocks no drain now"]
    some = shortened([f"{node} ({number} of its pods)" for node, number in held.items()], _FEW_NODES)
    some += " nodes" if len(held) > _FEW_NODES else ""
    if blocked:
        lasts = state.never and not state.kept and not lifted_by(state, live)
        return [f"{'never lets a drain end of' if lasts else 'blocks now the drain of'} {some}"]
    return [f"{state.disruptions_allowed} at a time: the drain of {some} waits for replacements in between"]


def _warnings(live: DisruptionObjects, state: BudgetState | None, now: datetime) -> list[str]:
    if state is None:
        return []
    found = lint_budget(live, state, now)
    return [f"WARNING: {problem.why}; {problem.way_out}" for problem in found if problem.rule in _WARNS]


#: The kinds of workloads that a budget can name, with their collections: DaemonSets are not among those that decide about evictions.
WORKLOADS = {kind: f"/apis/apps/v1/{resource}" for kind, resource in RESOURCES_OF_KINDS.items()}
