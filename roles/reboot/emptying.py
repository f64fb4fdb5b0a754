"""The drains of the nodes that reboot, planned and carried out, and their cordons afterwards (roles/engine/outage)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from roles.engine.context import StepContext
from roles.engine.disruption import DisruptionObjects
from roles.engine.harmless import one_line
from roles.engine.kube import Object, uid
from roles.engine.node_changes import Wanted, judge, together
from roles.engine.object_changes import NotDone, Session
from roles.engine.outage import DrainConsents, DrainKeys, NodeDrain, RunLimit, end_surges, give_back, node_fate, node_path
from roles.engine.rollout import Stage
from roles.reboot.plan import MARK, Mark, RebootPlan, brought_back


def plan_drains(
    live: DisruptionObjects, stages: Sequence[Stage[RebootPlan]], asked: DrainKeys, now: datetime
) -> tuple[list[str], list[str]]:
    """What becomes of the pods of each node that reboots, as text; and why they cannot leave. Pure. Nodes that the pace may drain at the
    same time are added up as well."""
    plans = [plan for stage in stages for plan in stage.steps]
    wanted = {plan.host: Wanted(plan.host, plan.name, (one_line(plan.why),), plan.keep) for plan in plans if plan.what == "reboot"}
    groups = together((([plan.host for plan in stage.steps], stage.at_once) for stage in stages), wanted)
    made, refusals = judge(live, list(wanted.values()), groups, asked, now, brought_back(plans), "its reboot")
    return [f"\n{note}" for note in made.notes], refusals


class Emptying:
    """Cordons, empties and uncordons nodes for a run."""

    def __init__(self, session: Session, consents: DrainConsents) -> None:
        self._session, self._consents = session, consents
        self._limit = RunLimit(session)

    def drain(self, node: str, context: StepContext, runs: Collection[str]) -> str:
        """Cordon the node and empty it; the proof in a few words. A cordon that it has already stays as it is, unless it is of one of
        `runs`. Raises NotDone, ApiFailure; then the node has the cordon that it had, or none."""
        return NodeDrain(
            self._session, node, self._consents, context.run, continues=runs.__contains__, limit=self._limit
        ).begin(context)  # fmt: skip

    def end_surges(self, of: str, context: StepContext) -> str:
        """End what an earlier run has left of its surges; "" if that is nothing. Raises NotDone, ApiFailure."""
        return end_surges(self._session, of, context)

    def uncordon(self, node: str, context: StepContext, runs: Collection[str]) -> str:
        """Uncordon the node if one of these runs has cordoned it; the result in a few words. Raises NotDone, ApiFailure."""
        found = self._session.fetch(node_path(node))
        if found is None:
            raise NotDone("its Node object was deleted")
        fate = node_fate(found)
        back = give_back(self._session, node, uid(found), runs, context)
        if back.done or not fate.cordon:
            return back.done or back.why
        return f"it keeps the cordon that it had, of {f'run {fate.by}' if fate.cordon == 'ours' else fate.by}"


def free(emptying: Emptying, session: Session, node: Object, runs: Collection[str], mark: Mark | None, context: StepContext) -> str:
    """End what an earlier run, that of the mark, has left of its surges; then uncordon the node, if one of `runs` has cordoned it. The mark
    goes last: it leads to all of that. Returns the result in a few words. Raises NotDone, ApiFailure."""
    name = str(node["metadata"]["name"])
    ended = emptying.end_surges(mark.run, context) if mark else ""
    said = emptying.uncordon(name, context, runs)
    write_mark(session, node_path(name), uid(node), None)
    return "; ".join(filter(None, (ended, said)))


def write_mark(session: Session, path: str, node_uid: str, text: str | None, name: str = MARK) -> None:
    """Write the mark of a run on a Node, or remove it (None). Raises NotDone, ApiFailure."""
    body = {"metadata": {"uid": node_uid, "annotations": {name: text}}}

    def done(found: Object) -> bool:
        return uid(found) == node_uid and (found["metadata"].get("annotations") or {}).get(name) == text

    session.written(path, lambda api: api.patch(path, body), done)
