"""Clusters for comparing plans: the same seed makes the same cluster. Their JSON is what `python -m roles.consolidation` reads.

Machines of three sizes, with prices that differ by a fifth either way. Workloads of one to eight equal pods are put on random nodes with
room. One in ten wants its pods on different hosts; `spread` is the share that is spread over hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

HOST = "kubernetes.io/hostname"
_REPLICAS = (1, 2, 3, 5, 8)
_CPU = (50, 100, 200, 250, 500, 1000)
_MEMORY = (64, 128, 256, 512, 1024, 2048)
_APART = 0.1


@dataclass(frozen=True)
class Size:
    """`cpu` in cores, `memory` in GiB, `price` before it differs."""

    cpu: int
    memory: int
    price: float

    @property
    def resources(self) -> dict[str, str]:
        return {"cpu": str(self.cpu), "memory": f"{self.memory}Gi", "pods": "110"}


SIZES = (Size(4, 16, 100.0), Size(8, 32, 180.0), Size(16, 64, 330.0))


class Generator:
    """Draws one cluster from one seed. The order of the draws is part of the cluster."""

    def __init__(self, seed: int, spread: float = 0.0) -> None:
        self._dice = Random(seed)
        self._spread = spread
        self._free: dict[str, tuple[int, int]] = {}
        self._pods: list[dict[str, Any]] = []

    def cluster(self, nodes: int, pods_per_node: int, off: int) -> dict[str, Any]:
        there, cost = [], {}
        for number in range(nodes):
            name, (size, price) = f"w{number}", self._machine()
            there.append(_node(name, size))
            cost[name] = price
            self._free[name] = (size.cpu * 1000, size.memory * 1024)
        workload = tried = 0
        while tried < nodes * pods_per_node:
            workload += 1
            tried += self._workload(workload)
        asleep = [(f"s{number}", self._machine()) for number in range(off)]
        return {
            "nodes": there,
            "pods": self._pods,
            "pdbs": [],
            "off": [{"name": name, "cost": price, "capacity": size.resources, "labels": {}} for name, (size, price) in asleep],
            "cost": cost,
        }

    def _machine(self) -> tuple[Size, float]:
        size = self._dice.choice(SIZES)
        return size, size.price * self._dice.uniform(0.8, 1.2)

    def _workload(self, number: int) -> int:
        """How many pods were placed of those that it wants; one that has no room is left out."""
        dice = self._dice
        replicas, cpu, memory = dice.choice(_REPLICAS), dice.choice(_CPU), dice.choice(_MEMORY)
        apart, spread = dice.random() < _APART, dice.random() < self._spread
        hosts: set[str] = set()
        placed = 0
        for replica in range(replicas):
            rooms = [
                name for name, (cores, bytes_) in self._free.items() if cores >= cpu and bytes_ >= memory and not (apart and name in hosts)
            ]
            if not rooms:
                continue
            host = dice.choice(rooms)
            hosts.add(host)
            cores, bytes_ = self._free[host]
            self._free[host] = (cores - cpu, bytes_ - memory)
            self._pods.append(
                _pod(f"a{number}", replica, host, {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}, _kept_apart(number, apart, spread))
            )
            placed += 1
        return placed


def cluster(seed: int, nodes: int, pods_per_node: int, off: int = 0, spread: float = 0.0) -> dict[str, Any]:
    return Generator(seed, spread).cluster(nodes, pods_per_node, off)


def _node(name: str, size: Size) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOST: name}}, "spec": {},
        "status": {
            "allocatable": size.resources, "capacity": size.resources, "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def _pod(app: str, replica: int, host: str, requests: dict[str, str], apart: dict[str, Any]) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"owner-{app}", "controller": True}
    name = f"{app}-{replica}"
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "d", "name": name, "uid": name, "labels": {"app": app}, "ownerReferences": [owner]},
        "spec": {"nodeName": host, "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]} | apart,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def _kept_apart(number: int, apart: bool, spread: bool) -> dict[str, Any]:
    by_host = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": f"a{number}"}}}
    found: dict[str, Any] = {}
    if apart:
        found["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [by_host]}}
    if spread:
        found["topologySpreadConstraints"] = [by_host | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    return found


def of_seed(seed: int) -> dict[str, Any]:
    """Arguments of the clusters that are compared: 20 to 60 nodes, 8 to 12 pods each, 4 to 6 machines off, a third with spread."""
    spread = 0.1 if seed % 3 == 0 else 0.0
    return {"seed": seed, "nodes": 20 + seed * 7 % 41, "pods_per_node": 8 + seed % 5, "off": 4 + seed % 3, "spread": spread}
