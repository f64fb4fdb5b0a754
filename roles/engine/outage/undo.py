"""The end of outages that their runs have left: nodes uncordoned, surges ended, cordons given back. The plans are pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from roles.engine import commands
from roles.engine.context import ClusterStep
from roles.engine.folding import counted
from roles.engine.kube import Object, full_name, is_ready, uid
from roles.engine.kube.fields import name_of
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.objects import ObjectChange, ObjectPlan, ObjectWriter, Session, undo_plan
from roles.engine.outage.cordon import CORDONED, UNSCHEDULABLE, CordonWriter, cordon_back, node_fate, uncordon_change
from roles.engine.outage.drainer import CORDON, DELETE, EVICT, PROVE, SURGE
from roles.engine.outage.mark import MARKS, mark_before, run_of
from roles.engine.outage.reading import recorded_surges
from roles.engine.outage.surge import EndingWriter
from roles.engine.outage.surge_marks import SURGED_BY, doubt, left_surges, mark_of, unsurge_change
from roles.engine.transaction import ChangedObject, ObjectsRecord, Writable

UNCORDON = "uncordon"
#: What an undo may write: cordons and surges, each with its mark. Of pods it reads only how they ended.
CORDONS = (Writable("/api/v1/nodes/*", (UNSCHEDULABLE, *MARKS)),)
WRITES = (
    *CORDONS,
    Writable("/apis/apps/v1/namespaces/*/deployments/*", (("spec", "replicas"), ("metadata", "annotations", SURGED_BY))),
    *(
        Writable(path, ((EVICT, "*"), (DELETE, "*")))
        for path in ("/api/v1/nodes/*", "/api/v1/namespaces/*/pods/*", "/apis/apps/v1/namespaces/*/*/*")
    ),
)
#: What the undo of a run that itself has marked its nodes may write.
MARKED = (Writable("/api/v1/nodes/*", MARKS),)
# Of so many marks of surges that do not count the plan speaks.
_MOST_DOUBTS = 5


def command(nodes: Iterable[str]) -> str:
    """The command that uncordons nodes, by name."""
    return commands.command("uncordon", nodes=",".join(nodes))


def read_for_uncordon(
    session: Session, names: Collection[str]
) -> tuple[dict[str, Object | None], list[Object], list[Object], list[Object]]:
    """For `plan_uncordon`: the nodes by name, all Deployments, the other nodes, and the recorded surges. Raises ApiFailure."""
    deployments: list[Object] = list(session.fetch_all(COLLECTIONS["Deployment"]))
    nodes: dict[str, Object] = {name_of(one): one for one in session.fetch_all("/api/v1/nodes")}
    others = [one for name, one in nodes.items() if name not in names]
    return {name: nodes.get(name) for name in names}, deployments, others, recorded_surges(session, deployments)


def plan_uncordon(
    nodes: Mapping[str, Object | None],
    deployments: Collection[Object],
    others: Collection[Object] = (),
    surges: Collection[Object] = (),
    *,
    force: bool,
) -> ObjectPlan:
    """The plan of deploys/uncordon.py: `nodes` by name, as they are now; `deployments`: all of the cluster; `surges`: those that records of
    runs have (recorded_surges). Those are ended that the runs that cordoned these nodes have left, and those of pods of these nodes by runs
    whose mark no node has any more (`others`: the other nodes). Pure."""
    plan, runs = ObjectPlan(), set[str]()
    for name, node in nodes.items():
        if node is None:
            plan.refusals.append(f"the cluster has no node {name}")
            continue
        fate = node_fate(node)
        if fate.cordon == "theirs" and not force:
            plan.refusals.append(f"Node {name}: {fate.by} cordoned it, not daytwo; uncordon it there, or with --data force=true")
        elif (change := uncordon_change(node)) is None:
            plan.unchanged.append((f"Node {name}", "it is not cordoned"))
        else:
            late = () if is_ready(node) else ("it is not Ready: new pods can go there as soon as it answers",)
            plan.actions.append(replace(change, notes=(*change.notes, *late)))
        runs |= fate.mark.runs if fate.mark is not None else set()
    elsewhere = {run for fate in map(node_fate, others) if fate.mark is not None for run in fate.mark.runs}
    left = [one for one in surges if (run := run_of(one["mark"])) in runs or (one["node"] in nodes and run not in elsewhere)]
    plan.actions = [*left_surges(deployments, left), *plan.actions]
    doubts = [(full_name(one), why) for one in deployments if (why := doubt(one, surges))]
    plan.unchanged += [(f"Deployment {name}", why) for name, why in doubts[:_MOST_DOUBTS]]
    if len(doubts) > _MOST_DOUBTS:
        plan.unchanged.append(("Deployments", f"{len(doubts) - _MOST_DOUBTS} more have marks of surges that do not count"))
    return plan


def held(record: ObjectsRecord) -> list[str]:
    """The paths of the objects that a drain holds, for `plan_undo`: what it has cordoned and surged."""
    return [one.path for one in record.objects if one.action in (CORDON, SURGE)]


def plan_undo(record: ObjectsRecord, there: Mapping[str, Object]) -> ObjectPlan:
    """The plan that undoes a drain: `there` are its objects as they are now, by path. Pure."""
    plan, moved = ObjectPlan(), set[str]()
    for one in record.objects:
        if one.action in (CORDON, SURGE):
            change = _back(one, there.get(one.path), record.run)
            if isinstance(change, str):
                plan.unchanged.append((one.name, change))
            else:
                plan.actions.append(change)
        elif one.action != PROVE and one.outcome == "done":
            moved.add(one.name)
    plan.actions.sort(key=_of_node)
    if moved:
        why = f"{counted(len(moved), 'pod')}: their replacements run elsewhere, and stay there: an eviction is not undone"
        plan.unchanged.append(("evicted", why))
    return plan


def _back(one: ChangedObject, found: Object | None, run: str) -> ObjectChange | str:
    """The write that undoes a step, or why there is none."""
    if found is None or uid(found) != one.uid:
        return "is gone, or was recreated since"
    if one.action == SURGE:
        if run_of(mark_of(found)) != run:
            return "it has its own number of replicas"
        return unsurge_change(found) or "it has its own number of replicas"
    back = cordon_back(found, {run}, mark_before(one.fields))
    return back.change or back.why


def plan_cordon_again(record: ObjectsRecord, there: Mapping[str, Object], *, force: bool) -> ObjectPlan:
    """The plan that undoes a run of deploys/uncordon.py: `there` are its nodes as they are now, by path. A cordon that someone has set
    since stays theirs: it gets no mark. Pure."""
    since = {path: fate for path, node in there.items() if (fate := node_fate(node)).cordon == "theirs"}
    own = tuple(one for one in record.objects if one.path not in since)
    plan = undo_plan(replace(record, objects=own), [CORDONED], there, force=force)
    kept = [one for one in record.objects if one.path in since]
    plan.unchanged += [(one.name, f"{since[one.path].by} has cordoned it since: that cordon stays") for one in kept]
    return plan


def _of_node(change: ObjectChange) -> bool:
    return change.name.startswith("Node ")


class EndWriter(ObjectWriter):
    """Carries out these plans."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, force=True)
        self._cordons, self._surges = CordonWriter(session, force=True), EndingWriter(session, force=True)

    def steps(self, changes: Sequence[ObjectChange], action: str = "") -> tuple[ClusterStep, ...]:
        made = (
            self._cordons.steps([one], CORDON if one.sets.get(UNSCHEDULABLE) is True else UNCORDON)
            if _of_node(one)
            else self._surges.steps([one], "end surge")
            for one in changes
        )
        return tuple(step for steps in made for step in steps)
