"""Nodes, pods and the plans of their drains, for tests of outages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.engine.outage import DrainConsents, DrainPlan, plan_drain, read_mark
from roles.engine.outage.mark import CORDONED_BY, OUTAGE, parse_mark
from tests.unit.disruption.world import NOW, deployment, world

NONE = DrainConsents()


def node(name: str, *, ready: bool = True, manager: str = "", mark: str = "", pods: int = 110, old: bool = False) -> dict[str, Any]:
    """`mark`: the run, with " (change)" for a change, or any text; `old`: as versions of daytwo before wrote it."""
    meta: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}}
    spec: dict[str, Any] = {}
    if manager:
        spec["unschedulable"] = True
        spec["taints"] = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        meta["managedFields"] = [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    if mark:
        known = parse_mark(mark)
        meta["annotations"] = {CORDONED_BY: mark} if old else {OUTAGE: known.text() if known else mark}
    status = {
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": str(pods), "ephemeral-storage": "10Gi"},
    }
    return {"kind": "Node", "metadata": meta, "spec": spec, "status": status}


def of_change(run: str) -> str:
    """The mark of a change."""
    return f"{run} (change)"


def cordon(item: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a node is cordoned, and its mark."""
    return bool((item.get("spec") or {}).get("unschedulable")), str(read_mark(item) or "")


NODES = (node("w1"), node("w2"), node("w3"))


def plan(
    *items: dict[str, Any], on: tuple[str, ...] = ("w1",), consents: DrainConsents = NONE, nodes: tuple[Any, ...] = NODES
) -> DrainPlan:
    return plan_drain(world(*nodes, *items), on, consents, NOW)


def fates(found: DrainPlan) -> dict[str, str]:
    return {one.pod["metadata"]["name"]: one.fate for one in found.pods}


def waves(found: DrainPlan) -> list[list[str]]:
    return [sorted(one.pod["metadata"]["name"] for one in wave) for wave in found.waves]


def spread(items: list[dict[str, Any]], *on: str) -> list[dict[str, Any]]:
    """The pods on these nodes, one after the other."""
    pods = [item for item in items if "containers" in item.get("spec", {})]
    for item, name in zip(pods, on, strict=True):
        item["spec"]["nodeName"] = name
    return items


def asking(cpu: str, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **more}


def of_template(found: dict[str, Any], spec: dict[str, Any], labels: dict[str, str] | None = None) -> None:
    found["spec"]["template"] = {"metadata": {"labels": labels or {"app": "web"}}, "spec": spec}


def single() -> list[dict[str, Any]]:
    items = deployment(1, 1)
    items[0]["status"] = {"updatedReplicas": 1, "availableReplicas": 1, "replicas": 1, "readyReplicas": 1}
    return items
