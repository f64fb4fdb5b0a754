"""From what is wanted and the pods there are to what is to be done, refused, or only told. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.pod_resize import abilities, pod_resources
from roles.pod_resize.abilities import Ability
from roles.pod_resize.cgroup import Held, bare_id
from roles.pod_resize.model import ALL, AMOUNTS, DesiredResources
from roles.pod_resize.pod_resources import KINDS, RESOURCES, Object, Resources

_NAMED = 5
#: Outcomes of a pod's resize, as records have them, that an undo must know.
DONE, FOREIGN = "done", "foreign"


@dataclass(frozen=True)
class ResourceChange:
    """One container's resources: all of CPU and memory before and after. `restarts`: its resizePolicy makes it anew for this."""

    before: Resources
    after: Resources
    restarts: bool = False

    @property
    def told(self) -> str:
        return f"{pod_resources.told(self.before)} -> {pod_resources.told(self.after)}" + (
            " (restarts it, by its resizePolicy)" if self.restarts else ""
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
    def told(self) -> str:
        return "; ".join(f"{name}: {change.told}" for name, change in self.changes.items())

    @property
    def after(self) -> dict[str, Resources]:
        return {name: change.after for name, change in self.changes.items()}

    def back(self) -> PodStep:
        """The way back."""
        return PodStep(self.namespace, self.name, self.uid, self.node, {name: change.back() for name, change in self.changes.items()})

    def path(self, minor: int) -> str:
        """Where the change is asked for: the pod until 1.31, its resize subresource from 1.32 on."""
        plain = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        return f"{plain}/resize" if minor >= pod_resources.SUBRESOURCE_SINCE else plain

    def patch(self, version: str = "") -> dict[str, Any]:
        """What is asked for, of this very pod: the UID is a precondition, so that no successor of the same name is changed; and the
        resourceVersion `version`, where given, so that nothing is written over that came after a look."""
        entries = []
        for name, change in self.changes.items():
            values = {
                kind: new
                for kind in KINDS
                if (new := {key: value for key, value in (change.after.get(kind) or {}).items()
                            if not pod_resources.same((change.before.get(kind) or {}).get(key), value)})
            }  # fmt: skip
            entries.append({"name": name, "resources": values})
        preconditions = {"uid": self.uid, **({"resourceVersion": version} if version else {})}
        return {"metadata": preconditions, "spec": {"containers": entries}}


@dataclass
class ResizePlan:
    """`steps` in their order; `unchanged` are (pod, why) that need nothing; `refusals` why not to go on."""

    steps: list[PodStep] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ResizeRefused(Exception):
    """Why one pod cannot be resized as wanted, with the way out."""


def plan_resize(
    desired: DesiredResources, pods: Iterable[Object], ability: Ability, held: Mapping[str, Held], reachable: Collection[str]
) -> ResizePlan:
    """The plan for pods of one workload or selector. `held`: the cgroups of their containers by id, as far as they could be read;
    `reachable`: the nodes whose cgroups can be read."""
    plan = ResizePlan()
    refused: dict[str, list[str]] = {}
    alive = []
    for pod in sorted(pods, key=pod_resources.where):
        if pod_resources.is_over(pod):
            continue
        if pod["metadata"].get("deletionTimestamp"):
            plan.notes.append(f"{pod_resources.where(pod)} is being deleted, and is left out")
            continue
        alive.append(pod)
    for pod in alive:
        try:
            changes = _changes(desired, pod)
            _check(pod, changes, ability, held, reachable, desired)
            if changes:
                plan.steps.append(_step(pod, changes))
            else:
                plan.unchanged.append((pod_resources.where(pod), f"has it: {_has(pod)}"))
        except ResizeRefused as error:
            refused.setdefault(str(error), []).append(pod_resources.where(pod))
        except ValueError as error:
            refused.setdefault(f"its resources cannot be read: {error}", []).append(pod_resources.where(pod))
    if not alive:
        plan.refusals.append(f"{_chosen(desired)}: it has no pods now; there is nothing to resize")
    plan.refusals += [f"{some(names)}: {why}" for why, names in refused.items()]
    plan.refusals += abilities.missing(ability, sorted({step.node for step in plan.steps}))
    return plan


def plan_way_back(
    steps: Iterable[PodStep],
    pods: Iterable[Object],
    ability: Ability,
    held: Mapping[str, Held],
    reachable: Collection[str],
    desired: DesiredResources,
    outcomes: Mapping[str, str] | None = None,
    *,
    force: bool = False,
) -> ResizePlan:
    """Back to what each pod had before a run whose `steps` these were, the last one first. Pods that are gone need nothing; one that
    somebody else has resized since is refused, unless `force`. `outcomes`: how they ended in that run, by UID, where that is known."""
    plan = ResizePlan()
    by_uid = {str(pod["metadata"].get("uid")): pod for pod in pods}
    for step in reversed(list(steps)):
        pod = by_uid.get(step.uid)
        if pod is None or pod_resources.is_over(pod) or pod["metadata"].get("deletionTimestamp"):
            plan.unchanged.append((step.where, "is gone; its successor has what the template says"))
            continue
        if (outcomes or {}).get(step.uid) == FOREIGN:
            plan.unchanged.append((step.where, "somebody else changed its resources in that run; they are left as they are"))
            continue
        if not force and (outcomes or {}).get(step.uid) == DONE and (theirs := _changed_since(pod, step)):
            plan.refusals.append(
                f"{step.where}: its resources were changed since that run ({theirs}); undo the later run first, or go on all the same by "
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
                    f"{step.where}: {name} had no {' and '.join(lost)} before, and none can be taken out of a running pod; "
                    "delete the pod: its successor has what the template says"
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
            plan.unchanged.append((step.where, f"has it: {_has(pod)}"))
    plan.refusals += abilities.missing(ability, sorted({step.node for step in plan.steps}))
    return plan


def _changed_since(pod: Object, step: PodStep) -> str:
    """What containers have that is neither what they had before a resize nor what they had after it."""
    now = {name: pod_resources.of(pod_resources.container(pod, name) or {}) for name in step.changes}
    return "; ".join(
        f"{name}: {pod_resources.told(now[name])}"
        for name, change in step.changes.items()
        if not (pod_resources.alike(now[name], change.before) or pod_resources.alike(now[name], change.after))
    )


def _step(pod: Object, changes: Mapping[str, ResourceChange]) -> PodStep:
    meta = pod["metadata"]
    return PodStep(str(meta.get("namespace", "")), str(meta["name"]), str(meta.get("uid", "")), pod_resources.node_of(pod), changes)


def _chosen(desired: DesiredResources) -> str:
    namespace, name = desired.place
    return f"{desired.kind or 'selector'} {namespace}/{name}"


def _has(pod: Object) -> str:
    return "; ".join(f"{one.get('name')}: {pod_resources.told(pod_resources.of(one))}" for one in pod_resources.containers(pod))


def some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


# ---- one pod


def _changes(desired: DesiredResources, pod: Object) -> dict[str, ResourceChange]:
    changes = {}
    for spec in _chosen_containers(desired, pod):
        before = pod_resources.of(spec)
        after = _after(desired, before, str(spec.get("name")))
        if not pod_resources.alike(before, after):
            changes[str(spec.get("name"))] = ResourceChange(before, after, pod_resources.restarts(spec, before, after))
    return changes


def _chosen_containers(desired: DesiredResources, pod: Object) -> list[Object]:
    there = pod_resources.containers(pod)
    known = [str(one.get("name")) for one in there]
    if desired.container is None:
        if len(there) > 1:
            raise ResizeRefused(
                f"it has several containers ({', '.join(known)}); name one, or all of them: --data container={known[0]}, container=all"
            )
        return there
    if desired.container == (ALL,):
        return there
    starting = {str(one.get("name")) for one in (pod.get("spec") or {}).get("initContainers") or ()}
    for name in desired.container:
        if name in starting:
            raise ResizeRefused(f"{name} is an init container, which is not resized by this; its containers are {', '.join(known)}")
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
                # As the API server does of itself (pkg/apis/core/v1/defaults.go: SetDefaults_Pod).
                new["requests"].setdefault(resource, limit)
    after = pod_resources.merged(before, new)
    for resource in RESOURCES:
        request, most = (after.get(kind, {}).get(resource) for kind in KINDS)
        if request and most and pod_resources.quantity(request) > pod_resources.quantity(most):
            raise ResizeRefused(
                f"{name}: its {resource} request would be {request}, above its limit {most}; "
                f"give the limit too (--data {resource}_limit=...), or both by --data {resource}=..."
            )
    return after


def _check(
    pod: Object,
    changes: Mapping[str, ResourceChange],
    ability: Ability,
    held: Mapping[str, Held],
    reachable: Collection[str],
    desired: DesiredResources,
    *,
    again: bool = False,
) -> None:
    """Raises Refused."""
    windows = [name for name, node in ability.nodes.items() if node.system == "windows"]
    if pod_resources.is_static(pod):
        raise ResizeRefused("it is a static pod, which only its manifest on the node changes; edit that, and its kubelet makes it anew")
    if pod_resources.is_windows(pod, windows):
        raise ResizeRefused("it is a Windows pod, and no kubelet resizes those in place; change its template instead")
    phase = (pod.get("status") or {}).get("phase")
    if phase != "Running":
        raise ResizeRefused(f"it does not run (phase {phase}); what does not run is changed by its template; wait for it, or mend it first")
    if (pod.get("spec") or {}).get("resources"):
        raise ResizeRefused("it has resources of its own as a whole (pod level), which this does not weigh; change its template instead")
    if not changes:
        return
    for name in changes:
        if not pod_resources.identity(pod, name).started:
            waiting = (pod_resources.state_of(pod, name).get("state") or {}).get("waiting") or {}
            raise ResizeRefused(f"its container {name} does not run ({waiting.get('reason') or 'not started'}); fix that first")
    was, becomes = pod_resources.qos_of(pod), pod_resources.qos_of(pod, {name: change.after for name, change in changes.items()})
    if was != becomes:
        raise ResizeRefused(
            f"its QoS class would change from {was} to {becomes}, which no running pod's can ({_of_qos(was)}); give requests and limits "
            f"apart: {', '.join(key for key in AMOUNTS if '_' in key)}; or change the template"
        )
    state = pod_resources.progress(pod)
    if state.state and not again:
        raise ResizeRefused(f"a resize of it is under way already ({state}); wait for its end, or take it back first")
    node = pod_resources.node_of(pod)
    if node not in reachable:
        raise ResizeRefused(
            f"it runs on {node}, and no host of the inventory that can be reached is that node, so its cgroup could not be read; "
            "add it to the inventory, or mend the connection"
        )
    _check_memory(pod, changes, ability, held)
    restarting = [name for name, change in changes.items() if change.restarts]
    if restarting and not desired.allow_restarts:
        raise ResizeRefused(
            f"{', '.join(restarting)} would be restarted, as its resizePolicy says (RestartContainer); "
            "allow it by --data allow_restarts=true"
        )
    seen = ability.nodes.get(node)
    if seen is not None and (why := abilities.infeasible(seen, pod, {name: (one.before, one.after) for name, one in changes.items()})):
        raise ResizeRefused("; ".join(why))


def _of_qos(qos: str) -> str:
    return {
        "Guaranteed": "Guaranteed: each container's requests are its limits, of cpu and memory",
        "Burstable": "Burstable: not all requests are limits, and one is set at least",
        "BestEffort": "BestEffort: nothing is set at all",
    }[qos]


def _check_memory(pod: Object, changes: Mapping[str, ResourceChange], ability: Ability, held: Mapping[str, Held]) -> None:
    for name, change in changes.items():
        old, new = ((one.get("limits") or {}).get("memory") for one in (change.before, change.after))
        spec = pod_resources.container(pod, name) or {}
        if new is None or pod_resources.same(old, new) or pod_resources.policy(spec, "memory") == pod_resources.RESTART:
            continue
        lower = old is not None and pod_resources.quantity(new) < pod_resources.quantity(old)
        if lower and abilities.minor_of(ability.version) == abilities.NO_LOWER_MEMORY:
            raise ResizeRefused(
                f"{name}: 1.{abilities.NO_LOWER_MEMORY} lowers no memory limit without a restart (resizePolicy RestartContainer); "
                "1.34 and later do"
            )
        found = held.get(bare_id(pod_resources.identity(pod, name).container_id))
        usage = found.usage if found else None
        if usage is None:
            if lower:
                raise ResizeRefused(
                    f"{name}: its memory limit would be lowered, and what it uses now could not be read on {pod_resources.node_of(pod)}"
                )
        elif usage > pod_resources.quantity(new):
            raise ResizeRefused(
                f"{name}: the memory limit {new} is below what it uses now, {mebibytes(usage)}: cgroup v1 refuses that, v2 kills the "
                f"container; give {mebibytes(usage)} at least"
            )


def mebibytes(size: int) -> str:
    """Rounded up, so that what is said to be enough is."""
    return f"{-(-size // 2**20)}Mi"
