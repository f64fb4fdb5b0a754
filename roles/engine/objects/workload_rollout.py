"""The progress of a roll-out, from the workload's own status and the old pods that are left, and why it does not end. Pure.

The rules for the new pods are those of `kubectl rollout status` (kubectl/pkg/polymorphichelpers/rollout_status.go), without partitions.
These are met while old pods are still ending: no status counts a deleted pod (pkg/controller: FilterActivePods). So this module checks
the old pods themselves too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roles.engine.bounds import digits, moment, span
from roles.engine.folding import shortened
from roles.engine.kube import Object, condition, controller, is_ending, owner_ref, uid
from roles.engine.kube.amounts import scaled
from roles.engine.kube.fields import (
    annotations_of,
    conditions,
    ends_at,
    finalizers_of,
    is_observed,
    labels_of,
    meta_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
)
from roles.engine.kube.pods import is_over, node_of
from roles.engine.kube.workloads import class_of, replicas
from roles.engine.transaction import mask_text

#: Condition reason of a Deployment that made no progress (pkg/controller/deployment/util: TimedOutReason).
_TIMED_OUT = "ProgressDeadlineExceeded"
_MAX_LINES = 12
#: Annotation of a ReplicaSet: the newest template has the highest number (pkg/controller/deployment/util: RevisionAnnotation).
_REVISION = "deployment.kubernetes.io/revision"
#: Label of a pod, and of its ControllerRevision (apps/v1: ControllerRevisionHashLabelKey).
_HASH = "controller-revision-hash"
#: The collection of the namespace whose objects record a workload's templates; a StatefulSet records them in its own status.
REVISIONS = {"Deployment": "replicasets", "DaemonSet": "controllerrevisions"}
#: spec.terminationGracePeriodSeconds where it is not set (pkg/apis/core/v1/defaults.go).
_GRACE = 30

RolloutVerdict = Literal["", "done", "left", "failed"]


@dataclass(frozen=True)
class RolloutProgress:
    """`done`: every pod is of the newest template and available; `moving`: pods of an older one are left, or new ones are to come;
    `failed`: why its own controller gave up, or ""."""

    done: bool
    summary: str
    failed: str = ""
    moving: bool = True


def progress(kind: str, item: Object) -> RolloutProgress:
    """The progress of a Deployment, StatefulSet or DaemonSet."""
    status = status_of(item)
    if not is_observed(item):
        return RolloutProgress(False, "its controller has not seen the change yet")
    wanted = replicas(kind, item)
    if kind == "DaemonSet":
        updated, available = _count(status, "updatedNumberScheduled"), _count(status, "numberAvailable")
        return RolloutProgress(updated >= wanted and available >= wanted, _pod_counts(updated, available, wanted), moving=updated < wanted)
    updated, available = _count(status, "updatedReplicas"), _count(status, "availableReplicas")
    summary = _pod_counts(updated, available, wanted)
    if kind == "StatefulSet":
        same = status.get("updateRevision") == status.get("currentRevision")
        # A StatefulSet whose template never changed counts its pods only as current.
        return RolloutProgress(same and _count(status, "readyReplicas") >= wanted and available >= wanted, summary, moving=not same)
    old = _count(status, "replicas") - updated
    failed = next(
        (str(found.get("message") or _TIMED_OUT) for found in conditions(item) if found.get("reason") == _TIMED_OUT),
        "",
    )
    if old > 0:
        summary += f", {old} old ones still there"
    moving = updated < wanted or old > 0
    return RolloutProgress(not failed and not moving and available >= updated, summary, failed, moving)


@dataclass
class Wait:
    """How long to wait for a roll-out. All times in seconds, from its beginning.

    Its new pods must serve within `timeout`. Then the old pods may take the longest grace period among them plus `margin` to end, but at
    most `timeout` again: a pod on a node that is down ends only when the node is back, and no grace period may block a run forever.
    """

    timeout: float
    margin: float
    served: float | None = None
    _grace: float = 0.0

    @property
    def limit(self) -> float:
        """The latest end of the wait, as far as is known now."""
        if self.served is None:
            return self.timeout
        return self.served + min(self._grace + self.margin, self.timeout)

    def judge(self, passed: float, state: RolloutProgress, old: Collection[Object]) -> RolloutVerdict:
        """ "": wait on; done; left: all new pods serve, but old ones still exist when the time is over; failed."""
        if state.done:
            self.served = passed if self.served is None else self.served
            self._grace = max([self._grace, *(grace(pod) for pod in old)])
            if not old:
                return "done"
            return "left" if passed > self.limit else ""
        # New pods that served but no longer do get at least their original time.
        return "failed" if state.failed or passed > max(self.timeout, self.limit) else ""


def old_pods(kind: str, item: Object, pods: Collection[Object], revisions: Collection[Object]) -> list[Object]:
    """The workload's own pods whose template is not the newest, including pods that are ending, but without finished pods.

    A workload owns the pods that it controls, a Deployment through its ReplicaSets; matching labels are not enough. `revisions`: all of its
    REVISIONS seen since the roll-out began (an old ReplicaSet may be deleted before its pods). The newest of them is the current one once
    the controller has seen the change (RolloutProgress). If none is known, only pods that are ending count.
    """
    own = [one for one in revisions if controller(one) == uid(item)]
    newest = max(own, key=_number, default=None)
    if kind == "Deployment":
        owners, current = {uid(one) for one in own}, uid(newest) if newest is not None else ""
    else:
        owners = {uid(item)}
        current = str(status_of(item).get("updateRevision") or "") if kind == "StatefulSet" else _hash(newest or {})
    found = []
    for pod in pods:
        pod_revision = controller(pod) if kind == "Deployment" else _hash(pod)
        if controller(pod) in owners and pod_revision != current and (is_ending(pod) or (current and not is_over(pod))):
            found.append(pod)
    return found


def _number(revision: Object) -> int:
    """The revision number of a ReplicaSet or ControllerRevision; 0 if it has none."""
    text = str(revision.get("revision") or annotations_of(revision).get(_REVISION) or "")
    return digits(text) or 0


def _hash(item: Object) -> str:
    return str(labels_of(item).get(_HASH) or "")


def grace(pod: Object) -> int:
    """The grace period of a pod in seconds: that of its deletion, or else its own."""
    for found in (meta_of(pod).get("deletionGracePeriodSeconds"), spec_of(pod).get("terminationGracePeriodSeconds")):
        if found is not None:
            return int(found)
    return _GRACE


def old_pods_text(pods: Collection[Object]) -> str:
    """`2 old ones are still there: web-1 on w1, ending since 2026-01-31T10:00:00Z (grace period 30 s); ...`"""
    lines = [_old_pod_text(pod) for pod in pods]
    count = "1 old one is" if len(lines) == 1 else f"{len(lines)} old ones are"
    return f"{count} still there: {shortened(lines, _MAX_LINES, ';')}"


def _old_pod_text(pod: Object) -> str:
    where = f"{name_of(pod)} on {node_of(pod) or 'no node'}"
    if not is_ending(pod):
        return f"{where}, not deleted"
    held = f", held by {', '.join(found)}" if (found := finalizers_of(pod)) else ""
    return f"{where}, ending since {_since(pod)} (grace period {grace(pod)} s){held}"


def _since(item: Object) -> str:
    """When the object was deleted: its deletionTimestamp is the end of its grace period (apimachinery: ObjectMeta)."""
    ends, seconds = moment(ends_at(item)), int(meta_of(item).get("deletionGracePeriodSeconds") or 0)
    passed = span(seconds)
    return "an unknown time" if ends is None or passed.total_seconds() != seconds else (ends - passed).isoformat().replace("+00:00", "Z")


def what_to_do(pods: Collection[Object], down: Collection[str]) -> list[str]:
    """What to do about pods that did not end in time, by cause; `down` are the names of nodes that are not Ready or do not exist."""
    found = []
    for pod in pods:
        node = node_of(pod)
        if node in down:
            found.append(
                f"{node} is not ready: its pods end when its kubelet is back; if the machine is off for good: kubectl delete node {node}"
            )
        elif finalizers := finalizers_of(pod):
            found.append(f"{', '.join(finalizers)}: the tool that set this finalizer must remove it")
        else:
            found.append(f"after its grace period, find out why: kubectl describe pod -n {namespace_of(pod)} {name_of(pod)}")
    return list(dict.fromkeys(found))[:_MAX_LINES]


def _pod_counts(updated: int, available: int, wanted: int) -> str:
    return f"{updated} of {wanted} pods are new, {available} available"


def _count(status: Mapping[str, Any], name: str) -> int:
    return int(status.get(name) or 0)


def why_no_rollout(kind: str, item: Object) -> str | None:
    """Why a change of the template would not recreate the pods, with the way out; None if it would."""
    spec = spec_of(item)
    if kind == "Deployment":
        return "it is paused, so it would not roll out; resume it: kubectl rollout resume" if spec.get("paused") else None
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return "its updateStrategy is OnDelete, so its pods stay as they are until each is deleted by hand; set it to RollingUpdate"
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    if kind == "StatefulSet" and partition:
        return f"its updateStrategy has partition {partition}, so the pods below it would stay as they are; set it to 0"
    return None


def not_ours(item: Object) -> list[str]:
    """Whose the template is, if an owner of the workload writes it."""
    owner = owner_ref(item)
    return [f"{owner} owns it, and its controller ({owner.group or 'v1'}) writes its template: change it there"] if owner else []


def rollout_problems(kind: str, item: Object) -> list[str]:
    """Why a roll-out of the workload would not happen, or its result could not be judged."""
    problems = [*filter(None, [why_no_rollout(kind, item)]), *not_ours(item)]
    state = progress(kind, item)
    if not state.done:
        problems.append(f"it is not healthy now ({state.failed or state.summary}), so a roll-out could not be judged; fix that first")
    return problems


def how_it_rolls(kind: str, item: Object) -> str:
    """How the roll-out replaces pods, in a few words."""
    spec = spec_of(item)
    if kind == "Deployment":
        strategy = spec.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            return "Recreate: all old pods stop before the first new one starts"
        rolling = strategy.get("rollingUpdate") or {}
        return f"RollingUpdate: maxUnavailable {rolling.get('maxUnavailable', '25%')}, maxSurge {rolling.get('maxSurge', '25%')}"
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    if kind == "DaemonSet":
        return f"RollingUpdate: maxUnavailable {rolling.get('maxUnavailable', 1)}"
    return "RollingUpdate: one after the other"


def rollout_notes(kind: str, item: Object, count: int, seconds: float) -> tuple[str, str]:
    """What a change of the template means, in a plan. `count`: of its pods; `seconds`: the time limit."""
    return (
        f"recreates its pods, {count} of them ({how_it_rolls(kind, item)})" if count else "it has no pods now, so none is recreated",
        f"waits {seconds:g} s for the roll-out, then for the old pods to end; a failed roll-out is undone, which recreates the pods again",
    )


def unavailable(kind: str, item: Object) -> int:
    """How many pods its roll-out takes away before new ones are available. (pkg/controller: deployment/util ResolveFenceposts,
    daemon/update.go updatedDesiredNodeCounts, statefulset/stateful_set_utils.go getStatefulSetMaxUnavailable.)"""
    spec, count = spec_of(item), replicas(kind, item)
    strategy = spec.get("strategy" if kind == "Deployment" else "updateStrategy") or {}
    if strategy.get("type") == "Recreate":
        return max(1, count)
    rolling = strategy.get("rollingUpdate") or {}
    if kind == "StatefulSet":
        return max(1, scaled(rolling.get("maxUnavailable") or 1, count, up=False, otherwise=count))
    usual, up = (("25%", "25%"), False) if kind == "Deployment" else ((1, 0), True)
    most, surge = (rolling.get(key, one) for key, one in zip(("maxUnavailable", "maxSurge"), usual, strict=True))
    found = scaled(most, count, up=up, otherwise=count)
    return found or int(scaled(surge, count, up=True, otherwise=count) == 0)


def complaints(item: Object, pods: Collection[Object], events: Collection[Object] = ()) -> list[str]:
    """Why a roll-out does not end, most specific first: the states of the pods, conditions of the workload, warning events.

    `pods` are those of the new template. At most a dozen lines, without duplicates.
    """
    found: list[str] = []
    for pod in pods:
        found += _pod_complaints(pod)
    for one in conditions(item):
        kind, status = one.get("type"), one.get("status")
        if (kind == "ReplicaFailure" and status == "True") or (kind in ("Progressing", "Available") and status == "False"):
            found.append(f"condition {kind}={status}: {one.get('reason')}: {one.get('message')}")
    for event in sorted(events, key=lambda found: str(found.get("lastTimestamp") or found.get("eventTime") or ""), reverse=True):
        if event.get("type") == "Warning":
            about = event.get("involvedObject") or {}
            found.append(f"event of {about.get('kind')} {about.get('name')}: {event.get('reason')}: {event.get('message')}")
    # The texts of containers and events are arbitrary, and may contain secrets.
    return [mask_text(" ".join(line.split())) for line in dict.fromkeys(found)][:_MAX_LINES]


def _pod_complaints(pod: Object) -> list[str]:
    name, status = name_of(pod), status_of(pod)
    found = []
    if (scheduled := condition(pod, "PodScheduled")).get("status") == "False":
        found.append(f"pod {name}: not scheduled: {scheduled.get('message') or scheduled.get('reason')}")
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state, last = container.get("state") or {}, container.get("lastState") or {}
        why = state.get("waiting") or state.get("terminated") or {}
        if why.get("reason") not in (None, "ContainerCreating", "PodInitializing", "Completed"):
            ended = last.get("terminated") or {}
            code = f" (exit status {ended['exitCode']})" if "exitCode" in ended else ""
            found.append(f"pod {name}: container {container.get('name')}: {why['reason']}: {why.get('message') or '-'}{code}")
        elif "running" in state and not container.get("ready"):
            found.append(f"pod {name}: container {container.get('name')} runs and is not ready")
    return found


def wrong_pods(pods: Collection[Object], priority_class: str, value: int | None) -> list[str]:
    """The pods of a finished roll-out that have another class, or another priority than the class's `value` (None: not checked)."""
    problems = []
    for pod in pods:
        name, spec = name_of(pod), spec_of(pod)
        if class_of("Pod", pod) != priority_class:
            problems.append(f"pod {name} has the class {class_of('Pod', pod) or 'none'}, not {priority_class}")
        elif value is not None and spec.get("priority") != value:
            problems.append(f"pod {name} has priority {spec.get('priority')}, and {priority_class} is {value}")
    return problems
