"""`apply=true`: plans the change of each workload against the real cluster, one workload after the other, and its undo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.context import Stage
from roles.engine.disruption import DisruptionObjects
from roles.engine.folding import counted
from roles.engine.kube import uid
from roles.engine.kube.fields import namespace_of
from roles.engine.kube.pods import is_alive
from roles.engine.object_runs import ConnectedCluster, Consents, ObjectRun, connect_cluster
from roles.engine.objects import ChangedByOthers, WriteRefused
from roles.engine.outage import read_drain
from roles.engine.outage.places import cluster_view
from roles.engine.runs import Options
from roles.engine.transaction import ChangedObject, ObjectsRecord, Refusal, Writable
from roles.engine.voice import show
from roles.pod_resize import POD, RESOURCES_OF_TEMPLATE, PodStep, Resizer, WorkloadResize, only_resources, resources_text
from roles.right_size import room
from roles.right_size.change import ACTION, SizedChange, WorkloadChange, WorkloadUndo
from roles.right_size.judged import CollectedUse, JudgedContainer
from roles.right_size.model import RightSizeOptions
from roles.right_size.reading import look_at
from roles.right_size.samples import Kill, SampleHistory, added, processes_killed
from roles.right_size.store import Store, StoreError
from roles.right_size.targets import AUTOSCALER, TargetChange, metrics_of, recorded_targets
from roles.right_size.wanted import WantedResources, changed_since, use_before, wanted
from roles.right_size.watching import SoakLook
from roles.right_size.workloads import SizedWorkload

#: The name in the records of runs that this package undoes.
CAPABILITY = "right_size"
C = TypeVar("C", bound=SizedChange)
_QUOTAS = {"ResourceQuota": "/api/v1/resourcequotas"}
#: What an undo may write.
WRITES = (
    Writable(
        "/apis/apps/v1/namespaces/*/*/*",
        ((POD, "*", "*", "resources"), RESOURCES_OF_TEMPLATE, (AUTOSCALER, "*", "metrics")),
        only_resources,
    ),
)


def plan_run(
    fleet: Fleet,
    options: RightSizeOptions,
    common: Options,
    reached: ConnectedCluster,
    seen: CollectedUse,
    found: Sequence[JudgedContainer],
) -> ObjectRun:
    """Plan and show the run that applies the advice. Raises DeployError if a workload that the data name is refused, or
    if nothing can be said of it yet."""
    changing, left, waiting = wanted(found, system=options.read_namespaces is not None)
    if options.only_objects is not None:
        left += waiting
    resizer = Resizer(fleet, reached, allow_restarts=options.allow_restarts, template=options.template == "update")
    with bridge.refusing(ApiFailure, "the cluster cannot be read: "):
        live = read_drain(reached.session, _QUOTAS)
        changes = _planned(fleet, options, resizer, changing, seen, live, left)
    if options.only_objects is not None:
        bridge.stop(f"{name}: {why}" for name, why in left)
    rest = [[name, "none", "left", "-", why] for name, why in left]
    run = _run(fleet, options, common, changes, rest, resizer)
    _show(run, changes, left, options)
    if waiting and options.only_objects is None:
        many = counted(len(waiting), "more workload")
        show(f"\n{many} not known well enough yet, or leaking: see above (min_span={options.min_span}).")
    return run


def _run(
    fleet: Fleet, asked: RightSizeOptions | ObjectsRecord, common: Options, changes: Sequence[WorkloadChange | WorkloadUndo],
    rest: Sequence[Sequence[str]], resizer: Resizer,
) -> ObjectRun:  # fmt: skip
    """`rest`: rows of what does not change."""
    run = ObjectRun(
        asked, [Stage((change.step(),)) for change in changes], fleet, common.take_over,
        lambda run: run.show_end(rest),
        capability=CAPABILITY, leaving=lambda: f"a requested resize continues in the cluster; to undo it: {run.undo}",
        warnings=resizer.rolling.warnings,
    )  # fmt: skip
    return run


def _planned(
    fleet: Fleet,
    options: RightSizeOptions,
    resizer: Resizer,
    wanted: Sequence[WantedResources],
    seen: CollectedUse,
    live: DisruptionObjects,
    left: list[tuple[str, str]],
) -> list[WorkloadChange]:
    """The changes in their order; what cannot be changed is added to `left`. Raises ApiFailure."""
    changes: list[WorkloadChange] = []
    steps: list[PodStep] = []
    for one in wanted:
        try:
            resize, why = _resize(resizer.plan, one, steps, lambda: live)
        except (Refusal, ValueError) as error:
            resize, why = None, str(error)
        if resize is None or why:
            left.append((str(one.workload), why))
        elif resize.steps or resize.template is not None:
            steps += resize.steps
            look = partial(look_at, fleet, resizer.reached.session, resizer.reached.nodes, one.workload)
            known = {judged.container: use_before(judged) for judged in one.judged}
            again, keep = partial(_again, resizer, one, resize), partial(_keep, seen.cluster, one.workload)
            changes.append(
                WorkloadChange(resize, one.targets(seen.hpas), resizer.reached.session, options.watch_resized, look, known, again, keep)
            )
    return changes


def _resize(
    plan: Callable[..., tuple[WorkloadResize, list[str]]], one: WantedResources, before: Sequence[PodStep],
    live: Callable[[], DisruptionObjects],
) -> tuple[WorkloadResize, str]:  # fmt: skip
    """The resize of a workload after the steps `before`, and why it is refused. `plan`: of a Resizer. Raises Refusal, ValueError,
    ApiFailure."""
    workload = one.workload
    resize, refusals = plan(workload.kind, workload.namespace, workload.name, one.resources)
    if not refusals:
        refusals = _room(resize, one, [*before, *resize.steps], live())
    return resize, "; ".join(refusals)


def _again(resizer: Resizer, one: WantedResources, planned: WorkloadResize) -> WorkloadResize:
    """The planned resize of a workload, judged once more right before it is carried out, by what may have changed: its pods, to which an
    autoscaler may have added some, what they use, and the room. Raises WriteRefused or ChangedByOthers if it is refused now, or no longer
    the change of the plan."""
    try:
        resize, why = _resize(resizer.judge, one, (), lambda: read_drain(resizer.reached.session, _QUOTAS))
    except (Refusal, ValueError, ApiFailure) as error:
        raise WriteRefused(f"it cannot be judged again, so nothing was changed: {error}") from error
    if why:
        raise WriteRefused(f"it is refused by now, so nothing was changed: {why}")
    if others := list(changed_since(planned, resize)):
        raise ChangedByOthers(f"since the plan {'; '.join(others)}. Nothing was changed: plan again")
    return resize


def _keep(cluster: str, workload: SizedWorkload, found: SoakLook) -> None:
    """Add the kills to the samples while the pods have the limits at which these happened: later, nothing else says so. Best effort."""
    kills: dict[str, list[Kill]] = {}
    for place, one in found.containers.items():
        kills.setdefault(one.name, []).extend(one.kills)
        if (read := found.reads.get(place)) is not None:
            kills[one.name].extend(processes_killed(one.id, read))
    now = time.time()
    try:
        Store.of(cluster).update(
            workload, lambda kept: {**kept, **{name: added(kept.get(name, SampleHistory()), (), of, now) for name, of in kills.items()}}
        )
    except StoreError as error:
        show(f"  {workload}: {error}")


def _room(resize: WorkloadResize, one: WantedResources, steps: Sequence[PodStep], live: DisruptionObjects) -> list[str]:
    """Why nodes or quotas have no room for all steps so far."""
    pods = list(live.of("Pod"))
    problems = list(room.node_problems(steps, live.of("Node"), pods))
    quotas = [item for item in live.of("ResourceQuota") if namespace_of(item) == one.workload.namespace]
    problems += room.quota_problems(steps, one.workload.namespace, quotas, pods)
    if resize.template is not None:
        alive = [pod for pod in live.pods_of(resize.kind, uid(resize.item)) if is_alive(pod)]
        problems += room.rollout_problems(resize.kind, resize.item, alive, one.resources, cluster_view(live))
        if alive:
            new = room.with_resources(alive[0], one.resources)
            problems += room.surge_problems(resize.kind, resize.item, new, steps, quotas, pods)
    return problems


def _show(run: ObjectRun, changes: Sequence[WorkloadChange], left: Sequence[tuple[str, str]], options: RightSizeOptions) -> None:
    count = counted(len(changes), "workload")
    show(f"\nPlan of run {run.info.id}: {count} to change, one after the other, tried on the API server")
    for change in _shown(changes):
        for target in change.targets:
            show(f"    HorizontalPodAutoscaler {target.name}: {target.text}, so that it keeps as many pods")
        show(
            f"    watched for {options.watch_resized} s: an OOM kill, a restart or more throttling puts everything back, and the run halts"
        )
        if (template := change.resize.template) is not None:
            for name, after in template.after.items():
                before = resources_text(template.before.get(name) or {})
                show(f"    then its template: {name}: {before} -> {resources_text(after)}, which recreates all its pods")
        for note in (*change.resize.notes, *_target_notes(change.targets, options)):
            show(f"    - {note}")
    if changes and options.template == "keep":
        show(
            "\nThe templates stay as they are (template=keep): recreated pods get their resources. deploys/resize_drift.py lists pods "
            "that differ."
        )
    for name, why in left:
        show(f"\nLeft as it is: {name}: {why}")
    if not run.steps:
        show("\nNothing is applied." if left else "\nNothing to apply.")


def _shown(changes: Sequence[C]) -> Iterator[C]:
    """Each change, whose name and pods are shown."""
    for number, change in enumerate(changes, 1):
        show(f"[{number}/{len(changes)}] {change.resize.name}")
        for step in change.resize.steps:
            show(f"    pod {step.where} on {step.node}: {step.summary}")
        yield change


def _target_notes(targets: Sequence[TargetChange], options: RightSizeOptions) -> Iterator[str]:
    if targets and options.template == "keep":
        yield "pods that are added or recreated request what the template says, which the new target does not fit: template=update"
        return
    for target in targets:
        if target.rises and options.watch_resized >= target.window:
            yield (
                f"while daytwo watches, HorizontalPodAutoscaler {target.name} may add pods with the old requests. They look idle, and after"
                f" {target.window:g} s it may remove pods. Raise its minReplicas until the roll-out, or set a shorter watch_resized"
            )


# ---- undo


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same fields since."""
    reached = connect_cluster(fleet, consents.kubeconfig)
    resizer = Resizer(fleet, reached, allow_restarts=consents.allow_restarts, template=True)
    undone: list[WorkloadUndo] = []
    rest: list[list[str]] = []
    refusals: list[str] = []
    with bridge.refusing((ApiFailure, ValueError), f"run={record.run}: "):
        for changed in reversed([one for one in record.objects if one.action == ACTION]):
            resize, why = resizer.plan_back(changed, force=consents.force)
            refusals += why
            if resize is None:
                rest.append([changed.name, "none", "no change", "-", "it is gone"])
                continue
            one = WorkloadUndo(resize, _still_ours(reached, changed, consents.force, refusals), reached.session)
            if one.empty:
                rest.append([changed.name, "none", "no change", "-", "it is as before that run already"])
            else:
                undone.append(one)
    bridge.stop(refusals)
    run = _run(fleet, record, options, undone, rest, resizer)
    show(f"\nUndoing run {record.run}")
    show(f"\nPlan of run {run.info.id}: {counted(len(undone), 'workload')} to change back, one after the other")
    for one in _shown(undone):
        for name, after in one.resize.template.after.items() if one.resize.template is not None else ():
            show(f"    its template: {name}: {resources_text(after)}, which recreates all its pods")
    if not run.steps:
        run.show_objects(rest)
    return run


def _still_ours(reached: ConnectedCluster, changed: ChangedObject, force: bool, refusals: list[str]) -> list[TargetChange]:
    """The targets of a recorded workload that have to go back. One that someone else has changed since is refused, unless `force`. Raises
    ApiFailure, ValueError."""
    found = []
    for target in recorded_targets(changed):
        there = reached.session.fetch(target.path)
        if there is None or uid(there) != target.uid or metrics_of(there) == list(target.after):
            continue
        if target.wrote(metrics_of(there)):
            found.append(target)
        elif force:
            found.append(replace(target, before=metrics_of(there)))
        else:
            refusals.append(
                f"HorizontalPodAutoscaler {target.name}: its metrics were changed since that run; overwrite them with --data force=true"
            )
    return found
