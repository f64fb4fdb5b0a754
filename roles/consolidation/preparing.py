"""From a plan to its steps: what each node's end is, what would keep it from coming back, and what the cluster's own scheduler says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from roles.consolidation.carry_model import CarryOptions
from roles.consolidation.carrying import Carrying, Leaving
from roles.consolidation.judging import Judge, why_not
from roles.consolidation.kept import CONSOLIDATION
from roles.consolidation.model import ConsolidateOptions
from roles.consolidation.plan import Consolidation, awake
from roles.consolidation.report import WANTED, amount
from roles.drain import verify
from roles.engine import bridge
from roles.engine.bridge import Fleet, hosts_by_name
from roles.engine.context import ClusterStep, StepContext
from roles.engine.disruption import DisruptionObjects
from roles.engine.kube import Object, is_ready, uid
from roles.engine.kube.fields import name_of
from roles.engine.kube.workloads import node_path
from roles.engine.object_runs import ConnectedCluster, connect_some
from roles.engine.objects import Session
from roles.engine.outage import DrainConsents, Wanted, cluster_time, plan_drain, plan_outages, read_drain, read_mark
from roles.engine.power import Driver
from roles.engine.proof import Survey
from roles.engine.runs import Options
from roles.engine.shadow import KINDS_OF_SHADOW, ShadowControlPlane, ShadowError, shadow_control_plane
from roles.power import OnPlan, PowerOptions, drivers_of, machines_of, off_plans, turning_of
from roles.reboot import RebootPlan, free


@dataclass(frozen=True)
class Asked:
    """What a consolidation is asked for. `power`: the consents of its drains, and the time limits of power."""

    options: ConsolidateOptions
    carry: CarryOptions
    power: PowerOptions

    @property
    def verify(self) -> bool:
        """The cluster's own scheduler is asked."""
        return self.carry.verify == "scheduler" and ("verify" in self.carry.model_fields_set or not bridge.only_plans())

    @property
    def consents(self) -> DrainConsents:
        return self.power

    def off(self, hosts: Sequence[str], drivers: Mapping[str, Driver]) -> list[str]:
        """The hosts that are powered off at their end."""
        return [host for host in hosts if host in drivers] if self.carry.then == "power_off" else []


def ends(found: Consolidation, asked: Asked, drivers: Mapping[str, Driver]) -> str:
    """What becomes of the nodes that go, for the plan."""
    hosts = [found.hosts[node] for node in found.goes]
    off = asked.off(hosts, drivers)
    parts = [f"{', '.join(off)}: drained, then powered off"] if off else []
    for why, names in (
        ("then=cordon", hosts if asked.carry.then == "cordon" else []),
        ("no data key power", [host for host in hosts if host not in drivers] if asked.carry.then == "power_off" else []),
    ):
        parts += [f"{', '.join(names)}: drained, then left cordoned ({why})"] if names else []
    return "; ".join(parts)


# ---- kube-scheduler's word


class Scheduler:
    """The cluster's own scheduler in a shadow control plane, which starts with the first question and ends with `closing`."""

    def __init__(self, found: Survey, consents: DrainConsents, closing: ExitStack) -> None:
        self._found, self._consents, self._closing = found, consents, closing
        self._shadow: ShadowControlPlane | None = None

    def ask(self, live: DisruptionObjects, now: datetime, nodes: Sequence[str], cordoned: Sequence[str]) -> tuple[list[str], str]:
        """Why nodes must not go, one after the other, while `cordoned` take no pods; and the answer for people. Nodes that are off stay in
        the cluster, and count as domains of a spread: so they are cordoned here, too. `live` has all kinds of KINDS_OF_SHADOW. Raises
        ShadowError."""
        if self._shadow is None:
            self._shadow = self._closing.enter_context(shadow_control_plane(self._found.observed.values(), live.objects))
        else:
            self._shadow.renew(live.objects)
        waves = [wave for node in nodes for wave in verify.waves(plan_drain(live, [node], self._consents, now), live)]
        verdict = self._shadow.ask(waves, cordon=cordoned)
        return verify.refusals(verdict, self._consents), verify.text(verdict)


# ---- the steps


def prepare(
    fleet: Fleet, options: Options, asked: Asked, judge: Judge, found: Consolidation, live: DisruptionObjects
) -> tuple[Carrying, list[str]]:
    """The steps of a plan, and its notes. `live`: what the plan was made from, with all kinds of KINDS_OF_SHADOW if the scheduler is asked.
    Raises DeployError if a node must not go, or might not come back."""
    drivers, remotes = drivers_of(fleet), hosts_by_name(fleet.inventory)
    hosts, woken = {found.hosts[node]: node for node in found.goes}, sorted(found.plan.woken)
    off = asked.off(list(hosts), drivers)
    for node in found.keeper.asleep:
        fleet.expect_away(remotes[found.hosts[node]])
    bridge.stop(f"{one.unreachable}; its own systemd shuts it down, so it must answer" for one in fleet.unreachable if one.name in off)
    answering = [one for host in off if (one := remotes[host]).connected or one.connect()]
    reached = connect_some(fleet, answering, asked.options.kubeconfig)
    by_name = {name_of(one): one for one in live.of("Node")}
    wakes, refused = _waking(fleet, reached, options, asked, [(found.hosts[node], by_name[node]) for node in woken], drivers)
    plans, not_off, notes = (
        off_plans(fleet, reached, options, asked.power.model_copy(update={"power_off": tuple(off)})) if off else ([], [], [])
    )
    bridge.stop([*refused, *not_off])
    by_host = {plan.host: plan for plan in plans}
    leaving = [_leaving(fleet, reached, options, asked, found, by_name[node], by_host.get(host), drivers) for host, node in hosts.items()]
    then = with_awake(live, woken)
    texts, cannot = plan_outages(
        then, [Wanted(one.host, one.name, (one.why,)) for one in leaving], [], asked.consents, found.keeper.now, CONSOLIDATION
    )
    bridge.stop(cannot)
    if asked.verify:
        texts.append(verified(reached.found, asked, then, found))
    closing = ExitStack()
    again = Again(reached.session, asked, judge, Scheduler(reached.found, asked.consents, closing) if asked.verify else None)
    return Carrying(reached.session, asked.consents, wakes, leaving, again, closing), [*texts, *notes]


def verified(surveyed: Survey, asked: Asked, live: DisruptionObjects, found: Consolidation) -> str:
    """The answer of the cluster's own scheduler to a plan. `live`: with the machines awake that the plan wakes. Raises DeployError."""
    with bridge.refusing(ShadowError, "verify=scheduler: "), ExitStack() as closing:
        refusals, text = Scheduler(surveyed, asked.consents, closing).ask(live, found.keeper.now, found.goes, found.goes)
    bridge.stop(refusals)
    return text


def with_awake(live: DisruptionObjects, woken: Collection[str]) -> DisruptionObjects:
    """The cluster once these machines are on."""
    items = [awake(node) if name_of(node) in woken else node for node in live.of("Node")]
    return replace(live, objects={**live.objects, "Node": items})


class Again:
    """Judges a node right before its turn, by the cluster as it is then: the plan still has it, and the scheduler still finds room."""

    def __init__(self, session: Session, asked: Asked, judge: Judge, scheduler: Scheduler | None) -> None:
        self._session, self._asked, self._judge, self._scheduler = session, asked, judge, scheduler
        self._moved = 0

    def __call__(self, node: str, rest: Sequence[str]) -> tuple[str, int]:
        live, now = read(self._session, self._asked), cluster_time(self._session)
        found = self._judge.again(live, now, rest, self._moved)
        if why := why_not(found, node):
            return why, 0
        if self._scheduler is not None and (refusals := self._scheduler.ask(live, now, [node], rest)[0]):
            return "; ".join(refusals), 0
        moves = len(found.keeper.leaving(node))
        self._moved += moves
        return "", moves


def read(session: Session, asked: Asked) -> DisruptionObjects:
    """Raises ApiFailure."""
    return read_drain(session, KINDS_OF_SHADOW if asked.verify else None)


def _leaving(
    fleet: Fleet,
    reached: ConnectedCluster,
    options: Options,
    asked: Asked,
    found: Consolidation,
    node: Object,
    plan: RebootPlan | None,
    drivers: Mapping[str, Driver],
) -> Leaving:
    host, must = found.hosts[name_of(node)], found.owners.must_go.get(name_of(node))
    saves = WANTED[must.reason] if must else f"saves {amount(found.machines.unit, found.cost(name_of(node)))}"
    if plan is None:
        return Leaving(node, host, saves)
    why = f"consolidation, {saves}"
    turning = turning_of(fleet, reached, machines_of(fleet, drivers, [host]), options, asked.power.model_copy(update={"reason": why}))
    return Leaving(node, host, why, turning.off_step(plan).write, plan.candidate.facts.boot.id)


def _waking(
    fleet: Fleet,
    reached: ConnectedCluster,
    options: Options,
    asked: Asked,
    woken: Sequence[tuple[str, Object]],
    drivers: Mapping[str, Driver],
) -> tuple[list[ClusterStep], list[str]]:
    """The steps that wake machines, by host and Node; and why they cannot."""
    steps, refused = [], []
    for host, node in woken:
        if is_ready(node):
            steps.append(_uncordoning(reached.session, host, node))
        elif host in drivers:
            machines = machines_of(fleet, drivers, [host])
            # Whichever run has it out of service: its hold ends here.
            on = OnPlan(machines[host], node, read_mark(node))
            steps.append(turning_of(fleet, reached, machines, options, asked.power).on_step(on))
        else:
            refused.append(f"{host}: the plan wakes it, and it has no data key power (docs/power.md): turn it on, then run this again")
    return steps, refused


def _uncordoning(session: Session, host: str, node: Object) -> ClusterStep:
    """A machine that an earlier consolidation has left on."""
    mark = read_mark(node)

    def write(context: StepContext) -> str:
        context.begin(mark.fields(comes=False) if mark is not None else [])
        return free(session, node, {context.run, *(mark.runs if mark is not None else ())}, mark, context)

    about = {"path": node_path(name_of(node)), "uid": uid(node)}
    return ClusterStep(host, "uncordon it: a consolidation has left it on", "", write, "", action="uncordon", about=about)
