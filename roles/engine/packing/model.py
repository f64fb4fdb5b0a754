"""Pure: what a plan is asked with, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from roles.engine.kube import Object
from roles.engine.kube.fields import name_of
from roles.engine.placement import ClusterView

HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster. `cost`: per hour, or in watts: one unit for all machines. `node`: its Node object; of one that is off, made
    from its capacity and labels. `reclaimable`: its owner may take it away at any time. So it is no reserve, and none is woken in a plan in
    which another one goes (karpenter, pkg/controllers/disruption/consolidation.go: no replacement of spot by spot)."""

    name: str
    cost: float
    node: Object
    off: bool = False
    reclaimable: bool = False


@dataclass(frozen=True)
class Problem:
    """`pods`: all of the cluster. `budgets`: PodDisruptionBudgets, with their status. `keep`: nodes that stay, with the reason for people.

    `spare`: so many of the largest nodes may fail after the plan, and their pods still have room. `max_moves`: at most so many pods move.
    `view`: the rest of what was read of the cluster; None: nothing was, so pods with volume claims stay where they are. `closed`: machines
    that take no more pods, and are not woken. `must_go`: those that go whatever it costs; a reserve and `max_moves` do not keep them.
    """

    machines: tuple[Machine, ...]
    pods: tuple[Object, ...]
    budgets: tuple[Object, ...] = ()
    keep: Mapping[str, str] = field(default_factory=dict)
    spare: int = 0
    max_moves: int | None = None
    view: ClusterView | None = None
    closed: frozenset[str] = frozenset()
    must_go: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = [one.name for one in self.machines]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ValueError(f"machine {twice[0]} is listed twice")
        for one in self.machines:
            if one.cost < 0 or one.cost != one.cost or one.cost == float("inf"):
                raise ValueError(f"machine {one.name} costs {one.cost}; give a number that is not negative")
            if name_of(one.node) != one.name:
                raise ValueError(f"machine {one.name} has the Node of {name_of(one.node)}")
        if self.spare < 0 or (self.max_moves is not None and self.max_moves < 0):
            raise ValueError("spare and max_moves are numbers of nodes and of pods, and not negative")


class Cause(Enum):
    """What keeps a node on."""

    KEPT = "kept"
    #: A pod of it that no drain may evict now, by its budgets.
    BUDGET = "budget"
    #: A pod of it that nothing creates again.
    UNMANAGED = "unmanaged pod"
    #: A pod of it that runs on no other node: its volume, or what daytwo does not judge.
    BOUND = "bound pod"
    #: Pods of it that have no room elsewhere.
    ROOM = "no room"
    #: More pods would move than `max_moves` allows.
    MOVES = "moves"
    #: The room is needed if another node fails.
    SPARE = "spare"
    #: The move is not worth what is saved.
    PRICE = "price"


@dataclass(frozen=True)
class Plan:
    """`stays`, `goes`, `woken`: names of nodes; only pods of nodes that go move. `cost`: of all nodes that are on afterwards.

    `moves`: (namespace, name) of a pod -> its new node, in an order in which each can be placed before the next one leaves. `bound`: no
    plan for this problem costs less. `why`: of each node that was on and stays, the smallest thing that keeps it, as `CAUSE: SUBJECT`,
    several joined by "; ". `left`: of machines that must go, the pods that cannot leave, and why; then nothing else is planned.
    `reserve`: what was asked for as spare is there afterwards, or nothing has to go.
    """

    stays: tuple[str, ...]
    goes: tuple[str, ...]
    woken: tuple[str, ...]
    cost: float
    moves: Mapping[tuple[str, str], str]
    bound: float
    why: Mapping[str, str]
    left: Mapping[tuple[str, str], str] = field(default_factory=dict)
    reserve: bool = True
