"""Pods, workloads and nodes as the API returns them, reduced to the relevant fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.pod_resize import DesiredResources
from roles.pod_resize.abilities import GATE, Ability, NodeAbility
from roles.pod_resize.cgroup import ContainerCgroup

ID = "a" * 64
SMALL = {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}
MI = 2**20


def container(name: str = "app", resources: Mapping[str, Any] | None = None, policy: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "resources": dict(SMALL if resources is None else resources)}
    if policy:
        found["resizePolicy"] = [{"resourceName": one, "restartPolicy": policy} for one in ("cpu", "memory")]
    return found


def state(name: str = "app", resources: Mapping[str, Any] | None = None, identifier: str = ID, restarts: int = 0) -> dict[str, Any]:
    has = dict(SMALL if resources is None else resources)
    return {
        "name": name,
        "containerID": f"containerd://{identifier}",
        "restartCount": restarts,
        "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
        "resources": has,
        "allocatedResources": dict(has.get("requests") or {}),
    }


def pod(name: str = "web-1", *containers: dict[str, Any], node: str = "w1", phase: str = "Running", **more: Any) -> dict[str, Any]:
    """`more`: metadata, spec and status that replace the usual ones."""
    made = containers or (container(),)
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"u-{name}", "generation": 1, **more.get("metadata", {})},
        "spec": {"nodeName": node, "containers": list(made), **more.get("spec", {})},
        "status": {"phase": phase, "containerStatuses": [state(one["name"], one["resources"]) for one in made], **more.get("status", {})},
    }


def workload(kind: str = "Deployment", name: str = "web", *containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = list(containers or (container(),))
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": f"u-{name}", "generation": 1, **more.get("metadata", {})},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"spec": {"containers": made}},
            **more.get("spec", {}),
        },
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, **more.get("status", {})},
    }


def owned(item: dict[str, Any], *owners: dict[str, Any]) -> dict[str, Any]:
    references = [
        {"apiVersion": "apps/v1", "kind": one["kind"], "name": one["metadata"]["name"], "uid": one["metadata"]["uid"], "controller": True}
        for one in owners
    ]
    return {**item, "metadata": {**item["metadata"], "ownerReferences": references}}


def node(name: str = "w1", version: str = "v1.36.3", gates: Mapping[str, bool] | None = None, **more: Any) -> NodeAbility:
    values: dict[str, Any] = {"runtime": "containerd://1.7.0", "system": "linux", "allocatable": {"cpu": "2", "memory": "4Gi"}}
    values |= {"configuration": {}, **more}
    return NodeAbility(name, version, gates={GATE: True} if gates is None else gates, **values)


def ability(version: str = "v1.36.3", components: Mapping[str, bool | None] | None = None, *nodes: NodeAbility) -> Ability:
    return Ability(version, components or {}, {one.name: one for one in nodes or (node(version=version),)})


def held(usage: int = 10 * MI, identifier: str = ID) -> dict[str, ContainerCgroup]:
    return {identifier: ContainerCgroup(identifier, 7, 99, "v1", {"memory.usage_in_bytes": str(usage), "inactive_file": "0"})}


def desired(**values: Any) -> DesiredResources:
    return DesiredResources(**{"deployment": "shop/web", **values})
