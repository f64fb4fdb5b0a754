"""Autoscalers, pods and samples for the tests: only what a test names differs from a workload that is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from roles.engine.autoscaling import Autoscaler, ScalingController
from roles.engine.autoscaling.decide import Decision, ScalingScene, decide
from roles.engine.autoscaling.limits import Past, ScalingHistory
from roles.engine.autoscaling.model import LiveScale, PodSamples, Reading, Sample

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
KCM = ScalingController(36)
OLDER = ScalingController(32)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def utilization(name: str = "cpu", percent: int = 50, container: str = "") -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return _resource(name, target, container)


def average(name: str = "cpu", value: str = "100m", container: str = "") -> dict[str, Any]:
    return _resource(name, {"type": "AverageValue", "averageValue": value}, container)


def _resource(name: str, target: dict[str, Any], container: str) -> dict[str, Any]:
    if container:
        return {"type": "ContainerResource", "containerResource": {"name": name, "container": container, "target": target}}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def pods_metric(value: str = "10", name: str = "hits") -> dict[str, Any]:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": value}}}


def object_metric(target: dict[str, Any], name: str = "hits") -> dict[str, Any]:
    described = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}
    return {"type": "Object", "object": {"describedObject": described, "metric": {"name": name}, "target": target}}


def external(target: dict[str, Any], name: str = "queue") -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


IN_ALL = {"type": "Value", "value": "100"}
EACH = {"type": "AverageValue", "averageValue": "10"}


def hpa(*metrics: Mapping[str, Any], minimum: int | None = 1, maximum: int = 10, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": maximum,
        "metrics": list(metrics or [utilization()]),
    }
    if minimum is not None:
        spec["minReplicas"] = minimum
    status = more.pop("status", {})
    spec |= more
    return {"metadata": {"namespace": "shop", "name": "web", "creationTimestamp": text(ago(86400))}, "spec": spec, "status": status}


def container(name: str = "app", cpu: str | None = "100m", memory: str | None = "100Mi", **more: Any) -> dict[str, Any]:
    found = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    return {"name": name, "resources": {"requests": found}, **more}


def pod(name: str, *containers: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A pod that has been Ready for an hour. `phase`, `ready`, `started`, `changed` (seconds ago), `ending`; `init`, `resources`; `labels`,
    `owner` (kind and name of its controller; None: it has none)."""
    spec: dict[str, Any] = {"containers": list(containers or [container()])}
    for key, field in (("init", "initContainers"), ("resources", "resources"), ("overhead", "overhead")):
        if key in more:
            spec[field] = more[key]
    started, ready = more.get("started", 3600), more.get("ready", "True")
    status: dict[str, Any] = {"phase": more.get("phase", "Running")}
    if started is not None:
        status["startTime"] = text(ago(started))
    if ready is not None:
        status["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": text(ago(more.get("changed", 3600)))}]
    metadata: dict[str, Any] = {"namespace": more.get("namespace", "shop"), "name": name, "uid": name}
    if "labels" in more:
        metadata["labels"] = more["labels"]
    if owner := more.get("owner", ("ReplicaSet", "web-5d4f")):
        metadata["ownerReferences"] = [owned_by(*owner)]
    if more.get("ending"):
        metadata["deletionTimestamp"] = text(NOW)
    return {"metadata": metadata, "spec": spec, "status": status}


def owned_by(kind: str, name: str, version: str = "apps/v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"u-{name}", "controller": True}


def pods(count: int, *containers: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [pod(f"web-{number}", *containers, **more) for number in range(count)]


def samples(*values: int | None, age: float = 15, window: float = 30) -> PodSamples:
    """In thousandths, of web-0, web-1 and so on; None: no sample."""
    return PodSamples({f"web-{number}": Sample(value, ago(age), window) for number, value in enumerate(values) if value is not None})


def fresh(now: datetime, current: int) -> ScalingHistory:
    """Of an autoscaler that the controller sees for the first time (recordInitialRecommendation)."""
    before = now - timedelta(days=365)
    return ScalingHistory((Past(now, current),), recommendations_since=before, changes_since=before)


def decided(
    autoscaler: Mapping[str, Any],
    current: int,
    readings: Sequence[Reading] | Reading,
    of: Sequence[Mapping[str, Any]] | None = None,
    *,
    controller: ScalingController = KCM,
    history: ScalingHistory | None = None,
    existing: int | None = None,
    **more: Any,
) -> Decision:
    """The decision about a target with `current` pods. Without a history the controller sees the autoscaler for the first time, an hour
    ago."""
    found = pods(current) if of is None else of
    listed = [readings] if not isinstance(readings, Sequence) else readings
    past = fresh(ago(3600), current) if history is None else history
    scale = LiveScale(current, len(found) if existing is None else existing, "app=web")
    return decide(ScalingScene(Autoscaler.of(autoscaler), scale, "", found, listed, history=past, **more), controller, NOW)
