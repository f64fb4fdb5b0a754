"""One node turned off: drained, its volumes detached, shut down in order, off by three witnesses; or on: proven, settled, uncordoned.
Until the shutdown is ordered a failure brings the node back; after that it stays cordoned, with the mark of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from roles import sleeping
from roles.engine.bridge import Remote
from roles.engine.certificates import CertificateError
from roles.engine.context import ClusterStep, StepContext
from roles.engine.kube import Object, full_name, uid
from roles.engine.kube.fields import name_of, spec_of, status_of
from roles.engine.kube.pods import daemon_set, is_over, is_static
from roles.engine.kube.workloads import node_path
from roles.engine.objects import NotDone, RevertFailed, Session, Undone
from roles.engine.outage import Mark, NodeOutage, Purpose, cordon, node_fate
from roles.engine.outage.evicting import RunLimit
from roles.engine.power import Driver, PowerError, switch_of
from roles.engine.remote import RemoteError
from roles.engine.timeouts import LOOK_AGAIN, Deadline
from roles.power.model import PowerOptions
from roles.power.witnesses import Seen, Witnesses
from roles.reboot import Booted, BootProof, Expected, RebootPlan, facts, free
from roles.sleeping import Ends

#: Its mark is on a Node from its drain until after the proof of the boot that ends it.
POWER_OFF = Purpose(sleeping.POWER_OFF, "its power off")
#: Its mark is on a Node that no run has turned off, while it is proven.
POWER_ON = Purpose("power-on", "its power on")
DOCUMENT = "docs/power.md"
# Seconds. A volume is detached when its node has unmounted it.
DETACH_SECONDS = 180.0
STATE_SECONDS = 15
TELL_AGAIN = 30.0
#: Looks at the witnesses that must agree: one may meet a network that is down for a moment.
AGREE = 2


class NotOff(NotDone):
    """The node has the order to shut down, and is not proven off: it stays cordoned."""


class NotOn(NotDone):
    """The node is not proven to serve again: it stays cordoned, or as it was."""


@dataclass(frozen=True)
class Machine:
    """A host of the run: its power, and how it is reached. `neighbour` asks the wire for it."""

    remote: Remote
    driver: Driver
    neighbour: Remote

    @property
    def host(self) -> str:
        return self.remote.name

    @property
    def asks_bmc(self) -> bool:
        return self.driver.driver != "wake_on_lan"

    def witnesses(self, session: Session, node: Object) -> Witnesses:
        return Witnesses(
            session, node, name_of(node), switch_of(self.driver), self.neighbour, asks_bmc=self.asks_bmc
        )  # fmt: skip

    def reaches(self) -> bool:
        """Whether a new connection works: an old one may never say that it is dead."""
        self.remote.drop()
        try:
            self.remote.ensure_connected()
        except RemoteError:
            return False
        return True


@dataclass(frozen=True)
class OnPlan:
    """A node to turn on. `mark`: that of the run which turned it off, None if none did."""

    machine: Machine
    node: Object
    mark: Mark | None

    @property
    def booted(self) -> Booted:
        return Booted(self.machine.host, name_of(self.node), uid(self.node))


class Turning:
    """The steps of a run. `settled(host)` says what is not as the inventory wants it on a node that is back, as sentences; empty if all
    is. `ends(host)`: what ends while it is off; raises RemoteError."""

    def __init__(
        self,
        session: Session,
        machines: Mapping[str, Machine],
        wanted: PowerOptions,
        proof: BootProof,
        settled: Callable[[str], list[str]],
        *,
        allow_unproven: bool,
        ends: Callable[[str], Ends] = lambda host: Ends(),
    ) -> None:
        self._ends = ends
        self._session, self._machines, self._wanted, self._proof = session, machines, wanted, proof
        self._settled, self._allow_unproven = settled, allow_unproven
        self._limit_of_pods = RunLimit(session)
        #: Hosts that have an order and are not proven yet, for an operator who quits.
        self.away: set[str] = set()

    def off_step(self, plan: RebootPlan) -> ClusterStep:
        what = f"drain, detach its volumes, shut down, off by its witnesses ({self._machines[plan.host].driver.about})"
        about = {"path": plan.path, "uid": plan.uid}
        return ClusterStep(plan.host, what, "", partial(self._off, plan), f"see {DOCUMENT}", action="power off", about=about)

    def on_step(self, plan: OnPlan) -> ClusterStep:
        what = f"power on, prove, uncordon ({plan.machine.driver.about})"
        about = {"path": node_path(name_of(plan.node)), "uid": uid(plan.node)}
        return ClusterStep(plan.machine.host, what, "", partial(self._on, plan), f"see {DOCUMENT}", action="power on", about=about)

    def leaving(self) -> str:
        if not self.away:
            return "no node is away; a node that was being emptied stays cordoned: the same command, run again, continues"
        return f"{', '.join(sorted(self.away))} may still go off or come on, and stays cordoned; see {DOCUMENT}"

    # ---- off

    def _off(self, plan: RebootPlan, context: StepContext) -> str:
        machine = self._machines[plan.host]
        self._check_free(plan)
        witnesses = machine.witnesses(self._session, plan.candidate.node)
        check_running(witnesses)
        boot = plan.candidate.facts.boot.id
        mark = self._dated(plan.host, Mark(context.run, POWER_OFF.name, boot, why=self._wanted.reason))
        context.begin(mark.fields(comes=True))
        outage = NodeOutage(self._session, plan.name, self._wanted, context.run, POWER_OFF, mark=mark, limit=self._limit_of_pods)
        try:
            moved = outage.take(context)
            empty = self._emptied(plan, context)
            context.hold()
            script = facts.reboot_script(boot, context.run, verb="poweroff")
            order = partial(facts.order, machine.remote, script, "shutdown")
            known = order()
        except Exception as error:
            raise self._released(plan, error, context) from error
        self.away.add(plan.host)
        context.say(f"  {plan.host}: {moved}; {empty}; shutting down")
        try:
            passed, seen = self._await_off(machine, witnesses, order, known, context)
        except facts.OrderRefused as error:
            raise self._released(plan, error, context) from error
        finally:
            self.away.discard(plan.host)
        return f"off after {passed:.0f} s: {seen}; {empty}; it stays cordoned, with the mark of this run"

    def _dated(self, host: str, mark: Mark) -> Mark:
        """With what ends while the machine is off. Raises NotDone: afterwards nobody can read it."""
        try:
            return self._ends(host).into(mark)
        except (RemoteError, CertificateError) as error:
            raise NotDone(f"its certificates cannot be read, and nobody would know until when it may stay off: {error}") from None

    def _emptied(self, plan: RebootPlan, context: StepContext) -> str:
        """Waits until no volume is attached, and only pods are left that belong to the node. Raises NotDone."""
        deadline = Deadline(DETACH_SECONDS)
        while left := self._left(plan, context.run):
            if why := context.stopped():
                raise NotDone(f"the run halts ({why})")
            deadline.pause(LOOK_AGAIN, late=NotDone(f"after {deadline.seconds:.0f} s {'; '.join(left)}"))
        return "no volume attached, only pods of DaemonSets and static pods left"

    def _node(self, plan: RebootPlan) -> Object:
        """As it is now. Raises NotDone, ApiFailure."""
        node = self._session.fetch(plan.path)
        if node is None or uid(node) != plan.uid:
            raise NotDone("its Node object was deleted or recreated")
        return node

    def _check_free(self, plan: RebootPlan) -> None:
        """Nobody but daytwo has cordoned it since the plan. Raises NotDone, ApiFailure."""
        fate = node_fate(self._node(plan))
        if fate.cordon == "theirs":
            raise NotDone(f"{fate.by} has cordoned it since the plan: it is theirs, and stays on")

    def _left(self, plan: RebootPlan, run: str) -> list[str]:
        node = self._node(plan)
        fate = node_fate(node)
        if fate.cordon != "ours" or fate.mark is None or fate.mark.run != run:
            who = f"{fate.by} has cordoned it" if fate.cordon else "someone has uncordoned it"
            raise NotDone(f"{who} meanwhile: it stays on")
        attached = self._session.fetch_all("/apis/storage.k8s.io/v1/volumeattachments")
        return still_there(plan.name, node, attached, self._proof.pods(plan.booted))

    def _await_off(
        self, machine: Machine, witnesses: Witnesses, order: Callable[[], bool], known: bool, context: StepContext
    ) -> tuple[float, Seen]:
        """Raises NotOff, facts.OrderRefused."""
        deadline, total, agreed, shown, forced = self._off_limit(), 0.0, 0, 0.0, ""
        while True:
            known = known or order()
            if (reached := machine.reaches()) and known:
                _check_taken(machine.remote)
            seen = witnesses.look(reached=reached)
            agreed = agreed + 1 if seen.is_off else 0
            if agreed >= AGREE:
                return total + deadline.passed, seen
            if deadline.over:
                if forced or not self._may_force(machine, seen):
                    raise NotOff(self._not_off(machine, seen, total + deadline.passed, forced))
                forced = f"; its power was cut after {deadline.passed:.0f} s, by force_off={machine.host}"
                context.say(f"  {machine.host}: it hangs in its shutdown ({seen}); cutting its power")
                context.note({"event": "force-off", "host": machine.host})
                _forced(machine)
                total, deadline = total + deadline.passed, self._off_limit()
            elif deadline.passed - shown > TELL_AGAIN:
                shown = deadline.passed
                context.say(f"  {machine.host}: not off yet ({shown:.0f} of {deadline.seconds:.0f} s): {seen}")
            deadline.pause(machine.driver.poll)

    def _off_limit(self) -> Deadline:
        return Deadline(self._wanted.limit("off_timeout"), as_given=True)

    def _may_force(self, machine: Machine, seen: Seen) -> bool:
        return seen.bmc == "on" and machine.host in (self._wanted.force_off or ())

    def _not_off(self, machine: Machine, seen: Seen, passed: float, forced: str) -> str:
        if seen.lies:
            what = "its BMC says off, and the machine answers: it is the BMC of another machine, or it lies"
        elif seen.bmc == "on":
            what = "it hangs in its shutdown: look at its console"
        else:
            what = "it is not proven that it is off"
        ways = "" if forced or seen.bmc != "on" else f", or cut its power: add --data force_off={machine.host}"
        return (
            f"NOT OFF after {passed:.0f} s{forced}: {what}{ways}. {seen}. It stays cordoned: --data power_on={machine.host} proves and"
            f" uncordons it; see {DOCUMENT}"
        )

    def _released(self, plan: RebootPlan, error: Exception, context: StepContext) -> Exception:
        """The node did not go off: bring it back."""
        why = f"{str(error) or repr(error)}; it did not go off"
        context.say(f"  {plan.host}: {why}")
        try:
            context.hold()
            return Undone(f"{why}; {free(self._session, plan.candidate.node, {context.run}, None, context)}")
        except Exception as other:
            return RevertFailed(f"{why}. It may still be cordoned ({other}): see {DOCUMENT}")

    # ---- on

    def _on(self, plan: OnPlan, context: StepContext) -> str:
        machine, deadline = plan.machine, Deadline(self._wanted.limit("on_timeout"), as_given=True)
        context.begin(plan.mark.fields(comes=False) if plan.mark is not None else [])
        context.hold()
        self.away.add(machine.host)
        try:
            cordon.begin_outage(self._session, name_of(plan.node), plan.mark or Mark(context.run, POWER_ON.name), context)
            boot = self._await_boot(machine, deadline, context)
            stayed = "it had not gone off; " if plan.mark is not None and boot.id == plan.mark.boot else ""
            back = deadline.passed
            context.say(f"  {machine.host}: answers after {back:.0f} s; proving")
            proof = self._proof.prove(plan.booted, boot, Expected(known=False), None)
            settled = self._all_settled(machine.host)
            context.hold()
            runs = {context.run} | ({plan.mark.run} if plan.mark is not None else set())
            freed = free(self._session, plan.node, runs, plan.mark, context)
        except Exception as error:
            why = str(error) or repr(error)
            raise NotOn(f"{why}. It keeps its cordon: --data power_on={machine.host}, run again, continues; see {DOCUMENT}") from error
        finally:
            self.away.discard(machine.host)
        return f"{stayed}answers after {back:.0f} s; {proof}; {settled}; {freed}"

    def _await_boot(self, machine: Machine, deadline: Deadline, context: StepContext) -> facts.Boot:
        """The first answer of the machine. Raises NotOn."""
        switch, last, shown, ordered = switch_of(machine.driver), "", 0.0, False
        while True:
            try:
                state = switch.state()
                # An answer of a BMC to an order is no result, and a frame may be lost; a BMC that has taken an order is not asked again.
                if (state == "unknown" and not machine.asks_bmc) or (state == "off" and not ordered):
                    switch.on()
                    ordered = True
                last = f"its BMC says {state}" if machine.asks_bmc else "the frame that wakes it was sent"
            except PowerError as error:
                last = str(error)
            try:
                machine.remote.ensure_connected()
                return facts.ask_state(machine.remote, STATE_SECONDS).boot
            except RemoteError as error:
                machine.remote.drop()
                last += f"; {error}"
            if deadline.over:
                raise NotOn(f"NOT ON after {deadline.passed:.0f} s: {last}")
            if deadline.passed - shown > TELL_AGAIN:
                shown = deadline.passed
                context.say(f"  {machine.host}: not back yet ({shown:.0f} of {deadline.seconds:.0f} s): {last}")
            deadline.pause(machine.driver.poll)

    def _all_settled(self, host: str) -> str:
        """Raises NotOn with what is not as the inventory wants it."""
        if not (left := self._settled(host)):
            return "as the inventory wants it, versions fit"
        if self._allow_unproven:
            return f"NOT PROVEN: {'; '.join(left)}"
        raise NotOn(f"it is on and well, and not settled: {'; '.join(left)}; correct that while it is cordoned")


def check_running(witnesses: Witnesses) -> None:
    """What must be seen before a node goes off: a witness that says off already, or says nothing, could prove nothing later. Raises
    NotDone."""
    bmc, why = witnesses.bmc()
    if bmc == "off":
        raise NotDone("its BMC says off while it answers: it is the BMC of another machine, or it lies; correct its data key power")
    if why:
        raise NotDone(f"its power cannot be asked: {why}")
    if (silent := witnesses.neighbour()[0]) is not False:
        what = "no control-plane node can ask it (ping or bash is needed there)" if silent is None else "no control-plane node hears it"
        raise NotDone(f"{what} while it is on: that nothing answers would prove nothing; open ping or its kubelet's port to them")


def still_there(name: str, node: Object, attached: Collection[Object], pods: Collection[Object]) -> list[str]:
    """What keeps a node from going off. Pure."""
    volumes = [str(one) for one in status_of(node).get("volumesInUse") or ()]
    found = [f"volumes are in use: {', '.join(volumes)}"] if volumes else []
    own = [name_of(one) for one in attached if spec_of(one).get("nodeName") == name]
    found += [f"volumes are attached: VolumeAttachment {', '.join(own)}"] if own else []
    left = [full_name(pod) for pod in pods if not (is_static(pod) or daemon_set(pod) or is_over(pod))]
    return [*found, *([f"pods are left: {', '.join(left)}"] if left else [])]


def _check_taken(remote: Remote) -> None:
    """Raises facts.OrderRefused if the node answers that its systemd did not take the order."""
    try:
        state = facts.ask_state(remote, STATE_SECONDS)
    except RemoteError:
        return
    state.check("shutdown")


def _forced(machine: Machine) -> None:
    """Raises NotOff."""
    try:
        switch_of(machine.driver).force_off()
    except PowerError as error:
        raise NotOff(f"it hangs in its shutdown, and its power could not be cut: {error}. It stays cordoned") from None
