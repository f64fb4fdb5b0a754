"""Which workloads restart, and what forbids it: their strategy, a roll-out, their health, budgets, quotas. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from roles.engine.bounds import moment
from roles.engine.disruption import DisruptionObjects, budget_states, budgets, budgets_of
from roles.engine.inputs import LIST_OR_TEXT, TEXT, Boolean, Data, Frozen, Kubeconfig, did_you_mean, names, read_common
from roles.engine.kube import Object, full_name, uid
from roles.engine.kube.fields import name_of, namespace_of
from roles.engine.kube.names import RESOURCES_OF_KINDS, namespaced_selector, whole_name, workload_name
from roles.engine.kube.pods import is_alive, stuck
from roles.engine.kube.quotas import counts, without_room
from roles.engine.kube.workloads import COLLECTIONS, replicas
from roles.engine.objects import Kind, NotUndone, ObjectChange, ObjectPath, ObjectPlan, undo_plan, workload_rollout
from roles.engine.transaction import ChangedObject, ObjectsRecord

#: As `kubectl rollout restart` does (kubectl/pkg/polymorphichelpers/objectrestarter.go): whoever looks finds the time of the last restart,
#: by whichever tool, in one place, and tools that compare templates with their source know this annotation.
RESTARTED_AT: ObjectPath = ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")


def _no_time(one: ChangedObject) -> str:
    """What a record has before a restart that is no time of one; "" for nothing."""
    return next((f"{field.before!r} as a time" for field in one.fields if field.before is not None and moment(field.before) is None), "")


#: By a patch: an apply would give up the fields that other applies of daytwo have set.
KINDS = {
    kind: Kind(kind, "apps/v1", COLLECTIONS[kind], (RESTARTED_AT,), RESTARTED_AT, RESTARTED_AT, verb="patch", maps=(), refuse=_no_time)
    for kind in RESOURCES_OF_KINDS
}
DEFAULT_ROLLOUT_SECONDS = 300


def _workloads(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(workload_name, names(value) or ())))


class RestartOptions(Frozen):
    """The data keys of deploys/restart.py. Times in seconds."""

    restart: Annotated[
        tuple[str, ...],
        BeforeValidator(_workloads),
        LIST_OR_TEXT,
        Field(
            description="the workloads that restart, in this order: NAMESPACE/KIND/NAME, or NAMESPACE/NAME if one workload has that"
            " name; kinds `deployment`, `statefulset`, `daemonset`, or `deploy`, `sts`, `ds`",
            examples=[["shop/deployment/web"], "shop/deployment/web,shop/statefulset/db"],
        ),
    ] = ()
    workload_selector: Annotated[
        str | None,
        AfterValidator(lambda value: value and namespaced_selector(value)),
        TEXT,
        Field(description="the workloads that restart, by their own labels: NAMESPACE/SELECTOR", examples=["shop/app=web"]),
    ] = None
    allow_unhealthy: Annotated[Boolean, Field(description="consent: restart workloads that are not healthy now, too", examples=[True])] = (
        False
    )
    rollout_timeout: Annotated[
        int, Field(ge=1, le=86400, description="seconds for each workload until its pods are new and Ready", examples=[600])
    ] = DEFAULT_ROLLOUT_SECONDS
    kubeconfig: Kubeconfig = None

    @property
    def namespaces(self) -> set[str]:
        return {one.partition("/")[0] for one in (*self.restart, *filter(None, [self.workload_selector]))}


def read_restart(hosts: Iterable[tuple[str, Data]]) -> RestartOptions | None:
    """None if no host names a workload. Raises Refusal."""
    found = read_common(hosts, RestartOptions, "workloads belong to the cluster: set it with --data")[1]
    return found if found.restart or found.workload_selector else None


@dataclass(frozen=True)
class RestartWorld:
    """What is in the namespaces of a restart. `selected`: the UIDs of workloads that the selector matches; `now`: the control plane's
    time."""

    live: DisruptionObjects
    quotas: Collection[Object]
    selected: Collection[str]
    now: datetime

    @property
    def states(self) -> budgets.Budgets:
        return budget_states(self.live, self.now)

    def pods_of(self, kind: str, item: Object) -> list[Object]:
        return [pod for pod in self.live.pods_of(kind, uid(item)) if is_alive(pod)]

    @property
    def objects(self) -> Mapping[str, Object]:
        """The workloads by path."""
        return {KINDS[kind].path_of(namespace_of(one), name_of(one)): one for kind in KINDS for one in self.live.of(kind)}


def plan_restart(options: RestartOptions, world: RestartWorld) -> ObjectPlan:
    plan = ObjectPlan()
    states = world.states
    for kind, item in _chosen(options, world, plan):
        name = f"{kind} {full_name(item)}"
        if not replicas(kind, item):
            plan.unchanged.append((name, "it has no pods (0 replicas): there is nothing to restart"))
            continue
        problems = [*_problems(kind, item, world, options), *unsafe(kind, item, world, states)]
        plan.refusals += [f"{name}: {why}" for why in problems]
        plan.actions.append(_change(kind, item, world, options.limit("rollout_timeout")))
    return plan


def _chosen(options: RestartOptions, world: RestartWorld, plan: ObjectPlan) -> list[tuple[str, Object]]:
    found: dict[str, tuple[str, Object]] = {}
    for written in options.restart:
        try:
            one = whole_name(written, lambda kind, *place: world.live.find(kind, *place) is not None)
        except ValueError as error:
            plan.refusals.append(f"restart: {error}")
            continue
        namespace, kind, name = one.split("/")
        if (item := world.live.find(kind, namespace, name)) is not None:
            found[uid(item)] = kind, item
            continue
        there = sorted(name_of(other) for other in world.live.of(kind) if namespace_of(other) == namespace)
        near = did_you_mean(name, there) or f"; that namespace has {', '.join(there) or 'none'}"
        plan.refusals.append(f"{kind} {namespace}/{name}: it does not exist{near}")
    by_label = [(kind, item) for kind in KINDS for item in world.live.of(kind) if uid(item) in world.selected]
    if options.workload_selector and not by_label:
        labelled = f"no {', '.join(KINDS)} there has these labels itself; labels of its pods do not count"
        plan.refusals.append(f"workload_selector={options.workload_selector}: {labelled}")
    return list((found | {uid(item): (kind, item) for kind, item in by_label}).values())


def _change(kind: str, item: Object, world: RestartWorld, seconds: float) -> ObjectChange:
    change = ObjectChange.of_fields(KINDS[kind], item, {RESTARTED_AT: f"{world.now:%Y-%m-%dT%H:%M:%SZ}"}, "restart its pods")
    return replace(change, notes=workload_rollout.rollout_notes(kind, item, replicas(kind, item), seconds))


def _problems(kind: str, item: Object, world: RestartWorld, options: RestartOptions) -> Iterator[str]:
    """What forbids the roll-out itself, or its proof."""
    yield from filter(None, [workload_rollout.why_no_rollout(kind, item)])
    yield from workload_rollout.not_ours(item)
    state = workload_rollout.progress(kind, item)
    if state.done or (options.allow_unhealthy and not state.moving):
        return
    sick = [f"{name_of(pod)}: {why}" for pod in world.pods_of(kind, item) if (why := stuck(pod))]
    said = "; ".join([state.failed or state.summary, *sick])
    if state.moving:
        yield f"a roll-out of it is in progress ({said}); wait for its end, or undo it: kubectl rollout undo"
    else:
        yield f"it is not healthy now ({said}), so a restart could not be judged; fix that first, or consent: --data allow_unhealthy=true"


def unsafe(kind: str, item: Object, world: RestartWorld, states: budgets.Budgets) -> Iterator[str]:
    """The budgets that its roll-out would break, or that are broken already, and the quotas without room for it. A roll-out asks no
    budget: the controller deletes the pods itself."""
    pods, away = world.pods_of(kind, item), workload_rollout.unavailable(kind, item)
    for state in {one.key: one for pod in pods for one in budgets_of(pod, states)}.values():
        if why := state.broken_by(away):
            yield f"{why} (its roll-out: {workload_rollout.how_it_rolls(kind, item)})"
    for quota in world.quotas if pods and not away else ():
        if namespace_of(quota) == namespace_of(item) and counts(quota, pods[0]):
            for why, _ in without_room(quota, pods[0], 1):
                yield f"{why}: there is no room for the new pod with which its roll-out begins; raise the quota, or set maxUnavailable 1"


def plan_undo(record: ObjectsRecord, world: RestartWorld, *, force: bool, seconds: float) -> ObjectPlan:
    """The plan that gives the workloads of a run their templates of before, which recreates their pods again."""
    states = world.states

    def explain(change: ObjectChange) -> ObjectChange:
        kind, item = change.kind.name, change.before
        assert item is not None
        # Health is not required: that run may be the cause of a bad state.
        for why in (*filter(None, [workload_rollout.why_no_rollout(kind, item)]), *unsafe(kind, item, world, states)):
            raise NotUndone(why)
        return replace(change, notes=workload_rollout.rollout_notes(kind, item, replicas(kind, item), seconds))

    return undo_plan(record, KINDS.values(), world.objects, force=force, explain=explain)
