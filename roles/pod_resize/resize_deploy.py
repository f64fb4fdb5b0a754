"""Running pods of a workload resized in place: planned against that very cluster, one at a time, proven in their cgroups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra.api.deploy import deploy

from roles.api import Api, ApiError, find_object
from roles.change.record import new_run_id, this_run
from roles.change.refusal import Refusal
from roles.objects import Object
from roles.pod_resize import ability as abilities
from roles.pod_resize import facts, model, reach
from roles.pod_resize import plan as planning
from roles.pod_resize import resources as res
from roles.pod_resize import template as templates
from roles.pod_resize.engine import Engine, Line, Watcher
from roles.pod_resize.facts import Selected
from roles.pod_resize.model import Desired
from roles.pod_resize.plan import Plan, Step
from roles.pod_resize.resources import Resources
from roles.pod_resize.run import Recorded, ResizeRun, Turn, read_record
from roles.pod_resize.template import Template
from roles.proof import NoApi
from roles.rollout import options as run_options
from roles.rollout import remote as bridge
from roles.rollout import table
from roles.rollout.remote import Fleet, show, show_lines

# Seconds: how long the API may be away in the middle of a run.
API_PATIENCE = 60.0


@dataclass
class Prepared:
    """The whole plan of one run, and the host whose turn stands for the cluster."""

    run: ResizeRun
    driver: str


@deploy("Resize pods")  # type: ignore[untyped-decorator]
def resize() -> None:
    """Give the pods of a workload, or of a selector, other CPU and memory while they run.

    Data keys: those of roles/pod_resize/model.py, and take_over (roles/rollout/options.py). Raises DeployError, before anything is
    changed, where the plan is refused.
    """
    prepared = bridge.once("resize", _prepare)
    changes = bool(prepared.run.turns) and bridge.current_host() == prepared.driver
    bridge.drive("resize", changes, prepared.run.result, name="resize, and read the cgroups")


@dataclass(frozen=True)
class _Aim:
    """What a run is about, from the data or from the record of the run that it undoes."""

    desired: Desired
    selected: Selected
    undoes: Recorded | None = None


def _prepare(fleet: Fleet) -> Prepared:
    options = run_options.read(fleet.targets)
    try:
        desired = model.read([(one.name, one.data) for one in fleet.inventory])
        earlier = _recorded(desired.undo) if desired.undo is not None else None
    except Refusal as refusal:
        raise bridge.refusals([refusal]) from None
    reached = reach.reach(fleet, desired.kubeconfig)
    line = Line(reached.connect, min(API_PATIENCE, desired.resize_timeout))
    try:
        aim = line.ask("plan", lambda api: _aim(api, desired, earlier))
        wanted = {res.node_of(pod) for pod in aim.selected.pods}
        ability = line.ask("plan", lambda api: facts.read_ability(reached.found, api, wanted))
        workload = line.ask("plan", lambda api: _workload(api, aim))
    except Refusal as refusal:
        raise bridge.refusals([refusal]) from None
    except (ApiError, NoApi) as error:
        raise bridge.refusals([f"the pods cannot be read: {error}"]) from None
    held, problems = facts.read_held(fleet, reached.nodes, aim.selected.pods)
    if earlier is not None:
        plan = planning.undo(earlier.steps, aim.selected.pods, ability, held, reached.nodes, desired, earlier.outcomes)
        if earlier.cut:
            plan.notes.append(
                f"the record of {desired.undo} ends in the middle of a line, as a power cut leaves it: what that was about was not begun"
            )
    else:
        plan = planning.make(desired, aim.selected.pods, ability, held, reached.nodes)
    plan.refusals += problems
    template = _template(aim, workload, plan)
    bridge.stop(plan.refusals)
    bridge.stop(_dry_run(plan.steps, line, ability.minor))
    if template is not None:
        bridge.stop(_dry_template(template, line))
    watcher = Watcher(line, aim.selected.namespace, aim.selected.labels)
    engine = Engine(line, watcher, ability, reached.nodes, reached.units, desired.resize_timeout, lambda text: show(f"  {text}"), held)
    run = ResizeRun(
        this_run(new_run_id(), {"cluster": desired.model_dump()}),
        plan.steps,
        reached.connect,
        fleet,
        options.take_over,
        engine=engine,
        at_once=desired.max_in_flight,
        template=template,
        about={
            "namespace": aim.selected.namespace,
            "labels": aim.selected.labels,
            "workload": _workload_path(aim),
            "undoes": desired.undo or "",
        },
        finish=lambda run: _finish(run, plan, workload),
    )
    _show_plan(run, plan, desired, workload, abilities.unsure(ability, sorted(wanted)))
    return Prepared(run, reach.driver(fleet))


def _recorded(run: str) -> Recorded:
    try:
        return read_record(run)
    except FileNotFoundError:
        raise Refusal(f"undo={run}", "there is no record of that run here; it is kept where the run was started") from None
    except (ValueError, OSError, KeyError) as error:
        raise Refusal(f"undo={run}", str(error)) from None


def _aim(api: Api, desired: Desired, earlier: Recorded | None) -> _Aim:
    if earlier is None:
        return _Aim(desired, facts.select(api, desired))
    namespace, labels = str(earlier.about["namespace"]), str(earlier.about["labels"])
    pods = facts.select(api, Desired(selector=f"{namespace}/{labels}")).pods
    return _Aim(desired, Selected(namespace, labels, None, pods), earlier)


def _workload_path(aim: _Aim) -> list[str]:
    """Kind and path; empty without a workload."""
    if aim.undoes is not None:
        return list(aim.undoes.about.get("workload") or ())
    return [aim.desired.kind, aim.desired.path] if aim.desired.kind is not None else []


def _workload(api: Api, aim: _Aim) -> tuple[str, Object] | None:
    """The kind and the workload itself."""
    place = _workload_path(aim)
    if not place:
        return None
    found = aim.selected.workload or find_object(api, place[1])
    return (place[0], found) if found is not None else None


def _template(aim: _Aim, workload: tuple[str, Object] | None, plan: Plan) -> Template | None:
    """The change of the template that this run ends with. What stands against it goes to the plan's refusals."""
    wanted: Mapping[str, Resources] = {}
    if aim.undoes is not None:
        changed = aim.undoes.template
        if changed and workload and workload[1]["metadata"].get("uid") == changed["uid"]:
            wanted = changed["before"]
            if why := templates.changed_since(workload[1], changed["before"], changed["after"]):
                plan.refusals.append(f"{changed['name']}: {why}")
    elif aim.desired.template == "update" and workload is not None:
        wanted = _common(aim, plan)
    if workload is None or not wanted:
        return None
    kind, item = workload
    found = templates.update(kind, item, _workload_path(aim)[1], wanted, aim.desired.rollout_timeout)
    if found is not None and (why := templates.not_updatable(kind, item)):
        plan.refusals.append(f"{found.name}: {why}")
    return found


def _common(aim: _Aim, plan: Plan) -> dict[str, Resources]:
    """What all pods have at the end, by container; a container of which pods will have different things stays out of it."""
    steps = {step.uid: step for step in plan.steps}
    chosen = aim.desired.container
    found: dict[str, list[Resources]] = {}
    for pod in aim.selected.pods:
        if res.is_over(pod) or pod["metadata"].get("deletionTimestamp"):
            continue
        step = steps.get(str(pod["metadata"].get("uid")))
        for spec in res.containers(pod):
            name = str(spec.get("name"))
            if chosen is not None and chosen != (model.ALL,) and name not in chosen:
                continue
            change = step.changes.get(name) if step else None
            found.setdefault(name, []).append(change.after if change else res.of(spec))
    common = {}
    for name, values in found.items():
        if all(res.alike(values[0], one) for one in values):
            common[name] = values[0]
        else:
            plan.refusals.append(
                f"template=update: the pods would not all have the same for {name}; resize all of them alike, or set it by hand"
            )
    return common


def _dry_run(steps: list[Step], line: Line, minor: int) -> list[str]:
    """What the API server refuses, its admission included, in its own words."""
    refused: dict[str, list[str]] = {}
    for step in steps:
        try:
            line.ask("dry run", lambda api, step=step: api.patch(step.path(minor), step.patch(), dry_run=True))  # type: ignore[misc]
        except ApiError as error:
            refused.setdefault(f"the API refuses it: {error.rule}; {error.way_out}".replace(step.name, "POD"), []).append(step.where)
        except NoApi as error:
            return [f"the API cannot be asked: {error}"]
    return [f"{planning.some(names)}: {why}" for why, names in refused.items()]


def _dry_template(template: Template, line: Line) -> list[str]:
    try:
        line.ask("plan", lambda api: api.patch(template.path, template.patch(), dry_run=True))
    except (ApiError, NoApi) as error:
        return [f"{template.name}: {error}"]
    return []


def _show_plan(run: ResizeRun, plan: Plan, desired: Desired, workload: tuple[str, Object] | None, unsure: list[str]) -> None:
    count = len(plan.steps)
    at_once = f", at most {desired.max_in_flight} at a time" if count > 1 else ""
    show(f"\nPlan of run {run.info.id}: {count} pods are resized in place{at_once}, tried on the API server")
    for number, step in enumerate(plan.steps, 1):
        show(f"[{number}/{count}] {step.where} on {step.node}: {step.told}")
    if count:
        restarts = any(change.restarts for step in plan.steps for change in step.changes.values())
        same = "the same container, restart count and start time" if not restarts else "a restart of those containers alone that are named"
        show(
            f"    will be proven, of each: its containers' own cgroups on the node, status as the spec, {same}; what does not come about "
            f"within {desired.resize_timeout} s is put back, and the run halts"
        )
    template = run.template
    if template is not None:
        show(f"\nThen {template.name}: its template says what the pods have")
        for name, after in template.after.items():
            show(f"    {name}: {res.told(template.before.get(name) or {})} -> {res.told(after)}")
        show(f"    - {templates.recreates(template.kind, template.item, len(plan.steps) + len(plan.unchanged))}")
        show(
            f"    - waits {template.timeout:g} s for the roll-out, then for the old pods to end; "
            "one that fails is undone, which re-creates its pods once more"
        )
    elif workload is not None and count and desired.undo is None:
        show("\n" + _keeps(workload))
    for note in (*plan.notes, *(f"not known: {one}" for one in unsure)):
        show(f"\n{note}")
    if not run.turns:
        _show_results(run, plan)


def _keeps(workload: tuple[str, Object]) -> str:
    return (
        f"The template of {workload[0]} {res.where(workload[1])} stays as it is (template=keep): pods that are made anew get what it says. "
        "To change it too, which makes all pods anew: --data template=update. deploys/resize_drift.py lists who differs."
    )


def _finish(run: ResizeRun, plan: Plan, workload: tuple[str, Object] | None) -> None:
    _show_results(run, plan)
    calls = run.engine.line.calls
    pods = len(run.pods)
    show(
        f"\n{pods} pods in {run.seconds:.0f} s; requests to the API: {calls['dry run']} dry runs, {calls['patch']} changes, "
        f"{calls['look']} looks at all of them, {calls['plan'] + calls['lease']} others"
    )
    show(f"Record of the run: {run.record.path}")
    for warning in run.warnings:
        show(f"\nWARNING: {warning}")
    done = [turn for turn in run.turns if turn.outcome == "done"]
    if run.halted:
        show(f"\nHALTED: {run.halted}")
        left = [turn.name for turn in run.turns if turn.outcome == "not started"]
        if left:
            show(f"Not touched: {', '.join(left)}.")
        if done:
            show(f"Resized and proven: {', '.join(turn.name for turn in done)}. To undo them: {run.undo}")
        show("When the cause is gone, run the same command again: what is done stays as it is, and it goes on from there.")
    elif done:
        show(f"To undo it: {run.undo}")
    if workload is not None and run.template is None and done:
        show(_keeps(workload))


def _show_results(run: ResizeRun, plan: Plan) -> None:
    rows = [_row(turn) for turn in run.turns]
    rows += [[f"pod {name}", "none", "no change", "-", why] for name, why in plan.unchanged]
    show_lines("\n" + table.render(["object", "action", "outcome", "s", "proof"], rows))


def _row(turn: Turn) -> list[str]:
    text = table.short(turn.proof or turn.why)
    return [turn.name, turn.what, turn.outcome, f"{turn.seconds:.0f}" if turn.seconds else "-", text or "-"]
