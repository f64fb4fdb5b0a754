"""HorizontalPodAutoscalers (autoscaling/v2) as typed values, and what the controller reads for them. Pure.

kubernetes 1.36, staging/src/k8s.io/api/autoscaling/v2/types.go; the defaults: pkg/apis/autoscaling/v2/defaults.go. Quantities are counted
in thousandths, as the controller counts them (Quantity.MilliValue); utilization in percent of the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from roles.engine.kube import Object, namespace_and_name
from roles.engine.kube.amounts import parse_quantity, whole
from roles.engine.kube.fields import created_of, spec_of, status_of
from roles.engine.kube.times import time_of

HPA = "HorizontalPodAutoscaler"
#: What an object of another shape than the API's raises where it is read or judged.
ODD = (ValueError, ArithmeticError, TypeError, LookupError, AttributeError)
#: Types whose metric may scale a workload from and to zero.
ZERO_TYPES = frozenset(("Object", "External"))
MAX_REPLICAS = 2**31 - 1
_DECIMAL = re.compile(r"([+-]?[0-9]{0,100})\.?([0-9]{0,100})(n|u|m|)\Z")
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0}


@lru_cache(maxsize=4096)
def milli(quantity: str) -> int:
    """A quantity in thousandths, as Quantity.MilliValue returns it: rounded away from 0. Raises ValueError."""
    return whole(parse_quantity(quantity) * 1000)


def approximate(quantity: str) -> float:
    """A quantity as Quantity.AsApproximateFloat64 returns it. Raises ValueError."""
    found = _DECIMAL.match(quantity)
    if found is None:
        return float(parse_quantity(quantity))
    digits, more, suffix = found.groups()
    return float(int(f"{digits}{more}" or "0")) * 10.0 ** (_POWERS[suffix] - len(more))


@dataclass(frozen=True)
class Ref:
    """An object that an autoscaler names (CrossVersionObjectReference)."""

    api_version: str
    kind: str
    name: str

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Ref:
        return cls(str(raw.get("apiVersion") or ""), str(raw.get("kind") or ""), str(raw.get("name") or ""))

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class MetricSpec:
    """One metric of an autoscaler. `name`: of the resource or of the metric; `container`: only for ContainerResource; `described`: only
    for Object; `selector`: of the metric, as a LabelSelector. Of the three targets, `utilization` is in percent, the others in
    thousandths; `target_type` says which one Object metrics use."""

    type: str
    name: str
    target_type: str = ""
    utilization: int | None = None
    average: int | None = None
    value: int | None = None
    container: str = ""
    described: Ref | None = None
    selector: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> MetricSpec:
        """A MetricSpec of autoscaling/v2. Raises ValueError for a quantity that cannot be read."""
        kind = str(raw.get("type") or "")
        source: Mapping[str, Any] = raw.get(kind[:1].lower() + kind[1:]) or {}
        metric, target = source.get("metric") or {}, source.get("target") or {}
        described = source.get("describedObject")
        return cls(
            kind,
            str(metric.get("name") or source.get("name") or ""),
            str(target.get("type") or ""),
            _integer(target.get("averageUtilization")),
            _quantity(target.get("averageValue")),
            _quantity(target.get("value")),
            str(source.get("container") or ""),
            Ref.of(described) if described else None,
            metric.get("selector"),
        )

    @property
    def is_resource(self) -> bool:
        return self.type in ("Resource", "ContainerResource")

    @property
    def title(self) -> str:
        """What it measures: `cpu`, `cpu of app`, `pods metric requests`, `Ingress/web metric hits`, `external metric queue`."""
        match self.type:
            case "Resource":
                return self.name
            case "ContainerResource":
                return f"{self.name} of {self.container}"
            case "Object":
                return f"{self.described} metric {self.name}"
            case _:
                return f"{self.type.lower()} metric {self.name}"

    @property
    def selected(self) -> str:
        """The selector of the metric as the controller's messages have it."""
        if self.selector is None:
            return "nil"
        labels = "".join(f"{key}: {value}," for key, value in sorted((self.selector.get("matchLabels") or {}).items()))
        others = "".join(
            f"LabelSelectorRequirement{{Key:{one.get('key')},Operator:{one.get('operator')},"
            f"Values:[{' '.join(map(str, one.get('values') or ()))}],}},"
            for one in self.selector.get("matchExpressions") or ()
        )
        return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{others}}},}}"

    @property
    def target(self) -> str:
        """The target: `60%`, `500m a pod`, `100 in all`."""
        if self.utilization is not None and self.average is None:
            return f"{self.utilization}%"
        if self.average is not None and not (self.type == "Object" and self.target_type == "Value"):
            return f"{amount(self.name if self.is_resource else '', self.average)} a pod"
        return f"{amount('', self.value)} in all" if self.value is not None else "no target"

    def __str__(self) -> str:
        return f"{self.title} {self.target}"


def amount(resource: str, thousandths: int) -> str:
    """An amount for an operator: 250m of cpu, 100Mi of memory, 12.5 of anything else."""
    if resource == "cpu":
        return f"{thousandths}m"
    if resource == "memory" and abs(thousandths) >= 1000 * 2**20:
        return f"{thousandths / 1000 / 2**20:.0f}Mi"
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".")


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _quantity(value: Any) -> int | None:
    return None if value is None else milli(str(value))


# ---- behavior


@dataclass(frozen=True)
class Policy:
    """`type`: Pods or Percent; `period` in seconds."""

    type: str
    value: int
    period: int


@dataclass(frozen=True)
class ScalingRules:
    """The rules of one direction. `window` in seconds, None: the flag's; `select`: Max, Min or Disabled; `tolerance` None: the flag's."""

    window: int | None
    select: str
    policies: tuple[Policy, ...]
    tolerance: float | None = None

    @property
    def longest(self) -> int:
        """The longest period of a policy, in seconds."""
        return max((one.period for one in self.policies), default=0)


UP_DEFAULTS = ScalingRules(0, "Max", (Policy("Pods", 4, 15), Policy("Percent", 100, 15)))
DOWN_DEFAULTS = ScalingRules(None, "Max", (Policy("Percent", 100, 15),))


@dataclass(frozen=True)
class Behavior:
    """spec.behavior, with the defaults of the API server for what it does not set."""

    up: ScalingRules = UP_DEFAULTS
    down: ScalingRules = DOWN_DEFAULTS

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> Behavior | None:
        """None if the autoscaler sets none: then the controller uses other rules."""
        if raw is None:
            return None
        return cls(_rules(raw.get("scaleUp"), UP_DEFAULTS), _rules(raw.get("scaleDown"), DOWN_DEFAULTS))


def _rules(raw: Mapping[str, Any] | None, default: ScalingRules) -> ScalingRules:
    if raw is None:
        return default
    window, tolerance, policies = raw.get("stabilizationWindowSeconds"), raw.get("tolerance"), raw.get("policies")
    return ScalingRules(
        default.window if window is None else int(window),
        str(raw.get("selectPolicy") or default.select),
        default.policies
        if policies is None
        else tuple(Policy(str(one.get("type")), int(one.get("value") or 0), int(one.get("periodSeconds") or 0)) for one in policies),
        None if tolerance is None else approximate(str(tolerance)),
    )


# ---- the autoscaler, its target, the controller


@dataclass(frozen=True)
class Condition:
    """One condition of an autoscaler, as the API has it or as the controller would set it."""

    type: str
    status: bool
    reason: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.type}={self.status} {self.reason}".rstrip()

    @classmethod
    def all_of(cls, status: Mapping[str, Any]) -> tuple[Condition, ...]:
        return tuple(
            cls(str(one.get("type")), one.get("status") == "True", str(one.get("reason") or ""), str(one.get("message") or ""))
            for one in status.get("conditions") or ()
        )


class HasConditions:
    """What has `conditions`, each type once."""

    conditions: tuple[Condition, ...]

    def condition(self, kind: str) -> Condition | None:
        return next((one for one in self.conditions if one.type == kind), None)


@dataclass(frozen=True)
class AutoscalerState(HasConditions):
    """The status of an autoscaler as the API has it."""

    current: int | None = None
    desired: int | None = None
    last_scale: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    metrics: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Autoscaler:
    """One HorizontalPodAutoscaler. `minimum`: 1 if it is not set."""

    namespace: str
    name: str
    target: Ref
    minimum: int
    maximum: int
    metrics: tuple[MetricSpec, ...]
    behavior: Behavior | None
    status: AutoscalerState
    created: datetime | None = None
    raw: Object = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, raw: Object) -> Autoscaler:
        """Raises ValueError for a quantity or a time that cannot be read."""
        spec, status = spec_of(raw), status_of(raw)
        namespace, name = namespace_and_name(raw)
        minimum = spec.get("minReplicas")
        return cls(
            namespace,
            name,
            Ref.of(spec.get("scaleTargetRef") or {}),
            1 if minimum is None else int(minimum),
            int(spec.get("maxReplicas") or 0),
            tuple(MetricSpec.of(one) for one in spec.get("metrics") or ()),
            Behavior.of(spec.get("behavior")),
            AutoscalerState(
                _integer(status.get("currentReplicas")),
                _integer(status.get("desiredReplicas")),
                time_of(status.get("lastScaleTime")),
                Condition.all_of(status),
                tuple(status.get("currentMetrics") or ()),
            ),
            time_of(created_of(raw)),
            raw,
        )

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def may_be_zero(self) -> bool:
        """It has a metric that may scale from and to zero."""
        return any(one.type in ZERO_TYPES for one in self.metrics)

    def __str__(self) -> str:
        return f"{HPA} {self.key}"


@dataclass(frozen=True)
class LiveScale:
    """The scale subresource of a target. `spec`: wanted pods; `status`: existing pods; `selector`: in the form of a query."""

    spec: int
    status: int
    selector: str

    @classmethod
    def of(cls, raw: Object) -> LiveScale:
        spec, status = spec_of(raw), status_of(raw)
        return cls(int(spec.get("replicas") or 0), int(status.get("replicas") or 0), str(status.get("selector") or ""))


@dataclass(frozen=True)
class Idle:
    """Why no controller handles any autoscaler."""

    why: str
    way_out: str


@dataclass(frozen=True)
class ScalingController:
    """The running kube-controller-manager, as far as it decides about autoscalers. `minor`: of its version; times in seconds; `gates`: the
    effective ones; `leads_since`: when the leader got its lease, None if that is not known; `assumed`: what could not be read, so that
    defaults stand for it. `stopped`: no process leads; `left_out`: the one that leads does not run the controller."""

    minor: int
    tolerance: float = 0.1
    downscale_stabilization: float = 300.0
    cpu_initialization: float = 300.0
    readiness_delay: float = 30.0
    sync_period: float = 15.0
    gates: Mapping[str, bool] = field(default_factory=dict)
    leads_since: datetime | None = None
    assumed: tuple[str, ...] = ()
    stopped: Idle | None = None
    left_out: Idle | None = None

    @property
    def idle(self) -> Idle | None:
        return self.stopped or self.left_out

    def _gate(self, name: str, since: int) -> bool:
        """`since`: the minor from which it is on by default."""
        return self.gates.get(name, self.minor >= since)

    @property
    def tolerance_per_autoscaler(self) -> bool:
        """KEP-4951: alpha 1.33, beta and on in 1.35, always on from 1.37."""
        return self.minor >= 33 and self._gate("HPAConfigurableTolerance", 35)

    @property
    def scale_to_zero(self) -> bool:
        """KEP-2021: alpha 1.16, beta and on in 1.37."""
        return self._gate("HPAScaleToZero", 37)

    @property
    def marks_scale_to_zero(self) -> bool:
        """From 1.36 on, the condition ScaledToZero says who scaled to zero; before, minReplicas 0 is enough to scale up again."""
        return self.minor >= 36

    @property
    def pod_level_requests(self) -> bool:
        """KEP-2837. The autoscaler reads them from 1.34 on."""
        return self.minor >= 34 and self._gate("PodLevelResources", 34)

    def within(self, ratio: float, autoscaler: Autoscaler) -> bool:
        """The ratio of usage to target is so near to 1 that nothing changes. 1.32 computes it in another way: 1.1 is within 0.1 only from
        1.33 on."""
        if self.minor < 33:
            return abs(1.0 - ratio) <= self.tolerance
        up, down = self.tolerances(autoscaler)
        return (1.0 - down) <= ratio <= (1.0 + up)

    def tolerances(self, autoscaler: Autoscaler) -> tuple[float, float]:
        """Up and down."""
        own = autoscaler.behavior if self.tolerance_per_autoscaler else None
        up, down = (own.up.tolerance, own.down.tolerance) if own else (None, None)
        return self.tolerance if up is None else up, self.tolerance if down is None else down


# ---- what the metrics APIs say


@dataclass(frozen=True)
class Sample:
    """One sample of a pod: `value` in thousandths, `window` in seconds."""

    value: int
    at: datetime | None = None
    window: float = 60.0


@dataclass(frozen=True)
class PodSamples:
    """A sample for each pod, by its name: Resource, ContainerResource and Pods metrics."""

    samples: Mapping[str, Sample]

    @property
    def oldest(self) -> datetime | None:
        return min((one.at for one in self.samples.values() if one.at is not None), default=None)


@dataclass(frozen=True)
class Total:
    """The values of an Object metric (one), or of an External metric (one for each series), in thousandths."""

    values: tuple[int, ...]
    at: datetime | None = None

    @property
    def oldest(self) -> datetime | None:
        return self.at


@dataclass(frozen=True)
class NoReading:
    """The metrics API has no value; `why` in the controller's words, as far as they do not depend on its client."""

    why: str


Reading = PodSamples | Total | NoReading
