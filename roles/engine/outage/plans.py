"""The outages of a run, planned for all its nodes before anything is written. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from roles.engine import detail
from roles.engine.detail import shortened
from roles.engine.disruption import DisruptionObjects
from roles.engine.harmless import one_line
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.outage.cordon import node_fate
from roles.engine.outage.keys import DrainConsents
from roles.engine.outage.model import DrainPlan
from roles.engine.outage.planning import narrowed, plan_drain
from roles.engine.outage.purpose import Purpose
from roles.engine.outage.report import plan_text
from roles.engine.outage.second_consent import ask_again
from roles.engine.rollout import counted

#: Of more pods than this, the plan shows counts and what is unusual.
MANY_PODS = 30


@dataclass(frozen=True)
class Wanted:
    """A node to be drained. `host`, and its name in the cluster, `node`; `why` in sentences; `instead`: what an operator can do so that it
    is not drained."""

    host: str
    node: str
    why: tuple[str, ...]
    instead: str = ""


def together(stages: Iterable[tuple[Sequence[str], int]], wanted: Mapping[str, Wanted]) -> list[list[Wanted]]:
    """Nodes that are drained at the same time: each two or more that follow each other, as the pace allows. `stages`: the hosts of each
    stage, and how many at once; `wanted` by host."""
    found = []
    for names, at_once in stages:
        nodes = [wanted[host] for host in names if host in wanted]
        if at_once > 1 and len(nodes) > 1:
            found += [nodes[first : first + at_once] for first in range(max(1, len(nodes) - at_once + 1))]
    return found


def as_uncordoned(live: DisruptionObjects, nodes: Collection[str]) -> DisruptionObjects:
    """The cluster as it will be once these nodes, by name, are uncordoned."""
    if not nodes:
        return live
    items = [_uncordoned(node) if name_of(node) in nodes else node for node in live.of("Node")]
    return replace(live, objects={**live.objects, "Node": items})


def _uncordoned(node: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in spec_of(node).items() if key != "unschedulable"}
    taints = [one for one in spec.get("taints") or () if one.get("key") != "node.kubernetes.io/unschedulable"]
    return {**node, "spec": {**spec, "taints": taints}}


def judge(
    live: DisruptionObjects,
    wanted: Sequence[Wanted],
    groups: Sequence[Sequence[Wanted]],
    asked: DrainConsents,
    now: datetime,
    purpose: Purpose,
    left: Collection[str] = (),
) -> tuple[dict[str, DrainPlan], list[str], list[str]]:
    """The plan of each drain by host, made as if the others were over, notes for the plan, and refusals; `groups` are drained at the same
    time, so their budgets and replacements are added up. `left`: names of nodes with a cordon that this run removes."""
    plans: dict[str, DrainPlan] = {}
    refusals: dict[str, None] = {}
    known: set[str] = set()
    for one in wanted:
        plan = _planned(live, [one], asked, now, purpose, left)
        plans[one.host] = plan
        known |= {*plan.refusals}
        what = f"{one.host}: it is drained for {purpose.text} ({'; '.join(one.why)}), and cannot be"
        instead = f"; or {one.instead}" if one.instead else ""
        refusals |= dict.fromkeys(f"{what}: {text}{instead}" for text in plan.refusals)
    notes = [_note(one, purpose, plans[one.host], len(wanted)) for one in wanted]
    for group in groups:
        plan = _planned(live, group, asked, now, purpose, left)
        names = ", ".join(one.host for one in group)
        at_once = f"{names} are drained at the same time (max_unavailable)"
        refusals |= dict.fromkeys(f"{at_once}: {text}; or lower max_unavailable" for text in plan.refusals if text not in known)
        waits = [
            f"{one.key} ({one.leaving} of its pods leave, it allows {one.allowed})" for one in plan.budgets if one.leaving > one.allowed
        ]
        if waits:
            notes.append(f"{at_once}: they wait for each other's replacements by {', '.join(waits)}")
    refusals |= dict.fromkeys(_unknown_surges(live, wanted, asked))
    return plans, list(dict.fromkeys(notes)), list(refusals) or ask_again(plans.values(), asked)


def _planned(
    live: DisruptionObjects, nodes: Sequence[Wanted], consents: DrainConsents, now: datetime, purpose: Purpose, left: Collection[str]
) -> DrainPlan:
    """The plan for some nodes, with the cordons that they have now."""
    names = [one.node for one in nodes]
    plan = plan_drain(as_uncordoned(live, left), names, narrowed(consents, live, names), now)
    fates = {fate.name: purpose.seen(fate) for fate in map(node_fate, live.of("Node"))}
    return replace(plan, nodes=tuple(fates[one.name] for one in plan.nodes))


def _unknown_surges(live: DisruptionObjects, wanted: Sequence[Wanted], consents: DrainConsents) -> list[str]:
    if not isinstance(consents.surge, tuple):
        return []
    there = narrowed(consents, live, [one.node for one in wanted]).surge
    missing = [name for name in consents.surge if not isinstance(there, tuple) or name not in there]
    return [f"surge: {name} has no pod on {', '.join(one.host for one in wanted)}" for name in missing]


def _note(one: Wanted, purpose: Purpose, plan: DrainPlan, nodes: int) -> str:
    """What becomes of the pods of a node: each of them, or how many and what is unusual."""
    heading = f"{one.host} is drained for {purpose.text}: {one_line('; '.join(one.why))}"
    if len(plan.pods) <= MANY_PODS and not (detail.folds() and nodes > 1):
        return f"{heading}\n{plan_text(plan)}"
    return "\n".join([heading, f"  {summary(plan)}", *(f"  WARNING: {one_line(text)}" for text in plan.warnings)])


def summary(plan: DrainPlan) -> str:
    """A drain in one line."""
    fates = {fate: [pod.name for pod in plan.pods if pod.fate == fate] for fate in ("surged", "deleted", "stays")}
    parts = [f"{counted(len(plan.leaving), 'pod')} leave in {counted(len(plan.waves), 'wave')}, {len(fates['stays'])} stay"]
    for names, what in (
        (fates["surged"], "replaced first"),
        (fates["deleted"], "deleted past their budget, by consent"),
        ([pod.name for pod in plan.leaving if pod.pending], "replacements stay Pending, by consent"),
        ([pod.name for pod in plan.leaving if pod.blocked_now], "not now, so the run waits"),
    ):
        if names:
            parts.append(f"{what}: {one_line(shortened(names))}")
    return "; ".join(parts)
