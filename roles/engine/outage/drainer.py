"""Carries out a plan: cordon, surges, waves, proof, each as steps of a run; and uncordons what it cordoned if the run halts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from roles.engine.api import ApiFailure
from roles.engine.context import ClusterStep, Stage, StepContext
from roles.engine.disruption import budget_states, budgets_of, eviction_answer, read_disruption
from roles.engine.folding import counted
from roles.engine.harmless import one_line
from roles.engine.kube import Object, is_ending, uid
from roles.engine.kube.pods import has_ended, is_static, node_of, pod_path
from roles.engine.kube.workloads import node_path
from roles.engine.objects import ChangedByOthers, NotDone, ObjectChange, Session
from roles.engine.outage.cordon import CordonBack, CordonWriter, cordon_change, give_back, node_fate
from roles.engine.outage.evicting import Evictor, NotEvicted, RunLimit, begin_move
from roles.engine.outage.fates import is_cut
from roles.engine.outage.mark import Mark
from roles.engine.outage.model import DrainConsents, DrainPlan, NodeFate, PodFate, PodWorkload
from roles.engine.outage.plan import plan_drain
from roles.engine.outage.reading import cluster_time, pods_on, read_drain
from roles.engine.outage.surge import Surger
from roles.engine.outage.workloads import ready_elsewhere
from roles.engine.placement.storage import own_names
from roles.engine.timeouts import LOOK_AGAIN, Deadline

CORDON, SURGE, EVICT, DELETE, PROVE = "cordon", "surge", "evict", "delete", "prove"
MOVES = (SURGE, EVICT, DELETE)
# Seconds that an emptied node has until its volumes are detached.
DETACH = 60.0
POWER_OFF = (
    "if the machine is powered off now, no other node gets them before it is not Ready for 6 minutes, or has the taint "
    "node.kubernetes.io/out-of-service"
)
# How often pods that came to a node in mid-drain are evicted again: a pod that tolerates the cordon may come back forever.
MOST_ROUNDS = 3
# Seconds after which the pods that are ending on a node are judged again.
VIEW_AGAIN = 10.0


class Drainer:
    """One drain. `mark`: that of the run that cordons; `limit`: that of the run, if it has several drains."""

    def __init__(self, session: Session, plan: DrainPlan, consents: DrainConsents, mark: Mark, limit: RunLimit | None = None) -> None:
        self.session = session
        self.plan = plan
        self.warnings: list[tuple[str, str]] = []
        #: Pods (NAMESPACE/NAME) that came in mid-drain, and were moved too.
        self.moved_late: list[str] = []
        self._consents = consents
        self._names = [node.name for node in plan.nodes]
        # The pods as last judged, by UID, and when that was (time.monotonic).
        self._seen, self._viewed = {one.uid: one for one in plan.pods}, time.monotonic()
        self._limit = limit
        self._evictor = Evictor(session, consents, self._names)
        self._surger = Surger(self._evictor, consents, mark.run)
        self._cordons = CordonWriter(session, force=False)
        self._mark = mark
        # UIDs of pods that have less time to end.
        self._cut: set[str] = set()
        #: The marks of earlier runs whose cordons this drain has taken over, by node.
        self.taken_over = {
            node.name: node.mark.text() for node in plan.nodes if node.cordon == "ours" and node.mark and node.mark.run != mark.run
        }
        self._changes: dict[str, ObjectChange] = {
            node.name: change for node in plan.nodes if (change := cordon_change(node, mark)) is not None
        }

    # ---- the steps

    def stages(self) -> list[Stage[ClusterStep]]:
        """All cordons at once, so that no replacement comes to a node that is drained next; then the surges, the waves, the proofs."""
        cordons = [self._cordon(node) for node in self.plan.nodes if node.name in self._changes]
        surges = [self._pod_step(one, SURGE) for one in self.plan.surges]
        waves = [[self._pod_step(one, DELETE if one.fate == "deleted" else EVICT) for one in wave] for wave in self.plan.waves]
        proofs = [self._proof(node) for node in self.plan.nodes]
        return [Stage(tuple(steps), max(1, len(steps))) for steps in (cordons, surges, *waves, proofs)]

    def cordon_changes(self) -> list[ObjectChange]:
        """The cordons to be written, for a dry run (`CordonWriter.tried`)."""
        return list(self._changes.values())

    @property
    def cordons(self) -> CordonWriter:
        return self._cordons

    def _cordon(self, node: NodeFate) -> ClusterStep:
        (step,) = self._cordons.steps([self._changes[node.name]], CORDON)
        return replace(step, about={**step.about, "node": node.name}, write=partial(self._cordoned, node))

    def _cordoned(self, node: NodeFate, context: StepContext) -> str:
        """Cordon a node, unless an administrator has done so since the plan. Raises NotDone, ApiFailure."""
        there = self.session.fetch(node_path(node.name))
        now = node_fate(there) if there is not None else node
        if now.cordon == "ours" and now.mark not in (node.mark, self._mark):
            raise ChangedByOthers(f"run {now.by} has cordoned it since the plan: left as it is now; run this again")
        since = now.cordon == "theirs" != node.cordon
        if (change := cordon_change(now, self._mark) if since else self._changes[node.name]) is not None:
            return self._cordons.carry_out(change, context)
        context.begin([])
        return f"{now.by} has cordoned it since the plan: that cordon stays"

    def _pod_step(self, one: PodFate, action: str) -> ClusterStep:
        about: dict[str, object] = {"path": pod_path(one.pod), "uid": one.uid, "node": one.node}
        if action == SURGE and one.workload is not None:
            about |= {"path": one.workload.path, "uid": one.workload.uid, "pod": one.name, "pod_uid": one.uid}
        summary = f"{action} it from {one.node} ({one.workload or 'without a controller'})"
        return ClusterStep(f"pod {one.name}", summary, "", partial(self._moved, one), "", action=action, about=about)

    def _moved(self, one: PodFate, context: StepContext) -> str:
        if one.fate == "surged":
            return self._surger.replace(one, context)
        # It waits for its turn before it is recorded that it leaves.
        with self._turn(one, context):
            begin_move(context, [])
            try:
                return self._move(one, context)
            except NotEvicted as refused:
                if context.stopped() or not refused.by_budget or not self._past_budgets(one):
                    raise
                context.say(f"  {one.name}: {refused}; deleting it past {', '.join(one.budgets)}, by consent")
                begin_move(context, [{"path": [DELETE, one.name], "before": one.uid, "after": None}])
                return f"{refused}; {self._move(replace(one, fate='deleted'), context)}"

    def _move(self, one: PodFate, context: StepContext) -> str:
        with self._turn(one, context):
            return self._evictor.move(one, context)

    def _turn(self, one: PodFate, context: StepContext) -> AbstractContextManager[None]:
        """The time in which a pod leaves, also one that comes in mid-drain. In its own turn it does not wait again."""
        return self._limit.turn(one, self._consents.seconds, context) if self._limit is not None else nullcontext()

    def _past_budgets(self, one: PodFate) -> bool:
        """The pod may be deleted: the budgets that refuse its eviction now are all named. Raises ApiFailure."""
        live, now = self.session.asked(read_disruption), cluster_time(self.session)
        pod = next((pod for pod in live.of("Pod") if uid(pod) == one.uid), None)
        if pod is None:
            return False
        states = budget_states(live, now)
        named = all(state.key in self._consents.ignore_budgets for state in budgets_of(pod, states))
        return named and not eviction_answer(pod, states).allowed

    def _proof(self, node: NodeFate) -> ClusterStep:
        about = {"path": node_path(node.name), "uid": uid(node.item), "node": node.name}
        return ClusterStep(
            f"Node {node.name} drained", "only DaemonSet, static and finished pods are left; all else serves elsewhere", "",
            partial(self._proven, node.name), "", action=PROVE, about=about,
        )  # fmt: skip

    # ---- the proof

    def _proven(self, node: str, context: StepContext) -> str:
        context.begin([])
        left = self._emptied(node, context)
        deadline = Deadline(self._consents.seconds, as_given=True)
        while True:
            unmet = self._unmet()
            if not unmet:
                self._check_cordon(node)
                serving = len(self._workloads())
                serve = f"{counted(serving, 'workload')} {'serves' if serving == 1 else 'serve'} elsewhere"
                return "; ".join([left, serve, "budgets as before or better", *self._still_attached(node)])
            deadline.pause(LOOK_AGAIN, late=NotDone(f"{left}, but after {deadline.passed:.0f} s {'; '.join(unmet)}"))

    def _check_cordon(self, node: str) -> None:
        """Raises NotDone if someone has uncordoned the node: then it is empty only for this moment."""
        there = self.session.fetch(node_path(node))
        if there is not None and not node_fate(there).cordon:
            raise NotDone(f"someone has uncordoned {node} meanwhile, so pods may come back to it; run this again")

    def _still_attached(self, node: str) -> list[str]:
        """A warning about volumes that stay attached to an emptied node although no pod there uses them; waits for their detach before."""
        deadline = Deadline(min(DETACH, self._consents.seconds), as_given=True)
        staying = [one for one in self._seen.values() if one.fate == "stays" and one.node == node]
        used = {name for one in staying for volume in one.volumes for name in (volume.name, volume.unique)}
        used |= {name for one in staying for name in own_names(one.pod)}
        while True:
            found = [one for one in self._evictor.look.attached_to(node, time.monotonic()) if one.volume not in used]
            if not found:
                return []
            if deadline.over:
                names = ", ".join(f"{one.volume or one.name} ({one.progress})" for one in found)
                text = one_line(f"STILL ATTACHED to {node} after {deadline.passed:.0f} s: {names}; {POWER_OFF}")
                self.warnings.append((f"Node {node} drained", text))
                return [text]
            deadline.pause(LOOK_AGAIN)

    def _emptied(self, node: str, context: StepContext) -> str:
        """Wait until no pod that must leave is on the node; evict those that came in mid-drain. Returns what is left."""
        deadline, rounds, said = Deadline(self._consents.seconds, as_given=True), 0, ""
        while True:
            fates = self._fates(node)
            self._end_sooner(fates, context)
            blocked = [f"{one.name}: {one.why}; {one.way_out}" for one in fates if one.fate == "blocks"]
            if blocked:
                raise NotDone(f"pods came to {node} in mid-drain, or are stuck there: {'; '.join(blocked)}")
            arrived = [one for one in fates if one.leaves]
            if not arrived and not any(one.fate == "ending" for one in fates):
                kinds = [_kind(one.pod) for one in fates]
                named = [counted(kinds.count(kind), f"{kind} pod") for kind in ("static", "DaemonSet", "finished") if kind in kinds]
                return ", ".join(named) or "no pod is left"
            names = ", ".join(one.name for one in (arrived or fates) if one.fate != "stays")
            if deadline.over or (arrived and rounds == MOST_ROUNDS):
                raise NotDone(f"{names} {'came back to' if arrived else 'still end on'} {node}; {self._tolerating(arrived)}")
            if names != said:
                said = names
                context.say(f"  {node}: {'came in mid-drain' if arrived else 'still ending'}: {names}")
            if arrived:
                rounds += 1
                self._evict_again(node, arrived, context)
            deadline.pause(LOOK_AGAIN)

    def _end_sooner(self, fates: Sequence[PodFate], context: StepContext) -> None:
        """By consent, pods that somebody else has deleted have less time to end. Raises NotDone, ApiFailure."""
        cap = self._consents.max_grace
        cut = [one for one in fates if one.fate == "ending" and cap is not None and is_cut(one.pod, cap) and one.uid not in self._cut]
        if not cut or context.stopped():
            return
        context.begin([{"path": [DELETE, one.name], "before": one.uid, "after": None} for one in cut])
        for one in cut:
            self._cut.add(one.uid)
            self._evictor.delete(one.pod)
            context.say(f"  pod {one.name}: has only {cap} s to end, by consent")

    def _fates(self, node: str) -> list[PodFate]:
        """What becomes of the pods that are on the node now. All kinds are read only if a pod is there that was not there before, one that
        must leave and does not, and now and then: a pod that is ending may be stuck."""
        there = pods_on(self.session, node)
        fates = [self._still(pod) for pod in there]
        if time.monotonic() - self._viewed < VIEW_AGAIN and all(fates):
            return [one for one in fates if one is not None]
        self._viewed = time.monotonic()
        # The second consent to delete pods past their budgets was for those of the plan.
        consents = self._consents.model_copy(update={"ignore_budgets": ()})
        plan = plan_drain(read_drain(self.session), self._names, consents, cluster_time(self.session))
        self._seen |= {one.uid: one for one in plan.pods}
        return [one for one in plan.pods if node_of(one.pod) == node]

    def _still(self, pod: Object) -> PodFate | None:
        """The fate of a pod that stays, or whose end has been seen to be in progress; None for others."""
        one = self._seen.get(uid(pod))
        if one is None or one.fate == "stays":
            return one
        return replace(one, pod=pod, fate="ending") if is_ending(pod) and not has_ended(pod) and one.fate != "blocks" else None

    def _evict_again(self, node: str, arrived: Sequence[PodFate], context: StepContext) -> None:
        """Evict pods that came in mid-drain, recorded before that with the step that proves the node. Raises NotDone, ApiFailure."""
        if not context.stopped():
            context.begin([{"path": [EVICT, one.name], "before": one.uid, "after": None} for one in arrived])
        if stopped := context.stopped():
            names = ", ".join(one.name for one in arrived)
            raise NotDone(f"{names} came to {node} in mid-drain, and no further eviction begins ({stopped})")

        def move(one: PodFate) -> None:
            try:
                context.say(f"  pod {one.name}: {self._move(one, context)}")
                self.moved_late.append(one.name)
            except (NotDone, ApiFailure) as error:
                raise NotDone(f"pod {one.name}, which came to {node} in mid-drain: {error}") from error

        context.together(move, arrived)

    @staticmethod
    def _tolerating(arrived: Sequence[PodFate]) -> str:
        notes = list(dict.fromkeys(note for one in arrived for note in one.notes if "tolerates the cordon" in note))
        return notes[0] if notes else "something creates pods for this node in spite of its cordon"

    def _workloads(self) -> list[PodWorkload]:
        """The workloads of moved pods that must serve elsewhere."""
        moved = [one for one in self.plan.leaving if one.workload is not None and one.workload.counted]
        excused = {one.workload.uid for one in moved if one.workload is not None and one.pending}
        return list({one.workload.uid: one.workload for one in moved if one.workload and one.workload.uid not in excused}.values())

    def _unmet(self) -> list[str]:
        """What is not as before: workloads with too few pods elsewhere, budgets that allow less."""
        found, since = [], time.monotonic()
        look = self._evictor.look
        for workload in self._workloads():
            need = self._evictor.needed(workload, since)
            if need is None:
                continue
            ready = ready_elsewhere(look.pods(workload.namespace, since), look.controllers(workload, since), self._names)
            if ready < need:
                found.append(f"{workload} has {ready} of {need} pods Ready on other nodes")
        return found or self._worse_budgets()

    def _worse_budgets(self) -> list[str]:
        if not self.plan.budgets:
            return []
        states = budget_states(self.session.asked(read_disruption), cluster_time(self.session))
        lost = {key for one in self.plan.leaving if one.workload is None or not one.workload.counted or one.pending for key in one.budgets}
        return [
            "; ".join(
                filter(
                    None,
                    (f"budget {share.key} allows {now.disruptions_allowed}, and allowed {share.allowed} before: {now.why}", now.kept_by),
                )
            )
            for share in self.plan.budgets
            if share.key not in lost and (now := states.named(share.key)) is not None and now.disruptions_allowed < share.allowed
        ]

    # ---- the undo

    def uncordon(self, node: str, context: StepContext, *, over: bool = False) -> CordonBack:
        """End this drain's hold of a node: the cordon of an earlier run that it has taken over comes back with its mark, unless that run's
        is `over` too. Raises NotDone, ApiFailure."""
        change = self._changes.get(node)
        if change is None:
            return CordonBack(why="it keeps the cordon that it had")
        before = "" if over else self.taken_over.get(node, "")
        return give_back(self.session, node, change.about["uid"], {self._mark.run}, context, before)


def _kind(staying: Object) -> str:
    """Of a pod that a drain leaves."""
    return "static" if is_static(staying) else "finished" if has_ended(staying) else "DaemonSet"
