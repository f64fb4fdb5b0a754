"""Small clusters with machines that are off, and a solver that tries everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from roles.engine.kube import pods, resources
from roles.engine.kube.amounts import listed, units
from roles.engine.kube.fields import labels_of, status_of
from roles.engine.packing import Machine, Problem
from tests.unit.placement.cluster import HOST, ZONE, affinity, node, pod, spread

RESOURCES = ("cpu", "memory", "pods")


def owned(name: str, on: str = "", app: str = "web", **more: Any) -> dict[str, Any]:
    """A pod that a controller creates again."""
    found = pod(name, on, labels={"app": app}, **more)
    found["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}]
    return found


def machine(name: str, cost: float = 100, *, off: bool = False, **more: Any) -> Machine:
    return Machine(name, cost, node(name, **more), off)


#: What pods of a cluster want beside room: nothing, what one host decides, or anything.
PLAIN = ("",)
BY_HOST = ("", "", "", "anti", "spread", "port", "tolerates", "zone")
ANY = (*BY_HOST, "near", "anti zone", "spread zone")


def problem_of(seed: int, wants: Sequence[str] = ANY, **more: Any) -> Problem:
    """Two to four machines that are on, up to two that are off, and up to eight pods with room."""
    dice = Random(seed)
    machines = [_machine(dice, f"w{number}", False, wants) for number in range(dice.randint(2, 4))]
    on = [one.name for one in machines]
    machines += [_machine(dice, f"s{number}", True, wants) for number in range(dice.randint(0, 2))]
    there: list[dict[str, Any]] = []
    free = {one.name: room(one) for one in machines}
    for number in range(dice.randint(0, 8)):
        made = _pod(dice, f"p{number}", dice.choice(on), wants)
        left = {key: have - asks(made)[key] for key, have in free[pods.node_of(made)].items()}
        if min(left.values()) >= 0:
            there.append(made)
            free[pods.node_of(made)] = left
    return Problem(tuple(machines), tuple(there), **more)


def _machine(dice: Random, name: str, off: bool, wants: Sequence[str]) -> Machine:
    taints = [("gpu", "", "NoSchedule")] if wants != PLAIN and dice.randrange(6) == 0 else []
    size, zone = dice.choice([2, 3, 4]), dice.choice("ab")
    return machine(name, size * dice.randint(20, 40), off=off, cpu=str(size), memory=f"{size * 2}Gi", taints=taints, zone=zone)


def _pod(dice: Random, name: str, on: str, wants: Sequence[str]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    app, (want, _, wide) = dice.choice(["web", "db"]), dice.choice(wants).partition(" ")
    key = ZONE if wide else HOST
    match want:
        case "anti":
            more["affinity"] = affinity("podAntiAffinity", key, app)
        case "near":
            more["affinity"] = affinity("podAffinity", dice.choice([HOST, ZONE]), app)
        case "spread":
            more["topologySpreadConstraints"] = spread(key, dice.randint(1, 2), app)
        case "port":
            more["port"] = 80
        case "tolerates":
            more["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        case "zone":
            more["nodeSelector"] = {ZONE: dice.choice("ab")}
    return owned(name, on, app, cpu=dice.choice(["100m", "500m", "700m", "1"]), memory=dice.choice(["64Mi", "1Gi", "1500Mi"]), **more)


def asks(one: Any) -> dict[str, int]:
    return {"pods": 1, **resources.in_units(one, resources.View.SPEC)}


def room(one: Machine) -> dict[str, int]:
    found = {key: units(key, amount) for key, amount in listed(status_of(one.node).get("allocatable")).items()}
    return {key: found[key] for key in RESOURCES}


def have_room(of: Sequence[Any], rooms: list[dict[str, int]]) -> bool:
    """All of these pods fit into these rooms, in some way: tries everything."""
    if not of:
        return True
    wanted, *others = of
    for one in rooms:
        if all(one[key] >= asks(wanted)[key] for key in RESOURCES):
            less = [{key: have - asks(wanted)[key] for key, have in one.items()} if other is one else other for other in rooms]
            if have_room(others, less):
                return True
    return False


def cheapest(problem: Problem) -> float:
    """What the cheapest machines cost that have room for all pods, if each of these may move."""
    sets = range(1 << len(problem.machines))
    chosen = ([one for number, one in enumerate(problem.machines) if bits >> number & 1] for bits in sets)
    largest = sorted(problem.pods, key=lambda one: -asks(one)["cpu"])
    for found in sorted(chosen, key=lambda some: sum(one.cost for one in some)):
        if have_room(largest, [room(one) for one in found]):
            return sum(one.cost for one in found)
    return sum(one.cost for one in problem.machines if not one.off)


def after(problem: Problem, moves: Any, on: Sequence[str], **more: Any) -> Problem:
    """The cluster when the pods have moved; no other machine can be woken."""
    there = [{**one, "spec": {**one["spec"], "nodeName": moves.get(name(one), pods.node_of(one))}} for one in problem.pods]
    machines = tuple(replace(one, off=one.name not in on) for one in problem.machines)
    closed = frozenset(one.name for one in machines if one.off)
    return Problem(machines, tuple(one for one in there if pods.node_of(one) in on), problem.budgets, closed=closed, **more)


def name(one: Any) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def app_of(one: Any) -> str:
    return labels_of(one).get("app", "")
