"""The plan: from the desired resources and the observed pods to steps, refusals and notes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from roles.engine.folding import shortened
from roles.engine.kube import Object, full_name, is_ending, namespace_and_name, uid
from roles.engine.kube.fields import containers_of, spec_of, status_of
from roles.engine.kube.pods import is_alive, is_over, is_static, node_of
from roles.engine.objects import ObjectChange
from roles.pod_resize import abilities, kinds, pod_resources
from roles.pod_resize.abilities import Ability
from roles.pod_resize.cgroup import ContainerCgroup, bare_id
from roles.pod_resize.model import ALL, AMOUNTS, DesiredResources
from roles.pod_resize.pod_resources import KINDS, RESOURCES, Resources

#: Outcomes of a pod's resize in records that an undo must know.
DONE, FOREIGN = "done", "foreign"


@dataclass(frozen=True)
class ResourceChange:
    """One container's CPU and memory before and after. `restarts`: its resizePolicy requires a restart for this change."""

    before: Resources
    after: Resources
    restarts: bool = False

    @property
    def summary(self) -> str:
        return f"{pod_resources.resources_text(self.before)} -> {pod_resources.resources_text(self.after)}" + (
            " (restarts it, as its resizePolicy says)" if self.restarts else ""
        )

    def back(self) -> ResourceChange:
        return ResourceChange(self.after, self.before, self.restarts)


@dataclass(frozen=True)
class PodStep:
    """One pod. `changes` by container."""

    namespace: str
    name: str
    uid: str
    node: str
    changes: Mapping[str, ResourceChange]

    @property
    def where(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def summary(self) -> str:
        return "; ".join(f"{name}: {change.summary}" for name, change in self.changes.items())

    @property
    def after(self) -> dict[str, Resources]:
        return {name: change.after for name, change in self.changes.items()}

    def back(self) -> PodStep:
        """The step that reverts this one."""
        return PodStep(self.namespace, self.name, self.uid, self.node, {name: change.back() for name, change in self.changes.items()})

    def of(self, containers: Collection[str]) -> PodStep:
        """The part of it that is of these containers."""
        return replace(self, changes={name: change for name, change in self.changes.items() if name in containers})

    def change(self, minor: int) -> PodChange:
        """The change that the API server of this minor is asked for. Of the pod before it has what the step is about."""
        there = [{"name": name, "resources": one.before} for name, one in self.changes.items()]
        before = {"metadata": {"namespace": self.namespace, "name": self.name, "uid": self.uid}, "spec": {"containers": there}}
        sets = {kinds.field_of(name): one.after for name, one in self.changes.items()}
        return PodChange(
            kinds.kind_of(minor), "update", self.namespace, self.name, before, {}, self.summary, sets=sets, step=self
        )  # fmt: skip


@dataclass(frozen=True)
class PodChange(ObjectChange):
    """The change of one pod, as its step says."""

    step: PodStep = field(kw_only=True)


@dataclass
class ResizePlan:
    """`steps` in order; `unchanged` are (pod, why) that need no change; `refusals` reasons to stop."""

    steps: list[PodStep] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ResizeRefused(Exception):
    """Why a pod cannot be resized as desired, with the way out."""


def plan_resize(
    desired: DesiredResources,
    pods: Iterable[Object],
    ability: Ability,
    held: Mapping[str, ContainerCgroup],
    reachable: Collection[str],
    wanted: Mapping[str, Resources] | None = None,
) -> ResizePlan:
    """The plan for the pods of a workload or selector. `held`: the cgroups of their containers by id, as far as they could be read;
    `reachable`: the nodes whose cgroups can be read. `wanted`: the resources of containers by name, instead of the amounts in `desired`."""
    plan = ResizePlan()
    refused: dict[str, list[str]] = {}
    alive = []
    for pod in sorted(pods, key=full_name):
        if is_over(pod):
            continue
        if is_ending(pod):
            plan.notes.append(f"{full_name(pod)} is being deleted, and is skipped")
            continue
        alive.append(pod)
    for pod in alive:
        try:
            changes = _changes(desired, pod) if wanted is None else _exactly(wanted, pod)
            _check(pod, changes, ability, held, reachable, desired)
            if changes:
                plan.steps.append(_step(pod, changes))
            else:
                plan.unchanged.append((full_name(pod), f"has it already: {_has(pod)}"))
        except ResizeRefused as error:
            refused.setdefault(str(error), []).append(full_name(pod))
        except ValueError as error:
            refused.setdefault(f"its resources cannot be read: {error}", []).append(full_name(pod))
    if not alive:
        plan.refusals.append(f"{_chosen(desired)}: it has no pods now, so there is nothing to resize")
    plan.refusals += [f"{shortened(names)}: {why}" for why, names in refused.items()]
    plan.refusals += abilities.missing(ability, sorted({step.node for step in plan.steps}))
    return plan


def plan_undo(
    steps: Iterable[PodStep],
    pods: Iterable[Object],
    ability: Ability,
    held: Mapping[str, ContainerCgroup],
    reachable: Collection[str],
    desired: DesiredResources,
    outcomes: Mapping[str, str] | None = None,
    *,
    force: bool = False,
) -> ResizePlan:
    """The plan that reverts the `steps` of a run, last step first. Pods that are gone need no change; a pod that someone else has resized
    since is refused, unless `force`. `outcomes`: how the steps ended in that run, by UID, if known."""
    plan = ResizePlan()
    by_uid = {uid(pod): pod for pod in pods}
    for step in reversed(list(steps)):
        pod = by_uid.get(step.uid)
        if pod is None or not is_alive(pod):
            plan.unchanged.append((step.where, "is gone; its replacement has the template's resources"))
            continue
        if (outcomes or {}).get(step.uid) == FOREIGN:
            plan.unchanged.append((step.where, "someone else changed its resources during that run; they stay as they are"))
            continue
        if not force and (outcomes or {}).get(step.uid) == DONE and (theirs := _changed_since(pod, step)):
            plan.refusals.append(
                f"{step.where}: its resources were changed since that run ({theirs}); undo the later run first, or overwrite them with "
                "--data force=true"
            )
            continue
        changes = {}
        for name, change in step.changes.items():
            spec = pod_resources.container(pod, name) or {}
            now = pod_resources.of(spec)
            lost = [f"{kind}.{key}" for kind in KINDS for key in now.get(kind) or {} if key not in (change.before.get(kind) or {})]
            if lost:
                plan.refusals.append(
                    f"{step.where}: {name} had no {' and '.join(lost)} before, and a running pod cannot lose it; "
                    "delete the pod: its replacement gets the template's resources"
                )
            if not pod_resources.alike(now, change.before):
                changes[name] = ResourceChange(now, change.before, pod_resources.restarts(spec, now, change.before))
        try:
            _check(pod, changes, ability, held, reachable, desired, again=True)
        except ResizeRefused as error:
            plan.refusals.append(f"{step.where}: {error}")
            continue
        if changes:
            plan.steps.append(_step(pod, changes))
        else:
            plan.unchanged.append((step.where, f"has it already: {_has(pod)}"))
    plan.refusals += abilities.missing(ability, sorted({step.node for step in plan.steps}))
    return plan


def _changed_since(pod: Object, step: PodStep) -> str:
    """The containers whose resources are neither those before a resize nor those after it."""
    now = {name: pod_resources.of(pod_resources.container(pod, name) or {}) for name in step.changes}
    return "; ".join(
        f"{name}: {pod_resources.resources_text(now[name])}"
        for name, change in step.changes.items()
        if not (pod_resources.alike(now[name], change.before) or pod_resources.alike(now[name], change.after))
    )


def _step(pod: Object, changes: Mapping[str, ResourceChange]) -> PodStep:
    return PodStep(*namespace_and_name(pod), uid(pod), node_of(pod), changes)


def _chosen(desired: DesiredResources) -> str:
    namespace, name = desired.place
    return f"{desired.kind or 'selector'} {namespace}/{name}"


def _has(pod: Object) -> str:
    return "; ".join(f"{one.get('name')}: {pod_resources.resources_text(pod_resources.of(one))}" for one in containers_of(pod))


# ---- one pod


def _changes(desired: DesiredResources, pod: Object) -> dict[str, ResourceChange]:
    changes = {}
    for spec in _chosen_containers(desired, pod):
        before = pod_resources.of(spec)
        after = _after(desired, before, str(spec.get("name")))
        if not pod_resources.alike(before, after):
            changes[str(spec.get("name"))] = ResourceChange(before, after, pod_resources.restarts(spec, before, after))
    return changes


def _exactly(wanted: Mapping[str, Resources], pod: Object) -> dict[str, ResourceChange]:
    changes = {}
    for spec in containers_of(pod):
        name = str(spec.get("name"))
        before = pod_resources.of(spec)
        after = pod_resources.merged(before, wanted.get(name) or {})
        if not pod_resources.alike(before, after):
            changes[name] = ResourceChange(before, after, pod_resources.restarts(spec, before, after))
    return changes


def _chosen_containers(desired: DesiredResources, pod: Object) -> list[Object]:
    there = list(containers_of(pod))
    known = [str(one.get("name")) for one in there]
    if desired.container is None:
        if len(there) > 1:
            raise ResizeRefused(
                f"it has several containers ({', '.join(known)}); name some, or all: --data container={known[0]}, or --data container=all"
            )
        return there
    if desired.container == (ALL,):
        return there
    starting = {str(one.get("name")) for one in spec_of(pod).get("initContainers") or ()}
    for name in desired.container:
        if name in starting:
            raise ResizeRefused(f"{name} is an init container, and daytwo does not resize these; its containers are {', '.join(known)}")
        if name not in known:
            raise ResizeRefused(f"it has no container {name}; it has {', '.join(known)}")
    return [one for one in there if one.get("name") in desired.container]


def _after(desired: DesiredResources, before: Resources, name: str) -> dict[str, dict[str, str]]:
    new: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for resource in RESOURCES:
        both = desired.both(resource)
        if both is not None:
            new["requests"][resource] = both
            if resource in (before.get("limits") or {}):
                new["limits"][resource] = both
        if (request := desired.wanted(resource, "request")) is not None:
            new["requests"][resource] = request
        if (limit := desired.wanted(resource, "limit")) is not None:
            new["limits"][resource] = limit
            if resource not in (before.get("requests") or {}):
                # The API server does the same (pkg/apis/core/v1/defaults.go: SetDefaults_Pod).
                new["requests"].setdefault(resource, limit)
    after = pod_resources.merged(before, new)
    for resource in RESOURCES:
        request, most = (after.get(kind, {}).get(resource) for kind in KINDS)
        if request and most and pod_resources.quantity(request) > pod_resources.quantity(most):
            raise ResizeRefused(
                f"{name}: its {resource} request would be {request}, above its limit {most}; "
                f"give the limit too (--data {resource}_limit=...), or both with --data {resource}=..."
            )
    return after


def _check(
    pod: Object,
    changes: Mapping[str, ResourceChange],
    ability: Ability,
    held: Mapping[str, ContainerCgroup],
    reachable: Collection[str],
    desired: DesiredResources,
    *,
    again: bool = False,
) -> None:
    """Raises ResizeRefused."""
    windows = [name for name, node in ability.nodes.items() if node.system == "windows"]
    if is_static(pod):
        raise ResizeRefused("it is a static pod, which only its manifest on the node changes; edit that, and the kubelet recreates the pod")
    if pod_resources.is_windows(pod, windows):
        raise ResizeRefused("it is a Windows pod, which no kubelet resizes in place; change its template instead")
    phase = status_of(pod).get("phase")
    if phase != "Running":
        raise ResizeRefused(
            f"it does not run (phase {phase}), and only running pods are resized; wait for it, fix it, or change its template"
        )
    if spec_of(pod).get("resources"):
        raise ResizeRefused("it has pod-level resources, which daytwo does not support; change its template instead")
    if not changes:
        return
    for name in changes:
        if not pod_resources.identity(pod, name).started:
            waiting = (pod_resources.state_of(pod, name).get("state") or {}).get("waiting") or {}
            raise ResizeRefused(f"its container {name} does not run ({waiting.get('reason') or 'not started'}); fix that first")
    was, becomes = pod_resources.qos_of(pod), pod_resources.qos_of(pod, {name: change.after for name, change in changes.items()})
    if was != becomes:
        raise ResizeRefused(
            f"its QoS class would change from {was} to {becomes}, which a running pod does not allow ({_of_qos(was)}); {_way_out(was)}"
        )
    state = pod_resources.progress(pod)
    if state.state and not again:
        raise ResizeRefused(f"a resize of it is already in progress ({state}); wait for its end, or undo it first")
    node = node_of(pod)
    if node not in reachable:
        raise ResizeRefused(
            f"it runs on {node}, which is not a reachable host of the inventory, so its cgroup cannot be read. "
            "Add the node to the inventory, or fix the connection"
        )
    _check_memory(pod, changes, ability, held)
    restarting = [name for name, change in changes.items() if change.restarts]
    if restarting and not desired.allow_restarts:
        raise ResizeRefused(
            f"{', '.join(restarting)} would be restarted, as its resizePolicy says (RestartContainer); "
            "allow it with --data allow_restarts=true"
        )
    seen = ability.nodes.get(node)
    if seen is not None and (why := abilities.infeasible(seen, pod, {name: (one.before, one.after) for name, one in changes.items()})):
        raise ResizeRefused("; ".join(why))


def _way_out(was: str) -> str:
    if was == "BestEffort":
        return "set its requests in the template: its controller then creates the pods again"
    keys = ", ".join(key for key in AMOUNTS if "_" in key)
    return f"give requests and limits separately, with the keys of deploys/resize.py: {keys}; or change the template"


def _of_qos(qos: str) -> str:
    return {
        "Guaranteed": "Guaranteed: each container's requests equal its limits, for cpu and memory",
        "Burstable": "Burstable: at least one request or limit is set, and not all requests equal their limits",
        "BestEffort": "BestEffort: no request or limit is set",
    }[qos]


def _check_memory(pod: Object, changes: Mapping[str, ResourceChange], ability: Ability, held: Mapping[str, ContainerCgroup]) -> None:
    for name, change in changes.items():
        old, new = ((one.get("limits") or {}).get("memory") for one in (change.before, change.after))
        spec = pod_resources.container(pod, name) or {}
        if new is None or pod_resources.same(old, new) or pod_resources.policy(spec, "memory") == pod_resources.RESTART:
            continue
        lower = old is not None and pod_resources.quantity(new) < pod_resources.quantity(old)
        if lower and abilities.minor_of(ability.version) == abilities.NO_LOWER_MEMORY:
            raise ResizeRefused(
                f"{name}: 1.{abilities.NO_LOWER_MEMORY} cannot lower a memory limit without a restart (resizePolicy RestartContainer); "
                "1.34 and later can"
            )
        found = held.get(bare_id(pod_resources.identity(pod, name).container_id))
        usage = found.usage if found else None
        if usage is None:
            if lower:
                raise ResizeRefused(
                    f"{name}: its memory limit would be lowered to {new}, but its current usage could not be read on "
                    f"{node_of(pod)}; run this again, or do not lower the limit"
                )
        elif usage > pod_resources.quantity(new):
            raise ResizeRefused(
                f"{name}: the memory limit {new} is below its current usage, {mebibytes(usage)}: cgroup v1 refuses that, v2 kills the "
                f"container; give at least {mebibytes(usage)}"
            )


def mebibytes(size: int) -> str:
    """The size in MiB, rounded up: the text names a limit that is enough."""
    return f"{-(-size // 2**20)}Mi"
