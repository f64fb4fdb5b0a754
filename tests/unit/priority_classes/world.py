"""Objects as the API server returns them, for plans."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from roles.priority_classes import DesiredClasses, ObservedClasses, read_classes
from roles.priority_classes.model import PriorityClass


def wanted(**data: Any) -> DesiredClasses:
    found = read_classes([("cp1", data.get)])
    assert found is not None
    return found


def priority_class(name: str, value: int, manager: str = "daytwo", operation: str = "Apply", **fields: Any) -> dict[str, Any]:
    """A class on which `manager` has set exactly these fields (including `labels`)."""
    labels = fields.pop("labels", None)
    owned: dict[str, Any] = {f"f:{key}": {} for key in ("value", *fields)}
    metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}
    if labels:
        metadata["labels"] = dict(labels)
        owned["f:metadata"] = {"f:labels": {f"f:{key}": {} for key in labels}}
    metadata["managedFields"] = [entry(manager, owned, operation)]
    return {"metadata": metadata, "value": value, "preemptionPolicy": "PreemptLowerPriority", **fields}


def entry(manager: str, fields: Mapping[str, Any], operation: str = "Apply") -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "scheduling.k8s.io/v1", "fieldsV1": dict(fields)}


def applied(item: PriorityClass) -> dict[str, Any]:
    """A class right after daytwo created it, as kube-apiserver 1.36 returns it."""
    manifest = item.manifest()
    metadata = {**manifest["metadata"], "uid": f"uid-{item.name}", "resourceVersion": "1"}
    owned = {f"f:{key}": {} for key in manifest if key not in ("apiVersion", "kind", "metadata")}
    inside = {f"f:{key}": {f"f:{name}": {} for name in metadata[key]} for key in ("labels", "annotations") if key in metadata}
    metadata["managedFields"] = [entry("daytwo", {**owned, **({"f:metadata": inside} if inside else {})})]
    found = {
        key: value for key, value in manifest.items() if key not in ("apiVersion", "kind") and not (key == "globalDefault" and not value)
    }
    return {"preemptionPolicy": "PreemptLowerPriority", **found, "metadata": metadata}


def workload(kind: str, name: str, priority: str = "", replicas: int = 2, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """A healthy workload that is rolled out."""
    pod = {"containers": [{"name": "c"}], **({"priorityClassName": priority} if priority else {})}
    status: dict[str, Any] = {"observedGeneration": 3}
    if kind == "DaemonSet":
        status |= {"desiredNumberScheduled": replicas, "updatedNumberScheduled": replicas, "numberAvailable": replicas}
    else:
        spec.setdefault("replicas", replicas)
        status |= dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas)
        status |= {"updateRevision": "r1", "currentRevision": "r1"} if kind == "StatefulSet" else {}
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{kind}-{name}", "generation": 3},
        "spec": {"template": {"spec": pod}, **spec},
        "status": status,
    }


def owned(item: dict[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    kind = next(
        (one for one in by["metadata"]["uid"].split("-") if one in ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")),
        "ReplicaSet",
    )
    version = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    reference = {"apiVersion": version, "kind": kind, "name": by["metadata"]["name"], "uid": by["metadata"]["uid"], "controller": True}
    item["metadata"]["ownerReferences"] = [reference]
    return item


def pod(name: str, priority: str, by: Mapping[str, Any] | None = None, phase: str = "Running", number: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-pod-{name}"},
        "spec": {"priorityClassName": priority, "priority": number},
        "status": {"phase": phase},
    }
    return owned(made, by) if by is not None else made


def revision(kind: str, name: str, number: int, by: Mapping[str, Any]) -> dict[str, Any]:
    """The object that records a template: a ReplicaSet, or a ControllerRevision with the hash `name`."""
    made: dict[str, Any] = {"metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"}}
    if kind == "ReplicaSet":
        made["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": str(number)}
    else:
        made |= {"revision": number}
        made["metadata"]["labels"] = {"controller-revision-hash": name}
    return owned(made, by)


def hashed(item: dict[str, Any], name: str) -> dict[str, Any]:
    item["metadata"]["labels"] = {"controller-revision-hash": name}
    return item


def ending(item: dict[str, Any], grace: int = 30, **metadata: Any) -> dict[str, Any]:
    """Deleted at 10 o'clock."""
    until = datetime(2026, 1, 31, 10, tzinfo=UTC) + timedelta(seconds=grace)
    times = {"deletionTimestamp": f"{until:%Y-%m-%dT%H:%M:%SZ}", "deletionGracePeriodSeconds": grace}
    item["metadata"] |= {**times, **metadata}
    return item


def cluster(*classes: dict[str, Any], **objects: list[dict[str, Any]]) -> ObservedClasses:
    return ObservedClasses(objects, {item["metadata"]["name"]: item for item in classes})
