"""What placement and the planner say of a generated cluster, held against what the scheduler does."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from roles.engine.kube import Object, full_name, is_ending, namespace_and_name
from roles.engine.kube.fields import name_of
from roles.engine.kube.pods import node_of
from roles.engine.packing import Machine, Plan, Problem, plan
from roles.engine.placement import ClusterView, Placement, place_all
from tests.benchmarks.scheduling.clusters import Cluster
from tests.benchmarks.scheduling.scheduler import Loaded, Scheduler, wait_until

#: An extended resource that one node alone has holds a pod to it; selectors, taints and cordons would change which domains are counted.
_PIN = "daytwo.dev/pin-"


@dataclass
class Told:
    """Of many clusters. `pods`, `plans`: how often which answer met which outcome; `causes`: why a pod was not judged, or a node stays;
    `wrong`: what is false, with its seed; `careful`: what was refused without need."""

    pods: Counter[tuple[str, str]] = field(default_factory=Counter)
    plans: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    careful: list[str] = field(default_factory=list)
    pure: float = 0.0
    clusters: int = 0


def compare(cluster: Cluster, scheduler: Scheduler, told: Told) -> None:
    """Adds what was seen."""
    told.clusters += 1
    began = perf_counter()
    view = view_of(cluster)
    found = place_all(cluster.moving, view, cluster.without)
    settled = _without_waiting(cluster)
    planned = plan(_problem(settled))
    told.pure += perf_counter() - began
    with scheduler.cluster(_pinned(cluster), cluster.without) as loaded:
        outcome = _placed(cluster, found, loaded, told)
    _judge_plan(settled, planned, outcome, scheduler, told)


def view_of(cluster: Cluster) -> ClusterView:
    of = cluster.objects
    return ClusterView(
        of["Node"], of["Pod"], of["PersistentVolumeClaim"], of["PersistentVolume"], of["CSINode"], of["VolumeAttachment"], of["Namespace"]
    )


# ---- placement


def _placed(cluster: Cluster, found: Sequence[Placement], loaded: Loaded, told: Told) -> bool:
    """Each pod leaves its node, and gets another one before the next one leaves. True if all have one at the end, and none was preempted
    or has come back to a node that goes."""
    at_once = [loaded.move(pod) for pod in cluster.moving]
    late = [pod for pod, one in zip(cluster.moving, found, strict=True) if one.fits and one.after_others]
    with contextlib.suppress(TimeoutError):  # the scheduler tries again when a partner has come
        wait_until(lambda: all(pod is not None and node_of(pod) for pod in loaded.now(late)), "late ones", 10)
    ended = loaded.now(cluster.moving)
    for one, first, last in zip(found, at_once, ended, strict=True):
        lost = last is None or is_ending(last)
        by_force = one.pod in loaded.preempting
        on = node_of(last or {}) if one.after_others else first
        scheduled = bool(on) and on not in cluster.without and not lost and not by_force
        told.pods[_answer(one), "scheduled" if scheduled else "left over"] += 1
        fact = f"on {first}" if first else f"on {node_of(last or {})} in the end" if node_of(last or {}) else "left over"
        text = f"seed {cluster.seed}: {one}; in fact: {fact}{', preempted' if lost else ''}{', preempts others' if by_force else ''}"
        if one.outcome in ("unsure", "not judged"):
            told.causes[f"{one.outcome}: {_cause(one)}"] += 1
        if (one.fits and not scheduled) or (first and scheduled and not one.after_others and one.nodes[first].state == "no"):
            told.wrong.append(text)
        elif scheduled and _answer(one) == "nowhere":
            told.careful.append(text)
    return not loaded.preempting and not {node_of(last or {}) for last in ended} & {"", *cluster.without}


def _answer(one: Placement) -> str:
    if one.outcome == "nowhere" and any(verdict.state == "waits" for verdict in one.nodes.values()):
        return "waits"  # the scheduler places it, and it does not start
    return f"{one.outcome} after others" if one.fits and one.after_others else one.outcome


def _cause(one: Placement) -> str:
    """Without names and numbers, so that equal causes count as one."""
    why = next(iter(one.reasons), "")
    return " ".join("N" if any(sign.isdigit() for sign in word) else word for word in why.split() if word != "x")


# ---- the planner


def _without_waiting(cluster: Cluster) -> Cluster:
    """A plan does not say where pods go that wait already."""
    there = [pod for pod in cluster.objects["Pod"] if node_of(pod)]
    return replace(cluster, objects={**cluster.objects, "Pod": there})


def _problem(cluster: Cluster) -> Problem:
    nodes = cluster.objects["Node"]
    machines = tuple(Machine(name_of(node), 1.0 if name_of(node) in cluster.without else 0.0, node) for node in nodes)
    keep = {name_of(node): "not asked" for node in nodes if name_of(node) not in cluster.without}
    return Problem(machines, tuple(cluster.objects["Pod"]), keep=keep, view=view_of(cluster))


def _pinned(cluster: Cluster) -> dict[str, list[Object]]:
    def pin(node: Object) -> Object:
        room = {**node["status"]["allocatable"], f"{_PIN}{name_of(node)}": "1000"}
        return {**node, "status": {**node["status"], "allocatable": room, "capacity": room}}

    return {**cluster.objects, "Node": [pin(node) for node in cluster.objects["Node"]]}


def _judge_plan(cluster: Cluster, planned: Plan, all_placed: bool, scheduler: Scheduler, told: Told) -> None:
    """A plan claims that each move, in its order, is to a node that the scheduler can place the pod on, while the nodes that go are
    cordoned. Where the scheduler would place it by itself is another question, which is counted and not claimed."""
    goes = set(planned.goes)
    told.plans["nodes asked about"] += len(cluster.without)
    told.plans["nodes that go"] += len(goes)
    one_whose_pods_are_placed = len(cluster.without) == 1 and all_placed
    told.plans["nodes asked about alone, and the scheduler places all their pods"] += one_whose_pods_are_placed
    for name in sorted(set(cluster.without) - goes):
        cause = planned.why[name].partition(":")[0]
        told.causes["stays: " + cause] += 1
        if one_whose_pods_are_placed:
            told.plans[f"of these stay: {cause}"] += 1
            told.careful.append(f"seed {cluster.seed}: {name} stays: {planned.why[name]}; in fact all its pods are placed")
    by_name = {namespace_and_name(pod): pod for pod in cluster.objects["Pod"]}
    moves = [(by_name[name], node) for name, node in planned.moves.items()]
    if not moves:
        return
    with scheduler.cluster(_pinned(cluster), goes) as loaded:
        told.plans["plans with moves"] += 1
        told.plans["moves"] += len(moves)
        for pod, node in moves:
            if loaded.move(pod, {_PIN + node: "1"}) != node:
                told.plans["moves that are not possible"] += 1
                told.wrong.append(f"seed {cluster.seed}: the plan moves {full_name(pod)} to {node}, which the scheduler refuses")
        loaded.restore([pod for pod, _ in moves])
        chosen = [loaded.move(pod) for pod, _ in moves]
        if not {*chosen} & {"", *goes}:
            told.plans["plans whose pods all find a node of the scheduler's choice"] += 1


# ---- what is printed


def table(told: Told) -> Iterator[str]:
    asked = sum(told.pods.values())
    yield f"| {told.clusters} clusters, {asked} pods | scheduled | left over |"
    yield "| --- | --- | --- |"
    for answer in ("fits", "fits after others", "unsure", "not judged", "waits", "nowhere"):
        yield f"| {answer} | {told.pods[answer, 'scheduled']} | {told.pods[answer, 'left over']} |"
    yield ""
    yield from (f"{count:6} {what}" for what, count in sorted(told.plans.items()))
    yield ""
    yield from (f"{count:6} {what}" for what, count in told.causes.most_common())
