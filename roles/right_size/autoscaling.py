"""What else decides about a workload's requests: VerticalPodAutoscalers, shown beside, and HorizontalPodAutoscalers, whose utilization is a
share of the request. Pure, from the API's raw JSON.

Sources: autoscaling.k8s.io/v1 (status.recommendation.containerRecommendations), autoscaling/v2 (Resource and ContainerResource metrics),
pkg/controller/podautoscaler/replica_calculator.go: the utilization is use over request, so a target has to change with the request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from roles.engine.autoscaling import HPAS_PATH, VPAS_PATH
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of, namespace_of, spec_of, status_of
from roles.right_size.workloads import Amounts, SizedWorkload, amounts

VPA_PATH, HPA_PATH = VPAS_PATH, HPAS_PATH
#: What a VerticalPodAutoscaler without a mode does (its CRD's default; Auto is the old name of it).
_MODE = "Recreate"


@dataclass(frozen=True)
class Recommended:
    """A VerticalPodAutoscaler's recommendation for one container. `mode`: whether it applies it (Off: no)."""

    name: str
    mode: str
    target: Amounts
    low: Amounts
    high: Amounts


@dataclass(frozen=True)
class UtilizationTarget:
    """A utilization that a HorizontalPodAutoscaler keeps: percent of the request of `resource`, of all containers or of `container`."""

    name: str
    resource: Literal["cpu", "memory"]
    percent: int
    container: str = ""


def recommendations(items: Iterable[Object]) -> dict[tuple[SizedWorkload, str], Recommended]:
    """By workload and container. What cannot be read of one is left out."""
    found = {}
    for item in items:
        try:
            workload = _target(item, "targetRef")
            mode = str(((spec_of(item).get("updatePolicy")) or {}).get("updateMode") or _MODE)
            listed = (status_of(item).get("recommendation") or {}).get("containerRecommendations") or ()
            for one in listed:
                bounds = (amounts(one.get(key)) for key in ("target", "lowerBound", "upperBound"))
                found[workload, str(one["containerName"])] = Recommended(name_of(item), mode, *bounds)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


def utilization_targets(items: Iterable[Object]) -> dict[SizedWorkload, list[UtilizationTarget]]:
    """By workload. What cannot be read of one is left out."""
    found: dict[SizedWorkload, list[UtilizationTarget]] = {}
    for item in items:
        try:
            workload, name = _target(item, "scaleTargetRef"), name_of(item)
            for metric in spec_of(item).get("metrics") or ():
                source = metric.get("resource") or metric.get("containerResource") or {}
                percent = (source.get("target") or {}).get("averageUtilization")
                resource = source.get("name")
                if percent is not None and resource in ("cpu", "memory"):
                    of = str(source.get("container") or "") if metric.get("type") == "ContainerResource" else ""
                    found.setdefault(workload, []).append(UtilizationTarget(name, resource, int(percent), of))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


def _target(item: Object, key: str) -> SizedWorkload:
    target = spec_of(item)[key]
    return SizedWorkload(str(target["kind"]), namespace_of(item) or "default", str(target["name"]))


def corrected(target: UtilizationTarget, before: int, after: int) -> int:
    """The percentage at which the autoscaler wants the same number of pods: `before` and `after` are the requests that it counts."""
    return max(1, round(target.percent * before / after))
