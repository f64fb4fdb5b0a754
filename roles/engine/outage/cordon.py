"""The cordon of a node, whose it is, and how a run ends its hold of it. Pure, and the writer of it.

daytwo marks its own cordon (mark.py). The mark alone is not enough: someone may have uncordoned the node since, and cordoned it again. So
daytwo must also own the field, and nobody else (metadata.managedFields). A cordon belongs to whoever set it: what was there before a run is
there after it, whatever its end (`cordon_back`; docs/disruption.md has the table).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roles.engine.bounds import moment
from roles.engine.commands import command
from roles.engine.context import StepContext
from roles.engine.disruption import DisruptionObjects
from roles.engine.inputs import listing
from roles.engine.kube import Object, uid
from roles.engine.kube.field_managers import entries, managers, others
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.kube.matching import UNSCHEDULABLE as UNSCHEDULABLE_TAINT
from roles.engine.kube.workloads import node_path
from roles.engine.objects import ChangedByOthers, Gone, Kind, NotDone, ObjectChange, ObjectPath, ObjectWriter, Session
from roles.engine.outage.mark import MARKS, OUTAGE, Mark, parse_mark, read_mark, run_of
from roles.engine.outage.model import NodeFate
from roles.engine.transaction import ChangedField

UNSCHEDULABLE: ObjectPath = ("spec", "unschedulable")
_OF_FIELD = ("f:spec", "f:unschedulable")
# Of any number of field managers.
_MOST_NAMED = 5
# How often a cordon is looked at again that somebody changes at the same moment.
_TRIES = 3


#: A cordon with its marks.
CORDONED = Kind("Node", "v1", "/api/v1/nodes", (UNSCHEDULABLE, *MARKS), verb="patch", recorded=(), maps=(), of_cluster=True, short="node")


def _others(node: Object) -> list[str]:
    """Those who have set the cordon of a node, beside daytwo."""
    return others(node, *_OF_FIELD) if UNSCHEDULABLE in CORDONED.values(node) else []


def node_fate(node: Object) -> NodeFate:
    """Whether the node is cordoned, and by whom. Someone who has set the same value beside daytwo (server-side apply) counts: it is
    theirs."""
    now = CORDONED.values(node)
    if UNSCHEDULABLE not in now:
        return NodeFate(node)
    names, by = managers(node, *_OF_FIELD), _others(node)
    since = max((found for one in entries(node, *_OF_FIELD) if (found := moment(one.get("time"))) is not None), default=None)
    if names and not by and (mark := read_mark(node)) is not None:
        return NodeFate(node, "ours", mark.holder, mark, since)
    # daytwo alone, and without a mark: someone has removed or changed it, or a roll-back has restored the cordon of someone.
    return NodeFate(node, "theirs", listing(by, _MOST_NAMED) if by else "someone", since=since)


def cordon_change(node: NodeFate, mark: Mark) -> ObjectChange | None:
    """The write that cordons a node for a run; None if someone else has cordoned it: that cordon stays. With a boot to remember, such a
    node is marked all the same."""
    if node.cordon == "theirs":
        kept = replace(mark, keep=node.mark.holder if node.mark is not None else "")
        return _change(node.item, _marked(kept), f"mark it ({OUTAGE}): the cordon that it has stays") if mark.boot else None
    # The mark of a reboot that is not proven stays, with this run's cordon to keep: the next reboot proves the node.
    unproven = node.mark is not None and node.mark.boot and not mark.boot
    marked = replace(node.mark, keep=str(mark)) if node.mark is not None and unproven else mark
    summary = f"cordon it, marked {OUTAGE}={mark}" if not node.cordon else f"take over the cordon of run {node.by}"
    return ObjectChange.of_fields(CORDONED, node.item, {UNSCHEDULABLE: True, **_marked(marked)}, summary)


def uncordon_change(node: Object, over: Collection[str] = ()) -> ObjectChange | None:
    """The write that uncordons a node; None if it is not cordoned and has no mark. The mark of a reboot that is not `over` (by its run)
    stays: the next one proves the node."""
    mark = read_mark(node)
    if mark is None or not mark.boot or mark.run in over:
        return _change(node, {UNSCHEDULABLE: None, **_marked(None)}, "uncordon it")
    change = _change(node, {UNSCHEDULABLE: None, **_marked(replace(mark, keep=""))}, "uncordon it")
    return change if UNSCHEDULABLE in CORDONED.values(node) else None


def _marked(mark: Mark | None) -> dict[ObjectPath, str | None]:
    return dict.fromkeys(MARKS) | {MARKS[0]: mark.text() if mark is not None else None}


def _change(node: Object, wanted: Mapping[ObjectPath, Any], summary: str) -> ObjectChange | None:
    change = ObjectChange.of_fields(CORDONED, node, wanted, summary)
    return change if change.sets else None


def as_uncordoned(live: DisruptionObjects, nodes: Collection[str]) -> DisruptionObjects:
    """The cluster as it will be once these nodes, by name, are uncordoned."""
    if not nodes:
        return live
    items = [_uncordoned(node) if name_of(node) in nodes else node for node in live.of("Node")]
    return replace(live, objects={**live.objects, "Node": items})


def _uncordoned(node: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in spec_of(node).items() if key != "unschedulable"}
    taints = [one for one in spec.get("taints") or () if one.get("key") != UNSCHEDULABLE_TAINT]
    return {**node, "spec": {**spec, "taints": taints}}


# ---- the end of a run's hold


@dataclass(frozen=True)
class CordonBack:
    """How a run ends its hold of a node's cordon. `change`: the write, None for none; `done`: what it does, in a word or two, "" if the
    cordon stays as it is now; `why` it stays, and `of` whom it is, "" without a cordon."""

    change: ObjectChange | None = None
    done: str = ""
    why: str = ""
    of: str = ""


def cordon_back(node: Object, runs: Collection[str], before: str = "") -> CordonBack:
    """`node` as it is now. `runs`: the run, and earlier ones that it continues; `before`: the mark of another run that had cordoned the
    node before, "" if it was not cordoned."""
    fate, mark = node_fate(node), read_mark(node)
    if fate.cordon == "ours" and run_of(fate.by) in runs:
        if not before:
            return CordonBack(uncordon_change(node, runs), "uncordoned")
        if (restored := parse_mark(before)) is None:
            return CordonBack(why=f"the mark of the run before, {before!r}, is none of daytwo's: it stays cordoned by run {fate.by}")
        return CordonBack(_change(node, _marked(restored), f"give the cordon back to run {restored}"), f"given back to run {restored}")
    own = mark is not None and mark.run in runs
    if fate.cordon == "ours":
        as_before = own or parse_mark(before) == mark
        why = f"it has the cordon of run {fate.by}, as before" if as_before else f"run {fate.by} has taken its cordon over"
        change = _change(node, _marked(parse_mark(fate.by)), f"remove the mark of this run: {why}") if own else None
        ways = "" if as_before else f": undo that run, or {command('uncordon', nodes=name_of(node))}"
        return CordonBack(change, why=why + ways, of=f"run {fate.by}")
    why = f"{fate.by} has cordoned it since: that cordon stays" if fate.cordon else "it is not cordoned"
    # A mark without daytwo's cordon says nothing any more, and would claim the next one.
    change = _change(node, _marked(None), f"remove the mark of run {mark}: {why}") if own else None
    return CordonBack(change, why=why, of=fate.by)


def give_back(session: Session, node: str, node_uid: str, runs: Collection[str], context: StepContext, before: str = "") -> CordonBack:
    """Carry out `cordon_back` on the node as it is then; the result's `why` is the proof. Raises NotDone, ApiFailure."""
    writer = CordonWriter(session, force=False)
    for left in reversed(range(_TRIES)):
        found = session.fetch(node_path(node))
        if found is None or uid(found) != node_uid:
            break
        back = cordon_back(found, runs, before)
        try:
            proof = writer.carry_out(back.change, context.beginning()) if back.change else ""
            return replace(back, why=proof if back.done else back.why)
        except Gone:
            break
        except ChangedByOthers:
            if not left:
                raise
    return CordonBack(why="the node was deleted")


class CordonWriter(ObjectWriter):
    """Cordons and uncordons."""

    def current(self, change: ObjectChange, fields: Sequence[ChangedField]) -> Object:
        """Raises ChangedByOthers also if someone has cordoned the node meanwhile, with the very value that this run writes or removes."""
        found = super().current(change, fields)
        if (by := _others(found)) and not _others(change.before or {}):
            raise ChangedByOthers(f"{', '.join(by)} has cordoned it meanwhile: that cordon stays")
        return found


def begin_outage(session: Session, node: str, mark: Mark, context: StepContext) -> None:
    """Cordon a node that nobody has cordoned, with this mark; any cordon that it has stays as it is. Raises NotDone, ApiFailure."""
    if (found := session.fetch(node_path(node))) is None:
        raise NotDone("its Node object was deleted")
    fate = node_fate(found)
    change = cordon_change(fate, mark) if not fate.cordon else None
    if change is not None:
        context.note({"event": "cordon", "node": node})
        CordonWriter(session, force=False).carry_out(change, context.beginning())
