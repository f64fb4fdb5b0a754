"""The cluster's PriorityClasses, and the objects that use them. Pure, from the API's raw JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from roles.engine.folding import counted
from roles.engine.kube import Object, controller, full_name, holds, namespace_and_name, uid
from roles.engine.kube.pods import is_alive
from roles.engine.kube.workloads import COLLECTIONS, ObservedObjects, class_of, replicas
from roles.priority_classes.model import PREEMPTS


@dataclass(frozen=True)
class Usage:
    """The users of a class: workloads as `Kind namespace/name`, pods as `namespace/name`, and old revisions of Deployments that a roll-back
    would use."""

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
            parts.append(f"{counted(len(self.pods), 'pod')}: {', '.join(self.pods)}")
        return f"used by {'; '.join(parts)}"


@dataclass(frozen=True)
class ObservedClasses(ObservedObjects):
    """The observed objects, with the PriorityClasses by name."""

    classes: Mapping[str, Object] = field(default_factory=dict)

    def users(self, name: str, leaving: Collection[str] = ()) -> Usage:
        """The objects that name the class `name`, without finished objects and pods that are being deleted; `leaving` are UIDs of workloads
        that get another class in this run.

        The API server reads a class only when a pod is created (plugin/pkg/admission/priority): a pod that is ending does not need it.
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
                text = f"{kind} {'/'.join(namespace_and_name(item))}"
                if kind == "ReplicaSet" and controller(item) and not replicas(kind, item):
                    old.append(text)
                elif not controller(item):
                    workloads.append(text)
        pods = [full_name(pod) for pod in self.of("Pod") if class_of("Pod", pod) == name and is_alive(pod) and self.top(pod) not in leaving]
        return Usage(tuple(sorted(workloads)), tuple(sorted(pods)), tuple(sorted(old)))


def _finished(job: Object) -> bool:
    return holds(job, "Complete") or holds(job, "Failed")


def value_of(item: Object) -> int:
    # Old versions of the API omit a zero.
    return int(item.get("value") or 0)


def policy_of(item: Object) -> str:
    return str(item.get("preemptionPolicy") or PREEMPTS)


def is_default(item: Object) -> bool:
    return bool(item.get("globalDefault"))
