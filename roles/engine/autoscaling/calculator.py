"""How many pods one metric asks for: the replica calculator of kube-controller-manager. Pure.

kubernetes 1.36, pkg/controller/podautoscaler/replica_calculator.go and metrics/utilization.go, with the differences of 1.32 to 1.35. The
messages are the controller's. Overflows of 64 bits are not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from roles.engine.autoscaling.model import (
    MAX_REPLICAS,
    Autoscaler,
    LiveScale,
    MetricSpec,
    NoReading,
    PodSamples,
    Reading,
    Sample,
    ScalingController,
    Total,
    amount,
    milli,
)
from roles.engine.bounds import span
from roles.engine.kube import Object, condition, is_ending, is_ready
from roles.engine.kube.amounts import whole
from roles.engine.kube.fields import name_of, spec_of, status_of
from roles.engine.kube.pods import lasting_containers
from roles.engine.kube.resources import View
from roles.engine.kube.resources import requests as pod_requests
from roles.engine.kube.times import time_of

CPU = "cpu"
TYPES = ("Resource", "ContainerResource", "Pods", "Object", "External")
_NO_PODS = "no pods returned by selector while calculating replica count"
_NO_SAMPLES = "did not receive metrics for targeted pods (pods might be unready)"


class NoCount(Exception):
    """The metric gives no count of pods; says why, in the controller's words."""


@dataclass(frozen=True)
class Groups:
    """The pods of a target, as one metric sees them: the number that counts, and the names of the others. `unready`: their samples do not
    count; `missing`: without a sample; `ignored`: ending or Failed."""

    ready: int
    unready: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricResult:
    """What one metric asks for. `proposal`: pods, None if it gives none; then `reason` (FailedGetResourceMetric...) and `message` are those
    of the condition ScalingActive, and `why` ends that message. `utilization` in percent, `current` in thousandths: as in
    status.currentMetrics (of Value targets the total, of others the average). `ratio`: usage by target, before pods without a sample are
    counted. `at`: of the oldest sample."""

    metric: MetricSpec
    proposal: int | None = None
    utilization: int | None = None
    current: int | None = None
    ratio: float | None = None
    groups: Groups = Groups(0)
    at: datetime | None = None
    reason: str = ""
    why: str = ""

    @property
    def message(self) -> str:
        return f"the HPA was unable to compute the replica count: {self.why}" if self.why else ""

    @property
    def valid(self) -> bool:
        return self.proposal is not None

    @property
    def name(self) -> str:
        """The name in the controller's events and conditions."""
        one = self.metric
        match one.type:
            case "Resource":
                return f"{one.name} resource" + ("" if one.average is not None else " utilization (percentage of request)")
            case "ContainerResource":
                return (
                    f"{one.name} resource"
                    if one.average is not None
                    else f"{one.name} container resource utilization (percentage of request)"
                )
            case "Pods":
                return f"pods metric {one.name}"
            case "Object" if one.target_type == "Value" and one.described is not None:
                return f"{one.described.kind} metric {one.name}"
            case _:
                return f"external metric {one.name}({one.selected})"

    @property
    def now(self) -> str:
        """The current value as an operator reads it, with the target: `35%/60%`."""
        if not self.valid:
            return f"<unknown>/{self.metric.target}"
        if self.utilization is not None:
            return f"{self.utilization}%/{self.metric.target}"
        return f"{amount(self.metric.name if self.metric.is_resource else '', self.current or 0)}/{self.metric.target}"


def calculate(
    metric: MetricSpec,
    reading: Reading,
    autoscaler: Autoscaler,
    scale: LiveScale,
    pods: Sequence[Object],
    controller: ScalingController,
    now: datetime,
) -> MetricResult:
    """What one metric asks for. `pods`: all that the target's selector matches, also ending and finished ones."""
    run = _Calculation(metric, autoscaler, scale, pods, controller, now)
    try:
        return run.result(reading)
    except NoCount as error:
        reason = f"FailedGet{metric.type}Metric" if metric.type in TYPES else "InvalidMetricSourceType"
        return MetricResult(metric, groups=run.groups, reason=reason, why=str(error))


@dataclass
class _Calculation:
    metric: MetricSpec
    autoscaler: Autoscaler
    scale: LiveScale
    pods: Sequence[Object]
    controller: ScalingController
    now: datetime
    groups: Groups = Groups(0)

    def within(self, ratio: float) -> bool:
        return self.controller.within(ratio, self.autoscaler)

    def result(self, reading: Reading) -> MetricResult:
        """Raises NoCount."""
        one = self.metric
        if one.type not in TYPES:
            raise NoCount(f'unknown metric source type "{one.type}"')
        if one.is_resource:
            return self._resource(reading)
        if one.type == "Pods":
            if isinstance(reading, NoReading):
                raise NoCount(f"unable to get metric {one.name}: {reading.why}")
            return self._plain(_samples(reading), one.average or 0, "")
        return self._total(reading)

    # ---- samples of pods

    def _resource(self, reading: Reading) -> MetricResult:
        one = self.metric
        if one.average is None and one.utilization is None:
            raise NoCount(
                "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
            )
        what = "usage" if one.average is not None else "utilization"
        try:
            if isinstance(reading, NoReading):
                raise NoCount(f"unable to get metrics for resource {one.name}: {reading.why}")
            samples = _samples(reading)
            if one.average is not None:
                return self._plain(samples, one.average, one.name)
            return self._utilization(samples, one.utilization or 0)
        except NoCount as error:
            raise NoCount(f"failed to get {one.name} {what}: {error}") from None

    def _counted(self, samples: Mapping[str, Sample], resource: str) -> dict[str, int]:
        """The samples that count. Raises NoCount."""
        if not self.pods:
            raise NoCount(_NO_PODS)
        self.groups = group(self.pods, samples, resource, self.controller, self.now)
        left_out = {*self.groups.ignored, *self.groups.unready}
        values = {name: sample.value for name, sample in samples.items() if name not in left_out}
        if not values:
            raise NoCount(_NO_SAMPLES)
        return values

    def _utilization(self, samples: Mapping[str, Sample], target: int) -> MetricResult:
        values = self._counted(samples, self.metric.name)
        requested = requests(self.pods, self.metric.container, self.metric.name, self.controller)

        def usage(of: Mapping[str, int]) -> tuple[float, int, int]:
            return _utilization_ratio(of, requested, target)

        ratio, percent, average = usage(values)
        found = MetricResult(self.metric, utilization=percent, current=average, ratio=ratio, groups=self.groups, at=_oldest(samples))
        # A pod without a sample counts as using all of its request, or its target if that is higher.
        missing = {name: _divided(requested[name] * max(100, target), 100) for name in self.groups.missing}
        return replace(found, proposal=self._proposal(values, ratio, missing, lambda of: usage(of)[0]))

    def _plain(self, samples: Mapping[str, Sample], target: int, resource: str) -> MetricResult:
        values = self._counted(samples, resource)
        ratio, average = _usage_ratio(values, target)
        found = MetricResult(self.metric, current=average, ratio=ratio, groups=self.groups, at=_oldest(samples))
        missing = dict.fromkeys(self.groups.missing, target)
        return replace(found, proposal=self._proposal(values, ratio, missing, lambda of: _usage_ratio(of, target)[0]))

    def _proposal(
        self, values: Mapping[str, int], ratio: float, missing: Mapping[str, int], again: Callable[[Mapping[str, int]], float]
    ) -> int:
        """The count of pods, from the samples that count; `missing`: what pods without a sample count for when scaling down."""
        current = self.scale.spec
        up_with_unready = bool(self.groups.unready) and ratio > 1.0
        if not up_with_unready and not missing:
            return current if self.within(ratio) else _ceil(ratio * self.groups.ready)
        filled = dict(values)
        if ratio < 1.0:
            filled |= missing
        elif ratio > 1.0:
            filled |= dict.fromkeys(missing, 0)
        if up_with_unready:
            filled |= dict.fromkeys(self.groups.unready, 0)
        then = again(filled)
        if self.within(then) or (ratio < 1.0 < then) or (then < 1.0 < ratio):
            return current
        wanted = _ceil(then * len(filled))
        turns = (then < 1.0 and wanted > current) or (then > 1.0 and wanted < current)
        return current if turns else wanted

    # ---- totals

    def _total(self, reading: Reading) -> MetricResult:
        one = self.metric
        self._check_targets()
        if isinstance(reading, NoReading):
            raise NoCount(self._no_total(reading.why))
        values = reading.values if isinstance(reading, Total) else ()
        usage = sum(values)
        if self._per_pod:
            return self._shared(usage, one.average or 0, reading.oldest)
        ratio = _ratio(usage, one.value or 0)
        found = MetricResult(one, current=usage, ratio=ratio, at=reading.oldest)
        if not self.scale.spec:
            return replace(found, proposal=_ceil(ratio))
        if self.within(ratio):
            return replace(found, proposal=self.scale.spec)
        if not self.pods:
            raise NoCount(f"unable to calculate ready pods: {_NO_PODS}")
        ready = sum(is_running_and_ready(pod) for pod in self.pods)
        return replace(found, proposal=_ceil(ratio * ready), groups=Groups(ready))

    @property
    def _per_pod(self) -> bool:
        if self.metric.type == "External":
            return self.metric.average is not None
        return self.metric.target_type == "AverageValue"

    def _check_targets(self) -> None:
        one = self.metric
        if one.type == "Object":
            wanted = {"Value": one.value, "AverageValue": one.average}.get(one.target_type)
            if wanted is None:
                raise NoCount("invalid object metric source: neither a value target nor an average value target was set")
        elif one.value is None and one.average is None:
            raise NoCount("invalid external metric source: neither a value target nor an average value target was set")

    def _no_total(self, why: str) -> str:
        one, namespace = self.metric, self.autoscaler.namespace
        if one.type == "External" or one.described is None:
            return f"unable to get external metric {namespace}/{one.name}/{one.selected}: {why}"
        kind, name = one.described.kind, one.described.name
        if self.controller.minor < 37:
            # The controller mixes up the order.
            return f"unable to get metric {one.name}: {kind} on {namespace} {name}/{why}"
        return f"unable to get metric {one.name} on {kind} {namespace}/{name}: {why}"

    def _shared(self, usage: int, target: int, at: datetime | None) -> MetricResult:
        """A total that the existing pods share: it divides by them, not by those that are Ready."""
        existing = self.scale.status
        ratio = _ratio(usage, float(target) * float(existing))
        count = existing
        if not self.within(ratio):
            count = _ceil(_ratio(usage, target))
        average = _ceil(usage / existing, limit=None) if existing else None
        return MetricResult(self.metric, count, current=average, ratio=ratio, at=at)


def _samples(reading: Reading) -> Mapping[str, Sample]:
    return reading.samples if isinstance(reading, PodSamples) else {}


def _oldest(samples: Mapping[str, Sample]) -> datetime | None:
    return PodSamples(samples).oldest


def _ceil(value: float, limit: int | None = MAX_REPLICAS) -> int:
    if math.isnan(value) or value == -math.inf:
        return 0
    if limit is not None and value > limit:
        return limit
    return math.ceil(value)


def _ratio(usage: float, target: float) -> float:
    """A division of floats as in Go: by 0 it is infinite, or not a number."""
    if target:
        return float(usage) / float(target)
    return math.nan if not usage else math.copysign(math.inf, usage)


def _int32(value: int) -> int:
    """The lowest 32 bits, as Go converts."""
    return (value + 2**31) % 2**32 - 2**31


def _divided(one: int, other: int) -> int:
    """A division of integers as in Go: towards 0."""
    return one // other if (one >= 0) == (other >= 0) else -(-one // other)


def _utilization_ratio(values: Mapping[str, int], requested: Mapping[str, int], target: int) -> tuple[float, int, int]:
    """The ratio, the utilization in percent, and the average. Raises NoCount."""
    known = {name: value for name, value in values.items() if name in requested}
    total, asked = sum(known.values()), sum(requested[name] for name in known)
    if not asked:
        raise NoCount("no metrics returned matched known pods")
    percent = _int32(_divided(total * 100, asked))
    return float(percent) / float(target), percent, _divided(total, len(known))


def _usage_ratio(values: Mapping[str, int], target: int) -> tuple[float, int]:
    average = _divided(sum(values.values()), len(values))
    return _ratio(average, target), average


# ---- pods


def group(pods: Sequence[Object], samples: Mapping[str, Sample], resource: str, controller: ScalingController, now: datetime) -> Groups:
    """Which pods count (groupPods)."""
    ready, unready, missing, ignored = 0, list[str](), list[str](), list[str]()
    for pod in pods:
        name, phase = name_of(pod), status_of(pod).get("phase")
        if is_ending(pod) or phase == "Failed":
            ignored.append(name)
        elif phase == "Pending":
            unready.append(name)
        elif name not in samples:
            missing.append(name)
        elif resource == CPU and _not_ready_for_cpu(pod, samples[name], controller, now):
            unready.append(name)
        else:
            ready += 1
    return Groups(ready, tuple(unready), tuple(missing), tuple(ignored))


def _not_ready_for_cpu(pod: Object, sample: Sample, controller: ScalingController, now: datetime) -> bool:
    ready = condition(pod, "Ready")
    started = time_of(status_of(pod).get("startTime"))
    if not ready or started is None:
        return True
    changed = time_of(ready.get("lastTransitionTime"))
    not_ready = ready.get("status") == "False"
    if started + span(controller.cpu_initialization) > now:
        # The pod may still be starting: a sample counts only if all of its window is after the pod became Ready.
        early = changed is not None and sample.at is not None and sample.at < changed + span(sample.window)
        return not_ready or early
    return not_ready and (changed is None or started + span(controller.readiness_delay) > changed)


def is_running_and_ready(pod: Object) -> bool:
    """As the controller counts pods for a total: also one that is ending."""
    return status_of(pod).get("phase") == "Running" and is_ready(pod)


def requests(pods: Sequence[Object], container: str, resource: str, controller: ScalingController) -> dict[str, int]:
    """The request of each pod, in thousandths (calculateRequests): also of pods that are ending or finished. Raises NoCount if one has
    none."""
    return {name_of(pod): _request(pod, container, resource, controller) for pod in pods}


def has_pod_level_requests(pod: Object) -> bool:
    """The pod sets requests of cpu, memory or huge pages for all of its containers together (KEP-2837, IsPodLevelRequestsSet)."""
    found: Collection[str] = ((spec_of(pod).get("resources") or {}).get("requests") or {}).keys()
    return any(one in (CPU, "memory") or one.startswith("hugepages-") for one in found)


def _request(pod: Object, container: str, resource: str, controller: ScalingController) -> int:
    name = name_of(pod)
    if not container and controller.pod_level_requests and has_pod_level_requests(pod):
        found = pod_requests(pod, View.SPEC)
        if resource not in found:
            raise NoCount(f"missing pod-level request for {resource} in Pod {name}")
        return whole(found[resource] * 1000)
    total = 0
    for one in lasting_containers(pod):
        if container and one.get("name") != container:
            continue
        wanted = ((one.get("resources") or {}).get("requests") or {}).get(resource)
        if wanted is None:
            raise NoCount(f"missing request for {resource} in container {one.get('name')} of Pod {name}")
        total += milli(str(wanted))
        if container:
            return total
    # Before 1.35 a container that the pod does not have counts as no request.
    if container and controller.minor >= 35:
        raise NoCount(f"container {container} not found in Pod {name}")
    return total
