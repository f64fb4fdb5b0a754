"""A node whose kubelet is proven, as the API shows it."""

from __future__ import annotations

from typing import Any

from roles.engine.api.nodes import ContainerStatus, PodStatus
from roles.engine.proof import Cluster
from roles.engine.transaction import Status

APP = PodStatus("default", "app", "u1", "Running", "", False, False, "", (ContainerStatus("c", "id1", True, 0, None),))
APPLIED = Status("applied", identity=("2", "20"), old_identity=("1", "10"), health="200")


class Node(Cluster):
    """One node as the API shows it; each look at its lease finds it renewed."""

    def __init__(self, running: dict[str, Any], *pods: list[PodStatus], went: dict[str, int] | None = None) -> None:
        super().__init__()
        self.running, self.looks, self.went, self.renewals = running, list(pods), went or {}, 0

    def configuration(self, node_name: str) -> dict[str, Any]:
        return self.running

    def pods(self, node_name: str) -> list[PodStatus]:
        return self.looks.pop(0)

    def lease_renewed(self, node_name: str) -> Any:
        self.renewals += 1
        return self.renewals

    def evictions(self, node_name: str) -> dict[str, int]:
        return self.went
