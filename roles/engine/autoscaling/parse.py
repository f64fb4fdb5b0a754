"""Answers of the metrics APIs, as the controller's client reads them. Pure.

kubernetes 1.36, pkg/controller/podautoscaler/metrics/client.go; k8s.io/metrics/pkg/apis. The texts are arbitrary: a metrics API belongs to
whoever registered it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roles.engine.autoscaling.model import MetricSpec, NoReading, PodSamples, Reading, Sample, Total, milli
from roles.engine.kube import full_name
from roles.engine.kube.fields import name_of
from roles.engine.kube.times import parse_duration, time_of

RESOURCE, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
#: Why a metrics API without an APIService does not serve.
NOT_REGISTERED = "it is not registered: there is no APIService for it"
_NAMES = {RESOURCE: "resource", CUSTOM: "custom", EXTERNAL: "external"}
#: The API that a metric comes from, by its type.
API_OF = {"Resource": RESOURCE, "ContainerResource": RESOURCE, "Pods": CUSTOM, "Object": CUSTOM, "External": EXTERNAL}
_CUSTOM_WINDOW = 60.0
#: Numbers of the controller have 64 bits; what is higher is no measurement.
_HIGHEST = 2**63 - 1


def no_answer(group: str, why: str) -> NoReading:
    """The metrics API did not answer; `why` in daytwo's words."""
    return NoReading(f"unable to fetch metrics from {_NAMES[group]} metrics API: {why}")


def resource_samples(metric: MetricSpec, answer: Mapping[str, Any], minor: int) -> Reading:
    """PodMetricsList of metrics.k8s.io. Raises ValueError, TypeError, KeyError or AttributeError for another shape."""
    items = answer.get("items") or []
    if not items:
        return NoReading("no metrics returned from resource metrics API")
    found: dict[str, Sample] = {}
    for item in items:
        containers: Sequence[Mapping[str, Any]] = item.get("containers") or []
        if metric.container:
            containers = [one for one in containers if one.get("name") == metric.container][:1]
            if not containers and minor < 33:
                place = full_name(item)
                text = f"container {metric.container} not present in metrics for pod {place}"
                return NoReading(f"failed to get container metrics: {text}")
        usages = [(one.get("usage") or {}).get(metric.name) for one in containers]
        if usages and None not in usages:
            value = sum(_thousandths(one) for one in usages)
            found[name_of(item)] = Sample(value, time_of(item.get("timestamp")), float(parse_duration(item.get("window") or "0")))
    return PodSamples(found)


def custom_samples(answer: Mapping[str, Any]) -> Reading:
    """MetricValueList of custom.metrics.k8s.io, v1beta1 or v1beta2, of pods. Raises as `resource_samples`."""
    items = answer.get("items") or []
    if not items:
        return NoReading("no metrics returned from custom metrics API")
    return PodSamples({str(one["describedObject"]["name"]): _sample(one) for one in items})


def _thousandths(value: object) -> int:
    """Raises ValueError."""
    found = milli(str(value))
    if abs(found) > _HIGHEST:
        raise ValueError(f"{str(value)[:40]} is more than a number of 64 bits")
    return found


def _sample(item: Mapping[str, Any]) -> Sample:
    window = item.get("windowSeconds", item.get("window"))
    return Sample(_thousandths(item["value"]), time_of(item.get("timestamp")), _CUSTOM_WINDOW if window is None else float(window))


def custom_total(answer: Mapping[str, Any]) -> Reading:
    """MetricValueList of custom.metrics.k8s.io for one object. Raises as `resource_samples`."""
    items = answer.get("items") or []
    if len(items) != 1:
        return no_answer(CUSTOM, f"the custom metrics API server returned {len(items)} results when we asked for exactly one")
    return Total((_thousandths(items[0]["value"]),), time_of(items[0].get("timestamp")))


def external_total(answer: Mapping[str, Any]) -> Reading:
    """ExternalMetricValueList of external.metrics.k8s.io. Raises as `resource_samples`."""
    items = answer.get("items") or []
    if not items:
        return NoReading("no metrics returned from external metrics API")
    return Total(tuple(_thousandths(one["value"]) for one in items), time_of(items[0].get("timestamp")))
