"""What becomes of each pod of a drained node, and why. Pure.

The filters are those of kubectl drain (kubectl/pkg/drain/filters.go) with these differences: a finished pod stays; the owner of every pod
is looked up, as far as daytwo reads its kind; a pod is known by its UID.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from roles.engine.bounds import moment, span
from roles.engine.disruption import BudgetState, DisruptionObjects, budgets_of, eviction_answer, lifted_by
from roles.engine.disruption.strays import strays_of, strays_text
from roles.engine.harmless import one_line
from roles.engine.kube import Object, full_name, is_ending, uid
from roles.engine.kube.fields import ends_at, finalizers_of, name_of, volumes_of
from roles.engine.kube.matching import CORDON, untolerated
from roles.engine.kube.pods import broken, has_ended, is_over, is_static, left_by_drain, phase
from roles.engine.objects import workload_rollout
from roles.engine.outage.model import MOST_SECONDS, DrainConsents, Fate, PodFate, PodWorkload
from roles.engine.outage.waves import has_storage
from roles.engine.outage.workloads import Workloads

#: A pod that should be gone for longer than this does not end by itself.
STUCK = span(60)
_LOCAL = "allow it with --data allow_local_data=true"
_UNMANAGED = "delete it yourself, or allow it with --data allow_unmanaged=true"


@dataclass(frozen=True)
class Judge:
    """Decides about the pods of the nodes. `surging`: UIDs of the pods that are replaced first; `now`: the control plane's time."""

    workloads: Workloads
    states: Sequence[BudgetState]
    consents: DrainConsents
    now: datetime
    surging: Collection[str] = ()

    @classmethod
    def of(cls, live: DisruptionObjects, states: Sequence[BudgetState], consents: DrainConsents, now: datetime) -> Judge:
        """For the pods of `live`, of which none is replaced first."""
        return cls(Workloads(live), states, consents, now)

    def fate(self, pod: Object, node: str) -> PodFate:
        workload = self.workloads.of(pod)
        budgets = tuple(state.key for state in budgets_of(pod, self.states))

        def made(fate: Fate, why: str, way_out: str = "", blocked_now: str = "", notes: Sequence[str] = ()) -> PodFate:
            return PodFate(pod, node, fate, why, way_out, workload, budgets, blocked_now, has_storage(pod), notes=tuple(notes))

        return self._stays(pod, workload, made) or self._blocked(pod, workload, made) or self._leaves(pod, workload, made)

    def _stays(self, pod: Object, workload: PodWorkload | None, made: Callable[..., PodFate]) -> PodFate | None:
        if is_static(pod):
            return made("stays", "a static pod: only its node ends it")
        if has_ended(pod):
            return made("stays", f"it is finished ({phase(pod)}) and holds nothing")
        if left_by_drain(pod, self.workloads.daemon_sets):
            return made("stays", f"of {workload}, which ignores the cordon")
        if not is_ending(pod):
            return None
        since = moment(ends_at(pod))
        if since is None or since + STUCK >= self.now:
            return self._ends(pod, (since - self.now).total_seconds() if since else 0, made)
        held = ", ".join(finalizers_of(pod))
        why = f"it is stuck: it should have ended at {ends_at(pod)}"
        why += ", and its node still has its volumes or cgroup" if is_over(pod) else ""
        return made("blocks", why + (f", and {held} holds it" if held else ""), _unstick(pod, held))

    def _ends(self, pod: Object, left: float, made: Callable[..., PodFate]) -> PodFate:
        """A pod that is being deleted, and has so many seconds `left`."""
        cap = self.consents.max_grace
        if cap is not None and is_cut(pod, cap):
            return made("ending", f"it is being deleted already; by consent it has only {cap} s for that")
        if left <= self.consents.seconds:
            return made("ending", "it is being deleted already")
        why = f"it is being deleted, may take {left:.0f} s more to end, and drain_timeout is {self.consents.seconds:g} s"
        return made("blocks", why, self._sooner(left))

    def _sooner(self, seconds: float, *, cut: bool = True) -> str:
        """What lets a pod leave that may take so long to end: only values that the keys of a drain can have."""
        wait = int(seconds) + 60
        ways = [f"set --data drain_timeout={wait}"] if wait <= MOST_SECONDS else []
        ways += [f"give it less time by consent: --data max_grace={max(1, min(300, int(self.consents.seconds) // 2))}"] if cut else []
        return ", or ".join(ways or ["leave its Deployment out of surge, and give it less time by consent: --data max_grace=300"])

    def _blocked(self, pod: Object, workload: PodWorkload | None, made: Callable[..., PodFate]) -> PodFate | None:
        if workload is None and not self.consents.allow_unmanaged:
            return made("blocks", self._unmanaged(pod), _UNMANAGED)
        local = empty_dirs(pod)
        if local and not self.consents.allow_local_data:
            return made("blocks", f"it keeps data in emptyDir ({', '.join(local)}), which would be lost", _LOCAL)
        surged, cap = uid(pod) in self.surging, self.consents.max_grace
        # The ReplicaSet removes a surged pod, with its own grace period.
        seconds = workload_rollout.grace(pod) if surged or cap is None else min(cap, workload_rollout.grace(pod))
        if seconds > self.consents.seconds:
            why = f"it may take {seconds} s to end, and drain_timeout is {self.consents.seconds:g} s"
            return made("blocks", why, self._sooner(seconds, cut=not surged))
        return None

    def _unmanaged(self, pod: Object) -> str:
        ref, _ = self.workloads.owner(pod)
        missing = f"its controller {ref} does not exist" if ref is not None else "it has no controller"
        return f"{missing}, so nothing recreates it"

    def _leaves(self, pod: Object, workload: PodWorkload | None, made: Callable[..., PodFate]) -> PodFate:
        notes = effects(pod, workload)
        cap = self.consents.max_grace
        if cap is not None and is_cut(pod, cap) and uid(pod) not in self.surging:
            notes.append(f"by consent: it has {cap} s to end, not its {workload_rollout.grace(pod)} s, and is killed then")
        if local := empty_dirs(pod):
            notes.append(f"by consent: its data in emptyDir is lost ({', '.join(local)})")
        comes_back = f"{workload} recreates it" if workload is not None else f"by consent: {self._unmanaged(pod)}"
        if uid(pod) in self.surging:
            return made("surged", f"{workload} gets a second pod first", notes=notes)
        answer = eviction_answer(pod, self.states)
        if answer.allowed:
            return made("evicted", f"{comes_back}; {answer.why}", notes=notes)
        found = budgets_of(pod, self.states)
        if all(state.key in self.consents.ignore_budgets for state in found):
            keys = ", ".join(state.key for state in found)
            return made("deleted", f"{comes_back}; by consent past {keys}: {answer.why}", notes=notes)
        if kept := kept_by(found) or _ends_by_itself(workload):
            return replace(made("evicted", comes_back, blocked_now=f"{answer.why}; {kept}", notes=notes), kept=kept)
        scalers = [str(one) for state in found for one in lifted_by(state, self.workloads.live)] if len(found) == 1 else []
        never = "" if scalers else answer.never
        if never := never or next(filter(None, map(never_healthy, found)), ""):
            why, out = strays_text([one for state in found for one in strays_of(state, self.workloads.live)])
            reasons = "; ".join(filter(None, (answer.why, never, why)))
            return made("blocks", f"no eviction of it can ever succeed: {reasons}", out or _past(found))
        lifts = f"; only when {', '.join(scalers)} has scaled out" if scalers else ""
        return made("evicted", comes_back, blocked_now=answer.why + lifts, notes=notes)


def is_cut(pod: Object, cap: int) -> bool:
    """The pod, or its deletion, has a longer grace period than a drain allows by consent."""
    return workload_rollout.grace(pod) > cap


def kept_by(states: Sequence[BudgetState]) -> str:
    """The controllers that may let a pod go which its budgets refuse, without anybody; "" if only people can. Of several budgets, one that
    a controller removes is enough."""
    keepers = [f"{state.key}: {keeper}" for state in states for keeper in (state.kept if len(states) == 1 else state.keepers)]
    return "; ".join(keepers)


def _ends_by_itself(workload: PodWorkload | None) -> str:
    return (
        f"{workload}: the pod ends by itself when its work is done" if workload is not None and workload.kind in ("Job", "CronJob") else ""
    )


def _past(states: Sequence[BudgetState]) -> str:
    if len(states) > 1:
        change = "let only one of these budgets select it"
    else:
        change = "change the budget or the number of replicas, or repair its pods"
    return f"{change}; {past_budgets_at_a_cost(states)}"


def past_budgets_at_a_cost(states: Sequence[BudgetState]) -> str:
    """The consent to delete pods past their budgets, with what it costs."""
    keys = ",".join(state.key for state in states)
    left = ", ".join(
        f"{state.key} needs {state.numbers.desired_healthy} healthy pods and has {state.numbers.current_healthy}" for state in states
    )
    return f"or give up what it protects: --data ignore_budgets={keys} deletes its pods past it, one healthy pod less each time ({left})"


def _unstick(pod: Object, held: str) -> str:
    name = full_name(pod)
    if held:
        return "the tool that set this finalizer must remove it"
    return f"find out why its node does not end it: kubectl describe pod, and journalctl -u kubelet there ({name})"


def never_healthy(state: BudgetState) -> str:
    """Why a budget that allows none now stays so until someone repairs its pods; "" if they may become Ready by themselves."""
    names = {uid(pod): f"{name_of(pod)} ({why})" for pod in state.pods if (why := broken(pod))}
    if names and state.attainable - len(names) <= state.numbers.desired_healthy:
        return f"it stays so until someone repairs {', '.join(names.values())}"
    return ""


def empty_dirs(pod: Object) -> list[str]:
    return [one_line(str(volume.get("name"))) for volume in volumes_of(pod) if "emptyDir" in volume]


def effects(pod: Object, workload: PodWorkload | None) -> list[str]:
    """What else moving this pod means."""
    found = []
    volumes = volumes_of(pod)
    paths = [one_line(str((volume.get("hostPath") or {}).get("path"))) for volume in volumes if "hostPath" in volume]
    if paths:
        found.append(f"it uses {', '.join(paths)} of this node, which do not follow it")
    if workload is not None and workload.kind in ("Job", "CronJob"):
        found.append("its work begins again elsewhere, and the Job may count this as a failure (backoffLimit, podFailurePolicy)")
    elif workload is not None and not workload.counted:
        found.append(f"whether {workload.kind} recreates it is not known, and not proven")
    if workload is not None and untolerated(pod, [CORDON]) is None:
        found.append("it tolerates the cordon, so its replacement may come back to this node")
    return found
