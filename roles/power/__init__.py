"""The power of owned machines: turned off when drained, and proven off; turned on, proven, and uncordoned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from roles import checks, sleeping
from roles.desired import read_desired
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote, hosts_by_name
from roles.engine.commands import command
from roles.engine.context import Stage
from roles.engine.findings import Result
from roles.engine.inputs import Changes, Declared, Undo, read_model
from roles.engine.kube import Object
from roles.engine.kube.fields import node_of_host
from roles.engine.node_changes import KUBELET
from roles.engine.object_runs import ConnectedCluster, Consents, ObjectRun, cluster_session, connect_some
from roles.engine.objects import Session
from roles.engine.outage import Wanted, cluster_time, plan_outages, read_drain, undo
from roles.engine.power import Driver
from roles.engine.power.model import HostPower
from roles.engine.proof import skew, survey
from roles.engine.runs import Ended, Options, Turns, deploying, document, no_such_host, one, show_report, with_options
from roles.engine.timeouts import Deadline
from roles.engine.transaction import ObjectsRecord, Refusal
from roles.engine.transaction.object_record import CANNOT_UNDO
from roles.engine.voice import show, show_lines
from roles.power import listing
from roles.power.guard import KEEPS, needed_by
from roles.power.model import PowerData, PowerOptions
from roles.power.plan import by_name, missing, off_refusals, power_mark
from roles.power.turning import POWER_OFF, POWER_ON, Machine, OnPlan, Turning
from roles.reboot import BootProof, RebootOptions, RebootPlan, boot_plans, boot_problems, order, servers

CAPABILITY = "power"


@deploying("Power", with_options(PowerData))
def power(fleet: Fleet, asked: tuple[Options, PowerData]) -> Turns | Ended:
    """Turn hosts off or on, or show the power of all that have the data key power.

    Data keys: those of roles/power/model.py and `power` of each host, the consents of a drain, and those of roles/engine/runs/options.py.
    Raises DeployError before any write if a node must not go off, if its pods cannot leave, or if it might not come back.
    """
    options, wanted = asked
    chosen = wanted.power_off if wanted.power_off is not None else wanted.power_on or ()
    bridge.stop(no_such_host(fleet.inventory, chosen))
    bridge.stop(remote.unreachable for remote in fleet.unreachable if remote.is_control_plane)
    drivers = drivers_of(fleet)
    bridge.stop(missing(chosen, drivers))
    if wanted.reads_only:
        return _listed(fleet, drivers, wanted)
    return _off(fleet, drivers, options, wanted) if wanted.power_off is not None else _on(fleet, drivers, options, wanted, chosen)


def drivers_of(fleet: Fleet) -> dict[str, Driver]:
    """By host. Raises DeployError."""
    with bridge.refusing(Refusal):
        read = {remote.name: read_model(remote.name, remote.data, HostPower).power for remote in fleet.inventory}
    return {host: driver for host, driver in read.items() if driver is not None}


def _nodes(session: Session) -> dict[str, Object]:
    with bridge.refusing(ApiFailure, "the nodes cannot be read: "):
        return by_name(session.fetch_all("/api/v1/nodes"))


def _listed(fleet: Fleet, drivers: Mapping[str, Driver], wanted: PowerData) -> Ended:
    session = cluster_session(fleet, wanted.kubeconfig)
    nodes = _nodes(session)
    forgive_off(fleet, nodes)
    if not drivers and wanted.format == "table":
        return Ended("no host has the data key power (docs/power.md)")
    made = listing.report(fleet, drivers, session, nodes)
    show_report({"table": lambda: f"\n{listing.text(made)}", "json": lambda: document(made)}, wanted.format)
    return Ended(f"{len(drivers)} of {len(fleet.inventory)} hosts have the data key power" if wanted.format == "table" else "")


def forgive_off(fleet: Fleet, nodes: Mapping[str, Object]) -> None:
    """Hosts that a run has turned off are away as asked."""
    for remote in list(fleet.unreachable):
        node = node_of_host(remote.name, remote.address, nodes)
        if node is not None and power_mark(node, POWER_OFF.name) is not None:
            fleet.expect_away(remote)


def machines_of(fleet: Fleet, drivers: Mapping[str, Driver], chosen: Collection[str]) -> dict[str, Machine]:
    remotes = hosts_by_name(fleet.inventory)
    return {host: Machine(remotes[host], drivers[host], fleet.lock_host) for host in chosen}


def turning_of(fleet: Fleet, reached: ConnectedCluster, machines: Mapping[str, Machine], options: Options, wanted: PowerOptions) -> Turning:
    """`wanted.on_timeout` is for the first answer, and again for the proof."""
    remotes = hosts_by_name(fleet.inventory)
    proof = BootProof(
        reached.session, reached.found.cluster, remotes, servers(fleet),
        lambda: Deadline(wanted.limit("on_timeout"), as_given=True), allow_unproven=options.allow_unproven,
    )  # fmt: skip
    return Turning(
        reached.session, machines, wanted, proof, partial(_unsettled, fleet, remotes), allow_unproven=options.allow_unproven,
        ends=lambda host: sleeping.read_ends(remotes[host], reached.found.nodes[host].kubelet),
    )  # fmt: skip


def read_options(fleet: Fleet) -> PowerOptions:
    """The consents of a drain and the time limits, for a deploy that chooses the hosts itself. Raises DeployError."""
    return one(PowerOptions)(fleet).model_copy(update={"power_off": None, "power_on": None})


# ---- off


class OffRun(ObjectRun):
    """A run after which machines do not answer."""

    @property
    def undo(self) -> str:
        return command("rollback", run=self.info.id, skip_unreachable="true")


def _off(fleet: Fleet, drivers: Mapping[str, Driver], options: Options, wanted: PowerOptions) -> Turns:
    chosen = wanted.power_off or ()
    away = [remote for remote in fleet.unreachable if remote.name in chosen]
    bridge.stop(f"{remote.unreachable}; its own systemd shuts it down, so it must answer" for remote in away)
    remotes = [remote for remote in fleet.inventory if remote.name in chosen and (remote.connected or remote.connect())]
    reached = connect_some(fleet, remotes, wanted.kubeconfig)
    with bridge.refusing(ApiFailure, "the nodes cannot be read: "):
        nodes = reached.found.reading.nodes()
        forgive_off(fleet, nodes)
    plans, refused, notes = off_plans(fleet, reached, options, wanted)
    needed = [] if wanted.allow_needed else needed_by(reached.session, nodes, {plan.name: plan.host for plan in plans})
    bridge.stop([*refused, *needed])
    machines = machines_of(fleet, drivers, chosen)
    turning = turning_of(fleet, reached, machines, options, wanted)
    stages = order(plans, options.pace, fleet.lock_host.name)
    texts = _drains(reached.session, wanted, stages)
    run = OffRun(
        {plan.host: wanted.model_dump(mode="json") for plan in plans},
        [Stage(tuple(turning.off_step(plan) for plan in stage.steps), stage.at_once) for stage in stages],
        fleet,
        options.take_over,
        lambda run: run.show_end([]),
        capability=CAPABILITY,
        leaving=turning.leaving,
        consents=["allow_unproven=true"] if options.allow_unproven else (),
    )
    show(f"\nPlan of run {run.info.id}: {len(plans)} of {len(fleet.inventory)} hosts to turn off: {', '.join(plan.host for plan in plans)}")
    for plan in plans:
        show(f"  {plan.host}: {turning.off_step(plan).summary}")
        for warning in (*machines[plan.host].driver.warnings, *plan.warnings):
            show(f"    WARNING {warning}")
    for text in texts:
        show_lines(text)
    for note in (*notes, "each stays cordoned, marked daytwo.dev/outage; its Node stays in the cluster", f"on again: {run.undo}"):
        show(f"- {note}")
    return Turns.of(run, fleet, "drain, shut down, prove off")


def off_plans(
    fleet: Fleet, reached: ConnectedCluster, options: Options, wanted: PowerOptions
) -> tuple[list[RebootPlan], list[object], list[str]]:
    """What becomes of the hosts of `power_off`; why they must not go off, or might not come back; and notes. Raises DeployError."""
    chosen = {"nodes": wanted.power_off or (), "allow_unneeded": True}
    as_reboot = RebootOptions(**{**wanted.model_dump(include=set(RebootOptions.model_fields)), **chosen})
    plans = boot_plans(fleet, reached, options, as_reboot)
    refused, notes = boot_problems(fleet, reached, plans, options)
    return plans, [*refused, *(why for plan in plans for why in off_refusals(plan, POWER_OFF.name))], notes


def _drains(session: Session, wanted: PowerOptions, stages: Sequence[Stage[RebootPlan]]) -> list[str]:
    """What becomes of the pods, as text. Raises DeployError if they cannot leave."""
    with bridge.refusing(ApiFailure, "the pods cannot be read: "):
        live, now = read_drain(session), cluster_time(session)
    nodes = [Wanted(plan.host, plan.name, (wanted.reason or "power_off",)) for stage in stages for plan in stage.steps]
    turns = [([plan.host for plan in stage.steps], stage.at_once) for stage in stages]
    notes, refusals = plan_outages(live, nodes, turns, wanted, now, POWER_OFF, set())
    bridge.stop(refusals)
    return [f"\n{note}" for note in notes]


# ---- on


def _on(
    fleet: Fleet,
    drivers: Mapping[str, Driver],
    options: Options,
    wanted: PowerOptions,
    chosen: Collection[str],
    record: ObjectsRecord | None = None,
) -> Turns:
    run = _on_run(fleet, drivers, options, wanted, chosen, record)
    return Turns.of(run, fleet, "power on, prove, uncordon")


def _on_run(
    fleet: Fleet,
    drivers: Mapping[str, Driver],
    options: Options,
    wanted: PowerOptions,
    chosen: Collection[str],
    record: ObjectsRecord | None,
) -> ObjectRun:
    """The run, with its plan shown. Raises DeployError."""
    reached = connect_some(fleet, [], wanted.kubeconfig)
    nodes, machines = _nodes(reached.session), machines_of(fleet, drivers, chosen)
    forgive_off(fleet, nodes)
    plans, refused = [], []
    for machine in machines.values():
        # It may be off, so it is not asked which Node it is; the proof compares its boot with what that Node's kubelet reports.
        node = node_of_host(machine.host, machine.remote.address, nodes)
        if node is None:
            refused.append(f"{machine.host}: the cluster has no Node of this name, and not one of its address {machine.remote.address}")
        else:
            fleet.expect_away(machine.remote)
            plans.append(OnPlan(machine, node, power_mark(node, POWER_OFF.name, POWER_ON.name)))
    bridge.stop(refused)
    turning = turning_of(fleet, reached, machines, options, wanted)
    run = ObjectRun(
        record if record is not None else {plan.machine.host: wanted.model_dump(mode="json") for plan in plans},
        [Stage(tuple(map(turning.on_step, plans)), options.pace.at_once(len(plans)))],
        fleet,
        options.take_over,
        lambda run: run.show_end([]),
        capability=CAPABILITY,
        about={CANNOT_UNDO: True},
        leaving=turning.leaving,
        consents=["allow_unproven=true"] if options.allow_unproven else (),
    )
    show(f"\nPlan of run {run.info.id}: {len(plans)} of {len(fleet.inventory)} hosts to turn on: {', '.join(machines)}")
    for plan in plans:
        show(f"  {plan.machine.host}: {turning.on_step(plan).summary}; {listing.mark_text(plan.node) or '-'}")
        for warning in plan.machine.driver.warnings:
            show(f"    WARNING {warning}")
    return run


def _unsettled(fleet: Fleet, remotes: Mapping[str, Remote], host: str) -> list[str]:
    """What a node that was off is not, by the checks of deploys/checks.py and the version skew policy. Raises RemoteError."""
    remote = remotes[host]
    control_plane = [one for one in fleet.inventory if one.is_control_plane and one.connected]
    found = survey(fleet, [remote])
    left = [*found.refusals, *found.left_out]
    running = [
        one
        for name, node in found.observed.items()
        for one in skew.running_of(name, {KUBELET: node.kubelet.process, **{key: its.process for key, its in node.components.items()}})
    ]
    left += [text for text in skew.problems(running) if text.startswith(f"{host}: ")]
    gathered = checks.gather([remote, *control_plane], fleet.each)
    results: list[Result] = checks.judge.node(gathered.nodes[host], read_desired(host, remote.data))
    return [*left, *(f"{one.check}: {one.why}" for one in results if one.outcome == "fail")]


def undo_power(fleet: Fleet, options: Options, record: ObjectsRecord, consents: Consents) -> ObjectRun:
    """Plan and show the run that turns on what a run of this deploy has turned off. Raises DeployError."""
    hosts = [one.name for one in record.objects]
    drivers = drivers_of(fleet)
    bridge.stop([*no_such_host(fleet.inventory, hosts), *missing(hosts, drivers)])
    return _on_run(fleet, drivers, options, PowerOptions(power_on=tuple(hosts), kubeconfig=consents.kubeconfig), hosts, record)


DOCUMENTS = {"power": listing.PowerReport}
DATA_KEYS = (
    Declared(PowerData, (CAPABILITY,), changes=Changes.BOOTS, undo=Undo(undo_power, undo.MARKED)),
    Declared(HostPower, (CAPABILITY, "node_autoscaler")),
)

__all__ = [
    "DATA_KEYS",
    "DOCUMENTS",
    "KEEPS",
    "POWER_OFF",
    "OnPlan",
    "PowerOptions",
    "Turning",
    "drivers_of",
    "forgive_off",
    "machines_of",
    "off_plans",
    "power",
    "read_options",
    "turning_of",
]
