"""A second pod for a single one before that leaves: by one replica more for a moment, without touching the template.

The Deployment gets a second replica; when it is Ready, the Deployment gets its old number back, and its ReplicaSet removes the pod with the
lowest controller.kubernetes.io/pod-deletion-cost (pkg/controller/controller_utils.go, ActivePodsWithRanks), which is the doomed one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from roles.engine.api import Conflict, NotFound
from roles.engine.commands import command
from roles.engine.context import Fields, StepContext
from roles.engine.disruption.problem import autoscaler
from roles.engine.kube import Object, controller, is_ending, namespace_and_name, uid
from roles.engine.kube.fields import annotations_of, spec_of
from roles.engine.kube.pods import is_alive, pod_path
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.objects import NotDone, ObjectChange, ObjectWriter, Session, workload_rollout
from roles.engine.outage.evicting import Evictor, begin_move
from roles.engine.outage.mark import run_of
from roles.engine.outage.model import DrainConsents, PodFate, PodWorkload
from roles.engine.outage.reading import Look, recorded_surges
from roles.engine.outage.surge_marks import (
    MARK,
    REPLICAS,
    SURGED,
    SURGES,
    doubt,
    left_surges,
    mark_of,
    other_writers,
    unsurge_change,
)
from roles.engine.outage.workloads import Workloads, ready_elsewhere
from roles.engine.placement import Storage
from roles.engine.timeouts import LOOK_AGAIN, Deadline

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CHEAPEST = "-2147483647"
# Of how many marks that do not count the plan speaks.
_MOST_NOTES = 5


@dataclass(frozen=True)
class Surges:
    """`pods`: UIDs of pods that are replaced first, with their Deployment; `refusals`: why the consent cannot be used; `warnings`: marks of
    surges that do not count."""

    pods: Mapping[str, PodWorkload]
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find_surges(doomed: Sequence[Object], workloads: Workloads, consents: DrainConsents) -> Surges:
    """The surges among the pods of the nodes. A Deployment that an interrupted run left with a replica more is finished too."""
    chosen, refusals, problems, ignored = dict[str, PodWorkload](), list[str](), dict[str, str](), dict[str, str]()
    named = set(consents.surge) if isinstance(consents.surge, tuple) else set()
    seen: dict[str, str] = {}
    for pod in doomed:
        workload = workloads.of(pod)
        if workload is None or not is_alive(pod):
            continue
        seen[workload.key] = seen.get(workload.key, "") or workload.kind
        claim = doubt(workload.found, workloads.live.of(SURGES)) if workload.kind == "Deployment" and workload.found is not None else ""
        started, asked = claim == "" and workload.replicas == 2, _asked(workload, consents.surge)
        if claim:
            ignored[str(workload)] = claim
        if not started and not asked:
            continue
        why = why_not(pod, workload, workloads, started=started)
        if why is None:
            chosen[uid(pod)] = workload
        elif asked:
            problems[str(workload)] = why
        else:
            ignored[str(workload)] = f"its surge cannot be finished: {why}; its pods are evicted like others"
    refusals += [f"{name}: a second pod first is not possible: {why}" for name, why in problems.items()]
    refusals += [f"surge: {name} has no pod on these nodes" for name in sorted(named - set(seen))]
    if problems and consents.surge is True:
        able = sorted({one.key for one in chosen.values()})
        refusals.append(f"name the others: --data surge={','.join(able)}" if able else "leave --data surge out")
    return Surges(chosen, tuple(refusals), tuple(_ignored_text(ignored)))


def _ignored_text(ignored: Mapping[str, str]) -> list[str]:
    lines = [f"{name}: {why}" for name, why in list(ignored.items())[:_MOST_NOTES]]
    return lines + ([f"and {len(ignored) - _MOST_NOTES} more marks of surges do not count"] if len(ignored) > _MOST_NOTES else [])


def _asked(workload: PodWorkload, surge: bool | tuple[str, ...]) -> bool:
    if isinstance(surge, tuple):
        return workload.key in surge
    return surge and workload.kind == "Deployment" and workload.replicas == 1


def why_not(pod: Object, workload: PodWorkload, workloads: Workloads, *, started: bool) -> str | None:
    """Why a pod cannot have a second one beside it; None if it can. `started`: an interrupted run has begun this."""
    item = workload.found
    if workload.kind != "Deployment" or item is None:
        return f"it is a {workload.kind}, and only a Deployment can have one pod more for a moment"
    spec: Mapping[str, Any] = spec_of(item)
    if workload.replicas != (2 if started else 1):
        return f"it has {workload.replicas} replicas, not 1; its pods are evicted one after the other"
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return "its strategy is Recreate: its pods must not run beside each other"
    if (scaler := autoscaler(workloads.live, *workload.place)) is not None:
        return f"HorizontalPodAutoscaler {scaler.name} sets its replicas; raise its minReplicas for the time of the drain"
    storage = Storage(workloads.live.of)
    if claims := [volume.key.rpartition("/")[2] for volume in storage.volumes(pod) if not volume.allows_second]:
        return f"only one node can write to {', '.join(claims)}"
    state = workload_rollout.progress("Deployment", item)
    if not state.done and not started:
        return f"it is not healthy now ({state.failed or state.summary})"
    sets = [one for one in workloads.live.of("ReplicaSet") if controller(one) == workload.uid and int(spec_of(one).get("replicas") or 0)]
    if len(sets) > 1:
        return "it is rolling out"
    return None


class EndingWriter(ObjectWriter):
    """Carries out `left_surges`. The mark goes last: without it nobody would find the cost."""

    def carry_out(self, change: ObjectChange, context: StepContext) -> str:
        return super().carry_out(change, context.beginning(partial(self._begin, change, context)))

    def _begin(self, change: ObjectChange, context: StepContext, fields: Fields) -> None:
        context.begin(fields)
        forget_costs(self.session, change.before or {})


class Surger:
    """Replaces single pods. `run`: the name of the run, for the mark."""

    def __init__(self, evictor: Evictor, consents: DrainConsents, run: str) -> None:
        self._evictor = evictor
        self._writer = ObjectWriter(evictor.session, force=True)
        self._consents = consents
        self._run = run

    def replace(self, one: PodFate, context: StepContext) -> str:
        """A second pod, Ready elsewhere; then the old number again, which removes the doomed one. Raises NotDone, ApiFailure."""
        workload = one.workload
        assert workload is not None and workload.found is not None  # find_surges chooses only such pods
        there = self._evictor.session.fetch(workload.path)
        if there is None or uid(there) != workload.uid:
            raise NotDone(f"{workload} was deleted since the plan; run this again")
        if (has := SURGED.values(there)[REPLICAS]) not in (1, workload.replicas):
            raise NotDone(f"{workload} has {has} replicas by now, and had {workload.replicas}: left as it is; run this again")
        grow = ObjectChange.of_fields(SURGED, there, {REPLICAS: 2, MARK: self._run}, "a second pod first")
        begin_move(context, [{"path": list(change.path), "before": change.before, "after": change.after} for change in grow.fields])
        deadline = Deadline(self._consents.seconds, as_given=True)
        since = time.monotonic()
        try:
            # The mark first: whoever ends what a killed run has left finds the cost by it.
            self._write(grow, context)
            set_cost(self._evictor.session, one.pod, CHEAPEST)
            self._second_ready(one, workload, deadline, since, context)
        except Exception:
            self._give_up(one, workload, context)
            raise
        self.end(workload, context)
        self._gone(one, workload, deadline)
        return f"a second pod was Ready elsewhere before it left; {workload} has 1 replica again"

    def end(self, workload: PodWorkload, context: StepContext) -> str:
        """Give a Deployment its one replica back, if it has the mark of this run. Raises NotDone, ApiError."""
        there = self._evictor.session.fetch(workload.path)
        own = there is not None and uid(there) == workload.uid and mark_of(there) == self._run
        change = unsurge_change(there) if there is not None and own else None
        return self._write(change, context) if change is not None else "it has no extra replica"

    def _write(self, change: ObjectChange, context: StepContext) -> str:
        return self._writer.carry_out(change, context.beginning())

    def _second_ready(self, one: PodFate, workload: PodWorkload, deadline: Deadline, since: float, context: StepContext) -> None:
        look, nodes = self._evictor.look, self._evictor.nodes
        while True:
            pods = look.pods(workload.namespace, since)
            owners = look.controllers(workload, since)
            if ready_elsewhere(pods, owners, nodes, {one.uid}) >= 1:
                context.say(f"  {workload}: a second pod is Ready elsewhere")
                return
            if deadline.over:
                new = [pod for pod in pods if controller(pod) in owners and not is_ending(pod) and uid(pod) != one.uid]
                why = workload_rollout.complaints({}, new)
                raise NotDone("; ".join([f"its second pod is not Ready after {deadline.passed:.0f} s", *why]))
            deadline.pause(LOOK_AGAIN)

    def _give_up(self, one: PodFate, workload: PodWorkload, context: StepContext) -> None:
        """After a failure: the old number again, which removes the new pod, since it is not Ready; and no cost. The failure is what is
        reported."""
        context.say(f"  {workload}: its old number of replicas is restored")
        try:
            self._restore_cost(one)
            self.end(workload, context)
        except Exception as error:
            context.say(f"  WARNING: {workload}: {error}; {command('uncordon', nodes=one.node)} ends the surge")

    def _restore_cost(self, one: PodFate) -> None:
        """The cost that the pod had before; that of an interrupted run is none."""
        before = annotations_of(one.pod).get(DELETION_COST)
        set_cost(self._evictor.session, one.pod, None if is_own_cost(one.pod) else before)

    def _gone(self, one: PodFate, workload: PodWorkload, deadline: Deadline) -> None:
        since = time.monotonic()
        while True:
            pods = self._evictor.look.pods(workload.namespace, since)
            doomed = next((pod for pod in pods if uid(pod) == one.uid), None)
            if doomed is None:
                return
            if deadline.over:
                what = "is still ending" if is_ending(doomed) else "was not removed: its ReplicaSet removed another pod"
                self._restore_cost(one)
                raise NotDone(f"it {what} after {deadline.passed:.0f} s")
            deadline.pause(LOOK_AGAIN)


def is_own_cost(pod: Object) -> bool:
    """The pod has the cost that daytwo sets, and nobody else has set it."""
    marked = annotations_of(pod).get(DELETION_COST) == CHEAPEST
    return marked and not other_writers(pod, "f:metadata", "f:annotations", f"f:{DELETION_COST}")


def end_surges(session: Session, run: str, context: StepContext) -> str:
    """End what a run, which is over, has left of its surges. Before its node is uncordoned: the mark there leads to them. Each is noted
    before it is written. Returns what was done, "" for nothing. Raises NotDone, ApiFailure."""
    writer, names = EndingWriter(session, force=True), list[str]()
    marked = [one for one in session.fetch_all(COLLECTIONS["Deployment"]) if run_of(mark_of(one)) == run]
    for change in left_surges(marked, recorded_surges(session, marked)):
        about = {"event": "end surge", "object": change.name, "path": change.path, "uid": change.about["uid"], "of": run}
        writer.carry_out(change, context.beginning(partial(_noted, context, about)))
        names.append(change.name)
    return f"ended the surge of {', '.join(names)}" if names else ""


def _noted(context: StepContext, about: Mapping[str, Any], fields: Fields) -> None:
    context.note({**about, "fields": list(fields)})


def forget_costs(session: Session, deployment: Object) -> None:
    """Remove daytwo's cost from the pods of a Deployment whose surge ends. Raises ApiFailure."""
    namespace = namespace_and_name(deployment)[0]
    look, since = Look(session), time.monotonic()
    own = look.controllers(PodWorkload("Deployment", *namespace_and_name(deployment), uid(deployment)), since)
    for pod in look.pods(namespace, since):
        if controller(pod) in own and is_own_cost(pod) and not is_ending(pod):
            set_cost(session, pod, None)


def set_cost(session: Session, pod: Object, value: str | None) -> None:
    """The cost that decides which pod its ReplicaSet removes first. A pod that is gone is no error. Raises ApiFailure."""
    path = pod_path(pod)
    body = {"metadata": {"uid": uid(pod), "annotations": {DELETION_COST: value}}}
    with contextlib.suppress(NotFound, Conflict):
        session.asked(lambda api: api.patch(path, body))
