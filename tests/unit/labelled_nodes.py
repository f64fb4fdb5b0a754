"""Nodes with labels and taints, and their pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.unit.priority_classes.world import entry

PATH = "/api/v1/nodes/w1"


def labels_of(*keys: str) -> dict[str, Any]:
    return {"f:metadata": {"f:labels": {f"f:{key}": {} for key in keys}}}


TAINTS: dict[str, Any] = {"f:spec": {"f:taints": {}}}


def node(labels: Mapping[str, str] | None = None, taints: Sequence[Mapping[str, str]] = (), manager: str = "kubelet") -> dict[str, Any]:
    """All fields set by `manager`."""
    owned = [entry(manager, {**labels_of(*(labels or {})), **(TAINTS if taints else {})}, "Update")]
    metadata = {"name": "w1", "uid": "uid-w1", "resourceVersion": "1", "labels": dict(labels or {}), "managedFields": owned}
    return {"metadata": metadata, "spec": {"taints": [dict(taint) for taint in taints]}}


def pod(name: str, *tolerations: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}"}, "spec": {"tolerations": list(tolerations)}}
