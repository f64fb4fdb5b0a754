"""HorizontalPodAutoscalers and VerticalPodAutoscalers: planned with what the controller would do now, applied server-side, proven by the
controller's own conditions and count."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from roles.autoscalers.compliance import unmet_autoscaler
from roles.autoscalers.fields import COLLECTIONS
from roles.autoscalers.model import DEFAULT_PROOF_SECONDS, DesiredAutoscalers, read_desired
from roles.autoscalers.plan import (
    AutoscalerAction,
    Entry,
    check_only,
    explain,
    explain_vertical,
    kind_of,
    planned,
    settling,
    with_result,
)
from roles.autoscalers.way_back import WRITES, paths, plan_way_back
from roles.autoscalers.write import AutoscalerWriter
from roles.engine import bridge, disruption, kube
from roles.engine.api import Api, ApiFailure, NotFound, find_object, list_objects
from roles.engine.autoscaling import (
    HPA,
    IN_PLACE,
    VPA,
    ScalingController,
    ScalingWorld,
    VerticalWorld,
    judge,
    judge_vertical,
    managers_of,
    read_autoscalers,
    read_verticals,
    see_controller,
)
from roles.engine.bridge import Fleet, show
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.kube import Object, full_name, namespace_and_name
from roles.engine.object_changes import (
    Consents,
    ObjectPlan,
    ObjectRun,
    Session,
    desired_of_cluster,
    dry_run,
    object_diff,
    object_report,
    open_session,
    read_objects,
    show_plan,
)
from roles.engine.placement import ClusterView
from roles.engine.proof import survey
from roles.engine.rollout import Options, Stage, Turns, deploying
from roles.engine.timeouts import unless_set
from roles.engine.transaction import ObjectsRecord, new_run_id, this_run

#: The name in the records of runs that this package undoes.
CAPABILITY = "autoscalers"
_NO_CRDS = (
    "vertical_autoscalers: this cluster does not have VerticalPodAutoscalers (autoscaling.k8s.io/v1); install the CRDs and the "
    "recommender of kubernetes/autoscaler first (docs/autoscaling.md), or leave the key out"
)
_TOO_OLD = (
    f"; these VerticalPodAutoscalers do not know {IN_PLACE}: version 1.4 has it, 1.5 has it on, and 1.6 always; install CRDs and "
    "programs of one of these, or use mode Recreate"
)


def _read(fleet: Fleet) -> tuple[Options, DesiredAutoscalers]:
    return desired_of_cluster(
        fleet, read_desired, "no host has autoscalers or vertical_autoscalers in its data; set them in group_data/all.py"
    )  # fmt: skip


@deploying("Autoscalers", _read, all_reachable=True, of_cluster=True)
def autoscalers(fleet: Fleet, asked: tuple[Options, DesiredAutoscalers]) -> Turns:
    """Apply the autoscalers in the inventory's data.

    Data keys: autoscalers, vertical_autoscalers, settle_replicas, allow_problems, force, only, proof_timeout, kubeconfig, and take_over
    (roles/engine/rollout/options.py). Raises DeployError before any write if the plan is refused.
    """
    return Turns.of(_prepare(fleet, *asked), fleet, "apply, and compare the counts")


@dataclass(frozen=True)
class _Cluster:
    session: Session
    controller: ScalingController
    now: datetime


def _connect(fleet: Fleet, kubeconfig: str | None) -> _Cluster:
    """The API, and the kube-controller-manager that leads. Raises DeployError."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane] if kubeconfig is not None else []
    found = survey(fleet, [remote for remote in servers if remote.connected or remote.connect()])
    bridge.stop(found.refusals)
    session = open_session(fleet, found, kubeconfig)
    managers = managers_of({host: node.components for host, node in found.observed.items()})
    return _Cluster(session, *read_objects(session, lambda api: see_controller(api, found.reading, managers)))


def _prepare(fleet: Fleet, options: Options, desired: DesiredAutoscalers) -> ObjectRun:
    cluster = _connect(fleet, desired.kubeconfig)
    plan = ObjectPlan[AutoscalerAction]()
    check_only(desired, plan)
    bridge.stop(plan.refusals)
    there = read_objects(cluster.session, partial(_live, desired=desired))
    found = [planned(entry, there.get((kind_of(entry), entry.key)), desired, plan) for entry in desired.entries]
    bridge.stop(plan.refusals)
    tried = [_tried(action, cluster.session, plan, force=desired.force) for action in found if action is not None]
    bridge.stop(plan.refusals)
    world, verticals = read_objects(cluster.session, partial(_planned_world, cluster=cluster, planned=_Planned.of(there, tried, desired)))
    plan.actions += _settled(world, desired)
    shown = _explained([action for action, _ in tried if action is not None], world, cluster, plan, desired)
    plan.actions += _explained_verticals(shown, verticals, cluster, plan, desired)
    for text in dict.fromkeys((*cluster.controller.assumed, *world.not_known, *verticals.not_known)):
        show(f"\nnot known: {text}")
    writer = AutoscalerWriter(cluster.session, cluster.controller, force=desired.force, proof_seconds=desired.proof_seconds)
    timeout = desired.proof_timeout if "proof_timeout" in desired.model_fields_set else None
    consents = ["allow_problems=true"] if desired.allow_problems else []
    return _run(fleet, options, plan, writer, {"cluster": desired.model_dump()}, timeout, consents=consents)


def _live(api: Api, desired: DesiredAutoscalers) -> dict[tuple[str, str], Object]:
    """The autoscalers of the data's namespaces, by kind and NAMESPACE/NAME. Raises ApiError."""
    try:
        found = read_live(api, desired.entries)
    except NotFound:
        if any(kind_of(entry) == VPA and not entry.absent for entry in desired.entries):
            raise bridge.refusals([_NO_CRDS]) from None
        found = read_live(api, [entry for entry in desired.entries if kind_of(entry) == HPA])
    return {(kind, full_name(item)): item for kind, items in found.items() for item in items}


def read_live(api: Api, entries: Collection[Entry]) -> dict[str, list[Object]]:
    """The autoscalers of the entries' kinds and namespaces, by kind. Raises ApiError; NotFound if a kind is not installed."""
    found: dict[str, list[Object]] = {}
    for kind in {kind_of(entry) for entry in entries}:
        head, _, resource = COLLECTIONS[kind].rpartition("/")
        places = sorted({entry.namespace for entry in entries})
        found[kind] = [item for one in places for item in list_objects(api, f"{head}/namespaces/{one}/{resource}")]
    return found


def _tried(
    action: AutoscalerAction, session: Session, plan: ObjectPlan[AutoscalerAction], *, force: bool
) -> tuple[AutoscalerAction | None, Object | None]:
    """The action with its dry run, and the object that would result; None if nothing would change. Adds refusals."""
    if action.manifest is None:
        (shown,) = dry_run([action], session, partial(_removed))
        return shown, None
    manifest = action.manifest
    try:
        result = session.asked(lambda api: api.apply(action.path, manifest, force=force, dry_run=True), "dry run")
    except ApiFailure as error:
        mode = ((manifest.get("spec") or {}).get("updatePolicy") or {}).get("updateMode")
        plan.refusals.append(f"{action.name}: {error}{_TOO_OLD if mode == IN_PLACE and 'updateMode' in str(error) else ''}")
        return None, None
    return with_result(action, result, plan), result


def _removed(action: AutoscalerAction, api: Api) -> str:
    assert action.before is not None
    api.delete(action.path, kube.uid(action.before), dry_run=True)
    return object_diff(action.before, None, f"{action.kind}/{action.key}")


@dataclass(frozen=True)
class _Planned:
    """The autoscalers as they will be, of the namespaces of the data; None: the data has none of the kind, and the cluster's stay."""

    horizontal: Sequence[Object] | None = None
    vertical: Sequence[Object] | None = None
    namespaces: Collection[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        there: Mapping[tuple[str, str], Object],
        tried: Sequence[tuple[AutoscalerAction | None, Object | None]],
        desired: DesiredAutoscalers,
    ) -> _Planned:
        found = dict(there)
        for action, result in tried:
            if result is not None:
                kind = HPA if "scaleTargetRef" in (result.get("spec") or {}) else VPA
                found[kind, full_name(result)] = result
            elif action is not None and action.manifest is None:
                found.pop((action.kind, action.key), None)
        asked = {kind_of(entry) for entry in desired.entries}
        listed = {kind: [item for (one, _), item in found.items() if one == kind] for kind in asked}
        return cls(listed.get(HPA), listed.get(VPA), {entry.namespace for entry in desired.entries})


def _planned_world(api: Api, cluster: _Cluster, planned: _Planned) -> tuple[ScalingWorld, VerticalWorld]:
    """The autoscalers as they will be, with what their controllers would read. Raises ApiError."""
    horizontal = planned.horizontal or ()
    spaces = {namespace_and_name(item)[0] for item in horizontal}
    world = read_autoscalers(api, cluster.controller, cluster.now, spaces or None, horizontal)
    if planned.vertical is None:
        return world, VerticalWorld()
    verticals = read_verticals(api, cluster.controller.minor, planned.namespaces, planned.vertical, planned.horizontal)
    return replace(world, vpas=planned.vertical), verticals


def _settled(world: ScalingWorld, desired: DesiredAutoscalers) -> list[AutoscalerAction]:
    if not desired.settle_replicas:
        return []
    keys = {entry.key for entry in desired.entries if kind_of(entry) == HPA and not entry.absent}
    scaled = [(scene.autoscaler.target.kind, world.targets[scene.autoscaler.key]) for scene in world.scenes if scene.autoscaler.key in keys]
    return settling([(kind, target.path, target.item) for kind, target in scaled if target.item is not None])


def _explained(
    actions: Sequence[AutoscalerAction],
    world: ScalingWorld,
    cluster: _Cluster,
    plan: ObjectPlan[AutoscalerAction],
    desired: DesiredAutoscalers,
) -> list[AutoscalerAction]:
    written = [action for action in actions if action.kind == HPA and action.manifest is not None]
    if not written:
        return list(actions)

    def view(api: Api) -> ClusterView:
        return ClusterView(list_objects(api, "/api/v1/nodes"), list_objects(api, "/api/v1/pods"))

    budgets = read_objects(cluster.session, partial(_budgets, world=world, now=cluster.now))
    judged = {one.autoscaler.key: one for one in judge(world, cluster.controller, cluster.now, read_objects(cluster.session, view))}
    return [
        explain(action, judged[action.key], cluster.controller, plan, budgets, consent=desired.allow_problems)
        if action in written and action.key in judged
        else action
        for action in actions
    ]


def _explained_verticals(
    actions: Sequence[AutoscalerAction],
    world: VerticalWorld,
    cluster: _Cluster,
    plan: ObjectPlan[AutoscalerAction],
    desired: DesiredAutoscalers,
) -> list[AutoscalerAction]:
    judged = {scene.vertical.key: judge_vertical(scene, cluster.now) for scene in world.scenes}
    return [
        explain_vertical(action, judged[action.key], plan, consent=desired.allow_problems)
        if action.kind == VPA and action.manifest is not None and action.key in judged
        else action
        for action in actions
    ]


def _budgets(api: Api, world: ScalingWorld, now: datetime) -> list[disruption.Problem]:
    """Budgets that allow no eviction when an autoscaler is at its minimum. Raises ApiError."""
    planned_ones = [scene.autoscaler.raw for scene in world.scenes]
    live = disruption.read_disruption(api, {scene.autoscaler.namespace for scene in world.scenes}, known={HPA: planned_ones})
    found = [one for state in disruption.budget_states(live, now) for one in disruption.lint_budget(live, state, now)]
    return [one for one in found if one.rule == "needs-autoscaler-minimum"]


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same fields since."""
    cluster = _connect(fleet, consents.kubeconfig)

    def live(api: Api) -> dict[str, Object]:
        found = {path: find_object(api, path) for path in paths(record)}
        return {path: item for path, item in found.items() if item is not None}

    plan = plan_way_back(record, read_objects(cluster.session, live), force=consents.force)
    bridge.stop(plan.refusals)
    # The controller may not be able to handle what was there before.
    tried = [_back(action, cluster.session, plan, force=consents.force) for action in plan.actions]
    plan.actions = [action for action in tried if action is not None]
    timeout = record.about.get("proof_timeout")
    seconds = unless_set(timeout or DEFAULT_PROOF_SECONDS, timeout is not None)
    writer = AutoscalerWriter(cluster.session, cluster.controller, force=consents.force, proof_seconds=seconds)
    show(f"\nUndoing run {record.run}")
    return _run(fleet, options, plan, writer, {"undo": record.run}, timeout, record.change)


def _back(
    action: AutoscalerAction, session: Session, plan: ObjectPlan[AutoscalerAction], *, force: bool
) -> AutoscalerAction | None:  # fmt: skip
    if action.patch is not None:
        return action
    found, _ = _tried(action, session, plan, force=force)
    return replace(found, unproven=("it is as before that run",)) if found is not None and found.manifest is not None else found


def _run(
    fleet: Fleet,
    options: Options,
    plan: ObjectPlan[AutoscalerAction],
    writer: AutoscalerWriter,
    wanted: dict[str, object],
    proof_timeout: int | None,
    undoes: str = "",
    consents: Sequence[str] = (),
) -> ObjectRun:
    bridge.stop(plan.refusals)
    run = ObjectRun(
        this_run(new_run_id(), wanted),
        [Stage(writer.steps(plan.actions))],
        fleet,
        options.take_over,
        lambda run: object_report.show_objects_end(run, plan.rest),
        capability=CAPABILITY,
        about={"proof_timeout": proof_timeout},
        leaving=lambda: f"written autoscalers stay; to undo them: {run.undo}",
        undoes=undoes,
        consents=consents,
    )
    show_plan(run, plan)
    return run


DATA_KEYS = (Declared(DesiredAutoscalers, ("autoscalers",), changes=Changes.OBJECTS, undo=Undo(undo, WRITES, DesiredAutoscalers)),)

__all__ = [
    "CAPABILITY",
    "DATA_KEYS",
    "DesiredAutoscalers",
    "autoscalers",
    "read_desired",
    "read_live",
    "undo",
    "unmet_autoscaler",
]
