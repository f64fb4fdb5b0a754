"""What all rules of the lint look at, and the words that all rules share. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roles.engine.disruption.budgets import BudgetState
from roles.engine.disruption.owners import DisruptionObjects
from roles.engine.folding import shortened
from roles.engine.kube import Object, condition, is_ending, is_ready, namespace_and_name
from roles.engine.kube.fields import spec_of, status_of
from roles.engine.kube.pods import is_over, stuck

HPA = "HorizontalPodAutoscaler"


@dataclass(frozen=True)
class Scene:
    """What all rules look at. `live` may also have Node, HorizontalPodAutoscaler, DaemonSet, PersistentVolumeClaim, PersistentVolume,
    CSIDriver, Service, ValidatingWebhookConfiguration and MutatingWebhookConfiguration: a rule that needs a kind that is not there says
    nothing. `drain_timeout` in seconds: how long a drain waits for a pod."""

    live: DisruptionObjects
    states: Sequence[BudgetState]
    now: datetime
    drain_timeout: int

    def has(self, *kinds: str) -> bool:
        return all(kind in self.live.objects for kind in kinds)


def few(names: Collection[str]) -> str:
    """Names in a sentence; of many, the first and how many more."""
    return shortened(sorted(names))


def unhealthy(pod: Object) -> str:
    """Why a pod does not count as healthy; "" if it does."""
    phase = str(status_of(pod).get("phase") or "Unknown")
    if is_ending(pod):
        return "is ending"
    if phase == "Pending":
        return f"is Pending{_unscheduled(pod)}"
    if is_over(pod):
        return f"is {phase}"
    if is_ready(pod):
        return ""
    return f"is not Ready{f' ({why})' if (why := stuck(pod)) else ''}"


def _unscheduled(pod: Object) -> str:
    if (one := condition(pod, "PodScheduled")).get("status") == "False":
        return f" ({one.get('reason')})"
    return f" ({why})" if (why := stuck(pod)) else ""


@dataclass(frozen=True)
class ReplicaRange:
    """The numbers of pods that a HorizontalPodAutoscaler may choose."""

    namespace: str
    name: str
    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{HPA} {self.namespace}/{self.name} ({self.minimum} to {self.maximum} pods)"


def autoscaler(live: DisruptionObjects, *of: str) -> ReplicaRange | None:
    """The HorizontalPodAutoscaler that scales a controller (namespace, kind, name); None if there is none."""
    for item in live.of(HPA):
        spec: Mapping[str, Any] = spec_of(item)
        target = spec.get("scaleTargetRef") or {}
        namespace, name = namespace_and_name(item)
        if (namespace, target.get("kind"), target.get("name")) == of:
            return ReplicaRange(namespace, name, int(spec.get("minReplicas") or 1), int(spec.get("maxReplicas") or 0))
    return None
