"""The plan: which nodes go, by the planner (roles/engine/packing/), and only as far as placement is sure of each pod that moves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from roles.consolidation.kept import Keep, Keeper, KeepReason, sentence
from roles.consolidation.model import Machines
from roles.consolidation.owners import TAINT, Owners, is_tainted
from roles.engine.disruption import PDB
from roles.engine.harmless import one_line
from roles.engine.kube import Object, namespace_and_name
from roles.engine.kube.fields import annotations_of, name_of, spec_of, status_of
from roles.engine.kube.matching import UNSCHEDULABLE
from roles.engine.kube.pods import is_over, node_of, priority
from roles.engine.outage.places import cluster_view, replacement
from roles.engine.packing import Machine, Plan, Problem, plan
from roles.engine.placement import ClusterView, Trial, without_passing

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# Of a pod's reasons.
_FEW = 2
_INT32 = 2**31


@dataclass(frozen=True)
class Consolidation:
    """The result. `kept`: by node, why it must stay; `bound`: what the nodes cost at least, whatever placement is sure of."""

    keeper: Keeper
    machines: Machines
    hosts: Mapping[str, str]
    problem: Problem
    plan: Plan
    bound: float
    kept: Mapping[str, tuple[Keep, ...]]
    owners: Owners

    @cached_property
    def goes(self) -> list[str]:
        """Those that must go, then those with the most savings for the least disruption (karpenter, pkg/controllers/disruption)."""
        return sorted(self.plan.goes, key=lambda node: (node not in self.owners.must_go, -self.worth(node), node))

    def worth(self, node: str) -> float:
        return self.cost(node) / (1 + sum(max(0.0, disruption(one.pod)) for one in self.keeper.leaving(node)))

    def cost(self, node: str) -> float:
        """0 for a node that is in no inventory."""
        return self.machines.cost.get(self.hosts.get(node, ""), 0.0)


def disruption(pod: Object) -> float:
    """What a move of the pod counts, from -10 to 10 (karpenter, pkg/utils/disruption: EvictionCost)."""
    try:
        text = annotations_of(pod).get(DELETION_COST, "0")
        deletion = int(text) if len(text) <= len(str(-_INT32)) else 0
    except (ValueError, TypeError):
        deletion = 0
    return min(10.0, max(-10.0, 1 + deletion / 2**27 + priority(pod) / 2**25))


def consolidate(
    keeper: Keeper, machines: Machines, hosts: Mapping[str, str], spare: int, max_moves: int | None, *, wakes: bool = True
) -> Consolidation:
    """Plan, and plan again without the nodes whose pods placement is not sure of. `hosts`: the inventory's name of each Node; `wakes`: the
    plan may wake machines. Raises ValueError if an object cannot be read."""
    owners = Owners(keeper, machines, hosts)
    kept = owners.kept()
    bound = keeper.least(lambda node: 0.0 if node in owners.must_go else machines.cost.get(hosts.get(node, ""), 0.0))
    first = True
    while True:
        problem = _problem(keeper, machines, hosts, owners, kept, spare, max_moves)
        problem = problem if wakes else _without(problem, keeper.asleep)
        found = plan(problem)
        # Later problems keep more than the rules ask for.
        bound, first = max(bound, found.bound) if first else bound, False
        result = Consolidation(keeper, machines, hosts, problem, found, bound, kept, owners)
        more = _left(result) or _without_zone(result) or _not_sure(result)
        if not more:
            return result
        for node, keeps in more.items():
            kept[node] = (*kept.get(node, ()), *keeps)


def _problem(
    keeper: Keeper,
    machines: Machines,
    hosts: Mapping[str, str],
    owners: Owners,
    kept: Mapping[str, Sequence[Keep]],
    spare: int,
    max_moves: int | None,
) -> Problem:
    live = keeper.live
    lent = {node for node, host in hosts.items() if host in machines.reclaimable}
    listed = tuple(
        Machine(
            name_of(node),
            machines.cost.get(hosts.get(name_of(node), ""), 0.0),
            _as_planned(node, asleep=name_of(node) in keeper.asleep, reclaimable=name_of(node) in lent),
            name_of(node) in keeper.asleep,
            name_of(node) in lent,
        )
        for node in live.of("Node")
    )
    there = tuple(pod for pod in live.of("Pod") if not is_over(pod))
    why = {node: sentence(keeps) for node, keeps in kept.items()}
    must = frozenset(owners.must_go.keys() - kept.keys())
    return Problem(listed, there, tuple(live.of(PDB)), why, spare, max_moves, cluster_view(live), owners.closed, must)


def _as_planned(node: Object, *, asleep: bool, reclaimable: bool) -> Object:
    """As the planner sees it: awake, and with the taint that a reclaimable node should have."""
    found = awake(node) if asleep else node
    if not reclaimable or is_tainted(found):
        return found
    taint = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
    return {**found, "spec": {**spec_of(found), "taints": [*(spec_of(found).get("taints") or ()), taint]}}


def _without(problem: Problem, asleep: Collection[str]) -> Problem:
    """The problem without these machines, and what belongs to them."""
    there = tuple(pod for pod in problem.pods if node_of(pod) not in asleep)
    return replace(problem, machines=tuple(one for one in problem.machines if one.name not in asleep), pods=there)


def awake(node: Object) -> dict[str, Any]:
    """The node as it is when its machine runs and it is uncordoned."""
    (bare,), _ = without_passing([node])
    spec = {key: value for key, value in spec_of(bare).items() if key != "unschedulable"}
    taints = [one for one in spec.get("taints") or () if one.get("key") != UNSCHEDULABLE]
    conditions = [{"type": "Ready", "status": "True"}]
    return {**bare, "spec": {**spec, "taints": taints}, "status": {**status_of(bare), "conditions": conditions}}


def _left(found: Consolidation) -> dict[str, list[Keep]]:
    """The nodes that must go and cannot, since pods of them have no room."""
    keeps: dict[str, list[Keep]] = {}
    for node in found.owners.must_go if found.plan.left else ():
        for one in found.keeper.fates[node]:
            if (why := found.plan.left.get(namespace_and_name(one.pod))) is not None:
                keeps.setdefault(node, []).append(Keep(KeepReason.NO_ROOM, one_line(one.name), one_line(why)))
    return keeps


def _without_zone(found: Consolidation) -> dict[str, list[Keep]]:
    """Of a zone, or a cluster, that would have no node left for pods, the one that is worth least stays; one that must go does not."""
    lost = found.keeper.lost_zones(found.plan.goes) if found.plan.goes else {}
    lost = {node: keeps for node, keeps in lost.items() if node not in found.owners.must_go}
    return {node: lost[node] for node in sorted(lost, key=lambda node: (found.worth(node), node))[:1]}


def _not_sure(found: Consolidation) -> dict[str, list[Keep]]:
    """The nodes that stay because a pod of them does not surely fit on its new node: of several, the half that is worth less."""
    keeps: dict[str, list[Keep]] = {}
    for node, keep in _judged(found):
        keeps.setdefault(node, []).append(keep)
    least = sorted(keeps, key=lambda node: (node in found.owners.must_go, found.worth(node), node))
    return {node: keeps[node] for node in least[: (len(least) + 1) // 2]}


def _judged(found: Consolidation) -> Iterator[tuple[str, Keep]]:
    """The moves that placement does not confirm, by the node that the pod leaves: as its template makes it, in the order of the plan."""
    leaving = {namespace_and_name(one.pod): one for node in found.goes for one in found.keeper.leaving(node)}
    moves = [(leaving[pod], to) for pod, to in found.plan.moves.items() if pod in leaving]
    trial = Trial(_with_awake(cluster_view(found.keeper.live), found.plan.woken), found.plan.goes)
    workloads = found.keeper.judge.workloads
    verdicts = trial.moves([(replacement(one.pod, workloads)[0], to) for one, to in moves])
    for (one, to), verdict in zip(moves, verdicts, strict=True):
        if verdict.state != "fits":
            reason = KeepReason.NO_PLACE if verdict.state == "no" else KeepReason.UNSURE
            yield one.node, Keep(reason, one_line(one.name), one_line(f"{to}: {'; '.join(verdict.why[:_FEW])}"))
    for pod, one in leaving.items():
        if pod not in found.plan.moves:
            yield one.node, Keep(KeepReason.UNSURE, one_line(one.name), "the plan has no node for it")


def _with_awake(view: ClusterView, woken: Collection[str]) -> ClusterView:
    return replace(view, nodes=[awake(node) if name_of(node) in woken else node for node in view.nodes])
