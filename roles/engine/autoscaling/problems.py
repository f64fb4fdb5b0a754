"""What keeps an autoscaler from working, or will surprise its owner: each with its objects, the values, the rule, and the way out. Pure.

The table is rules.py.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from roles.engine.autoscaling.calculator import has_pod_level_requests, is_running_and_ready
from roles.engine.autoscaling.decide import Decision, ScalingScene
from roles.engine.autoscaling.model import ODD, Autoscaler, MetricSpec, NoReading, ScalingController
from roles.engine.autoscaling.owners import INJECTED, replicas_owner, sleeper, strays
from roles.engine.autoscaling.parse import API_OF, CUSTOM, EXTERNAL, NOT_REGISTERED, RESOURCE
from roles.engine.autoscaling.read import ScalingWorld, Target
from roles.engine.autoscaling.room import alive, limit_problems, quota_problems, room_problem
from roles.engine.autoscaling.rules import IN_THE_AUTOSCALER, ScalingRule
from roles.engine.autoscaling.vertical import Vertical
from roles.engine.disruption.strays import Stray, by_owner
from roles.engine.findings import Finding, Severity, worst_first
from roles.engine.folding import shortened
from roles.engine.kube import Object, OwnerRef, condition, owner_ref
from roles.engine.kube.fields import name_of, spec_of, status_of
from roles.engine.kube.pods import lasting_containers, node_of
from roles.engine.placement import ClusterView

_FEW = 4
#: Characters of what a scheduler says.
_LONGEST = 300
_MISSING = {
    RESOURCE: "install metrics-server: deploys/metrics_server.py",
    CUSTOM: "install an adapter for custom metrics, such as prometheus-adapter",
    EXTERNAL: "install an adapter for external metrics, such as KEDA or prometheus-adapter",
}
_NOT_SERVING = {
    RESOURCE: "see why: kubectl get apiservice v1beta1.metrics.k8s.io -o yaml",
    **dict.fromkeys((CUSTOM, EXTERNAL), "see the adapter, its Service and its pods: kubectl get apiservices"),
}
# A kind that `kubectl set resources` changes.
_RESOURCES = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
#: A request to begin with, where nobody has measured one.
_FIRST = {"cpu": "100m", "memory": "128Mi"}


@dataclass(frozen=True)
class _Look:
    scene: ScalingScene
    decision: Decision
    controller: ScalingController
    world: ScalingWorld
    target: Target = field(default_factory=Target)
    now: datetime | None = None

    @property
    def item(self) -> Autoscaler:
        return self.scene.autoscaler

    @property
    def workload(self) -> str:
        return f"{self.item.target.kind} {self.item.namespace}/{self.item.target.name}"

    @property
    def pods(self) -> list[Object]:
        """The pods that live."""
        return alive(self.scene)

    @property
    def owner(self) -> OwnerRef | None:
        """The object whose controller writes the autoscaler, such as a ScaledObject of KEDA."""
        return owner_of(self.item)

    @functools.cached_property
    def rivals(self) -> tuple[str, ...]:
        """Other autoscalers of the same pods: those that select some of them, or that scale the same workload, which may have none now."""
        own = self.item.namespace, self.item.target.group, self.item.target.kind, self.item.target.name
        others = (one.autoscaler for one in self.world.scenes if one.autoscaler.key != self.item.key)
        same = (one.key for one in others if (one.namespace, one.target.group, one.target.kind, one.target.name) == own)
        return tuple(dict.fromkeys((*self.scene.shared_with, *same)))

    @property
    def keeper(self) -> OwnerRef | None:
        """Whose controller scales the workload: by this autoscaler, by another one of it, or by the workload itself."""
        rivals = (owner_of(one.autoscaler) for one in self.world.scenes if one.autoscaler.key in self.rivals)
        above = owner_ref(self.target.item) if self.target.item else None
        return self.owner or above or next((one for one in rivals if one), None)

    @property
    def in_owner(self) -> str:
        return f"; change the autoscaler in {self.owner}, whose controller writes it" if self.owner else ""

    @property
    def is_new(self) -> bool:
        """The controller has had less than two syncs since its creation."""
        created = self.item.created
        return created is not None and self.now is not None and (self.now - created).total_seconds() < 2 * self.controller.sync_period

    @property
    def disabled(self) -> bool:
        """The workload has 0 pods, and the controller asks for no metric."""
        return self.decision.current == 0 and not self.decision.rows

    @functools.cached_property
    def strays(self) -> list[Stray]:
        """The pods that count as the target's and are not its own."""
        return strays(self.scene.pods, self.item.target)

    @property
    def template(self) -> str:
        """Where the pods' template is written."""
        above = owner_ref(self.target.item) if self.target.item else None
        return f"{above}, whose controller writes {self.workload}" if above else f"the template of {self.workload}"

    def objects(self, *others: str) -> tuple[str, ...]:
        """The autoscaler, and others."""
        return str(self.item), *others


def owner_of(item: Autoscaler) -> OwnerRef | None:
    """The object whose controller writes the autoscaler; None if people do."""
    return owner_ref(item.raw) if item.raw else None


def not_judged(name: str, error: Exception) -> Finding:
    """An autoscaler, or what belongs to it, has a value that daytwo cannot read."""
    return ScalingRule.NOT_JUDGED.found((name,), f"it cannot be judged: {type(error).__name__}: {str(error)[:200]}")


def problems(
    scene: ScalingScene,
    decision: Decision,
    controller: ScalingController,
    world: ScalingWorld,
    now: datetime,
    view: ClusterView | None = None,
) -> list[Finding]:
    """All problems of one autoscaler, the worst first. `now`: by the clock of the API server; `view`: the nodes and pods of the cluster;
    without it, no room is looked for."""
    look = _Look(scene, decision, controller, world, world.targets.get(scene.autoscaler.key, Target()), now)
    found = [*_judged(look, view)]
    if look.owner:
        found = [replace(one, way_out=one.way_out + look.in_owner) if one.rule in IN_THE_AUTOSCALER else one for one in found]
    return worst_first(found)


def _judged(look: _Look, view: ClusterView | None) -> Iterator[Finding]:
    if look.scene.scale is None:
        yield from _no_target(look)
        return
    for judge in (_selector, _strays, _metrics, _without_node, _handled, _bounds, _vertical, _owner):
        yield from judge(look)
    yield from quota_problems(look.scene, look.world)
    yield from limit_problems(look.scene, look.world)
    yield from _habits(look)
    if view is not None:
        yield from room_problem(look.scene, look.world, view)


def _few(names: Sequence[str]) -> str:
    return shortened(sorted(dict.fromkeys(names)), _FEW)


# ---- target and pods


def _no_target(look: _Look) -> Iterator[Finding]:
    target = look.item.target
    yield ScalingRule.NO_TARGET.found(
        look.objects(look.workload), f"the scale of {target.kind} {target.name} ({target.api_version}) cannot be read: "
        f"{look.scene.scale_problem}",
        f"correct scaleTargetRef, create {look.workload}, or remove the autoscaler; a DaemonSet, Job or CRD without a scale cannot "
        f"be scaled",
    )  # fmt: skip


def _selector(look: _Look) -> Iterator[Finding]:
    assert look.scene.scale is not None
    if not look.scene.scale.selector or look.scene.selector_problem:
        why = f"cannot be read ({look.scene.selector_problem})" if look.scene.selector_problem else "is empty"
        yield ScalingRule.NO_SELECTOR.found(
            look.objects(look.workload), f"the selector in the scale of {look.workload} {why}, so no pod and no metric is found",
        )  # fmt: skip
    if others := look.rivals:
        told = _few([f"autoscaler {one}" for one in others])
        why = (
            f"{told} also selects pods of {look.workload} ({look.scene.scale.selector}): the controller stops both (AmbiguousSelector)"
            if look.scene.shared_with
            else f"{told} also scales {look.workload}: the controller stops both as soon as it has pods (AmbiguousSelector)"
        )
        yield ScalingRule.TWO_AUTOSCALERS.found(
            look.objects(*(f"HorizontalPodAutoscaler {one}" for one in others)), why,
            f"keep one: put all metrics into it, and remove the other: {_removal(look)}; or give the workloads selectors that do not "
            "overlap",
        )  # fmt: skip


def _removal(look: _Look) -> str:
    """How to remove one of the autoscalers that share pods: one that people wrote, if there is one."""
    owners = {scene.autoscaler.key: owner_of(scene.autoscaler) for scene in look.world.scenes} | {look.item.key: look.owner}
    keys = (*look.rivals, look.item.key)
    key = next((one for one in keys if owners.get(one) is None), "")
    namespace, _, name = key.partition("/")
    return f"kubectl delete hpa -n {namespace} {name}" if key else f"delete {owners[keys[0]]}"


def _strays(look: _Look) -> Iterator[Finding]:
    """Pods of others that the selector matches by accident."""
    for owner, found in by_owner(look.strays).items():
        names, several = _few([one.name for one in found]), len(found) > 1
        selector = look.scene.scale.selector if look.scene.scale else ""
        them = "them" if several else "it"
        yield ScalingRule.FOREIGN_PODS.found(
            look.objects(owner),
            f"{names} {'belong' if several else 'belongs'} to {owner if found[0].owner else 'nobody'}, and the selector of "
            f"{look.workload} ({selector}) matches {them}: the autoscaler counts {them} as the workload's",
            f"{found[0].labels_elsewhere}; or give {look.workload} a narrower selector",
        )  # fmt: skip


# ---- metrics


def _metrics(look: _Look) -> Iterator[Finding]:
    groups = {API_OF[one.type] for one in look.item.metrics if one.type in API_OF}
    broken = {group: why for group in sorted(groups) if (why := look.world.metrics_apis.get(group, ""))}
    for group, why in broken.items():
        names = _few([one.title for one in look.item.metrics if API_OF.get(one.type) == group])
        yield ScalingRule.METRICS_API.found(
            look.objects(), f"the metrics API {group} does not serve, which {names} needs: {why}",
            _MISSING[group] if why == NOT_REGISTERED else _NOT_SERVING[group],
        )  # fmt: skip
    for metric, reading in zip(look.item.metrics, look.scene.readings, strict=False):
        if metric.is_resource:
            yield from _requests(look, metric)
        if API_OF.get(metric.type) in broken:
            continue
        if isinstance(reading, NoReading):
            if metric.is_resource and look.pods and not _started(look):
                yield _none_counts(look, metric, [name_of(pod) for pod in look.pods])
            elif not look.disabled and (not metric.is_resource or look.pods):
                yield _no_metric(look, metric, reading)
        elif row := next((one for one in look.decision.rows if one.metric is metric), None):
            yield from _samples(look, metric, row.groups.missing, row.groups.unready, row.message)


def _no_metric(look: _Look, metric: MetricSpec, reading: NoReading) -> Finding:
    group = API_OF.get(metric.type, RESOURCE)
    if metric.is_resource:
        way_out = (
            "check metrics-server: its log, whether it reaches the kubelets on port 10250, and kubectl top pods; new pods need two scrapes"
        )
    else:
        way_out = (
            f"list what the adapter has: kubectl get --raw /apis/{group}/v1beta1; correct the name or the selector, or the adapter's rules"
        )
    return ScalingRule.NO_METRIC.found(look.objects(), f"{metric.title}: {reading.why}", way_out)


def _requests(look: _Look, metric: MetricSpec) -> Iterator[Finding]:
    """Requests that a Utilization needs, in pods and in the template; and the container of a ContainerResource."""
    template = _template(look.target.item)
    places = [*((f"pod {name_of(pod)}", pod) for pod in look.scene.pods), *([("the template", template)] if template else [])]
    foreign = {one.name: one for one in look.strays}
    if metric.container:
        yield from _without_container(look, metric, places, foreign)
    if metric.utilization is None or metric.average is not None:
        return
    missing: dict[tuple[str, str], list[str]] = {}
    for place, pod in places:
        stray = foreign.get(place.removeprefix("pod "))
        for name in without_request(pod, metric, look.controller):
            missing.setdefault((stray.name if stray else "", name), []).append(place)
    for (of_stray, name), where in missing.items():
        in_pods = any(one.startswith("pod ") for one in where)
        if not in_pods and look.scene.pods:
            # A LimitRange fills it in when a pod is created.
            continue
        why = f"{metric}: container {name} of {_few(where)} has no {metric.name} request; one is enough to stop the whole metric"
        if of_stray:
            yield _stray_request(look, metric, foreign[of_stray], name, why)
            continue
        yield ScalingRule.MISSING_REQUEST.found(
            look.objects(look.workload), why, _where_to_request(look, metric.name, name)
            + ("" if metric.container else ", or measure one container only (ContainerResource), or use an average value instead of "
            "a percentage") + look.in_owner,
            Severity.critical if in_pods else Severity.warning,
        )  # fmt: skip


def _where_to_request(look: _Look, resource: str, container: str) -> str:
    template = _template(look.target.item)
    if template is None or container in [one.get("name") for one in lasting_containers(template)]:
        return f"set requests.{resource} of container {container} in {look.template}{_set_resources(look, resource, container)}"
    mark = INJECTED.get(container, {}).get(resource)
    how = f"set its request by the annotation {mark} in {look.template}" if mark else "set its request in the configuration of that webhook"
    return f"{look.template} has no such container: an admission webhook adds it to new pods, or an earlier template had it; {how}"


def _set_resources(look: _Look, resource: str, container: str) -> str:
    """The command, where no other controller would revert it."""
    target = look.item.target
    if target.kind not in _RESOURCES or (look.target.item and owner_ref(look.target.item)):
        return ""
    kind = target.kind.lower()
    where = f"{kind}/{target.name} -n {look.item.namespace}"
    return (
        f": kubectl set resources {where} --containers={container} --requests={resource}={_FIRST.get(resource, '1')} to begin with;"
        f" from real use, deploys/right_size.py --data only_objects={look.item.namespace}/{kind}/{target.name} computes it"
    )


def _without_container(
    look: _Look, metric: MetricSpec, places: Sequence[tuple[str, Object]], foreign: Mapping[str, Stray]
) -> Iterator[Finding]:  # fmt: skip
    without = [place for place, pod in places if metric.container not in [one.get("name") for one in lasting_containers(pod)]]
    own = [place for place in without if place.removeprefix("pod ") not in foreign]
    if own:
        known = _few([str(one.get("name")) for one in lasting_containers(places[-1][1])])
        yield ScalingRule.NO_CONTAINER.found(
            look.objects(look.workload), f"{metric}: {_few(own)} has no container {metric.container}", f"name one that it has: {known}",
            Severity.critical if any(one.startswith("pod ") for one in own) else Severity.warning,
        )  # fmt: skip
    for stray in (foreign[place.removeprefix("pod ")] for place in without if place not in own):
        yield ScalingRule.NO_CONTAINER.found(
            look.objects(stray.whose),
            f"{metric}: pod {stray.name} has no container {metric.container}; the pod is of {stray.whose}, and the selector of "
            f"{look.workload} matches it",
            f"{stray.labels_elsewhere}, or give {look.workload} a narrower selector",
        )  # fmt: skip


def _stray_request(look: _Look, metric: MetricSpec, stray: Stray, container: str, why: str) -> Finding:
    """A pod that is not the target's stops the metric. Another metric is no way out: the template has no such container."""
    return ScalingRule.MISSING_REQUEST.found(
        look.objects(stray.whose), f"{why}; the pod is of {stray.whose}, and the selector of {look.workload} matches it",
        f"{stray.labels_elsewhere}, or set requests.{metric.name} of container {container} in {stray.whose}, or give {look.workload} a "
        "narrower selector",
    )  # fmt: skip


def without_request(pod: Object, metric: MetricSpec, controller: ScalingController) -> list[str]:
    """The containers that stop a Utilization metric."""
    if not metric.container and controller.pod_level_requests and has_pod_level_requests(pod):
        level = (spec_of(pod).get("resources") or {}).get("requests") or {}
        containers = lasting_containers(pod)
        if metric.name in level or any(metric.name in ((one.get("resources") or {}).get("requests") or {}) for one in containers):
            return []
    return [
        str(one.get("name"))
        for one in lasting_containers(pod)
        if (not metric.container or one.get("name") == metric.container)
        and metric.name not in ((one.get("resources") or {}).get("requests") or {})
        # A limit without a request: the API server sets the request when it creates a pod (pkg/apis/core/v1/defaults.go).
        and (pod.get("status") or metric.name not in ((one.get("resources") or {}).get("limits") or {}))
    ]


def _template(item: Object | None) -> dict[str, Any] | None:
    template = spec_of(item or {}).get("template") if item else None
    return {"metadata": {"name": "template"}, "spec": spec_of(template)} if isinstance(template, Mapping) else None


def _samples(look: _Look, metric: MetricSpec, missing: Sequence[str], unready: Sequence[str], message: str) -> Iterator[Finding]:
    alive = {name_of(pod) for pod in look.pods}
    lost = [name for name in missing if name in alive]
    if lost:
        yield ScalingRule.NO_SAMPLE.found(
            look.objects(),
            f"{metric.title}: no sample of {_few(lost)}; such a pod counts as idle when scaling up and as fully used when scaling down",
            "new pods have one after two scrapes; else check the kubelet of its node: kubectl get --raw "
            "/api/v1/nodes/NODE/proxy/metrics/resource",
        )  # fmt: skip
    if unready and "pods might be unready" in message:
        waits = [name for name in unready if name not in _ready(look)]
        if waits:
            yield _none_counts(look, metric, waits)
        else:
            yield ScalingRule.NO_SAMPLE.found(
                look.objects(look.workload), f"{metric.title}: no pod counts yet: {_few(unready)} became Ready a moment ago",
                "wait until they have a whole sample since then",
            )  # fmt: skip


def _none_counts(look: _Look, metric: MetricSpec, waits: Sequence[str]) -> Finding:
    return ScalingRule.NO_SAMPLE.found(
        look.objects(look.workload), f"{metric.title}: none of its pods counts: {_few(waits)} is Pending, or not Ready since its start",
        f"see why: kubectl describe pod -n {look.item.namespace} {waits[0]}", Severity.critical,
    )  # fmt: skip


def _started(look: _Look) -> bool:
    """One of the pods runs, so that there is something to measure."""
    return any(status_of(pod).get("phase") == "Running" for pod in look.pods)


def _ready(look: _Look) -> set[str]:
    """The names of the pods that are Ready now."""
    return {name_of(pod) for pod in look.pods if is_running_and_ready(pod)}


def _without_node(look: _Look) -> Iterator[Finding]:
    """Pods that the scheduler has looked at, and found no node for."""
    waits = {name_of(pod): said for pod in look.pods if (said := refused_by_scheduler(pod)) is not None}
    if waits:
        name = min(waits)
        yield ScalingRule.NO_NODE.found(
            look.objects(look.workload), f"no node takes {_few(list(waits))}: {waits[name]}; it counts as idle when scaling up",
            f"see why: kubectl describe pod -n {look.item.namespace} {name}; add nodes, request less, or lower maxReplicas",
        )  # fmt: skip


def refused_by_scheduler(pod: Object) -> str | None:
    """What the scheduler says of a pod that it finds no node for; None of any other pod."""
    if node_of(pod):
        return None
    one = condition(pod, "PodScheduled")
    return f"{one.get('reason') or '-'}: {str(one.get('message') or '-')[:_LONGEST]}" if one.get("status") == "False" else None


# ---- the controller


def _handled(look: _Look) -> Iterator[Finding]:
    idle = look.controller.idle
    if idle is not None:
        yield ScalingRule.NOT_HANDLED.found(look.objects(), idle.why, idle.way_out)
    elif not look.item.status.conditions and look.is_new:
        yield ScalingRule.NOT_HANDLED.found(
            look.objects(), "it is new: the controller has not read it yet",
            f"wait: the controller reads a new autoscaler within {look.controller.sync_period:g} s", Severity.note,
        )  # fmt: skip
    elif not look.item.status.conditions:
        yield ScalingRule.NOT_HANDLED.found(
            look.objects(), "the controller has not set any condition on it",
            f"a new autoscaler is read within {look.controller.sync_period:g} s; else check kube-controller-manager: its log, its "
            f"leader, and "
            "whether --controllers leaves out horizontal-pod-autoscaler-controller",
        )  # fmt: skip
    if look.disabled:
        yield _at_zero(look)


def _at_zero(look: _Look) -> Finding:
    """With somebody who scales the workload to 0 and back, this is the normal state of an idle service."""
    why = f"{look.workload} has 0 replicas, so the autoscaler is off (ScalingDisabled)"
    if keeper := look.keeper:
        above = owner_ref(look.target.item) if look.target.item else None
        which = "the workload" if keeper == above else "the autoscaler" if keeper == look.owner else "another autoscaler of it"
        return ScalingRule.DISABLED_AT_ZERO.found(
            look.objects(look.workload, str(keeper)), f"{why}: {keeper} owns {which}, and its controller scales it to 0 and back",
            f"if it should run, change {keeper}; more replicas by hand do not last", Severity.note,
        )  # fmt: skip
    if tool := sleeper(look.target.item):
        return ScalingRule.DISABLED_AT_ZERO.found(
            look.objects(look.workload), f"{why}: its annotations say that {tool} did it on purpose",
            f"if it should run, wake it with {tool}", Severity.note,
        )  # fmt: skip
    return ScalingRule.DISABLED_AT_ZERO.found(
        look.objects(look.workload), why,
        f"to turn it on: kubectl scale -n {look.item.namespace} {look.item.target.kind.lower()}/{look.item.target.name} "
        f"--replicas={max(look.item.minimum, 1)}",
    )  # fmt: skip


def _bounds(look: _Look) -> Iterator[Finding]:
    item = look.item
    if item.minimum == item.maximum:
        yield ScalingRule.FIXED.found(look.objects(), f"minReplicas and maxReplicas are both {item.minimum}: it never scales")
    recommended = look.decision.recommended
    if recommended is not None and recommended > item.maximum and look.decision.lowest >= item.maximum:
        leading = look.decision.leading
        yield ScalingRule.AT_MAXIMUM.found(
            look.objects(),
            f"the metrics ask for {recommended} pods, and maxReplicas is {item.maximum}" + (f" ({leading.now})" if leading else ""),
        )  # fmt: skip


def _vertical(look: _Look) -> Iterator[Finding]:
    for raw in look.world.vpas or ():
        with contextlib.suppress(*ODD):
            vpa = Vertical.of(raw)
            if vpa.workload == look.workload and (both := vpa.counted_by(look.item)):
                yield ScalingRule.VERTICAL.found(
                    look.objects(str(vpa)),
                    f"{vpa} (mode {vpa.mode}) changes the {both} request of the same pods, by which the autoscaler divides: each change of "
                    "the request changes the count, and the other way round",
                    f"set its updateMode to Off, or its controlledResources to others than {both}, or scale by another metric",
                )  # fmt: skip


def _owner(look: _Look) -> Iterator[Finding]:
    owner = replicas_owner(look.target.item)
    if owner is not None and owner.resets:
        yield ScalingRule.REPLICAS_OWNER.found(look.objects(look.workload), owner.why(look.workload), owner.way_out(look.workload))


def _habits(look: _Look) -> Iterator[Finding]:
    for metric in look.item.metrics:
        if metric.is_resource and metric.name == "memory":
            yield ScalingRule.MEMORY.found(
                look.objects(), f"{metric}: more pods lower it only if the load is shared; most programs never give memory back, "
                f"so the count "
                "goes up and stays up",
            )  # fmt: skip
    slow = look.controller.cpu_initialization
    elsewhere = {name_of(pod) for pod in look.pods if refused_by_scheduler(pod) is not None}
    rows = [row for row in look.decision.rows if row.metric.name == "cpu" and row.valid]
    names = [name for row in rows for name in row.groups.unready if name not in elsewhere]
    if names:
        yield ScalingRule.STARTS_SLOWLY.found(
            look.objects(),
            f"cpu: {_few(names)} does not count yet: Pending, not Ready, or without a whole sample since it became Ready (in the "
            f"first {slow:g} s)",
            f"it counts as idle when scaling up. If it stays so, see why: kubectl describe pod -n {look.item.namespace} {min(names)}; if "
            "its program only starts slowly, set --horizontal-pod-autoscaler-cpu-initialization-period of kube-controller-manager",
        )  # fmt: skip
