"""Resizes running pods of a workload in place: planned against the real cluster, one at a time, proven in their cgroups."""

from __future__ import annotations

from dataclasses import dataclass, replace

from roles.engine import bridge
from roles.engine.api import Api, ApiFailure, find_object, workload_exists
from roles.engine.bridge import Fleet
from roles.engine.folding import counted
from roles.engine.kube import Object, full_name, uid
from roles.engine.kube.fields import containers_of
from roles.engine.kube.pods import is_alive, node_of
from roles.engine.object_runs import ConnectedCluster, Consents, ObjectRun, connect_cluster, read_objects
from roles.engine.objects import RollOuts, Session, workload_rollout
from roles.engine.runs import Options, Turns, deploying
from roles.engine.runs.options import read_options
from roles.engine.timeouts import API_WAIT
from roles.engine.transaction import ObjectsRecord, Refusal
from roles.engine.voice import show
from roles.pod_resize import abilities, facts, model, pod_resources, resize_run, templates
from roles.pod_resize.abilities import Ability
from roles.pod_resize.facts import Selected
from roles.pod_resize.model import DesiredResources
from roles.pod_resize.plan import ResizePlan
from roles.pod_resize.pod_resources import Resources
from roles.pod_resize.resize_run import ResizeRecord
from roles.pod_resize.templates import Template
from roles.pod_resize.workload import Back, plan_pods, tried

#: The name in the records of runs that this package undoes.
CAPABILITY = "resize"


def _read(fleet: Fleet) -> tuple[Options, DesiredResources]:
    options = read_options(fleet.targets)
    with bridge.refusing(Refusal):
        return options, model.read_resize([(one.name, one.data) for one in fleet.inventory])


@deploying("Resize pods", _read, of_cluster=True)
def resize(fleet: Fleet, asked: tuple[Options, DesiredResources]) -> Turns:
    """Change CPU and memory of the running pods of a workload or selector.

    Data keys: those of roles/pod_resize/model.py, and take_over (roles/engine/runs/options.py). Raises DeployError before any change if
    the plan is refused.
    """
    options, desired = asked
    run = _run(fleet, options, _Goal(desired), desired)
    return Turns.of(run, fleet, "resize, and read the cgroups")


@dataclass(frozen=True)
class _Goal:
    """The goal of a run, from the data or from the record of the run that it undoes (`force`: overwrite later changes of others).
    `title` is shown before the plan."""

    desired: DesiredResources
    undoes: ResizeRecord | None = None
    force: bool = False
    title: str = ""


@dataclass(frozen=True)
class _Observed:
    """The pods, the ability of the cluster and the `wanted` nodes, and the kind and object of the workload."""

    selected: Selected
    ability: Ability
    workload: tuple[str, Object] | None
    wanted: frozenset[str]


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy, at its pace. Raises DeployError if someone else has changed the same fields
    since."""
    with bridge.refusing(ValueError, f"run={record.run}: "):
        earlier = resize_run.recorded(record)
        desired = DesiredResources(
            selector=f"{earlier.about['namespace']}/{earlier.about['labels']}",
            allow_restarts=consents.allow_restarts,
            kubeconfig=consents.kubeconfig,
            **(earlier.about.get("pace") or {}),
        )
    goal = _Goal(desired, earlier, consents.force, f"Undoing run {record.run}")
    return _run(fleet, options, goal, record)


def _run(fleet: Fleet, options: Options, goal: _Goal, asked: DesiredResources | ObjectsRecord) -> ObjectRun:
    desired = goal.desired
    reached = connect_cluster(fleet, desired.kubeconfig, min(API_WAIT, desired.limit("resize_timeout")))
    session = reached.session
    with bridge.refusing(ValueError, "workload: "):
        desired = read_objects(session, lambda api: desired.settled(workload_exists(api)))
    goal = replace(goal, desired=desired)
    observed = _observe(session, goal, reached)
    back = Back(goal.undoes.steps, goal.undoes.outcomes, goal.force) if goal.undoes is not None else None
    seconds = desired.limit("resize_timeout")
    plan, writer = plan_pods(fleet, reached, observed.ability, observed.selected, desired, seconds, back=back)
    template = _template(goal, observed, plan)
    bridge.stop(plan.refusals)
    bridge.stop(tried(writer, plan.steps, template))
    rolling = RollOuts(session, show)
    run = ObjectRun(
        asked,
        resize_run.stages(writer, plan.steps, desired.max_in_flight, rolling, template),
        fleet,
        options.take_over,
        lambda run: _finish(run, plan, observed.workload, session),
        capability=CAPABILITY,
        about={
            "namespace": observed.selected.namespace,
            "labels": observed.selected.labels,
            "workload": _workload_path(goal),
            "pace": {key: getattr(desired, key) for key in model.PACE if key in desired.model_fields_set},
        },
        leaving=lambda: f"a requested resize continues in the cluster; to undo it: {run.undo}",
        warnings=rolling.warnings,
    )
    _show_plan(run, plan, goal, template, observed, abilities.unknown_facts(observed.ability, sorted(observed.wanted)))
    return run


def _observe(session: Session, goal: _Goal, reached: ConnectedCluster) -> _Observed:
    """Raises DeployError."""
    try:
        selected = session.asked(lambda api: facts.select(api, goal.desired), "plan")
        wanted = frozenset(node_of(pod) for pod in selected.pods)
        ability = session.asked(lambda api: facts.read_ability(reached.found, api, wanted), "plan")
        workload = session.asked(lambda api: _workload(api, goal, selected), "plan")
    except Refusal as refusal:
        raise bridge.refusals([refusal]) from None
    except ApiFailure as error:
        raise bridge.refusals([f"the pods cannot be read: {error}"]) from None
    return _Observed(selected, ability, workload, wanted)


def _workload_path(goal: _Goal) -> list[str]:
    """Kind and path; empty without a workload."""
    if goal.undoes is not None:
        return list(goal.undoes.about.get("workload") or ())
    return [goal.desired.kind, goal.desired.path] if goal.desired.kind is not None else []


def _workload(api: Api, goal: _Goal, selected: Selected) -> tuple[str, Object] | None:
    """The kind and the workload itself."""
    place = _workload_path(goal)
    if not place:
        return None
    found = selected.workload or find_object(api, place[1])
    return (place[0], found) if found is not None else None


def _template(goal: _Goal, observed: _Observed, plan: ResizePlan) -> Template | None:
    """The change of the template at the end of this run. Problems are added to the plan's refusals."""
    if observed.workload is None:
        return None
    (kind, item), found = observed.workload, None
    place, seconds = _workload_path(goal)[1], goal.desired.limit("rollout_timeout")
    if goal.undoes is not None:
        changed = goal.undoes.template
        if changed and uid(item) == changed.uid:
            found, refused = templates.restored(kind, item, place, changed, seconds, force=goal.force)
            plan.refusals += refused
    elif goal.desired.template == "update" and (wanted := _common(goal.desired, observed.selected, plan)):
        found = templates.update(kind, item, place, wanted, seconds)
    if found is not None and (why := next(iter(workload_rollout.rollout_problems(kind, item)), None)):
        plan.refusals.append(f"{found.name}: {why}")
    return found


def _common(desired: DesiredResources, selected: Selected, plan: ResizePlan) -> dict[str, Resources]:
    """The resources that all pods have at the end, by container. A container whose pods will differ is refused."""
    steps = {step.uid: step for step in plan.steps}
    chosen = desired.container
    found: dict[str, list[Resources]] = {}
    for pod in selected.pods:
        if not is_alive(pod):
            continue
        step = steps.get(uid(pod))
        for spec in containers_of(pod):
            name = str(spec.get("name"))
            if chosen is not None and chosen != (model.ALL,) and name not in chosen:
                continue
            change = step.changes.get(name) if step else None
            found.setdefault(name, []).append(change.after if change else pod_resources.of(spec))
    common = {}
    for name, values in found.items():
        if all(pod_resources.alike(values[0], one) for one in values):
            common[name] = values[0]
        else:
            plan.refusals.append(
                f"template=update: the pods would have different resources for {name}; give all the same, or set the template by hand"
            )
    return common


def _show_plan(run: ObjectRun, plan: ResizePlan, goal: _Goal, template: Template | None, observed: _Observed, unsure: list[str]) -> None:
    count, desired = len(plan.steps), goal.desired
    if goal.title:
        show(f"\n{goal.title}")
    at_once = f", at most {desired.max_in_flight} at a time" if count > 1 else ""
    show(
        f"\nPlan of run {run.info.id}: {counted(count, 'pod')} {'is' if count == 1 else 'are'} resized in place{at_once}, tried on the API "
        "server"
    )
    for number, step in enumerate(plan.steps, 1):
        show(f"[{number}/{count}] {step.where} on {step.node}: {step.summary}")
    if count:
        restarts = any(change.restarts for step in plan.steps for change in step.changes.values())
        same = "the same container, restart count and start time" if not restarts else "a restart of only the named containers"
        show(
            f"    proof for each pod: its containers' own cgroups on the node, a status that equals the spec, {same}. A resize that is not "
            f"done within {desired.limit('resize_timeout'):g} s is reverted, and the run halts"
        )
    if template is not None:
        show(f"\nThen {template.name}: its template gets the pods' resources")
        for name, after in template.after.items():
            show(f"    {name}: {pod_resources.resources_text(template.before.get(name) or {})} -> {pod_resources.resources_text(after)}")
        show(f"    - {templates.recreates(template.kind, template.item, len(plan.steps) + len(plan.unchanged))}")
        show(
            f"    - waits {template.timeout:g} s for the roll-out, then for the old pods to end; "
            "a failed roll-out is undone, which recreates the pods again"
        )
    elif observed.workload is not None and count and goal.undoes is None:
        show("\n" + _keeps(observed.workload))
    for note in (*plan.notes, *(f"unknown: {one}" for one in unsure)):
        show(f"\n{note}")
    if not run.steps:
        run.show_objects(_rest(plan))


def _keeps(workload: tuple[str, Object]) -> str:
    return (
        f"The template of {workload[0]} {full_name(workload[1])} stays as it is (template=keep): recreated pods get its "
        "resources. To change it too, which recreates all pods: --data template=update. deploys/resize_drift.py lists pods that differ."
    )


def _finish(run: ObjectRun, plan: ResizePlan, workload: tuple[str, Object] | None, session: Session) -> None:
    calls = session.calls
    counts = (
        f"{counted(len(plan.steps), 'pod')} in {run.seconds:.0f} s; requests to the API: {calls['dry run']} dry runs, "
        f"{calls['patch']} changes, {calls['look']} reads of all of them, {calls['plan'] + calls['lease']} others"
    )
    run.show_end(_rest(plan), [counts])
    actions = {step.action for step in run.steps if step.outcome == run.success}
    if (
        workload is not None
        and not run.undoes
        and resize_run.RESIZE in actions
        and resize_run.UPDATE not in {step.action for step in run.steps}
    ):
        show(_keeps(workload))


def _rest(plan: ResizePlan) -> list[list[str]]:
    """The rows of the pods that this run does not change."""
    return [[f"pod {name}", "none", "no change", "-", why] for name, why in plan.unchanged]
