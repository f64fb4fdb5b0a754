"""Workloads: what creates pods, whose a pod is, its template. Pure."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from roles.engine.kube.objects import Object, controller, namespace_and_name, uid

#: Collections of pods and of the objects that create pods, by kind. (Nothing uses PodTemplates.)
COLLECTIONS = {
    "Pod": "/api/v1/pods",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "Job": "/apis/batch/v1/jobs",
    "CronJob": "/apis/batch/v1/cronjobs",
}


@dataclass(frozen=True)
class ObservedObjects:
    """The observed objects of the cluster, by kind (COLLECTIONS)."""

    objects: Mapping[str, Collection[Object]] = field(default_factory=dict)

    def of(self, kind: str) -> Collection[Object]:
        return self.objects.get(kind, ())

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        return next((item for item in self.of(kind) if namespace_and_name(item) == (namespace, name)), None)

    def pods_of(self, kind: str, workload_uid: str) -> list[Object]:
        """The pods that belong to a workload, including finished pods and pods that are being deleted.

        A Deployment controls pods only through a ReplicaSet: a pod that names it as controller was created by someone else.
        """
        found = [pod for pod in self.of("Pod") if self.top(pod) == workload_uid]
        return [pod for pod in found if controller(pod) != workload_uid] if kind == "Deployment" else found

    def top(self, item: Object) -> str:
        """UID of the Deployment, StatefulSet or DaemonSet at the end of the chain of controllers; "" without a controller."""
        owner = controller(item)
        if not owner:
            return ""
        return self._controllers.get(owner) or owner

    @functools.cached_property
    def _controllers(self) -> dict[str, str]:
        """The controllers of ReplicaSets and Jobs, by UID: there is at most one of these between a pod and its workload."""
        return {uid(item): controller(item) for kind in ("ReplicaSet", "Job") for item in self.of(kind)}


def template(kind: str, item: Object) -> Mapping[str, Any]:
    """The pod spec: of the pod itself, or of the workload's pod template."""
    spec = item.get("spec") or {}
    if kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    if kind == "Pod":
        return dict(spec)
    return dict((spec.get("template") or {}).get("spec") or {})


def class_of(kind: str, item: Object) -> str:
    """The PriorityClass that an object names; "" for none."""
    return str(template(kind, item).get("priorityClassName") or "")


def replicas(kind: str, item: Object) -> int:
    """The desired number of pods of a workload."""
    if kind == "DaemonSet":
        return int((item.get("status") or {}).get("desiredNumberScheduled") or 0)
    found = (item.get("spec") or {}).get("replicas")
    return 1 if found is None else int(found)
