"""Small clusters as the API's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
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


KEYS = ("kubernetes.io/hostname", ZONE)
APPS = ("web", "db")


@dataclass(frozen=True)
class Cluster:
    """w0 is to be left; `moving` are on it, `resident` anywhere."""

    nodes: list[dict[str, Any]]
    resident: list[dict[str, Any]]
    moving: list[dict[str, Any]]


def cluster_of(seed: int) -> Cluster:
    """Evenly random, so that pods compete often: hypothesis prefers what is simple."""
    dice = Random(seed)
    there = [node("w0", cpu="8")]
    for number in range(1, dice.randint(2, 4)):
        taints = [("gpu", "", "NoSchedule")] if dice.randrange(5) == 0 else []
        there.append(
            node(f"w{number}", cpu=dice.choice(["1", "2", "3"]), pods=dice.choice(["2", "110"]), taints=taints, zone=dice.choice("ab"))
        )
    resident = [_pod(dice, f"r{number}", dice.choice(there)["metadata"]["name"]) for number in range(dice.randint(0, 3))]
    return Cluster(there, resident, [_pod(dice, f"p{number}", "w0") for number in range(dice.randint(1, 4))])


def _pod(dice: Random, name: str, on: str) -> dict[str, Any]:
    more: dict[str, Any] = {}
    kind = dice.choice(["", "", "", "podAffinity", "podAntiAffinity", "spread"])
    key, app = dice.choice(KEYS), dice.choice(APPS)
    if kind == "spread":
        more["topologySpreadConstraints"] = spread(key, dice.randint(1, 2), app, nodeTaintsPolicy=dice.choice(["Honor", "Ignore"]))
    elif kind:
        more["affinity"] = affinity(kind, key, app)
    if dice.randrange(4) == 0:
        more["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    cpu, port = dice.choice(["0", "500m", "1", "1500m"]), dice.choice([0, 0, 0, 80])
    return pod(name, on, cpu=cpu, labels={"app": dice.choice(APPS)}, port=port, priority=dice.choice([0, 0, 10]), **more)
