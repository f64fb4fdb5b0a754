"""One VerticalPodAutoscaler: what its recommender says, and what its updater does next. Pure.

kubernetes/autoscaler, vertical-pod-autoscaler 1.8: pkg/updater/logic/updater.go (RunOnce), pkg/updater/priority (AddPod,
GetUpdatePriority), pkg/updater/restriction (GetCreatorMaps, CanInPlaceUpdate, isPodDisruptable), pkg/utils/vpa/api.go (Stronger). The
updater's flags are not read: the defaults stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal

from roles.engine.autoscaling.model import Autoscaler, Condition, HasConditions, Ref
from roles.engine.bounds import span
from roles.engine.folding import counted
from roles.engine.kube import Object, amounts, condition, controller, holds, namespace_and_name
from roles.engine.kube.fields import containers_of, created_of, name_of, spec_of, status_of
from roles.engine.kube.pods import is_alive, node_of
from roles.engine.kube.times import time_of

VPA = "VerticalPodAutoscaler"
PROVIDED, NO_PODS = "RecommendationProvided", "NoPodsMatched"
IN_PLACE = "InPlaceOrRecreate"
#: Modes in which the updater changes pods that run.
ACTING = ("Recreate", "Auto", IN_PLACE, "InPlace")
#: Its updater's --min-replicas and --eviction-tolerance.
MIN_REPLICAS, TOLERANCE = 2, 0.5
#: Its updater's --in-recommendation-bounds-eviction-lifetime-threshold.
LIFETIME = span(12 * 3600)
THRESHOLD = Fraction(1, 10)
#: After this time without a renewal of the admission controller's lease, the updater changes nothing.
LEASE_SECONDS = 60
_RESIZING = ("PodResizePending", "PodResizeInProgress")


@dataclass(frozen=True)
class VerticalAdvice:
    """What is recommended for one container: amounts by resource."""

    container: str
    target: Mapping[str, Fraction]
    lower: Mapping[str, Fraction]
    upper: Mapping[str, Fraction]

    def __str__(self) -> str:
        parts = [
            f"{one} {shown(one, amount)}"
            + (f" ({shown(one, self.lower[one])} to {shown(one, self.upper[one])})" if one in self.lower and one in self.upper else "")
            for one, amount in sorted(self.target.items())
        ]
        return f"{self.container} {', '.join(parts)}"


def shown(resource: str, amount: Fraction) -> str:
    return amounts.shown(resource, amounts.units(resource, amount))


@dataclass(frozen=True)
class Vertical(HasConditions):
    """One VerticalPodAutoscaler. `least`: the number of pods below which its updater changes none; None if it does not set it;
    `advice`: None if there is no recommendation."""

    namespace: str
    name: str
    target: Ref
    mode: str
    least: int | None
    advice: tuple[VerticalAdvice, ...] | None
    conditions: tuple[Condition, ...] = ()
    created: datetime | None = None
    raw: Object = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, raw: Object) -> Vertical:
        """Raises ValueError for a quantity or a time that cannot be read."""
        spec, status = spec_of(raw), status_of(raw)
        policy, recommended = spec.get("updatePolicy") or {}, status.get("recommendation")
        namespace, name = namespace_and_name(raw)
        least = policy.get("minReplicas")
        return cls(
            namespace, name, Ref.of(spec.get("targetRef") or {}), str(policy.get("updateMode") or "Recreate"),
            None if least is None else int(least), None if not recommended else tuple(_advice(recommended)),
            Condition.all_of(status),
            time_of(created_of(raw)), raw,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{VPA} {self.key}"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def workload(self) -> str:
        return f"{self.target.kind} {self.namespace}/{self.target.name}"

    @property
    def acts(self) -> bool:
        return self.mode in ACTING

    @property
    def age(self) -> tuple[str, str]:
        """The least one of all that name a workload controls its pods: the oldest, then the first by name."""
        return (self.created.isoformat() if self.created is not None else "9", self.name)

    @property
    def policies(self) -> list[Mapping[str, Any]]:
        return list((spec_of(self.raw).get("resourcePolicy") or {}).get("containerPolicies") or ())

    @property
    def resources(self) -> set[str]:
        """Those that it changes, of any container."""
        general: Mapping[str, Any] = next((one for one in self.policies if one.get("containerName") == "*"), {})
        own = [one for one in self.policies if one.get("containerName") != "*"]
        return {name for one in (general, *own) if one.get("mode") != "Off" for name in one.get("controlledResources") or ("cpu", "memory")}

    def counted_by(self, autoscaler: Autoscaler) -> str:
        """The resources whose requests it changes and by which an autoscaler divides; "" if there are none."""
        shares = {metric.name for metric in autoscaler.metrics if metric.is_resource and metric.utilization is not None}
        return "" if self.mode == "Off" else " and ".join(sorted(self.resources & shares))


def _advice(recommended: Mapping[str, Any]) -> Iterator[VerticalAdvice]:
    for one in recommended.get("containerRecommendations") or ():
        fields = (amounts.listed(one.get(part)) for part in ("target", "lowerBound", "upperBound"))
        yield VerticalAdvice(str(one.get("containerName")), *fields)


@dataclass(frozen=True)
class VerticalScene:
    """What is known beside one VerticalPodAutoscaler. `item`: its workload, None if it was not found, then `problem` says why; `pods`:
    those of the workload that live; `others`: VerticalPodAutoscalers of the same workload; `autoscalers`: the horizontal ones;
    `minor`: of the cluster's version; `lease`: when the admission controller last said that it runs, None: never, or it could not be
    read."""

    vertical: Vertical
    item: Object | None = None
    problem: str = ""
    pods: Sequence[Object] = ()
    others: tuple[Vertical, ...] = ()
    autoscalers: tuple[Autoscaler, ...] = ()
    limit_ranges: Sequence[Object] = ()
    minor: int = 0
    lease: datetime | None = None

    @property
    def controls(self) -> bool:
        """It is the one that counts, of all that name its workload."""
        return all(self.vertical.age < one.age for one in self.others)


@dataclass(frozen=True)
class Outlook:
    """What changes the pods next. `acts`: the updater changes a pod within its next minutes; `waits`: it would, and something keeps it from
    it; `done`: no pod needs a change; `off`: no updater has to do with it."""

    state: Literal["acts", "waits", "done", "off"]
    text: str


def outlook(scene: VerticalScene, now: datetime) -> Outlook:
    """What its updater does next, by the rules of version 1.8 and default flags."""
    item = scene.vertical
    # Its updater sees no pod that has no node yet (pkg/updater/main.go).
    pods = [pod for pod in scene.pods if is_alive(pod) and node_of(pod)]
    if item.mode == "Off":
        return Outlook("off", "mode Off: it recommends, and changes no pod")
    if not scene.controls:
        return Outlook("off", f"{min(scene.others, key=lambda one: one.age).key} controls the pods, since it is older")
    if item.advice is None:
        return Outlook("waits" if item.acts else "off", "there is no recommendation yet")
    differ = [(pod, why) for pod in pods if (why := outside(item, pod, now))]
    if item.mode == "Initial":
        text = f"mode Initial: only new pods get it; {len(differ)} of {counted(len(pods), 'pod')} have requests outside of it"
        return Outlook("off", text)
    if not differ:
        return Outlook("done", f"the requests of {counted(len(pods), 'pod')} are within the recommended range")
    return _updates(scene, pods, differ, now)


def _updates(scene: VerticalScene, pods: Sequence[Object], differ: Sequence[tuple[Object, str]], now: datetime) -> Outlook:
    item = scene.vertical
    if scene.lease is None or now - scene.lease > span(LEASE_SECONDS):
        since = "" if scene.lease is None else f" for {(now - scene.lease).total_seconds():.0f} s"
        return Outlook("waits", f"the updater waits: the admission controller has not renewed its lease{since}")
    if (resizing := [pod for pod, _ in differ if resize_state(pod)]) and len(resizing) == len(differ):
        pod, said = resizing[0], resize_state(resizing[0])
        state: Literal["acts", "waits"] = "acts" if said == _RESIZING[1] else "waits"
        return Outlook(state, f"the kubelet has not finished the resize of pod {name_of(pod)}: {said}")
    groups: dict[str, list[Object]] = {}
    for pod in pods:
        groups.setdefault(controller(pod), []).append(pod)
    why = ""
    for pod, needs in differ:
        group = groups[controller(pod)]
        why = _held(item, pod, group)
        if not why:
            how = f"resizes pod {name_of(pod)} in place" if item.mode in (IN_PLACE, "InPlace") else f"evicts pod {name_of(pod)}"
            return Outlook("acts", f"the updater {how}, within its next minutes: {needs}")
    return Outlook("waits", f"the updater waits: {why}")


def _held(item: Vertical, pod: Object, group: Sequence[Object]) -> str:
    """Why the updater leaves a pod as it is; "" if it changes it."""
    if not controller(pod):
        return f"pod {name_of(pod)} has no controller"
    required = MIN_REPLICAS if item.least is None else item.least
    if len(group) < required:
        return f"{counted(len(group), 'pod')} live, and it changes none below {required} (min_replicas)"
    if status_of(pod).get("phase") == "Pending":
        return f"pod {name_of(pod)} is Pending"
    running = sum(status_of(one).get("phase") != "Pending" for one in group)
    tolerance = int(len(group) * TOLERANCE)
    if not (running > len(group) - tolerance or (running == len(group) and tolerance == 0)):
        return f"{running} of {counted(len(group), 'pod')} run, and too few would be left"
    return ""


def resize_state(pod: Object) -> str:
    """What the kubelet says of a resize that is not finished; "" if there is none."""
    for one in (condition(pod, kind) for kind in _RESIZING if holds(pod, kind)):
        return " ".join(filter(None, (str(one["type"]), str(one.get("reason") or ""), str(one.get("message") or ""))))
    return ""


def requests_of(pod: Object, container: Mapping[str, Any]) -> dict[str, Fraction]:
    """The requests that the container runs with: of its status where that has them. Raises ValueError."""
    statuses = status_of(pod).get("containerStatuses") or ()
    found = next((one.get("resources") for one in statuses if one.get("name") == container.get("name")), None)
    return amounts.listed((found or container.get("resources") or {}).get("requests"))


def outside(item: Vertical, pod: Object, now: datetime) -> str:
    """Why the updater wants to change a pod; "" if it does not. Raises nothing: an amount that cannot be read is no reason."""
    difference = Fraction(0)
    try:
        for container in containers_of(pod):
            advice = next((one for one in item.advice or () if one.container == container.get("name")), None)
            if advice is None:
                continue
            has = requests_of(pod, container)
            for resource, target in sorted(advice.target.items()):
                if resource not in has:
                    return f"{advice.container} has no {resource} request, {shown(resource, target)} is recommended"
                text = f"{advice.container} {resource} {shown(resource, has[resource])}"
                if has[resource] < advice.lower.get(resource, has[resource]):
                    return f"{text} is below {shown(resource, advice.lower[resource])}; {shown(resource, target)} is recommended"
                if has[resource] > advice.upper.get(resource, has[resource]):
                    return f"{text} is above {shown(resource, advice.upper[resource])}; {shown(resource, target)} is recommended"
                difference += abs(has[resource] - target) / max(has[resource], Fraction(1, 1000))
        started = time_of(status_of(pod).get("startTime"))
    except ValueError:
        return ""
    if started is not None and now - started >= LIFETIME and difference >= THRESHOLD:
        return f"it runs since 12 hours, and its requests are {float(difference):.0%} away from the recommendation"
    return ""
