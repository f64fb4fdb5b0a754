"""A small cluster in which time passes: machines that are on or off, workloads of any size, a scheduler that chooses any node with room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from roles.consolidation.model import Machines
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.node_autoscaler.decide import Situation, decide
from roles.node_autoscaler.decision import Decision, Limits
from roles.node_autoscaler.history import History
from tests.unit.consolidation import cluster
from tests.unit.disruption.world import NOW
from tests.unit.placement.cluster import node

FIELDS = {"f:metadata": {"f:annotations": {"f:daytwo.dev/outage": {}}}, "f:spec": {"f:unschedulable": {}}}
OFF = {"daytwo.dev/outage": '{"run": "r1", "purpose": "power-off", "boot": "b"}'}


def marked(item: dict[str, Any]) -> dict[str, Any]:
    """The node as a power off leaves it."""
    managed = [{"manager": FIELD_MANAGER, "operation": "Update", "fieldsV1": FIELDS}]
    return {
        **item,
        "metadata": {**item["metadata"], "annotations": OFF, "managedFields": managed},
        "spec": {**item["spec"], "unschedulable": True},
    }


def waiting(name: str, *, cpu: str = "100m", **more: Any) -> dict[str, Any]:
    """A pod that the scheduler has found no node for."""
    found = cluster.pod(name, "", cpu=cpu, **more)
    del found["spec"]["nodeName"]
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {**found, "status": {"phase": "Pending", "conditions": [said]}}


def situation(
    *items: dict[str, Any], cost: dict[str, float] | None = None, due: dict[str, str] | None = None, at: float = 0.0
) -> Situation:
    """Each node is a host of its own name with a power driver, and costs 100 without `cost`. `at`: seconds from NOW."""
    keeper = replace(cluster.keeper(*items), now=NOW + timedelta(seconds=at))
    names = [one["metadata"]["name"] for one in keeper.live.of("Node")]
    costs = {**dict.fromkeys(names, 100.0), **(cost or {})}
    return Situation(keeper, Machines("watts", costs), {name: name for name in names}, names, due or {})


@dataclass(frozen=True)
class Done:
    """What happened to a node: `wake` or `away`; the load then, after how many changes of it, and the nodes that were on before."""

    kind: str
    node: str
    load: Counter[int]
    changes: int
    on: frozenset[str]


@dataclass
class World:
    """`machines`: cores, cost and zone by name. `pods`: cores and node ("": it waits) by name, which begins with its workload's."""

    machines: dict[str, tuple[int, float, str]]
    dice: Random
    limits: Limits
    on: set[str] = field(default_factory=set)
    pods: dict[str, tuple[int, str]] = field(default_factory=dict)
    at: float = 0.0
    made: int = 0
    history: History = field(default_factory=History)
    #: How often the load has changed.
    changes: int = 0
    done: list[Done] = field(default_factory=list)

    def scale(self, cores: int, count: int) -> None:
        """The pods of that size are so many."""
        self.changes += 1
        there = [name for name, (own, _) in self.pods.items() if own == cores]
        for name in self.dice.sample(there, max(0, len(there) - count)):
            del self.pods[name]
        for _ in range(count - len(there)):
            self.made += 1
            self.pods[f"web-{self.made}"] = (cores, "")
        self.schedule()

    def free(self, name: str) -> int:
        return self.machines[name][0] - sum(cores for cores, on in self.pods.values() if on == name)

    def schedule(self, on: Collection[str] | None = None) -> bool:
        """Any node with room; True if all have one."""
        for name, (cores, where) in self.pods.items():
            room = [one for one in sorted(self.on if on is None else on) if self.free(one) >= cores] if not where else []
            if room:
                self.pods[name] = (cores, self.dice.choice(room))
        return all(where for _, where in self.pods.values())

    @property
    def load(self) -> Counter[int]:
        return Counter(cores for cores, _ in self.pods.values())

    def situation(self) -> Situation:
        nodes = []
        for name, (cores, _, zone) in self.machines.items():
            one = node(name, cpu=str(cores), memory="100Gi", ready=name in self.on, zone=zone)
            nodes.append(one if name in self.on else marked(one))
        there = [
            cluster.pod(name, on, cpu=str(cores)) if on else waiting(name, cpu=str(cores)) for name, (cores, on) in self.pods.items()
        ]  # fmt: skip
        return situation(*nodes, *there, cost={name: cost for name, (_, cost, _) in self.machines.items()}, at=self.at)

    def step(self, passed: float) -> Decision:
        """One pass, carried out: a consolidation only if the scheduler finds a node for each pod, as it is asked before."""
        self.at += passed
        now = self.situation()
        found = decide(now, self.history, self.limits)
        self.history = self.history.decided(found, now.now)
        if not found.acts:
            return found
        self.history, load, on = self.history.begins(found), self.load, frozenset(self.on)
        if found.kind == "consolidate":
            before = dict(self.pods)
            self.pods = {name: (cores, "" if where in found.nodes else where) for name, (cores, where) in before.items()}
            if not self.schedule(self.on - set(found.nodes)):
                self.pods = before
                self.history = self.history.failing(found, now.now, "the scheduler says no")
                return found
            self.on -= set(found.nodes)
        else:
            self.on |= set(found.nodes)
        self.done += [Done("wake" if found.wakes else "away", name, load, self.changes, on) for name in found.nodes]
        self.history = self.history.succeeded(found, now.now, "", now.on, now.load)
        self.schedule()
        return found
