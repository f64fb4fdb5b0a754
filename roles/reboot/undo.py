"""The undo of a halted run: its cordons. A reboot itself cannot be undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet
from roles.engine.commands import command
from roles.engine.context import ClusterStep, Stage, StepContext
from roles.engine.inputs import Undo
from roles.engine.kube import Object, uid
from roles.engine.object_runs import Consents, ObjectRun, connect_cluster
from roles.engine.objects import NotDone, Session
from roles.engine.outage import Mark, node_fate, read_mark, undo
from roles.engine.runs import Options
from roles.engine.transaction import ObjectsRecord
from roles.engine.voice import show
from roles.reboot.plan import REBOOT
from roles.reboot.rebooting import free

#: The name in the records of runs that this package undoes.
CAPABILITY = "reboot"


def undo_reboot(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that uncordons what a halted run of this deploy has left cordoned: a reboot itself cannot be undone. Raises
    DeployError if it has left nothing."""
    session = connect_cluster(fleet, consents.kubeconfig).session
    with bridge.refusing(ApiFailure, "the nodes cannot be read: "):
        nodes = {one.path: session.fetch(one.path) for one in record.objects}
    left = left_cordoned(record, nodes)
    if not left:
        names = ", ".join(one.name for one in record.objects)
        raise bridge.refuse(
            f"run {record.run} rebooted {names}: a reboot cannot be undone, and it has left no cordon; name the run before it: "
            f"{command('rollback', run='NAME')} ({command('changes')} lists them)"
        )
    return uncordoning(fleet, options, session, record, left)


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


def uncordoning(fleet: Fleet, options: Options, session: Session, record: ObjectsRecord, left: Sequence[LeftCordoned]) -> ObjectRun:
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
        lambda run: run.show_end([]),
        capability=CAPABILITY,
        leaving=lambda: "the nodes keep their cordons, or are uncordoned",
    )
    show(f"\nUndoing run {record.run}: a reboot cannot be undone; what it left cordoned is uncordoned")
    for one in left:
        show(f"  {one.name}: {next(step.summary for step in run.steps if step.name == one.name)}")
    return run


UNDO = Undo(undo_reboot, undo.MARKED)
