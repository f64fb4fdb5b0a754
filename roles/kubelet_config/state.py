"""A node as it runs now: what its kubelet runs with, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roles.engine.kubelet import Kubelet


@dataclass(frozen=True)
class KubeletState:
    """`configuration` is the running kubelet's (/configz); `node` and `pods` are API objects, `summary` is /stats/summary, all as
    plain JSON."""

    host: str
    kubelet: Kubelet
    configuration: dict[str, Any]
    node: dict[str, Any]
    pods: list[dict[str, Any]]
    summary: dict[str, Any]
