"""The rule `no-place` of the audit: with one node cordoned, whether the replacements of its pods fit on the others. Pure.

The other rules are in roles/engine/disruption/lint.py, which knows no placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from roles.engine.api import Api, list_objects
from roles.engine.context import Schedulers
from roles.engine.disruption import PDB, BudgetState, DisruptionObjects, DisruptionRule, pods_per_node
from roles.engine.findings import Finding, Severity
from roles.engine.folding import shortened
from roles.engine.kube.fields import volumes_of
from roles.engine.kube.pods import node_of
from roles.engine.outage.fates import Judge
from roles.engine.outage.model import DrainConsents, PodFate
from roles.engine.outage.places import cluster_view, passing_taints, replacement
from roles.engine.outage.reading import MORE_KINDS, with_schedulers
from roles.engine.outage.waves import in_order
from roles.engine.placement import Outcome, Placement, World, place_all
from roles.engine.timeouts import API_WAIT

#: Checks of a pod against a node, in all: some seconds. Of a large cluster, only the nodes with the most pods of budgets are judged.
MOST_CHECKS = 300_000
_FEW_NODES, _FEW_REASONS = 5, 2
_KINDS = ("Node", "Namespace")
_OF_VOLUMES = ("PersistentVolumeClaim", "PersistentVolume", "CSIDriver", "CSINode", "VolumeAttachment")
#: Rules that say the same of their objects already.
_SAID = (DisruptionRule.NO_NODE_LEFT, DisruptionRule.TIED_TO_NODE)


@dataclass
class _Found:
    """What was found of one budget: by node, the pods whose replacements have no place, or may have none, each with the reasons."""

    nowhere: dict[str, list[str]] = field(default_factory=dict)
    unsure: dict[str, list[str]] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)

    def add(self, node: str, place: Placement, waits: str) -> None:
        of_outcome: Mapping[Outcome, dict[str, list[str]]] = {"nowhere": self.nowhere, "unsure": self.unsure, "not judged": self.unsure}
        self.judged.add(node)
        if waits:
            self.unsure.setdefault(node, []).append(f"{place.pod} ({waits})")
        elif place.outcome in of_outcome:
            others = {name: verdict for name, verdict in place.nodes.items() if name != node}
            of_outcome[place.outcome].setdefault(node, []).append(_text(replace(place, nodes=others)))


def read_places(api: Api, live: DisruptionObjects, schedulers: Schedulers = dict) -> DisruptionObjects:
    """`live` with what the rule needs; nothing is read if there is no budget. Raises ApiError."""
    if not live.of(PDB):
        return live
    claims = any("persistentVolumeClaim" in one or "ephemeral" in one for pod in live.of("Pod") for one in volumes_of(pod))
    wanted = (*_KINDS, *(_OF_VOLUMES if claims else ()))
    more = {kind: list_objects(api, MORE_KINDS[kind], wait=API_WAIT) for kind in wanted if kind not in live.objects}
    live = replace(live, objects={**live.objects, **more})
    return with_schedulers(live, schedulers)


def with_places(
    problems: Iterable[Finding], live: DisruptionObjects, states: Sequence[BudgetState], now: datetime
) -> tuple[list[Finding], list[str]]:
    """The problems of the lint and those of this rule; and what was not judged. `live` from `read_places`."""
    problems = list(problems)
    said = {name for one in problems if one.rule in _SAID for name in one.objects}
    by_budget = {state.key: pods_per_node(state) for state in states if f"{PDB} {state.key}" not in said}
    crowd: dict[str, int] = {}
    for counted in by_budget.values():
        for node, number in counted.items():
            crowd[node] = crowd.get(node, 0) + number
    try:
        found, judged = _judged(sorted(crowd, key=lambda node: (-crowd[node], node)), live, states, now, said)
    except ValueError as error:
        return problems, [f"whether replacements fit on other nodes: {error}"]
    own = {key: one for key, one in found.items() if key in by_budget}
    shown = [_of_waves(one, own, by_budget) for one in problems]
    shown += [problem for key, one in own.items() for problem in _problems(key, one)]
    if judged == len(crowd):
        return shown, []
    return shown, [f"whether replacements fit on other nodes: only {judged} of {len(crowd)} nodes with pods of budgets were judged"]


def _judged(
    nodes: Sequence[str], live: DisruptionObjects, states: Sequence[BudgetState], now: datetime, said: set[str]
) -> tuple[dict[str, _Found], int]:
    """What was found, by budget, and how many of these nodes were judged. Raises ValueError."""
    judge = Judge.of(live, states, DrainConsents(allow_local_data=True, allow_unmanaged=True), now)
    view = cluster_view(live)
    known = World(view).held
    wanted = frozenset(nodes)
    there: dict[str, list[PodFate]] = {}
    for pod in live.of("Pod"):
        if (node := node_of(pod)) in wanted:
            there.setdefault(node, []).append(judge.fate(pod, node))
    found: dict[str, _Found] = {}
    checks = 0
    for number, node in enumerate(nodes):
        moving = in_order(one for one in there[node] if one.fate not in ("stays", "ending") and one.workload is not None)
        checks += len(view.pods) + len(moving) * len(view.nodes)
        if checks > MOST_CHECKS and number:
            return found, number
        new = [replacement(one.pod, judge.workloads)[0] for one in moving]
        places = place_all(new, view, [node], known)
        for one, place, waits in zip(moving, places, passing_taints(new, places, view, [node]), strict=True):
            for key in one.budgets if f"Pod {one.name}" not in said else ():
                found.setdefault(key, _Found()).add(node, place, waits)
    return found, len(nodes)


def _problems(key: str, found: _Found) -> Iterable[Finding]:
    if found.nowhere:
        why = f"with one of these nodes drained, its pods fit on no other node: {_listed(found.nowhere)}"
        yield DisruptionRule.NO_PLACE.found((f"{PDB} {key}", *_nodes(found.nowhere)), why)
    if found.unsure:
        yield DisruptionRule.NO_PLACE.found(
            (f"{PDB} {key}", *_nodes(found.unsure)),
            f"if one of these nodes is drained, it is not sure that pods of it find another place: {_listed(found.unsure)}",
            "deploys/drain.py --dry shows each pod", Severity.note,
        )  # fmt: skip


def _of_waves(problem: Finding, found: Mapping[str, _Found], by_budget: Mapping[str, Mapping[str, int]]) -> Finding:
    """The waves of a budget whose replacements fit, with that."""
    key = problem.objects[0].removeprefix(f"{PDB} ")
    own = found.get(key)
    if problem.rule is not DisruptionRule.WAVES or own is None or own.nowhere or own.unsure or own.judged < set(by_budget[key]):
        return problem
    return replace(problem, why=f"{problem.why}; they fit on the other nodes")


def _nodes(found: Mapping[str, object]) -> list[str]:
    return [f"Node {name}" for name in found]


def _listed(found: Mapping[str, Sequence[str]]) -> str:
    """By node, one pod with its reasons."""
    return shortened([f"{node}: {shortened(pods, 1)}" for node, pods in found.items()], _FEW_NODES, ";")


def _text(place: Placement) -> str:
    reasons = "; ".join(place.reasons[:_FEW_REASONS])
    return f"{place.pod} ({reasons})" if reasons else place.pod
