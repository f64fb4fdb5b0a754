"""PriorityClasses, and the workloads that have one: planned by the API server's dry run, applied server-side, read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyinfra.api.deploy import deploy

from roles.api import Api, ApiError
from roles.change.record import new_run_id, this_run
from roles.change.refusal import Refusal
from roles.harmless import one_line
from roles.objects import live as facts
from roles.objects import plan as planning
from roles.objects import rollout
from roles.objects.access import API_WAIT, REFUSED, Access, NotDone, Unknown, once
from roles.objects.compliance import unmet_class, unmet_workload
from roles.objects.connection import connection
from roles.objects.errand import LOOK_AGAIN, Errand
from roles.objects.live import COLLECTIONS, Live, Object
from roles.objects.model import RESOURCES_OF_KINDS, Desired, namespaced_name, read
from roles.objects.plan import Action, Plan
from roles.objects.run import ObjectRun, Turn, read_live
from roles.proof import NoApi, survey
from roles.rollout import options as run_options
from roles.rollout import remote as bridge
from roles.rollout import table
from roles.rollout.remote import Fleet, show, show_lines

CELL = 120


@dataclass
class Prepared:
    """The whole plan of one run, and the host whose turn stands for the cluster."""

    run: ObjectRun
    driver: str


@deploy("Priority classes")  # type: ignore[untyped-decorator]
def priority_classes() -> None:
    """Make the cluster's PriorityClasses as the inventory's data has them, and give workloads theirs.

    Data keys: priority_classes, workloads, replace, prune, force, only, rollout_timeout, kubeconfig, and take_over
    (roles/rollout/options.py). Raises DeployError, before anything is written, where the plan is refused.
    """
    prepared = bridge.once("priority_classes", _prepare)
    changes = bool(prepared.run.turns) and bridge.current_host() == prepared.driver
    bridge.drive("priority classes", changes, prepared.run.result, name="apply, and read back")


def _prepare(fleet: Fleet) -> Prepared:
    bridge.stop(f"{remote.name}: unreachable; mend that, or leave it out with --limit" for remote in fleet.unreachable)
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or none at all")
    options = run_options.read(fleet.targets)
    try:
        desired = read([(remote.name, remote.data) for remote in fleet.inventory])
    except Refusal as refusal:
        raise bridge.refusals([refusal]) from None
    if desired is None:
        raise bridge.refuse(
            "no host has priority_classes or workloads in its data; set them in group_data, or with --data priority_classes=NAME=VALUE"
        )
    servers = [remote for remote in fleet.inventory if remote.is_control_plane] if desired.kubeconfig is not None else []
    found = survey(fleet, [remote for remote in servers if remote.connected or remote.connect()])
    bridge.stop(found.refusals)
    connect = connection(fleet, found, desired.kubeconfig)
    try:
        live = once(connect, read_live)
    except (ApiError, NoApi) as error:
        raise bridge.refusals([f"the cluster's objects cannot be read: {error}"]) from None
    plan = planning.make(desired, live)
    bridge.stop(plan.refusals)
    plan.actions = _dry_run(plan.actions, connect, desired.force)
    run = ObjectRun(
        this_run(new_run_id(), {"cluster": desired.model_dump()}),
        plan,
        connect,
        fleet,
        options.take_over,
        force=desired.force,
        rollout_timeout=desired.rollout_timeout,
        finish=lambda run: _finish(run, plan),
    )
    _show_plan(run, plan)
    driver = next((remote for remote in fleet.targets if remote.is_control_plane), fleet.targets[0])
    return Prepared(run, driver.name)


def _dry_run(actions: Sequence[Action], connect: Callable[[], Api], force: bool) -> list[Action]:
    """The same actions with what the API server makes of them. Raises DeployError with all that it refuses."""
    refusals: list[object] = []
    shown: list[Action] = []
    for action in actions:
        try:
            shown.append(replace(action, shown=once(connect, lambda api, action=action: _shown(action, api, force))))  # type: ignore[misc]
        except ApiError as error:
            refusals.append(f"{action.name}: {error}")
        except NoApi as error:
            refusals.append(f"{action.name}: {error}")
            break
    bridge.stop(refusals)
    return shown


def _shown(action: Action, api: Api, force: bool) -> str:
    name = action.name.replace(" ", "/")
    if action.before is not None and action.what in ("remove", "replace"):
        api.delete(action.path, facts.uid(action.before), version=facts.version(action.before), dry_run=True)
    if action.manifest is None:
        return facts.diff(action.before, None, name)
    if action.what == "replace":
        # What is there cannot be applied to: this is a new object, and only its deletion could be tried.
        return facts.diff(action.before, action.manifest, name)
    made = api.apply(action.path, action.first or action.manifest, force=force, dry_run=True)
    if action.first is not None:
        made["globalDefault"] = True
    return facts.diff(action.before, made, name)


def _show_plan(run: ObjectRun, plan: Plan) -> None:
    show(f"\nPlan of run {run.info.id}: {len(plan.actions)} changes of the cluster's objects")
    for number, action in enumerate(plan.actions, 1):
        show(f"\n[{number}/{len(plan.actions)}] {action.name}: {action.summary}")
        lines = [*action.shown.splitlines(), *(f"- {one_line(note)}" for note in action.notes)]
        if lines:
            show_lines("\n".join(f"    {line}" for line in lines))
    if plan.kept:
        show_lines("\nNo longer in the data:\n" + "\n".join(one_line(f"    {name}: {why}") for name, why in plan.kept))
    if not plan.actions:
        _show_results(run, plan)


def _finish(run: ObjectRun, plan: Plan) -> None:
    _show_results(run, plan)
    for warning in run.warnings:
        show(f"\nWARNING: {warning}")
    show(f"\nRecord of the run: {run.record.path}")
    if run.halted:
        show(f"\nHALTED: {run.halted}")
        left = [turn.action.name for turn in run.turns if turn.outcome == "not started"]
        if left:
            show(f"Not touched: {', '.join(left)}.")
        show("When the cause is gone, run the same command again: what is done stays as it is, and it goes on from there.")


def _show_results(run: ObjectRun, plan: Plan) -> None:
    rows = [_row(turn) for turn in run.turns]
    rows += [[name, "none", "no change", "-", why] for name, why in plan.unchanged]
    rows += [[name, "none", "kept", "-", "dropped from the data, as said above"] for name, _ in plan.kept]
    show_lines("\n" + table.render(["object", "action", "outcome", "s", "proof"], rows))


def _row(turn: Turn) -> list[str]:
    action = turn.action
    return [
        action.name,
        action.what,
        turn.outcome,
        f"{turn.seconds:.0f}" if turn.seconds else "-",
        turn.proof or table.short(turn.why, CELL) or "-",
    ]


__all__ = [
    "API_WAIT",
    "COLLECTIONS",
    "LOOK_AGAIN",
    "REFUSED",
    "RESOURCES_OF_KINDS",
    "Access",
    "Desired",
    "Errand",
    "Live",
    "NotDone",
    "Object",
    "Unknown",
    "connection",
    "namespaced_name",
    "once",
    "priority_classes",
    "read",
    "read_live",
    "rollout",
    "unmet_class",
    "unmet_workload",
]
