"""Small clusters as the API's JSON."""

from __future__ import annotations

from typing import Any

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    ready: bool = True,
    cordoned: bool = False,
    taints: Any = (),
    **labels: str,
) -> dict[str, Any]:
    """`labels`: zone="a" and the like, `_` for `-`."""
    shown = {ZONE if key == "zone" else key.replace("_", "-"): value for key, value in labels.items()}
    return {
        "metadata": {"name": name, "labels": {HOST: name, "kubernetes.io/os": "linux"} | shown},
        "spec": {"unschedulable": cordoned, "taints": [dict(zip(("key", "value", "effect"), one, strict=True)) for one in taints]},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "10Gi"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


def pod(
    name: str, on: str = "", *, cpu: str = "100m", memory: str = "64Mi", labels: Any = None, priority: int = 0, port: int = 0, **spec: Any
) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    return {
        "metadata": {"name": name, "namespace": "x", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"containers": [container], "priority": priority} | ({"nodeName": on} if on else {}) | spec,
        "status": {"phase": "Running" if on else "Pending"},
    }


def spread(key: str = HOST, skew: int = 1, app: str = "web", **more: Any) -> list[dict[str, Any]]:
    return [
        {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": app}}} | more
    ]


def affinity(kind: str, key: str = HOST, app: str = "web", **more: Any) -> dict[str, Any]:
    """kind: podAffinity or podAntiAffinity."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} | more
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def prefers_node(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(expressions)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
