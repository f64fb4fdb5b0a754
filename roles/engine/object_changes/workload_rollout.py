"""How far a roll-out is, from the workload's own status and the old pods that are left, and why it does not go on. Pure.

The rules for the new pods are those of `kubectl rollout status` (kubectl/pkg/polymorphichelpers/rollout_status.go), without partitions.
That is over while old pods are still ending: no status counts a pod that was deleted (pkg/controller: FilterActivePods). So the old pods
themselves are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from roles.engine.object_changes.api_object import Object, class_of, controller, is_ending, is_over, replicas, uid
from roles.engine.transaction import mask_text

#: Condition reason of a Deployment that made no progress (pkg/controller/deployment/util: TimedOutReason).
_TIMED_OUT = "ProgressDeadlineExceeded"
_TOLD = 12
#: Annotation of a ReplicaSet: its controller gives the newest template the highest (pkg/controller/deployment/util: RevisionAnnotation).
_REVISION = "deployment.kubernetes.io/revision"
#: Label of a pod, and of the ControllerRevision it was made from (apps/v1: ControllerRevisionHashLabelKey).
_HASH = "controller-revision-hash"
#: What tells a workload's templates apart, as a collection of its namespace; a StatefulSet's own status does.
REVISIONS = {"Deployment": "replicasets", "DaemonSet": "controllerrevisions"}
#: spec.terminationGracePeriodSeconds where it is not set (pkg/apis/core/v1/defaults.go).
_GRACE = 30

RolloutVerdict = Literal["", "done", "left", "failed"]


@dataclass(frozen=True)
class RolloutProgress:
    """`done`: every pod is of the newest template and available; `failed`: why its own controller gave up, or ""."""

    done: bool
    told: str
    failed: str = ""


def progress(kind: str, item: Object) -> RolloutProgress:
    """Of a Deployment, StatefulSet or DaemonSet."""
    status = item.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(item["metadata"].get("generation") or 0):
        return RolloutProgress(False, "its controller has not seen the change yet")
    wanted = replicas(kind, item)
    if kind == "DaemonSet":
        updated, available = _count(status, "updatedNumberScheduled"), _count(status, "numberAvailable")
        return RolloutProgress(updated >= wanted and available >= wanted, _told(updated, available, wanted))
    updated, available = _count(status, "updatedReplicas"), _count(status, "availableReplicas")
    told = _told(updated, available, wanted)
    if kind == "StatefulSet":
        same = status.get("updateRevision") == status.get("currentRevision")
        # A set that never changed counts its pods as current only.
        return RolloutProgress(same and _count(status, "readyReplicas") >= wanted and available >= wanted, told)
    old = _count(status, "replicas") - updated
    failed = next(
        (str(found.get("message") or _TIMED_OUT) for found in conditions(item) if found.get("reason") == _TIMED_OUT),
        "",
    )
    if old > 0:
        told += f", {old} old ones still there"
    return RolloutProgress(not failed and updated >= wanted and old <= 0 and available >= updated, told, failed)


@dataclass
class Wait:
    """How long a roll-out is waited for. All times in seconds, from its beginning.

    Its new pods must serve within `timeout`. From then on old pods may end for the longest grace period among them and `margin`
    more, and never longer than `timeout` again: a pod on a node that is down ends only when that is back, and no pod's own grace
    period may hold a run up for ever.
    """

    timeout: float
    margin: float
    served: float | None = None
    _grace: float = 0.0

    @property
    def limit(self) -> float:
        """When the wait is over at the latest, as far as is known by now."""
        if self.served is None:
            return self.timeout
        return self.served + min(self._grace + self.margin, self.timeout)

    def judge(self, passed: float, state: RolloutProgress, old: Collection[Object]) -> RolloutVerdict:
        """ "": go on; done; left: the new pods all serve, and old ones are still there when the wait is over; failed."""
        if state.done:
            self.served = passed if self.served is None else self.served
            self._grace = max([self._grace, *(grace(pod) for pod in old)])
            if not old:
                return "done"
            return "left" if passed > self.limit else ""
        # New pods that served and do not now have at least as long as they had in the first place.
        return "failed" if state.failed or passed > max(self.timeout, self.limit) else ""


def old_pods(kind: str, item: Object, pods: Collection[Object], revisions: Collection[Object]) -> list[Object]:
    """The workload's own pods of another template than its newest, those that are ending included; not what is over and stays.

    Its own are those that it controls, a Deployment through a ReplicaSet of its own; labels alone make no pod its own. `revisions`: all
    that were seen of its REVISIONS since the roll-out began (an old ReplicaSet may go before its pods). The newest of them is the
    current one once the controller has seen the change (Progress). Where none is known, only pods that are ending count.
    """
    own = [one for one in revisions if controller(one) == uid(item)]
    newest = max(own, key=_number, default=None)
    if kind == "Deployment":
        makers, current = {uid(one) for one in own}, uid(newest) if newest is not None else ""
    else:
        makers = {uid(item)}
        current = str((item.get("status") or {}).get("updateRevision") or "") if kind == "StatefulSet" else _hash(newest or {})
    found = []
    for pod in pods:
        made_from = controller(pod) if kind == "Deployment" else _hash(pod)
        if controller(pod) in makers and made_from != current and (is_ending(pod) or (current and not is_over(pod))):
            found.append(pod)
    return found


def _number(revision: Object) -> int:
    """Of a ReplicaSet or ControllerRevision; 0 where it has none."""
    text = str(revision.get("revision") or (revision["metadata"].get("annotations") or {}).get(_REVISION) or "")
    return int(text) if text.isdecimal() else 0


def _hash(item: Object) -> str:
    return str(((item.get("metadata") or {}).get("labels") or {}).get(_HASH) or "")


def grace(pod: Object) -> int:
    """Seconds that a pod has to end: those it was deleted with, or else its own."""
    for found in (pod["metadata"].get("deletionGracePeriodSeconds"), (pod.get("spec") or {}).get("terminationGracePeriodSeconds")):
        if found is not None:
            return int(found)
    return _GRACE


def told_old(pods: Collection[Object]) -> str:
    """`2 old ones are still there: web-1 on w1, ending since 2026-01-31T10:00:00Z (grace period 30 s); ...`"""
    lines = [_told_pod(pod) for pod in pods]
    more = [f"{len(lines) - _TOLD} more"] if len(lines) > _TOLD else []
    count = "1 old one is" if len(lines) == 1 else f"{len(lines)} old ones are"
    return f"{count} still there: {'; '.join([*lines[:_TOLD], *more])}"


def _told_pod(pod: Object) -> str:
    meta = pod["metadata"]
    where = f"{meta['name']} on {(pod.get('spec') or {}).get('nodeName') or 'no node'}"
    if not is_ending(pod):
        return f"{where}, not deleted"
    held = f", held by {', '.join(meta['finalizers'])}" if meta.get("finalizers") else ""
    return f"{where}, ending since {_since(meta)} (grace period {grace(pod)} s){held}"


def _since(meta: Mapping[str, Any]) -> str:
    """When it was deleted: deletionTimestamp is when its grace period ends (apimachinery: ObjectMeta)."""
    try:
        ends = datetime.fromisoformat(str(meta["deletionTimestamp"]))
        return (ends - timedelta(seconds=int(meta.get("deletionGracePeriodSeconds") or 0))).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        # A pod may have a grace period of so many years that no calendar has them.
        return "a time that cannot be told"


def what_to_do(pods: Collection[Object], down: Collection[str]) -> list[str]:
    """For pods that did not end in time, by cause; `down` are the names of nodes that are not Ready, or are not there."""
    found = []
    for pod in pods:
        meta = pod["metadata"]
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if node in down:
            found.append(
                f"{node} is not ready: its pods end when its kubelet is back; where the machine is off for good: kubectl delete node {node}"
            )
        elif meta.get("finalizers"):
            found.append(f"{', '.join(meta['finalizers'])}: whoever set that finalizer has to take it out")
        else:
            found.append(f"after its grace period, look why: kubectl describe pod -n {meta['namespace']} {meta['name']}")
    return list(dict.fromkeys(found))[:_TOLD]


def _told(updated: int, available: int, wanted: int) -> str:
    return f"{updated} of {wanted} pods are new, {available} available"


def _count(status: Mapping[str, Any], name: str) -> int:
    return int(status.get(name) or 0)


def conditions(item: Object) -> list[Mapping[str, Any]]:
    return list((item.get("status") or {}).get("conditions") or ())


def not_rolling(kind: str, item: Object) -> str | None:
    """Why a change of the template would make no pod anew by itself, with the way out; None where it would."""
    spec = item.get("spec") or {}
    if kind == "Deployment":
        return "it is paused, so nothing would be rolled out; resume it: kubectl rollout resume" if spec.get("paused") else None
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return "its updateStrategy is OnDelete, so its pods keep what they have until each is deleted by hand; make it RollingUpdate"
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    if kind == "StatefulSet" and partition:
        return f"its updateStrategy has partition {partition}, so the pods below it would stay as they are; set it to 0"
    return None


def not_rollable(kind: str, item: Object) -> list[str]:
    """Why a roll-out of it could not be carried out, or not be judged."""
    problems = [reason] if (reason := not_rolling(kind, item)) else []
    state = progress(kind, item)
    if not state.done:
        problems.append(f"it is not well as it is ({state.failed or state.told}), so a roll-out could not be judged; fix that first")
    return problems


def how_it_rolls(kind: str, item: Object) -> str:
    """What is felt meanwhile, in a few words."""
    spec = item.get("spec") or {}
    if kind == "Deployment":
        strategy = spec.get("strategy") or {}
        if strategy.get("type") == "Recreate":
            return "Recreate: all of them are stopped before the first new one starts"
        rolling = strategy.get("rollingUpdate") or {}
        return f"RollingUpdate: at most {rolling.get('maxUnavailable', '25%')} away, {rolling.get('maxSurge', '25%')} more than wanted"
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    if kind == "DaemonSet":
        return f"RollingUpdate: at most {rolling.get('maxUnavailable', 1)} away"
    return "RollingUpdate: one after the other"


def complaints(item: Object, pods: Collection[Object], events: Collection[Object] = ()) -> list[str]:
    """Why a roll-out does not end, the most telling first: what the pods wait for, conditions of the workload, warnings in events.

    `pods` are those of the new template. At most a dozen lines, none twice.
    """
    found: list[str] = []
    for pod in pods:
        found += _pod_complaints(pod)
    for condition in conditions(item):
        kind, status = condition.get("type"), condition.get("status")
        if (kind == "ReplicaFailure" and status == "True") or (kind in ("Progressing", "Available") and status == "False"):
            found.append(f"condition {kind}={status}: {condition.get('reason')}: {condition.get('message')}")
    for event in sorted(events, key=lambda found: str(found.get("lastTimestamp") or found.get("eventTime") or ""), reverse=True):
        if event.get("type") == "Warning":
            about = event.get("involvedObject") or {}
            found.append(f"event of {about.get('kind')} {about.get('name')}: {event.get('reason')}: {event.get('message')}")
    # A container may have said anything before it ended, and so may who made the event.
    return [mask_text(" ".join(line.split())) for line in dict.fromkeys(found)][:_TOLD]


def _pod_complaints(pod: Object) -> list[str]:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    found = []
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            found.append(f"pod {name}: not scheduled: {condition.get('message') or condition.get('reason')}")
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
    """What pods of a finished roll-out still lack: the class, and the number it stands for (`value`; None where it is not known)."""
    problems = []
    for pod in pods:
        name, spec = pod["metadata"]["name"], pod.get("spec") or {}
        if class_of("Pod", pod) != priority_class:
            problems.append(f"pod {name} has the class {class_of('Pod', pod) or 'none'}, not {priority_class}")
        elif value is not None and spec.get("priority") != value:
            problems.append(f"pod {name} has priority {spec.get('priority')}, and {priority_class} is {value}")
    return problems
