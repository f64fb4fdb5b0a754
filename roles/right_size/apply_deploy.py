"""`apply=true`: plans the change of each workload against the real cluster, one workload after the other, and its undo."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, show
from roles.engine.disruption import DisruptionObjects
from roles.engine.kube import uid
from roles.engine.kube.fields import namespace_of
from roles.engine.kube.pods import is_alive
from roles.engine.object_runs import ConnectedCluster, Consents, ObjectRun, connect_cluster, object_report
from roles.engine.objects import ChangedByOthers, WriteRefused
from roles.engine.outage import read_drain
from roles.engine.placement import ClusterView
from roles.engine.rollout import Options, Stage, table
from roles.engine.transaction import ChangedObject, ObjectsRecord, Refusal, Writable
from roles.pod_resize import POD, RESOURCES_OF_TEMPLATE, PodStep, Resizer, WorkloadResize, only_resources, resources_text
from roles.right_size import applying
from roles.right_size.apply_run import ACTION, AUTOSCALER, WayBack, WorkloadChange, metrics_of, recorded_targets
from roles.right_size.applying import TargetChange, WantedResources
from roles.right_size.collected import CollectedUse
from roles.right_size.judged import JudgedContainer
from roles.right_size.model import RightSizeOptions
from roles.right_size.quotas import quota_problems, surge_problems
from roles.right_size.reading import look_at
from roles.right_size.samples import Kill, SampleHistory, added, processes_killed
from roles.right_size.store import Store, StoreError
from roles.right_size.watching import SoakLook
from roles.right_size.workloads import SizedWorkload

#: The name in the records of runs that this package undoes.
CAPABILITY = "right_size"
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
    wanted, left, waiting = applying.wanted(found, system=options.read_namespaces is not None)
    if options.only_objects is not None:
        left += waiting
    resizer = Resizer(fleet, reached, allow_restarts=options.allow_restarts, template=options.template == "update")
    try:
        live = read_drain(reached.session, _QUOTAS)
        changes = _planned(fleet, options, resizer, wanted, seen, live, left)
    except ApiFailure as error:
        raise bridge.refusals([f"the cluster cannot be read: {error}"]) from None
    if options.only_objects is not None:
        bridge.stop(f"{name}: {why}" for name, why in left)
    stages = [Stage((change.step(),)) for change in changes]
    run = ObjectRun(
        options, stages, fleet, common.take_over,
        lambda run: object_report.show_objects_end(run, _rest(left)),
        capability=CAPABILITY, leaving=lambda: f"a requested resize continues in the cluster; to undo it: {run.undo}",
        warnings=resizer.rolling.warnings,
    )  # fmt: skip
    _show(run, changes, left, options)
    if waiting and options.only_objects is None:
        many = table.counted(len(waiting), "more workload")
        show(f"\n{many} not known well enough yet, or leaking: see above (min_span={options.min_span}).")
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
        workload = one.workload
        try:
            resize, refusals = resizer.plan(workload.kind, workload.namespace, workload.name, one.resources)
        except (Refusal, ValueError) as error:
            left.append((str(workload), str(error)))
            continue
        if resize is not None and not refusals:
            refusals = _room(resize, one, [*steps, *resize.steps], live)
        if resize is None or refusals:
            left.append((str(workload), "; ".join(refusals)))
            continue
        if not resize.steps and resize.template is None:
            continue
        steps += resize.steps
        again = partial(_again, resizer, one, resize)
        known = {judged.container: applying.use_before(judged) for judged in one.judged}
        look = partial(look_at, fleet, resizer.reached.session, resizer.reached.nodes, workload)
        targets = applying.target_changes(one, seen.hpas)
        changes.append(
            WorkloadChange(
                resize, targets, resizer.reached.session, options.watch_resized, look, known, again, partial(_keep, seen.cluster, workload)
            )
        )
    return changes


def _again(resizer: Resizer, one: WantedResources, planned: WorkloadResize) -> WorkloadResize:
    """The resize of a workload, planned once more right before it is carried out: an autoscaler may have added pods since. Raises
    WriteRefused or ChangedByOthers if it is refused now, or no longer the change of the plan."""
    workload = one.workload
    try:
        resize, refusals = resizer.plan(workload.kind, workload.namespace, workload.name, one.resources)
        if resize is not None and not refusals:
            refusals = _room(resize, one, resize.steps, read_drain(resizer.reached.session, _QUOTAS))
    except (Refusal, ValueError, ApiFailure) as error:
        raise WriteRefused(f"it cannot be planned again, so nothing was changed: {error}") from error
    if resize is None or refusals:
        raise WriteRefused(f"it is refused by now, so nothing was changed: {'; '.join(refusals)}")
    if others := list(applying.changed_since(planned, resize)):
        raise ChangedByOthers(f"since the plan {'; '.join(others)}; nothing was changed: plan again")
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
    problems = list(applying.node_problems(steps, live.of("Node"), pods))
    quotas = [item for item in live.of("ResourceQuota") if namespace_of(item) == one.workload.namespace]
    problems += quota_problems(steps, one.workload.namespace, quotas, pods)
    if resize.template is not None:
        view = ClusterView(
            list(live.of("Node")), pods, list(live.of("PersistentVolumeClaim")), list(live.of("PersistentVolume")),
            list(live.of("CSINode")), list(live.of("VolumeAttachment")), list(live.of("Namespace")),
        )  # fmt: skip
        mine = live.pods_of(resize.kind, uid(resize.item))
        alive = [pod for pod in mine if is_alive(pod)]
        problems += applying.rollout_problems(resize.kind, resize.item, alive, one.resources, view)
        if alive:
            new = applying.with_resources(alive[0], one.resources)
            problems += surge_problems(resize.kind, resize.item, new, steps, quotas, pods)
    return problems


def _show(run: ObjectRun, changes: Sequence[WorkloadChange], left: Sequence[tuple[str, str]], options: RightSizeOptions) -> None:
    count = len(changes)
    show(f"\nPlan of run {run.info.id}: {table.counted(count, 'workload')} to change, one after the other, tried on the API server")
    for number, change in enumerate(changes, 1):
        resize = change.resize
        show(f"[{number}/{count}] {resize.name}")
        for step in resize.steps:
            show(f"    pod {step.where} on {step.node}: {step.summary}")
        for target in change.targets:
            show(f"    HorizontalPodAutoscaler {target.name}: {target.text}, so that it keeps as many pods")
        show(
            f"    watched for {options.watch_resized} s: an OOM kill, a restart or more throttling puts everything back, and the run halts"
        )
        if resize.template is not None:
            for name, after in resize.template.after.items():
                before = resources_text(resize.template.before.get(name) or {})
                show(f"    then its template: {name}: {before} -> {resources_text(after)}, which recreates all its pods")
        for note in resize.notes:
            show(f"    - {note}")
        for note in _target_notes(change.targets, options):
            show(f"    - {note}")
    if count and options.template == "keep":
        show(
            "\nThe templates stay as they are (template=keep): recreated pods get their resources. deploys/resize_drift.py lists pods "
            "that differ."
        )
    for name, why in left:
        show(f"\nLeft as it is: {name}: {why}")
    if not run.steps:
        show("\nNothing is applied." if left else "\nNothing to apply.")


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


def _rest(left: Sequence[tuple[str, str]]) -> list[list[str]]:
    return [[name, "none", "left", "-", why] for name, why in left]


# ---- undo


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same fields since."""
    reached = connect_cluster(fleet, consents.kubeconfig)
    resizer = Resizer(fleet, reached, allow_restarts=consents.allow_restarts, template=True)
    backs: list[WayBack] = []
    rest: list[list[str]] = []
    refusals: list[str] = []
    try:
        for changed in reversed([one for one in record.objects if one.action == ACTION]):
            resize, why = resizer.plan_back(changed, force=consents.force)
            refusals += why
            if resize is None:
                rest.append([changed.name, "none", "no change", "-", "it is gone"])
                continue
            back = WayBack(resize, _still_ours(reached, changed, consents.force, refusals), reached.session)
            if back.empty:
                rest.append([changed.name, "none", "no change", "-", "it is as before that run already"])
            else:
                backs.append(back)
    except (ApiFailure, ValueError) as error:
        raise bridge.refusals([f"run={record.run}: {error}"]) from None
    bridge.stop(refusals)
    run = ObjectRun(
        record, [Stage((back.step(),)) for back in backs], fleet, options.take_over,
        lambda run: object_report.show_objects_end(run, rest),
        capability=CAPABILITY, leaving=lambda: f"a requested resize continues in the cluster; to undo it: {run.undo}",
        warnings=resizer.rolling.warnings,
    )  # fmt: skip
    many = table.counted(len(backs), "workload")
    show(f"\nUndoing run {record.run}")
    show(f"\nPlan of run {run.info.id}: {many} to change back, one after the other")
    for number, back in enumerate(backs, 1):
        show(f"[{number}/{len(backs)}] {back.resize.name}")
        for step in back.resize.steps:
            show(f"    pod {step.where} on {step.node}: {step.summary}")
        for name, after in back.resize.template.after.items() if back.resize.template is not None else ():
            show(f"    its template: {name}: {resources_text(after)}, which recreates all its pods")
    if not run.steps:
        object_report.show_objects(run, rest)
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
