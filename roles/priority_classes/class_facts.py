"""The cluster's PriorityClasses, and who uses them. Pure, from the API's raw JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from roles.engine.api import FIELD_MANAGER
from roles.engine.object_changes import COLLECTIONS, Live, Object, class_of, controller, is_ending, is_over, managers, replicas, uid, where
from roles.priority_classes.model import PREEMPTS


@dataclass(frozen=True)
class Usage:
    """Who uses a class: workloads and pods as `Kind namespace/name`, and old revisions of Deployments that a roll-back would need."""

    workloads: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    old_revisions: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.workloads or self.pods)

    def __str__(self) -> str:
        if not self.any:
            return "used by no workload and no pod"
        parts = []
        if self.workloads:
            parts.append(f"workloads: {', '.join(self.workloads)}")
        if self.pods:
            parts.append(f"{len(self.pods)} pods: {', '.join(self.pods)}")
        return f"used by {'; '.join(parts)}"


@dataclass(frozen=True)
class LiveClasses(Live):
    """With the PriorityClasses by name."""

    classes: Mapping[str, Object] = field(default_factory=dict)

    def users(self, name: str, leaving: Collection[str] = ()) -> Usage:
        """Who names the class `name`, without what is over or being deleted; `leaving` are UIDs of workloads that are about to get
        another one.

        A class is read when a pod is made, and never again (plugin/pkg/admission/priority): a pod that is ending does not need it.
        """
        workloads, old = [], []
        for kind in COLLECTIONS:
            if kind == "Pod":
                continue
            for item in self.of(kind):
                if class_of(kind, item) != name or uid(item) in leaving or self.top(item) in leaving:
                    continue
                if kind == "Job" and _finished(item):
                    continue
                told = f"{kind} {'/'.join(where(item))}"
                if kind == "ReplicaSet" and controller(item) and not replicas(kind, item):
                    old.append(told)
                elif not controller(item):
                    workloads.append(told)
        pods = [
            "/".join(where(pod))
            for pod in self.of("Pod")
            if class_of("Pod", pod) == name and not is_over(pod) and not is_ending(pod) and self.top(pod) not in leaving
        ]
        return Usage(tuple(sorted(workloads)), tuple(sorted(pods)), tuple(sorted(old)))


def _finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(found.get("type") in ("Complete", "Failed") and found.get("status") == "True" for found in conditions)


def value_of(item: Object) -> int:
    # The API leaves a zero out in old versions.
    return int(item.get("value") or 0)


def policy_of(item: Object) -> str:
    return str(item.get("preemptionPolicy") or PREEMPTS)


def is_default(item: Object) -> bool:
    return bool(item.get("globalDefault"))


def is_ours(item: Object) -> bool:
    """daytwo made this class: it applied `value`, and nobody else has ever set it.

    Told by metadata.managedFields and by no label: the API server itself writes those for each request, a label is copied with the
    object and is set by other tools too. Whoever creates a class sets its `value`, which cannot change; so its one owner is the maker,
    and a class of others that daytwo only describes keeps them as an owner beside. Where managedFields were stripped (a restored
    backup), nothing counts as ours.
    """
    return managers(item, "f:value") == [FIELD_MANAGER]
