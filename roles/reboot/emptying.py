"""The outages of the nodes that reboot: planned, taken and given back (roles/engine/outage)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from roles.engine.context import StepContext
from roles.engine.disruption import DisruptionObjects
from roles.engine.harmless import one_line
from roles.engine.kube import Object, uid
from roles.engine.object_changes import Session
from roles.engine.outage import (
    DrainConsents,
    DrainKeys,
    NodeOutage,
    Purpose,
    RunLimit,
    Wanted,
    end_outage,
    judge,
    node_path,
    together,
)
from roles.engine.rollout import Stage
from roles.reboot.plan import MARK, Mark, RebootPlan, brought_back


def reboot_of(runs: Collection[str]) -> Purpose:
    """`runs`: earlier runs of this deploy, whose cordons end with the reboot."""
    return Purpose("its reboot", resumes=runs.__contains__)


def plan_drains(
    live: DisruptionObjects, stages: Sequence[Stage[RebootPlan]], asked: DrainKeys, now: datetime
) -> tuple[list[str], list[str]]:
    """What becomes of the pods of each node that reboots, as text; and why they cannot leave. Pure. Nodes that the pace may drain at the
    same time are added up as well."""
    plans = [plan for stage in stages for plan in stage.steps]
    wanted = {plan.host: Wanted(plan.host, plan.name, (one_line(plan.why),)) for plan in plans if plan.what == "reboot"}
    groups = together((([plan.host for plan in stage.steps], stage.at_once) for stage in stages), wanted)
    purpose = reboot_of({plan.continued for plan in plans})
    made, refusals = judge(live, list(wanted.values()), groups, asked, now, purpose, brought_back(plans))
    return [f"\n{note}" for note in made.notes], refusals


class Emptying:
    """Cordons, empties and uncordons nodes for a run."""

    def __init__(self, session: Session, consents: DrainConsents) -> None:
        self._session, self._consents = session, consents
        self._limit = RunLimit(session)

    def drain(self, node: str, context: StepContext, runs: Collection[str]) -> str:
        """Cordon the node and empty it; the proof in a few words. A cordon that it has already stays as it is, unless it is of one of
        `runs`. Raises NotDone, ApiFailure; then the node has the cordon that it had, or none."""
        return NodeOutage(self._session, node, self._consents, context.run, reboot_of(runs), limit=self._limit).take(context)

    def free(self, node: Object, runs: Collection[str], mark: Mark | None, context: StepContext) -> str:
        """End what an earlier run, that of the mark, has left of its surges; then uncordon the node, if one of `runs` has cordoned it. The
        mark goes last: it leads to all of that. Returns the result in a few words. Raises NotDone, ApiFailure."""
        name = str(node["metadata"]["name"])
        ended, back = end_outage(self._session, name, mark.run if mark else "", runs, context)
        write_mark(self._session, node_path(name), uid(node), None)
        kept = f"it keeps the cordon that it had, of {back.of}" if back.of else back.why
        return "; ".join(filter(None, (ended, back.done or kept)))


def write_mark(session: Session, path: str, node_uid: str, text: str | None, name: str = MARK) -> None:
    """Write the mark of a run on a Node, or remove it (None). Raises NotDone, ApiFailure."""
    body = {"metadata": {"uid": node_uid, "annotations": {name: text}}}

    def done(found: Object) -> bool:
        return uid(found) == node_uid and (found["metadata"].get("annotations") or {}).get(name) == text

    session.written(path, lambda api: api.patch(path, body), done)
