"""HorizontalPodAutoscalers and VerticalPodAutoscalers: planned with what the controller would do now, applied server-side, proven by the
controller's own conditions and count."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from roles.autoscaler_status import list_autoscalers
from roles.autoscalers.compliance import unmet_autoscaler
from roles.autoscalers.model import DATA_EXAMPLE, KINDS, WORKLOADS, DesiredAutoscalers, read_desired
from roles.autoscalers.plan import Entry, check_only, explain, explain_vertical, kind_of, planned, settling, with_result
from roles.autoscalers.write import AutoscalerWriter
from roles.engine import bridge, disruption
from roles.engine.api import Api, ApiFailure, NotFound, list_objects, workload_exists
from roles.engine.autoscaling import (
    HPA,
    ScalingController,
    ScalingWorld,
    VerticalWorld,
    judge,
    judge_vertical,
    read_autoscalers,
    read_verticals,
)
from roles.engine.autoscaling.look import managers_of, see_controller
from roles.engine.autoscaling.vertical import IN_PLACE, VPA
from roles.engine.bridge import Fleet
from roles.engine.commands import command
from roles.engine.findings import Finding
from roles.engine.inputs import Changes, Declared, Undo
from roles.engine.kube import Object, full_name, namespace_and_name
from roles.engine.kube.fields import at, spec_of
from roles.engine.object_runs import (
    Consents,
    ObjectRun,
    TimeLimit,
    connect_servers,
    desired_or_listing,
    dry_run,
    planned_run,
    read_objects,
    recorded_objects,
)
from roles.engine.objects import ObjectChange, ObjectPlan, Session, undo_plan
from roles.engine.placement import ClusterView
from roles.engine.runs import Ended, Options, Turns, deploying
from roles.engine.transaction import ObjectsRecord
from roles.engine.voice import show

#: The name in the records of runs that this package undoes.
CAPABILITY = "autoscalers"
_NO_CRDS = (
    "vertical_autoscalers: this cluster does not have VerticalPodAutoscalers (autoscaling.k8s.io/v1); install the CRDs and the "
    "recommender of kubernetes/autoscaler first (docs/autoscaling.md), or leave the key out"
)
_TOO_OLD = (
    f"; these VerticalPodAutoscalers do not know {IN_PLACE}. Version 1.4 has it, 1.5 has it on, and 1.6 always. Install CRDs and "
    "programs of one of these versions, or use mode Recreate"
)


def _read(fleet: Fleet) -> tuple[Options, DesiredAutoscalers]:
    return desired_or_listing(fleet, read_desired, DesiredAutoscalers, "autoscalers or vertical_autoscalers")


@deploying("Autoscalers", _read, all_reachable=True, of_cluster=True)
def autoscalers(fleet: Fleet, asked: tuple[Options, DesiredAutoscalers]) -> Turns | Ended:
    """Apply the autoscalers in the inventory's data; without data, list those of the cluster, and change nothing.

    Data keys: autoscalers, vertical_autoscalers, settle_replicas, allow_problems, force, only_objects, proof_timeout, kubeconfig, take_over
    (roles/engine/runs/options.py). Raises DeployError before any write if the plan is refused.
    """
    if not asked[1].asks:
        line = list_autoscalers(fleet, asked[1].kubeconfig)
        return Ended(f"{line}. To set one: {command('autoscalers', autoscalers=DATA_EXAMPLE)}")
    return Turns.of(_prepare(fleet, *asked), fleet, "apply, and compare the counts")


@dataclass(frozen=True)
class _Cluster:
    session: Session
    controller: ScalingController
    now: datetime


def _connect(fleet: Fleet, kubeconfig: str | None) -> _Cluster:
    """The API, and the kube-controller-manager that leads. Raises DeployError."""
    found, session = connect_servers(fleet, kubeconfig)
    managers = managers_of({host: node.components for host, node in found.observed.items()})
    return _Cluster(session, *read_objects(session, lambda api: see_controller(api, found.reading.effective, managers)))


def _prepare(fleet: Fleet, options: Options, desired: DesiredAutoscalers) -> ObjectRun:
    cluster = _connect(fleet, desired.kubeconfig)
    with bridge.refusing(ValueError, "autoscalers: "):
        desired = read_objects(cluster.session, lambda api: desired.settled(workload_exists(api)))
    plan = ObjectPlan()
    check_only(desired, plan)
    bridge.stop(plan.refusals)
    there = read_objects(cluster.session, partial(_live, desired=desired))
    found = [planned(entry, there.get((kind_of(entry), entry.key)), desired, plan) for entry in desired.entries]
    bridge.stop(plan.refusals)
    writer, limit = _writer(cluster, desired, force=desired.force)
    tried = [_tried(action, writer, plan) for action in found if action is not None]
    bridge.stop(plan.refusals)
    world, verticals = read_objects(cluster.session, partial(_planned_world, cluster=cluster, planned=_Planned.of(there, tried, desired)))
    plan.actions += _settled(world, desired)
    shown = _explained([action for action, _ in tried if action is not None], world, cluster, plan, desired)
    plan.actions += _explained_verticals(shown, verticals, cluster, plan, desired)
    for text in dict.fromkeys((*cluster.controller.assumed, *world.not_known, *verticals.not_known)):
        show(f"\nnot known: {text}")
    consents = ["allow_problems=true"] if desired.allow_problems else []
    return planned_run(fleet, options, plan, writer, desired, CAPABILITY, "autoscalers", limit=limit, tried=True, consents=consents)


def _writer(cluster: _Cluster, asked: DesiredAutoscalers | ObjectsRecord, *, force: bool) -> tuple[AutoscalerWriter, TimeLimit]:
    limit = TimeLimit.of(asked, "proof_timeout", DesiredAutoscalers)
    return AutoscalerWriter(cluster.session, cluster.controller, force=force, proof_seconds=limit.seconds), limit


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
        found[kind] = [*list_objects(api, KINDS[kind].collection, {entry.namespace for entry in entries})]
    return found


def _tried(
    action: ObjectChange, writer: AutoscalerWriter, plan: ObjectPlan
) -> tuple[ObjectChange | None, Object | None]:  # fmt: skip
    """The action with its dry run, and the object that would result; None if nothing would change. Adds refusals."""
    if action.manifest is None:
        (shown,) = dry_run([action], writer.session, writer.tried)
        return shown, None
    try:
        result = writer.session.asked(partial(writer.result, action), "dry run")
    except ApiFailure as error:
        mode = at(action.manifest, ("spec", "updatePolicy", "updateMode"))
        plan.refusals.append(f"{action.name}: {error}{_TOO_OLD if mode == IN_PLACE and 'updateMode' in str(error) else ''}")
        return None, None
    assert result is not None
    return with_result(action, result, plan), result


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
        tried: Sequence[tuple[ObjectChange | None, Object | None]],
        desired: DesiredAutoscalers,
    ) -> _Planned:
        found = dict(there)
        for action, result in tried:
            if result is not None:
                kind = HPA if "scaleTargetRef" in spec_of(result) else VPA
                found[kind, full_name(result)] = result
            elif action is not None and action.manifest is None:
                found.pop((action.kind.name, action.key), None)
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


def _settled(world: ScalingWorld, desired: DesiredAutoscalers) -> list[ObjectChange]:
    if not desired.settle_replicas:
        return []
    keys = {entry.key for entry in desired.entries if kind_of(entry) == HPA and not entry.absent}
    scaled = [(scene.autoscaler.target.kind, world.targets[scene.autoscaler.key]) for scene in world.scenes if scene.autoscaler.key in keys]
    return settling([(kind, target.item) for kind, target in scaled if target.item is not None])


def _explained(
    actions: Sequence[ObjectChange],
    world: ScalingWorld,
    cluster: _Cluster,
    plan: ObjectPlan,
    desired: DesiredAutoscalers,
) -> list[ObjectChange]:
    written = [action for action in actions if action.kind.name == HPA and action.manifest is not None]
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
    actions: Sequence[ObjectChange],
    world: VerticalWorld,
    cluster: _Cluster,
    plan: ObjectPlan,
    desired: DesiredAutoscalers,
) -> list[ObjectChange]:
    judged = {scene.vertical.key: judge_vertical(scene, cluster.now) for scene in world.scenes}
    return [
        explain_vertical(action, judged[action.key], plan, consent=desired.allow_problems)
        if action.kind.name == VPA and action.manifest is not None and action.key in judged
        else action
        for action in actions
    ]


def _budgets(api: Api, world: ScalingWorld, now: datetime) -> list[Finding]:
    """Budgets that allow no eviction when an autoscaler is at its minimum. Raises ApiError."""
    planned_ones = [scene.autoscaler.raw for scene in world.scenes]
    live = disruption.read_disruption(api, {scene.autoscaler.namespace for scene in world.scenes}, known={HPA: planned_ones})
    found = [one for state in disruption.budget_states(live, now) for one in disruption.lint_budget(live, state, now)]
    return [one for one in found if one.rule is disruption.DisruptionRule.AUTOSCALER_MINIMUM]


def undo(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that undoes a run of this deploy. Raises DeployError if someone else has changed the same fields since."""
    cluster = _connect(fleet, consents.kubeconfig)
    kinds = (*KINDS.values(), *WORKLOADS.values())
    plan = undo_plan(record, kinds, recorded_objects(cluster.session, record, kinds), force=consents.force)
    bridge.stop(plan.refusals)
    writer, limit = _writer(cluster, record, force=consents.force)
    # The controller may not be able to handle what was there before.
    tried = [_back(action, writer, plan) for action in plan.actions]
    plan.actions = [action for action in tried if action is not None]
    return planned_run(fleet, options, plan, writer, record, CAPABILITY, "autoscalers", limit=limit, tried=True)


def _back(action: ObjectChange, writer: AutoscalerWriter, plan: ObjectPlan) -> ObjectChange | None:
    if action.kind.name in WORKLOADS:
        return replace(action, summary="restore the annotation of `kubectl apply`")
    found, _ = _tried(action, writer, plan)
    return replace(found, unproven=("it is as before that run",)) if found is not None and found.manifest is not None else found


#: What an undo may write.
_WRITES = tuple(kind.writable for kind in (*KINDS.values(), *WORKLOADS.values()))
DATA_KEYS = (Declared(DesiredAutoscalers, ("autoscalers",), changes=Changes.OBJECTS, undo=Undo(undo, _WRITES, DesiredAutoscalers)),)

__all__ = [
    "CAPABILITY",
    "DATA_KEYS",
    "KINDS",
    "WORKLOADS",
    "DesiredAutoscalers",
    "autoscalers",
    "read_desired",
    "read_live",
    "undo",
    "unmet_autoscaler",
]
