"""Clusters with costs, as the deploy reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from roles.consolidation.kept import Keeper
from roles.consolidation.model import Machines
from roles.consolidation.plan import Consolidation, consolidate
from tests.unit.disruption.world import NOW, reference, workload, world
from tests.unit.placement.cluster import node


def web(count: int = 20) -> list[dict[str, Any]]:
    """A Deployment and its ReplicaSet."""
    top = workload("Deployment", "web", count)
    return [top, workload("ReplicaSet", "web-1", count, top)]


def pod(name: str, on: str, *, cpu: str = "100m", **more: Any) -> dict[str, Any]:
    """Of the Deployment, unless `owner` is another; Ready. `meta`: more of its metadata."""
    owner = more.pop("owner", web()[1])
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": {"app": "web"}, **more.pop("meta", {})}
    if owner is not None:
        meta["ownerReferences"] = [reference(owner)]
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    status = {"phase": "Running", "startTime": "2026-03-01T10:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": meta, "spec": {"nodeName": on, "containers": [container], **more}, "status": status}


def keeper(
    *items: dict[str, Any], servers: Collection[str] = (), known: Collection[str] | None = None, chosen: Collection[str] | None = None,
    allow_local_data: bool = False,
) -> Keeper:  # fmt: skip
    """`items`: Nodes (those without containers and kind), pods and others, as world() takes them."""
    there = [
        item if item.get("kind") or "containers" in item["spec"] or "selector" in item["spec"] else {**item, "kind": "Node"}
        for item in items
    ]
    live = world(*web(), *there)
    names = [one["metadata"]["name"] for one in live.of("Node")]
    return Keeper(live, NOW, servers, names if known is None else known, chosen, allow_local_data)


def nodes(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [node(name, **more) for name in names]


def planned(
    of: Keeper, cost: Mapping[str, float] | None = None, *, spare: int = 0, max_moves: int | None = None, unit: Any = "watts"
) -> Consolidation:
    """Each node is a host of its own name; without `cost` each costs 100."""
    names = [one["metadata"]["name"] for one in of.live.of("Node") if one["metadata"]["name"] in of.known]
    return consolidate(of, Machines(unit, cost or dict.fromkeys(names, 100.0)), {name: name for name in names}, spare, max_moves)
