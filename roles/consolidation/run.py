"""The run that carries a plan out, and the run that undoes it."""

from __future__ import annotations

from collections.abc import Mapping

from roles.consolidation.carrying import LEFT_CORDONED, POWERED_OFF, Carrying
from roles.consolidation.judging import kept_on
from roles.consolidation.plan import Consolidation
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, hosts_by_name
from roles.engine.commands import command
from roles.engine.context import ClusterStep, Stage, StepContext
from roles.engine.inputs import Undo
from roles.engine.kube import Object, is_ready, uid
from roles.engine.kube.fields import name_of
from roles.engine.object_runs import Consents, ObjectRun, connect_some
from roles.engine.objects import Session
from roles.engine.outage import cordon, end_outage, read_mark, undo
from roles.engine.outage.drainer import CORDON
from roles.engine.power import Driver
from roles.engine.runs import Options
from roles.engine.transaction import ChangedObject, ObjectsRecord
from roles.engine.transaction.object_record import CANNOT_UNDO
from roles.engine.voice import show
from roles.power import KEEPS, OnPlan, PowerOptions, drivers_of, machines_of, turning_of

CAPABILITY = "consolidate"


class ConsolidationRun(ObjectRun):
    """An ObjectRun whose nodes are uncordoned if it halts before their turns. Its record has the nodes that it leaves on (KEEPS)."""

    def __init__(self, asked: Mapping[str, object], fleet: Fleet, options: Options, carrying: Carrying, found: Consolidation) -> None:
        self._carrying = carrying
        super().__init__(
            dict.fromkeys((one.host for one in carrying.leaving), asked),
            carrying.stages,
            fleet,
            options.take_over,
            lambda run: run.show_end([]),
            capability=CAPABILITY,
            about={KEEPS: kept_on(found)},
            leaving=lambda: "what is out of service stays so, and nodes stay cordoned; the same command, run again, continues",
            consents=["allow_unproven=true"] if options.allow_unproven else (),
        )

    @property
    def undo(self) -> str:
        # Machines that are off do not answer.
        off = any(step.action == POWERED_OFF for step in self.steps)
        return command("rollback", run=self.info.id, skip_unreachable="true") if off else super().undo

    def next_commands(self) -> list[str]:
        ended = [step for step in self.steps if step.outcome == self.success and step.action in (POWERED_OFF, LEFT_CORDONED)]
        return [f"Bring back {', '.join(step.name for step in ended)}: {self.undo}"] if ended else []

    def _work(self) -> None:
        with self._carrying:
            super()._work()

    def _give_back(self) -> None:
        for step, said in self._carrying.give_back(self.context):
            step.how, step.why = "", f"{said}, since the run halted"
            show(f"  {step.name}: {step.why}")
            ended = self._end(step)
            self._note_done(ended)
            self._unsent.append(ended)
            if step.outcome != "reverted":
                self.warnings.append((step.name, f"{step.name}: {said}"))


# ---- the undo


def undo_consolidation(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that brings the nodes of a run back, the last one first: powered on and proven, or uncordoned. Pods stay where
    they are. Raises DeployError."""
    drivers = drivers_of(fleet)
    reached = connect_some(fleet, [], consents.kubeconfig)
    with bridge.refusing(ApiFailure, "the nodes cannot be read: "):
        nodes = {name_of(one): one for one in reached.session.fetch_all("/api/v1/nodes")}
    hosts = _hosts(record)
    back, rest = ways_back(record, {one.path: nodes.get(one.path.rpartition("/")[2]) for one in record.objects}, hosts, drivers)
    remotes = hosts_by_name(fleet.inventory)
    wanted, steps = PowerOptions(kubeconfig=consents.kubeconfig), []
    for host, node, switched in back:
        if host in remotes:
            fleet.expect_away(remotes[host])
        if switched:
            machines = machines_of(fleet, drivers, [host])
            turning = turning_of(fleet, reached, machines, options, wanted)
            steps.append(turning.on_step(OnPlan(machines[host], node, read_mark(node))))
        else:
            steps.append(_uncordoning(reached.session, host, node, record.run))
    run = ObjectRun(
        record,
        [Stage((step,)) for step in steps],
        fleet,
        options.take_over,
        lambda run: run.show_end([[name, "none", "no change", "-", why] for name, why in rest]),
        capability=CAPABILITY,
        about={CANNOT_UNDO: True},
        leaving=lambda: "nodes that are not back yet stay cordoned; the same command, run again, continues",
    )
    show(f"\nUndoing run {record.run}: {', '.join(step.name for step in steps) or 'no node is left to bring back'}")
    for step in steps:
        show(f"  {step.name}: {step.summary}")
    for name, why in rest:
        show(f"  {name}: no change: {why}")
    return run


def _hosts(record: ObjectsRecord) -> dict[str, str]:
    """By the path of the Node, its name in the inventory, as the run's steps have it."""
    return {one.path: one.name for one in record.objects if one.action in (POWERED_OFF, LEFT_CORDONED)}


def ways_back(
    record: ObjectsRecord, there: Mapping[str, Object | None], hosts: Mapping[str, str], drivers: Mapping[str, Driver]
) -> tuple[list[tuple[str, Object, bool]], list[tuple[str, str]]]:
    """The nodes to bring back, the last one first, each with its host and whether its power is switched; and why others have no change.
    `there`: the nodes as they are now, by path. Pure."""
    back: list[tuple[str, Object, bool]] = []
    rest: list[tuple[str, str]] = []
    first: dict[str, ChangedObject] = {}
    for one in record.objects:
        first.setdefault(one.path, one)
    for path, one in reversed(first.items()):
        node, host = there.get(path), hosts.get(path, path.rpartition("/")[2])
        if one.action not in (CORDON, POWERED_OFF, LEFT_CORDONED):
            rest.append((one.name, "it was woken, and stays on"))
        elif node is None or uid(node) != one.uid:
            rest.append((host, "it is gone, or was recreated since"))
        elif (now := cordon.cordon_back(node, {record.run})).change is None:
            rest.append((host, now.why))
        else:
            mark = read_mark(node)
            # One that has the order to shut down may still go off.
            back.append((host, node, bool(now.done) and host in drivers and (not is_ready(node) or bool(mark and mark.boot))))
    return back, rest


def _uncordoning(session: Session, host: str, node: Object, run: str) -> ClusterStep:
    change = cordon.cordon_back(node, {run}).change
    assert change is not None, "there is one, as ways_back says"
    late = "" if is_ready(node) else "; it is not Ready: pods can go there as soon as it answers"

    def write(context: StepContext) -> str:
        context.begin([{"path": list(one.path), "before": one.before, "after": one.after} for one in change.fields])
        _, back = end_outage(session, name_of(node), "", {run}, context)
        return f"{back.done or 'left as it is'}: {back.why}{late}"

    about = {"path": change.path, "uid": uid(node)}
    return ClusterStep(host, f"{change.summary}{late}", "", write, "", action=undo.UNCORDON, about=about)


UNDO = Undo(undo_consolidation, undo.CORDONS)
