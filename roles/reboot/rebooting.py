"""The reboot of one node: emptied, rebooted, proven, uncordoned. Until the reboot is ordered a failure brings the node back; after that it
stays cordoned, with the mark of the run, until it is proven."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from roles.engine import folding
from roles.engine.bridge import Remote
from roles.engine.context import ClusterStep, StepContext
from roles.engine.kube import Object, uid
from roles.engine.kube.fields import annotations_of, name_of, spec_of
from roles.engine.node import judge_kernels
from roles.engine.objects import NotDone, ObjectChange, ObjectWriter, RevertFailed, Session, Undone
from roles.engine.outage import Mark, NodeOutage, end_outage
from roles.engine.outage.evicting import RunLimit
from roles.engine.proof import Cluster
from roles.engine.remote import RemoteError
from roles.engine.runs import Options
from roles.engine.timeouts import LOOK_AGAIN, Deadline, patient
from roles.reboot import facts, next_boot
from roles.reboot.ending import plan_ending
from roles.reboot.facts import Boot, BootFacts, BootState
from roles.reboot.model import RebootOptions
from roles.reboot.plan import (
    NOTED,
    REBOOT,
    WITHOUT_EFFECT,
    Expected,
    RebootPlan,
    effect_text,
    expected_pods,
    plan_node,
    reasons,
)
from roles.reboot.proving import STATE_SECONDS, BootProof, NotBack

RUNBOOK = "docs/runbooks/reboot.md"
# Seconds. The other API servers and etcd must be well within this time before a control-plane node reboots.
SETTLE_SECONDS = 90
TELL_AGAIN = 30.0
KEPT_SECONDS = 60.0


class NotWorked(NotDone):
    """The node is back, proven and free, and still needs the reboot that it has had."""


class NodeReboots:
    """The steps of a run. `servers` are the control-plane nodes of the inventory."""

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        remotes: Mapping[str, Remote],
        servers: Mapping[str, Remote],
        options: Options,
        wanted: RebootOptions,
    ) -> None:
        self._session, self._cluster, self._remotes = session, cluster, remotes
        self._options, self._wanted, self._limit_of_pods = options, wanted, RunLimit(session)
        self._proof = BootProof(session, cluster, remotes, servers, self._limit, allow_unproven=options.allow_unproven)
        #: Hosts that have the order to reboot and are not proven yet, for an operator who quits.
        self.away: set[str] = set()

    def step(self, plan: RebootPlan, canary: bool = False) -> ClusterStep:
        write, action = {
            "reboot": (partial(self._reboot, plan, self._options.soak if canary else 0), "reboot"),
            "finish": (partial(self._finish, plan), "finish"),
            "release": (partial(self._release_only, plan), "release"),
        }[plan.what]
        lost = f"see {RUNBOOK}"
        return ClusterStep(plan.host, plan.why, "", write, lost, action=action, about={"path": plan.path, "uid": plan.uid})

    def leaving(self) -> str:
        if not self.away:
            return "no node is away; a node that was being emptied stays cordoned: the same command, run again, continues"
        names = ", ".join(sorted(self.away))
        return f"{names} may still reboot, and stays cordoned: the same command, run again, proves it and uncordons it"

    def _limit(self) -> Deadline:
        """For the node's first answer, and again for its proof: after a boot, images are read from a cold disk."""
        return Deadline(self._wanted.limit("reboot_timeout"), as_given=True)

    # ---- the three kinds of steps

    def _reboot(self, plan: RebootPlan, soak: int, context: StepContext) -> str:
        remote = self._remotes[plan.host]
        self._check_again(plan, remote)
        self._others_well(plan)
        boot = plan.candidate.facts.boot.id
        context.begin(Mark(context.run, REBOOT.name, boot).fields(comes=True))
        outage = NodeOutage(self._session, plan.name, self._wanted, context.run, REBOOT, boot=boot, limit=self._limit_of_pods)
        try:
            moved = outage.take(context)
            self._others_well(plan)
            pods = self._proof.pods(plan.booted)
            expected = expected_pods(pods)
            before = facts.ask_state(remote, facts.SECONDS).boot
            self._hold(plan, before, context)
            ending = plan_ending(plan.candidate.unit_name, plan.candidate.static, pods)
            order = partial(facts.order, remote, facts.reboot_script(before.id, context.run, ending), "reboot")
            known = order()
        except Exception as error:
            raise self._released(plan, error, context) from error
        self.away.add(plan.host)
        context.say(f"  {plan.host}: {moved}; rebooting")
        try:
            clock = self._limit()
            state = self._await_boot(plan, remote, before, clock, order, known, context)
            back = clock.passed
            context.say(f"  {plan.host}: answers again after {back:.0f} s, with kernel {state.boot.kernel}; proving")
            proof = self._proof.prove(plan.booted, state.boot, expected, before.offset)
            if soak:
                proof = self._soaked(plan, soak, state.boot, expected, before.offset, context)
            kept = self._kept(plan, remote)
            freed = self._free(plan, context)
        except facts.OrderRefused as error:
            prove = partial(self._proof.prove, plan.booted, before, expected, before.offset) if ending else None
            raise self._released(plan, error, context, prove) from error
        except Exception as error:
            raise _not_back(error) from error
        finally:
            self.away.discard(plan.host)
        self._check_work(plan, remote, freed, context)
        return f"back after {back:.0f} s; {proof}{kept}; {freed}"

    def _finish(self, plan: RebootPlan, context: StepContext) -> str:
        """An earlier run has rebooted the node."""
        assert plan.mark is not None  # that is how it was found
        context.begin(plan.mark.fields(comes=False))
        try:
            boot = facts.ask_state(self._remotes[plan.host], facts.SECONDS).boot
            proof = self._proof.prove(plan.booted, boot, Expected(known=False), None)
            freed = self._free(plan, context)
        except Exception as error:
            raise _not_back(error) from error
        self._check_work(plan, self._remotes[plan.host], freed, context)
        return f"{proof}; {freed}"

    def _release_only(self, plan: RebootPlan, context: StepContext) -> str:
        assert plan.mark is not None
        context.begin(plan.mark.fields(comes=False))
        return self._free(plan, context)

    # ---- before the order

    def _check_again(self, plan: RebootPlan, remote: Remote) -> None:
        """The node is as in the plan. Raises NotDone, RemoteError."""
        now = facts.ask_facts(remote, plan.candidate.unit_name)
        if now.boot.id != plan.candidate.facts.boot.id:
            raise NotDone("it rebooted after daytwo read it; run this again")
        again = plan_node(replace(plan.candidate, facts=now), unneeded=True, allow_unproven=self._options.allow_unproven)
        if again.refusals:
            raise NotDone("; ".join(again.refusals))

    def _others_well(self, plan: RebootPlan) -> None:
        """The control plane can do without this node. Raises NotDone."""
        if not plan.candidate.is_control_plane:
            return
        if problem := self._cluster.control_plane_ready(plan.host, patient(SETTLE_SECONDS), allow_unproven=self._options.allow_unproven):
            raise NotDone(problem)

    def _hold(self, plan: RebootPlan, before: Boot, context: StepContext) -> None:
        """Nothing forbids the order. Raises NotDone, Locked, RemoteError."""
        if halted := context.stopped():
            raise NotDone(f"the run halts ({halted})")
        if before.id != plan.candidate.facts.boot.id:
            raise NotDone("it rebooted while it was drained; run this again")
        context.hold()

    def _released(self, plan: RebootPlan, error: Exception, context: StepContext, prove: Callable[[], str] | None = None) -> Exception:
        """The node did not reboot: bring it back. `prove`: that its control plane, which had ended for the reboot, serves again."""
        why = f"{str(error) or repr(error)}; it did not reboot"
        context.say(f"  {plan.host}: {why}")
        try:
            if prove is not None:
                why = f"{why}; it serves again: {prove()}"
            return Undone(f"{why}; {self._free(plan, context)}")
        except Exception as other:
            return RevertFailed(f"{why}. It may still be cordoned ({other}): the same command, run again, continues; see {RUNBOOK}")

    # ---- after the order

    def _await_boot(
        self,
        plan: RebootPlan,
        remote: Remote,
        before: Boot,
        deadline: Deadline,
        order: Callable[[], bool],
        known: bool,
        context: StepContext,
    ) -> BootState:
        """The node's first answer in a new boot. `known`: it has the order. Raises NotBack, facts.OrderRefused."""
        last, shown = "", 0.0
        while True:
            try:
                remote.ensure_connected()
                state = facts.ask_state(remote, STATE_SECONDS)
                if state.boot.id != before.id:
                    return state
                if known:
                    state.check("reboot")
                if not known and state.state != "stopping":
                    known = order()
                last = f"it answers, and still runs in the boot from before (systemd: {state.state or 'no answer'})"
            except RemoteError as error:
                last = str(error)
                # A connection of the old boot may never say that it is dead.
                remote.drop()
            if deadline.over:
                raise NotBack(f"it is not back after {deadline.passed:.0f} s: {last}")
            if deadline.passed - shown > TELL_AGAIN:
                shown = deadline.passed
                context.say(f"  {plan.host}: not back yet ({shown:.0f} of {deadline.seconds:.0f} s): {last}")
            deadline.pause(LOOK_AGAIN)

    def _soaked(self, plan: RebootPlan, soak: int, boot: Boot, expected: Expected, offset: float, context: StepContext) -> str:
        context.say(f"  {plan.host}: proven; soaking for {soak} s")
        deadline = Deadline(soak, as_given=True)
        while not deadline.over and not context.interrupted():
            deadline.pause(min(LOOK_AGAIN, deadline.left))
        return f"{self._proof.prove(plan.booted, boot, expected, offset)}; soaked {min(deadline.passed, soak):.0f} s"

    def _kept(self, plan: RebootPlan, remote: Remote) -> str:
        """Compare what pods need of the kernel with what it was before the boot. Waits, since agents of the pod network may set it later.
        Raises NotBack with what is lost."""
        deadline = Deadline(KEPT_SECONDS)
        with_pods = any(not spec_of(pod).get("hostNetwork") for pod in self._proof.pods(plan.booted))
        while lost := next_boot.lost(plan.candidate.facts.next, self._facts(plan, remote).next, with_pods=with_pods):
            if deadline.over and self._options.allow_unproven:
                return f"; NOT PROVEN: {folding.once_each(lost)}"
            deadline.pause(LOOK_AGAIN, late=NotBack("; ".join(lost)))
        return ""

    def _check_work(self, plan: RebootPlan, remote: Remote, freed: str, context: StepContext) -> None:
        """The boot did what the reboot was for. Raises NotWorked, which halts the run: the other nodes would reboot for nothing."""
        try:
            now = self._facts(plan, remote)
        except RemoteError as error:
            raise NotWorked(f"it is well and {freed}; whether it still needs a reboot is not known: {error}") from None
        newest = judge_kernels(now.boot.kernel, now.installed or (), now.family).newest
        was_asked = reasons(plan.candidate.facts, plan.newest, unneeded=False)
        if (plan.what == "finish" or was_asked) and (left := reasons(now, newest, unneeded=False)):
            by = " (its boot loader chose the old kernel: check its configuration)" if newest else ""
            self._note_effect(plan, effect_text(context.run, now.boot.id, newest), context)
            raise NotWorked(
                f"it is well and {freed}, but the reboot did not do its work: {'; '.join(left)}{by}. The next run does not reboot it again"
                " without allow_unneeded=true"
            )
        if WITHOUT_EFFECT in annotations_of(plan.candidate.node):
            self._note_effect(plan, None, context)

    def _facts(self, plan: RebootPlan, remote: Remote) -> BootFacts:
        """Raises RemoteError."""
        remote.ensure_connected()
        return facts.ask_facts(remote, plan.candidate.unit_name)

    def _note_effect(self, plan: RebootPlan, text: str | None, context: StepContext) -> None:
        """Raises NotDone, RevertFailed, ApiFailure."""
        node = self._session.fetch(plan.path)
        if node is None or uid(node) != plan.uid:
            raise NotDone("its Node object was deleted or recreated")
        change = ObjectChange.of_fields(NOTED, node, dict.fromkeys(NOTED.sets, text))
        ObjectWriter(self._session, force=False).carry_out(change, context.beginning())

    # ---- the mark and the cordon

    def _free(self, plan: RebootPlan, context: StepContext) -> str:
        """Uncordon, unless somebody else has cordoned it, or another run. Raises Locked: another run may have marked and cordoned it
        meanwhile."""
        context.hold()
        runs = {context.run} | ({plan.mark.run} if plan.mark is not None else set())
        return free(self._session, plan.candidate.node, runs, plan.mark, context)


def free(session: Session, node: Object, runs: Collection[str], mark: Mark | None, context: StepContext) -> str:
    """End what an earlier run, that of the mark, has left of its surges; then uncordon the node, if one of `runs` has cordoned it, and
    remove the mark, which leads to all of that. Returns the result in a few words. Raises NotDone, ApiFailure."""
    ended, back = end_outage(session, name_of(node), mark.run if mark is not None else "", runs, context)
    kept = f"it keeps the cordon that it had, of {back.of}" if back.of else back.why
    return "; ".join(filter(None, (ended, back.done or kept)))


def _not_back(error: Exception) -> NotBack:
    return NotBack(
        f"{str(error) or repr(error)}. It stays cordoned: the same command, run again, proves and uncordons it once it is well; see"
        f" {RUNBOOK}, When a node does not come back"
    )
