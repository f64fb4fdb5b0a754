"""The undo of a halted run: its cordons. A reboot itself cannot be undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.engine.bridge import Fleet, show
from roles.engine.context import StepContext
from roles.engine.kube import Object, uid
from roles.engine.object_runs import ObjectRun, object_report
from roles.engine.objects import NotDone, Session
from roles.engine.outage import MARKS, Mark, node_fate, read_mark
from roles.engine.rollout import ClusterStep, Options, Stage
from roles.engine.transaction import ObjectsRecord, Writable
from roles.reboot.plan import REBOOT
from roles.reboot.rebooting import free

#: What an undo may write, besides the cordon that the mark on the node itself is of.
WRITES = (Writable("/api/v1/nodes/*", MARKS),)


@dataclass(frozen=True)
class LeftCordoned:
    """A node that still has the mark of a run. `name`: as in the run's table."""

    name: str
    path: str
    node: Object
    mark: Mark


def left_cordoned(record: ObjectsRecord, nodes: Mapping[str, Object | None]) -> list[LeftCordoned]:
    """The nodes of a run that it has neither proven nor brought back. `nodes` as they are now, by path."""
    found = []
    for one in record.objects:
        node = nodes.get(one.path)
        mark = read_mark(node) if node is not None and uid(node) == one.uid else None
        if node is not None and mark is not None and mark.boot and mark.run == record.run:
            found.append(LeftCordoned(one.name, one.path, node, mark))
    return found


def uncordoning(
    fleet: Fleet, options: Options, session: Session, record: ObjectsRecord, left: Sequence[LeftCordoned], capability: str
) -> ObjectRun:
    """The run that ends the surges which that run has left, and uncordons the nodes, with its plan shown. It proves nothing about them."""

    def step(one: LeftCordoned) -> ClusterStep:
        def write(context: StepContext) -> str:
            context.begin(one.mark.fields(comes=False))
            now = session.fetch(one.path)
            if now is None or read_mark(now) != one.mark:
                raise NotDone("another run has rebooted it meanwhile, or uncordoned it; run this again")
            return free(session, one.node, {one.mark.run}, one.mark, context)

        stays = REBOOT.seen(node_fate(one.node)).cordon == "theirs"
        what = "remove the mark of that run" if stays else "uncordon it, without a proof that it is well"
        return ClusterStep(one.name, what, "", write, "", action="uncordon", about={"path": one.path, "uid": uid(one.node)})

    run = ObjectRun(
        record,
        [Stage(tuple(map(step, left)))],
        fleet,
        options.take_over,
        lambda run: object_report.show_objects_end(run, []),
        capability=capability,
        leaving=lambda: "the nodes keep their cordons, or are uncordoned",
    )
    show(f"\nUndoing run {record.run}: a reboot cannot be undone; what it left cordoned is uncordoned")
    for one in left:
        show(f"  {one.name}: {next(step.summary for step in run.steps if step.name == one.name)}")
    return run
