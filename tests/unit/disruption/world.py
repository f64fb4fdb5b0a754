"""API objects for tests of disruption, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from roles.engine.disruption import PDB, DisruptionObjects, budget_states
from roles.engine.disruption.budgets import Budgets
from roles.engine.disruption.owners import Scale
from roles.engine.kube import OwnerRef

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def pod(
    name: str,
    owner: Mapping[str, Any] | None = None,
    *,
    app: str = "web",
    phase: str = "Running",
    ready: bool = True,
    ending: bool = False,
    namespace: str = "shop",
    node: str = "w1",
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": {"app": app}, **metadata}
    if owner is not None:
        meta["ownerReferences"] = [reference(owner)]
    if ending:
        meta["deletionTimestamp"] = "2026-03-01T11:59:59Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": meta,
        "spec": {"nodeName": node, "containers": [{"name": "c"}], **(spec or {})},
        "status": {"phase": phase, "conditions": conditions, **(status or {})},
    }


def reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    keys = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**keys, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}


def workload(
    kind: str, name: str = "web", replicas: int | None = None, owner: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    version = {"ReplicationController": "v1", "Job": "batch/v1", "Node": "v1"}.get(kind, "apps/v1")
    meta: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{kind}-{name}"}
    if owner is not None:
        meta["ownerReferences"] = [reference(owner)]
    spec = {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": more.pop("apiVersion", version), "kind": kind, "metadata": meta, "spec": {**spec, **more.pop("spec", {})}, **more}


def budget(
    name: str = "web",
    *,
    selector: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    generation: int = 1,
    no_selector: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    chosen = {} if no_selector else {"selector": {"matchLabels": {"app": "web"}} if selector is None else selector}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-pdb-{name}", "generation": generation},
        "spec": {**chosen, **spec},
        "status": dict(status or {}),
    }


def hpa(minimum: int, maximum: int, name: str = "web", target: str = "web") -> dict[str, Any]:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": target}, "minReplicas": minimum, "maxReplicas": maximum}
    return {"kind": "HorizontalPodAutoscaler", "metadata": {"name": name, "namespace": "shop", "uid": f"uid-hpa-{name}"}, "spec": spec}


def of_status(expected: int, desired: int, current: int, allowed: int, observed: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "expectedPods": expected, "desiredHealthy": desired, "currentHealthy": current, "disruptionsAllowed": allowed,
        "observedGeneration": observed, "conditions": [{"type": "DisruptionAllowed", "reason": "x"}], **more,
    }  # fmt: skip


def world(*items: dict[str, Any], scales: Mapping[OwnerRef, Scale] | None = None) -> DisruptionObjects:
    """Sorts objects by kind: those without one are pods, or budgets if they have no containers."""
    found: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        kind = item.get("kind") or ("Pod" if "containers" in item["spec"] else PDB)
        found.setdefault(kind, []).append(item)
    return DisruptionObjects(found, scales or {})


def states(*items: dict[str, Any], scales: Mapping[OwnerRef, Scale] | None = None, now: datetime = NOW) -> Budgets:
    return budget_states(world(*items, scales=scales), now)


def deployment(replicas: int, pods: int, name: str = "web", *, ready: int | None = None) -> list[dict[str, Any]]:
    """A Deployment, its ReplicaSet, and its pods, of which `ready` are Ready (all without it)."""
    top = workload("Deployment", name, replicas)
    # The ReplicaSet of a roll-out has another scale than its Deployment.
    inner = workload("ReplicaSet", f"{name}-1", pods, top)
    return [top, inner, *(pod(f"{name}-1-{i}", inner, app=name, ready=ready is None or i < ready) for i in range(pods))]


def numbers(found: Budgets, key: str = "shop/web") -> tuple[int, int, int, int]:
    state = found.named(key)
    assert state is not None
    one = state.numbers
    return one.expected_pods, one.desired_healthy, one.current_healthy, one.disruptions_allowed


def names(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["metadata"]["name"] for one in pods]


def owned(item: dict[str, Any], manager: str = "daytwo", **others: tuple[str, ...]) -> dict[str, Any]:
    """With the managedFields of a server-side apply; `others`: more managers, with the fields of the spec that they own."""
    own = {f"f:{key}": {} for key in item["spec"]}
    entries = [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": own}}]
    entries += [
        {"manager": one, "operation": "Update", "fieldsV1": {"f:spec": {f"f:{key}": {} for key in keys}}} for one, keys in others.items()
    ]
    # kube-controller-manager owns the status, and nothing of the spec.
    entries.append({"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:status": {}}})
    return {**item, "metadata": {**item["metadata"], "managedFields": entries}}
