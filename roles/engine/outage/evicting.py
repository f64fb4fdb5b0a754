"""Evicts one pod, by its UID, and waits until it is gone and replaced; and when a pod may leave, over all drains of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from typing import Any, ClassVar

from roles.engine.api import ApiFailure, Conflict, Denied, NotFound, Speaker
from roles.engine.api.errors import EvictionRefused
from roles.engine.context import Fields, Outcome, StepContext
from roles.engine.disruption import DisruptionObjects, budget_states, budgets_of, read_disruption
from roles.engine.harmless import one_line
from roles.engine.kube import Object, controller, is_ending, namespace_and_name, uid
from roles.engine.kube.fields import finalizers_of
from roles.engine.kube.pods import has_ended, node_of, pod_path
from roles.engine.objects import NotDone, Session, workload_rollout
from roles.engine.outage.fates import is_cut, kept_by
from roles.engine.outage.model import DrainConsents, PodFate, PodWorkload
from roles.engine.outage.places import waits_for_place
from roles.engine.outage.reading import Look, cluster_time, read_drain
from roles.engine.outage.volumes import not_detached
from roles.engine.outage.workloads import own_limit, ready_elsewhere
from roles.engine.timeouts import LOOK_AGAIN, Deadline

# Seconds until a refused eviction is tried again; kubectl waits 5. The place of a pod needs all objects of the cluster.
AGAIN = 2.0
LOOK_FOR_PLACE = 10.0


class NotEvicted(NotDone):
    """The run ends before the API server evicted the pod: nothing has changed. `by_budget`: a budget refused it, and nobody else."""

    outcome: ClassVar[Outcome] = "not started"
    by_budget = False


def eviction(pod: Object, max_grace: int | None = None) -> dict[str, Any]:
    """The body of an eviction of exactly this pod (policy/v1 Eviction): a pod that has its name since is not touched. `max_grace`: seconds
    that it has to end, if its own grace period is longer."""
    namespace, name = namespace_and_name(pod)
    cut = {"gracePeriodSeconds": max_grace} if max_grace is not None and is_cut(pod, max_grace) else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid(pod)}, **cut},
    }


def try_eviction(session: Session, pod: Object) -> str:
    """The API server's answer to a dry run of the eviction (it asks the budget, and takes nothing from it): "" if it would evict the pod
    now, or if the pod is gone or in a namespace that is being deleted; else who refuses it, and why. Raises ApiFailure."""
    path = f"{pod_path(pod)}/eviction"
    try:
        session.create(path, eviction(pod), "dry run", dry_run=True)
    except (NotFound, Conflict):
        return ""
    except (Denied, EvictionRefused) as error:
        return "" if error.speaker is Speaker.NAMESPACE else error.cause
    return ""


def _ended(pod: Object) -> str:
    """How a pod has ended that only a finalizer keeps in the API. "" if it has not ended, or if it will be gone by itself."""
    held = ", ".join(finalizers_of(pod))
    return f"ended ({held} keeps its object)" if held and is_ending(pod) and has_ended(pod) else ""


def begin_move(context: StepContext, fields: Fields) -> None:
    """Record what moves a pod. Raises NotEvicted: the record takes a moment, and the run may have halted meanwhile."""
    context.begin(fields)
    if stopped := context.stopped():
        raise NotEvicted(f"not evicted ({stopped})")


class Evictor:
    """Moves pods. `nodes`: the names of all drained nodes."""

    def __init__(self, session: Session, consents: DrainConsents, nodes: Collection[str]) -> None:
        self.session = session
        self.look = Look(session)
        self.nodes = frozenset(nodes)
        self._seconds, self._max_grace = consents.seconds, consents.max_grace
        # What several pods that wait for a place look at.
        self._live, self._read_at = DisruptionObjects({}), float("-inf")

    def move(self, one: PodFate, context: StepContext) -> str:
        """Evict (or delete) the pod, wait until it is gone and its replacement is Ready; returns how that was seen. Raises NotDone,
        ApiFailure."""
        deadline = Deadline(self._seconds, as_given=True)
        if one.waits:
            self._await_place(one, deadline, context)
        if one.fate == "deleted":
            self.delete(one.pod)
            how = "deleted past its budget, by consent"
        else:
            how = self._evict(one, deadline, context)
        since = time.monotonic()
        gone, told = False, ""
        while True:
            pods = self.look.pods(namespace_and_name(one.pod)[0], since)
            there = next((pod for pod in pods if uid(pod) == one.uid), None)
            end = "gone" if there is None else _ended(there)
            gone = gone or bool(end)
            if gone and (said := self._replaced(one, pods, since)):
                return f"{how}; {end or 'gone'}; {said}"
            if gone and (waits := self._waits(one, pods, since)) and waits != told:
                told = waits
                context.say(f"  {one.name}: waits: {one_line(waits)}")
            if deadline.over:
                raise NotDone(self._late(one, pods, deadline, gone))
            deadline.pause(LOOK_AGAIN)

    def delete(self, pod: Object) -> None:
        """Delete exactly this pod; one that is ending has less time then, if the consents say so. Raises NotDone, ApiError."""
        cap = self._max_grace
        self.session.deleted(pod_path(pod), pod, grace=cap if cap is not None and is_cut(pod, cap) else None)

    def _place(self, one: PodFate) -> str:
        """Why its replacement has no place now; "" if it has one. Raises ApiFailure."""
        if time.monotonic() - self._read_at >= LOOK_FOR_PLACE / 2:
            self._live, self._read_at = read_drain(self.session), time.monotonic()
        return waits_for_place(one, self._live, self.nodes)

    def _await_place(self, one: PodFate, deadline: Deadline, context: StepContext) -> None:
        """Wait until a controller has removed the taint that keeps its replacement from every node."""
        said = ""
        while why := self._place(one):
            if why != said:
                said = why
                context.say(f"  {one.name}: waits: {one_line(why)}; {one_line(one.waits)}")
            if (stopped := context.stopped()) or deadline.over:
                raise NotEvicted(
                    f"not evicted ({stopped or f'for {deadline.passed:.0f} s'}): its replacement has no place: {why}; {one.waits}"
                )
            deadline.pause(LOOK_FOR_PLACE)

    # ---- the eviction

    def _evict(self, one: PodFate, deadline: Deadline, context: StepContext) -> str:
        """Returns the API server's answer in words."""
        path, body, said = f"{pod_path(one.pod)}/eviction", eviction(one.pod, self._max_grace), ""
        way_out, by_budget = "", False
        while True:
            try:
                self.session.create(path, body, "evict")
                return "evicted"
            except NotFound:
                return "it was gone already"
            except Conflict:
                if self._is_another(one):
                    return "it was gone already (another pod has its name, and is not touched)"
                why = "the pod changed at the same moment"
            except (Denied, EvictionRefused) as error:
                if error.speaker is Speaker.NAMESPACE:
                    return "its namespace is being deleted, and ends it"
                if isinstance(error, EvictionRefused) and not error.budget and not one.kept:
                    raise NotDone(f"the API server never evicts it: {error.cause}") from error
                why, by_budget = error.cause, isinstance(error, EvictionRefused)
                way_out = "" if by_budget else f"; {error.way_out}"
            if why != said:
                said = why
                context.say(f"  {one.name}: waits: {one_line(why)}")
            if stopped := context.stopped():
                raise self._refused(f"not evicted ({stopped}); refused until then: {why}{way_out}", by_budget=by_budget)
            if deadline.over:
                way_out = f"; {kept}" if by_budget and (kept := self._kept_by(one)) else way_out
                raise self._refused(f"the API server refused its eviction for {deadline.passed:.0f} s: {why}{way_out}", by_budget=by_budget)
            deadline.pause(AGAIN)

    def _kept_by(self, one: PodFate) -> str:
        """Who may let it go; also of a budget that was created in mid-drain. Best effort."""
        with contextlib.suppress(ApiFailure):
            live = self.session.asked(lambda api: read_disruption(api, [namespace_and_name(one.pod)[0]]))
            return kept_by(budgets_of(one.pod, budget_states(live, cluster_time(self.session)))) or one.kept
        return one.kept

    @staticmethod
    def _refused(why: str, *, by_budget: bool) -> NotEvicted:
        error = NotEvicted(why)
        error.by_budget = by_budget
        return error

    def _is_another(self, one: PodFate) -> bool:
        found = self.session.fetch(pod_path(one.pod))
        return found is None or uid(found) != one.uid

    # ---- its replacement

    def _replaced(self, one: PodFate, pods: Collection[Object], since: float) -> str:
        """How its workload serves again; "" if it does not yet."""
        workload = one.workload
        if workload is None:
            return "nothing recreates it"
        if not workload.counted:
            return f"no replacement is waited for: daytwo does not count pods of a {workload.kind}"
        if one.pending:
            return "its replacement stays Pending, by consent"
        need = self.needed(workload, since)
        if need is None:
            return f"{workload} was deleted meanwhile"
        ready = ready_elsewhere(pods, self.look.controllers(workload, since), ())
        return f"{ready} of {workload} are Ready" if ready >= need else ""

    def _waits(self, one: PodFate, pods: Collection[Object], since: float) -> str:
        """The detach of a volume that its replacement waits for; "" if there is none."""
        if one.workload is None or not any(volume.waits for volume in one.volumes):
            return ""
        owners = self.look.controllers(one.workload, since) if one.workload.counted else {one.workload.uid}
        new = [pod for pod in pods if controller(pod) in owners and not is_ending(pod) and node_of(pod) not in self.nodes]
        return not_detached(one, new, self.look.attached(since), pods)

    def needed(self, workload: PodWorkload, since: float) -> int | None:
        """How many of its pods must be Ready: as many as before the drain, unless it should have fewer by now. None if it is gone."""
        wanted = self.look.wanted(workload, since)
        return None if wanted is None else min(wanted, workload.ready)

    def _late(self, one: PodFate, pods: Collection[Object], deadline: Deadline, gone: bool) -> str:
        if not gone:
            there = [pod for pod in pods if uid(pod) == one.uid]
            return f"still there {deadline.passed:.0f} s after its eviction: {'; '.join(workload_rollout.what_to_do(there, ()))}"
        workload = one.workload
        assert workload is not None  # without one there is nothing to wait for
        owners = self.look.controllers(workload, 0)
        new = [pod for pod in pods if controller(pod) in owners and not is_ending(pod)]
        why = [*filter(None, [self._waits(one, pods, 0)]), *workload_rollout.complaints(workload.found or {}, new)]
        return "; ".join([f"gone, but {workload} does not have its pods Ready again after {deadline.passed:.0f} s", *why])


class RunLimit:
    """Shared by all drains of a run. The waves of one drain keep `own_limit`; this keeps it over all of them: a pod leaves only if enough
    others of its workload are Ready at that moment. The Eviction API keeps budgets by itself."""

    def __init__(self, session: Session) -> None:
        self._look = Look(session)
        # By the UID of the workload: the UIDs of the pods that are leaving; and the most pods that were Ready in this run.
        self._leaving: dict[str, set[str]] = {}
        self._most: dict[str, int] = {}

    @contextlib.contextmanager
    def turn(self, one: PodFate, seconds: float, context: StepContext) -> Iterator[None]:
        """The time in which a pod leaves, from its eviction until its replacement is Ready. Waits for its begin, at most `seconds`; raises
        NotEvicted after that, or once the run halts; ApiFailure. In its own turn a pod does not wait again."""
        workload = one.workload
        if workload is None or not _limited(one, workload) or one.uid in self._leaving.get(workload.uid, ()):
            yield
            return
        self._await(one, workload, Deadline(seconds, as_given=True), context)
        try:
            yield
        finally:
            self._leaving[workload.uid].discard(one.uid)

    def _await(self, one: PodFate, workload: PodWorkload, deadline: Deadline, context: StepContext) -> None:
        said = False
        while True:
            # One drain decides at a time: a pod counts as leaving before the next one looks.
            with self._look.session.alone(workload.uid):
                why = self._too_few(one, workload)
                if not why:
                    self._leaving[workload.uid].add(one.uid)
                    return
            if not said:
                said = True
                context.say(f"  {one.name}: waits: {why}")
            if halted := context.stopped():
                raise NotEvicted(f"{one.name}: not evicted ({halted}): {why}")
            if deadline.over:
                raise NotEvicted(f"{one.name}: not evicted after {deadline.passed:.0f} s: {why}")
            deadline.pause(LOOK_AGAIN)

    def _too_few(self, one: PodFate, workload: PodWorkload) -> str:
        """Why the pod must not leave now; "" if it may."""
        leaving = self._leaving.setdefault(workload.uid, set())
        most = self._most[workload.uid] = max(self._most.get(workload.uid, 0), workload.ready)
        since = time.monotonic()
        wanted = self._look.wanted(workload, since)
        if wanted is None:
            return ""
        need = min(wanted, most) - own_limit(workload)
        owners = self._look.controllers(workload, since)
        ready = ready_elsewhere(self._look.pods(workload.namespace, since), owners, (), {one.uid, *leaving})
        if ready >= need:
            return ""
        return f"{ready} other pods of {workload} are Ready, and {need} must be, since no budget says how many"


def _limited(one: PodFate, workload: PodWorkload) -> bool:
    """No budget is asked before it leaves, its workload's pods can be counted, no consent lets them stay away, and no other pod must leave
    at the same time."""
    alone = not one.budgets or one.fate == "deleted"
    return one.fate in ("evicted", "deleted") and workload.counted and not one.pending and alone and not one.together
