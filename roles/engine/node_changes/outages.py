"""Changes that must not meet running pods: which nodes a run drains for them, planned for all nodes before anything is written; and the
cordons that earlier changes have left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.context import Stage, StepContext
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import spec_of
from roles.engine.kube.matching import UNSCHEDULABLE
from roles.engine.kube.workloads import node_path
from roles.engine.node_changes.node_plan import KUBELET, NodePlan
from roles.engine.node_changes.step import NodeStep
from roles.engine.object_runs import open_session
from roles.engine.objects import NotDone, Session
from roles.engine.outage import (
    DrainConsents,
    NodeFate,
    NodeOutage,
    Purpose,
    Wanted,
    cluster_time,
    end_outage,
    node_fate,
    plan_outages,
    read_drain,
)
from roles.engine.outage.evicting import RunLimit
from roles.engine.proof import Cluster, Survey
from roles.engine.timeouts import LOOK_AGAIN, Deadline


class ChangeDrains(DrainConsents):
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


# A node with a restarted kubelet is Ready again within this time, and without the taint of its cordon.
READY_SECONDS = 90


def wait_schedulable(session: Session, node: str) -> None:
    """Until the node is Ready and takes pods. Raises NotDone, ApiFailure."""
    deadline = Deadline(READY_SECONDS)
    while why := _not_schedulable(session.fetch(node_path(node))):
        if deadline.over:
            raise NotDone(f"{node}: {why} after {deadline.passed:.0f} s")
        deadline.pause(LOOK_AGAIN)


def _not_schedulable(node: Object | None) -> str:
    """Why a node takes no pods; "" if it does, or does not exist."""
    spec = spec_of(node or {})
    if node is None or spec.get("unschedulable"):
        return ""  # someone has cordoned it since: that is not for this run to wait for
    if not is_ready(node):
        return "it is not Ready"
    return "it has the taint of its cordon" if any(one.get("key") == UNSCHEDULABLE for one in spec.get("taints") or ()) else ""


#: A cordon that an earlier change has left ends with the next one.
CHANGE = Purpose("change", "its change", wait_schedulable)


@dataclass(frozen=True)
class Leftover:
    """A node that an earlier run, which is over, cordoned for its change."""

    session: Session
    host: str
    node: str
    run: str

    def uncordon(self, context: StepContext) -> str:
        """End what that run has left of its surges, and uncordon the node if it still has its mark; returns the proof. Raises NotDone,
        ApiFailure."""
        ended, back = end_outage(self.session, self.node, self.run, {self.run}, context)
        if back.done:
            CHANGE.back(self.session, self.node)
        return "; ".join(filter(None, (ended, f"{back.done}: {back.why}" if back.done else f"left as it is: {back.why}")))


def plan_drains(
    fleet: Fleet,
    found: Survey,
    asked: ChangeDrains,
    run: str,
    plans: Sequence[NodePlan[Any]],
    stages: Sequence[Stage[NodeStep]],
    runs: Collection[str] = (),
) -> tuple[list[str], list[Leftover]]:
    """Plan the drains of a run, and set them in its steps; returns notes for the plan, and the cordons of earlier changes that this run
    removes. Raises DeployError with all refusals. Asks nothing if no node is drained, and none has a cordon of an earlier change. `runs`:
    their cordons are removed from all nodes, also from those without a plan."""
    hosts = {plan.kubelet.node_name: plan.host for plan in plans}
    fates = fates_of(found.reading) if asked.allowed else {}
    known = {name: fates[name] for name in (*hosts, *fates) if name in fates}
    cordoned = {name: cordoned_for_change(fate) for name, fate in known.items()}
    changed = {name: by for name, by in cordoned.items() if by and (name in hosts or by in runs)}
    left = {hosts.get(name, name): (name, by) for name, by in changed.items()}
    wanted = {one.host: one for one in _wanted(plans, asked)}
    if not wanted and not left:
        return [], []
    session = open_session(fleet, found, None)
    notes: list[str] = []
    if wanted:
        with bridge.refusing(ApiFailure, f"{', '.join(wanted)}: to be drained, but the cluster's objects cannot be read: "):
            live, now = read_drain(session), cluster_time(session)
        turns = [([step.change.node for step in stage.steps if step.change.kind == "kubelet"], stage.at_once) for stage in stages]
        notes, refusals = plan_outages(live, list(wanted.values()), turns, asked, now, CHANGE, changed)
        bridge.stop(refusals)
    set_drains(session, stages, wanted, asked, run)
    leftovers = [Leftover(session, host, *one) for host, one in left.items() if host not in wanted]
    notes += [f"{one.host}: cordoned by run {one.run} for its change, which is over: this run uncordons it" for one in leftovers]
    return notes, leftovers


def set_drains(
    session: Session, stages: Sequence[Stage[NodeStep]], wanted: Mapping[str, Wanted], consents: DrainConsents, run: str
) -> None:
    """Give the steps of kubelets their drains. `wanted` by host."""
    limit = RunLimit(session)
    for step in (step for stage in stages for step in stage.steps if step.change.kind == "kubelet"):
        if (one := wanted.get(step.change.node)) is not None:
            step.drain = NodeOutage(session, one.node, consents, run, CHANGE, why=one.why, limit=limit)


def fates_of(cluster: Cluster) -> dict[str, NodeFate]:
    """By name, whether each node of the cluster is cordoned, and by whom, as the survey has read it."""
    return {name: node_fate(one) for name, one in cluster.last_nodes().items()}


def cordoned_for_change(fate: NodeFate) -> str:
    """The run that cordoned a node for its change; ""."""
    return fate.mark.run if fate.mark is not None and CHANGE.resumes(fate.mark) else ""


def _wanted(plans: Sequence[NodePlan[Any]], asked: ChangeDrains) -> list[Wanted]:
    found = []
    for plan in plans:
        for planned in plan.changing:
            why = planned.needs_drain or (("drain=always",) if asked.drain == "always" and planned.component == KUBELET else ())
            if why and asked.allowed:
                instead = planned.instead if asked.drain == "auto" else ""
                found.append(Wanted(plan.host, plan.kubelet.node_name, why, instead))
    return found
