"""How far a roll-out is, from the workload's own status, and why it does not go on. Pure.

The rules are those of `kubectl rollout status` (kubectl/pkg/polymorphichelpers/rollout_status.go), without partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from roles.objects.live import Object, class_of, replicas

#: Condition reason of a Deployment that made no progress (pkg/controller/deployment/util: TimedOutReason).
_TIMED_OUT = "ProgressDeadlineExceeded"
_TOLD = 12


@dataclass(frozen=True)
class Progress:
    """`done`: every pod is of the newest template and available; `failed`: why its own controller gave up, or ""."""

    done: bool
    told: str
    failed: str = ""


def progress(kind: str, item: Object) -> Progress:
    """Of a Deployment, StatefulSet or DaemonSet."""
    status = item.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(item["metadata"].get("generation") or 0):
        return Progress(False, "its controller has not seen the change yet")
    wanted = replicas(kind, item)
    if kind == "DaemonSet":
        updated, available = _count(status, "updatedNumberScheduled"), _count(status, "numberAvailable")
        return Progress(updated >= wanted and available >= wanted, _told(updated, available, wanted))
    updated, available = _count(status, "updatedReplicas"), _count(status, "availableReplicas")
    told = _told(updated, available, wanted)
    if kind == "StatefulSet":
        same = status.get("updateRevision") == status.get("currentRevision")
        # A set that never changed counts its pods as current only.
        return Progress(same and _count(status, "readyReplicas") >= wanted and available >= wanted, told)
    old = _count(status, "replicas") - updated
    failed = next(
        (str(found.get("message") or _TIMED_OUT) for found in conditions(item) if found.get("reason") == _TIMED_OUT),
        "",
    )
    if old > 0:
        told += f", {old} old ones still there"
    return Progress(not failed and updated >= wanted and old <= 0 and available >= updated, told, failed)


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
    return [" ".join(line.split()) for line in dict.fromkeys(found)][:_TOLD]


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
