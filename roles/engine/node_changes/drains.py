"""Changes that must not meet running pods: which nodes a run drains for them, planned for all nodes before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from roles.engine import bridge, detail
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.disruption import DisruptionObjects
from roles.engine.harmless import one_line
from roles.engine.node_changes.node_plan import KUBELET, NodePlan
from roles.engine.node_changes.step import NodeStep
from roles.engine.node_changes.step_drain import Leftover, StepDrain
from roles.engine.object_changes import Session, open_session
from roles.engine.outage import (
    DrainConsents,
    DrainKeys,
    DrainPlan,
    NodeFate,
    RunLimit,
    ask_again,
    cluster_time,
    mark,
    narrowed,
    node_fate,
    plan_drain,
    plan_text,
    read_drain,
    run_of_mark,
)
from roles.engine.proof import Cluster, Survey
from roles.engine.rollout import Stage, counted, same
from roles.engine.transaction import Refusal

#: Of more pods than this, the plan shows counts and what is unusual.
MANY_PODS = 30


class ChangeDrains(DrainKeys):
    """Whether a run drains the nodes whose kubelet it changes, and the consents of these drains."""

    drain: Annotated[
        Literal["auto", "always", "never"],
        Field(
            description="which nodes are drained before their kubelet changes, and uncordoned after it: `auto` those whose change needs"
            " it, `always` all, `never` none; then a change that needs it is refused",
            examples=["always"],
        ),
    ] = "auto"

    @property
    def allowed(self) -> bool:
        """A change that needs a drained node gets one."""
        return self.drain != "never"


def read_drains(fleet: Fleet) -> ChangeDrains:
    """Raises DeployError."""
    try:
        return same(fleet.targets, ChangeDrains)
    except Refusal as refusal:
        raise bridge.refusals([refusal]) from None


@dataclass(frozen=True)
class Wanted:
    """A node to be drained. `host`, and its name in the cluster, `node`; `why` in sentences; `keep_cordon`: it is cordoned already by
    something else than an earlier change, and stays so; `instead`: what an operator can do so that it is not drained."""

    host: str
    node: str
    why: tuple[str, ...]
    keep_cordon: bool = False
    instead: str = ""


@dataclass(frozen=True)
class PlannedDrains:
    """The drains of a run. `plans` by host; `leftovers`: cordons of earlier changes, which this run removes; `notes` for the plan."""

    plans: Mapping[str, DrainPlan] = field(default_factory=dict)
    leftovers: tuple[Leftover, ...] = ()
    notes: tuple[str, ...] = ()


def plan_drains(
    fleet: Fleet,
    found: Survey,
    asked: ChangeDrains,
    run: str,
    plans: Sequence[NodePlan[Any]],
    stages: Sequence[Stage[NodeStep]],
    runs: Collection[str] = (),
) -> PlannedDrains:
    """The drains of a run, set in its steps. Raises DeployError with all refusals. Asks nothing if no node is drained, and none has a
    cordon of an earlier change. `runs`: their cordons are removed from all nodes, also from those without a plan."""
    fates = {plan.host: fate for plan in plans if (fate := fate_of(found.reading, plan.kubelet.node_name)) is not None}
    left = {host: fate for host, fate in fates.items() if cordoned_for_change(fate)} if asked.allowed else {}
    if asked.allowed:
        known = {fate.name for fate in fates.values()}
        left |= {one.name: one for one in fates_of(found.reading) if one.name not in known and cordoned_for_change(one) in runs}
    wanted = {one.host: one for one in _wanted(plans, asked, fates)}
    if not wanted and not left:
        return PlannedDrains()
    session = open_session(fleet, found, None)
    made = PlannedDrains()
    if wanted:
        try:
            live, now = read_drain(session), cluster_time(session)
        except ApiFailure as error:
            raise bridge.refusals([f"{', '.join(wanted)}: to be drained, but the cluster's objects cannot be read: {error}"]) from None
        turns = [([step.change.node for step in stage.steps if step.change.kind == "kubelet"], stage.at_once) for stage in stages]
        groups = together(turns, wanted)
        made, refusals = judge(live, list(wanted.values()), groups, asked, now, {fate.name for fate in left.values()})
        bridge.stop(refusals)
    set_drains(session, stages, wanted, asked.consents, run)
    leftovers = tuple(Leftover(session, host, fate.name, fate.by) for host, fate in left.items() if host not in wanted)
    notes = [f"{one.host}: cordoned by run {one.run} for its change, which is over: this run uncordons it" for one in leftovers]
    return replace(made, leftovers=leftovers, notes=(*made.notes, *notes))


def set_drains(
    session: Session, stages: Sequence[Stage[NodeStep]], wanted: Mapping[str, Wanted], consents: DrainConsents, run: str
) -> None:
    """Give the steps of kubelets their drains. `wanted` by host."""
    limit = RunLimit(session)
    for step in (step for stage in stages for step in stage.steps if step.change.kind == "kubelet"):
        if (one := wanted.get(step.change.node)) is not None:
            step.drain = StepDrain(session, one.node, consents, mark(run), one.why, limit)


def fate_of(cluster: Cluster, node: str) -> NodeFate | None:
    """Whether a node is cordoned, and by whom, as the survey has read it; None if it has not."""
    listed = cluster.last_nodes()
    return node_fate(listed[node]) if node in listed else None


def fates_of(cluster: Cluster) -> list[NodeFate]:
    """All nodes of the cluster, as the survey has read them."""
    return [node_fate(one) for one in cluster.last_nodes().values()]


def cordoned_for_change(fate: NodeFate | None) -> str:
    """The run that cordoned a node for its change; ""."""
    return run_of_mark(fate.by) if fate is not None and fate.cordon == "ours" else ""


def _wanted(plans: Sequence[NodePlan[Any]], asked: ChangeDrains, fates: Mapping[str, NodeFate]) -> list[Wanted]:
    found = []
    for plan in plans:
        for planned in plan.changing:
            why = planned.needs_drain or (("drain=always",) if asked.drain == "always" and planned.component == KUBELET else ())
            if why and asked.allowed:
                fate = fates.get(plan.host)
                keep = fate is not None and fate.cordon == "ours" and not cordoned_for_change(fate)
                instead = planned.instead if asked.drain == "auto" else ""
                found.append(Wanted(plan.host, plan.kubelet.node_name, why, keep, instead))
    return found


# ---- pure


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
    items = [_uncordoned(node) if node["metadata"]["name"] in nodes else node for node in live.of("Node")]
    return replace(live, objects={**live.objects, "Node": items})


def _uncordoned(node: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in (node.get("spec") or {}).items() if key != "unschedulable"}
    taints = [one for one in spec.get("taints") or () if one.get("key") != "node.kubernetes.io/unschedulable"]
    return {**node, "spec": {**spec, "taints": taints}}


def judge(
    live: DisruptionObjects,
    wanted: Sequence[Wanted],
    groups: Sequence[Sequence[Wanted]],
    asked: DrainKeys,
    now: datetime,
    left: Collection[str] = (),
    purpose: str = "its change",
) -> tuple[PlannedDrains, list[str]]:
    """The plan of each drain, made as if the others were over, and its refusals; `groups` are drained at the same time, so their budgets
    and replacements are added up. `left`: names of nodes with a cordon that this run removes; `purpose`: what each node is drained for."""
    plans: dict[str, DrainPlan] = {}
    refusals: dict[str, None] = {}
    known: set[str] = set()
    for one in wanted:
        plan = _planned(live, [one], asked.consents, now, left)
        plans[one.host] = plan
        known |= {*plan.refusals}
        what = f"{one.host}: it is drained for {purpose} ({'; '.join(one.why)}), and cannot be"
        instead = f"; or {one.instead}" if one.instead else ""
        refusals |= dict.fromkeys(f"{what}: {text}{instead}" for text in plan.refusals)
    notes = [_note(one, purpose, plans[one.host], len(wanted)) for one in wanted]
    for group in groups:
        plan = _planned(live, group, asked.consents, now, left)
        names = ", ".join(one.host for one in group)
        at_once = f"{names} are drained at the same time (max_unavailable)"
        refusals |= dict.fromkeys(f"{at_once}: {text}; or lower max_unavailable" for text in plan.refusals if text not in known)
        waits = [
            f"{one.key} ({one.leaving} of its pods leave, it allows {one.allowed})" for one in plan.budgets if one.leaving > one.allowed
        ]
        if waits:
            notes.append(f"{at_once}: they wait for each other's replacements by {', '.join(waits)}")
    refusals |= dict.fromkeys(_unknown_surges(live, wanted, asked.consents))
    return PlannedDrains(plans, notes=tuple(dict.fromkeys(notes))), list(refusals) or ask_again(plans.values(), asked.consents)


def _planned(live: DisruptionObjects, nodes: Sequence[Wanted], consents: DrainConsents, now: datetime, left: Collection[str]) -> DrainPlan:
    """The plan for some nodes, with the cordons that they have now."""
    names = [one.node for one in nodes]
    plan = plan_drain(as_uncordoned(live, left), names, narrowed(consents, live, names), now)
    fates = {fate.name: fate for fate in map(node_fate, live.of("Node"))}
    keep = {one.node for one in nodes if one.keep_cordon and one.node in fates and fates[one.node].cordon}
    return replace(
        plan, nodes=tuple(replace(fates[one.name], cordon="theirs") if one.name in keep else fates[one.name] for one in plan.nodes)
    )  # fmt: skip


def _unknown_surges(live: DisruptionObjects, wanted: Sequence[Wanted], consents: DrainConsents) -> list[str]:
    if not isinstance(consents.surge, tuple):
        return []
    there = narrowed(consents, live, [one.node for one in wanted]).surge
    missing = [name for name in consents.surge if not isinstance(there, tuple) or name not in there]
    return [f"surge: {name} has no pod on {', '.join(one.host for one in wanted)}" for name in missing]


def _note(one: Wanted, purpose: str, plan: DrainPlan, nodes: int) -> str:
    """What becomes of the pods of a node: each of them, or how many and what is unusual."""
    heading = f"{one.host} is drained for {purpose}: {one_line('; '.join(one.why))}"
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
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            parts.append(f"{what}: {one_line(', '.join(names[:5]))}{more}")
    return "; ".join(parts)
