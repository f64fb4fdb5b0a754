"""The present state of a node: its kubelet's configuration, its pods, its usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roles.engine.kubelet.facts import Kubelet
from roles.engine.kubelet.runtime import Runtime


@dataclass(frozen=True)
class KubeletState:
    """`configuration` is that of the running kubelet (/configz); `node` and `pods` are API objects, `summary` is /stats/summary, all as
    plain JSON. `runtime` is what its container runtime says of itself (None: it was not asked)."""

    host: str
    kubelet: Kubelet
    configuration: dict[str, Any]
    node: dict[str, Any]
    pods: list[dict[str, Any]]
    summary: dict[str, Any]
    runtime: Runtime | None = None
