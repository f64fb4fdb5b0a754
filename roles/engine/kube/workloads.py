"""Workloads: what creates pods, whose a pod is, its template. Pure."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from roles.engine.kube.fields import spec_of, status_of
from roles.engine.kube.objects import Object, OwnerRef, controller, namespace_and_name, owner_ref, uid

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


#: Kinds of Kubernetes that create pods, with the groups of their API: an owner of another group with such a kind is another thing.
GROUPS = {
    "ReplicationController": ("",),
    "Deployment": ("apps", "extensions"),
    "ReplicaSet": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "DaemonSet": ("apps",),
    "Job": ("batch",),
    "CronJob": ("batch",),
}


def is_known(ref: OwnerRef) -> bool:
    """An owner of a kind of Kubernetes itself."""
    return ref.kind in GROUPS and ref.group in GROUPS[ref.kind]


def namespaced(path: str, namespace: str) -> str:
    """The collection of one namespace: /apis/apps/v1/deployments -> /apis/apps/v1/namespaces/shop/deployments."""
    head, _, resource = path.rpartition("/")
    return f"{head}/namespaces/{quote(namespace, safe='')}/{resource}"


def object_path(collection: str, namespace: str, name: str) -> str:
    """Where the API has an object; `namespace` is "" for a kind of the cluster. A colon, as in names of ClusterRoles, stays as it is."""
    return f"{namespaced(collection, namespace) if namespace else collection}/{quote(name, safe=':')}"


def node_path(name: str) -> str:
    return object_path("/api/v1/nodes", "", name)


def in_namespaces(path: str, namespaces: Collection[str] | None) -> list[str]:
    """A collection: the whole, or those of some namespaces."""
    return [path] if namespaces is None else [namespaced(path, one) for one in sorted(namespaces)]


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

    def meant(self, ref: OwnerRef | None) -> Object | None:
        """The object that a reference means: whoever creates a pod writes its owners, so group, kind, namespace, name and UID must agree.
        (pkg/controller/disruption/disruption.go: verifyGroupKind, getPodReplicaSet.)"""
        kind, item = self._by_uid.get(ref.uid, ("", None)) if ref is not None else ("", None)
        if ref is None or item is None or kind != ref.kind:
            return None
        return item if namespace_and_name(item) == (ref.namespace, ref.name) and is_known(ref) else None

    def creator(self, item: Object) -> OwnerRef | None:
        """What creates a pod: its controller, or what controls its ReplicaSet or Job; the same of these."""
        ref = owner_ref(item)
        if ref is None or ref.kind not in ("ReplicaSet", "Job"):
            return ref
        if ref not in self._creators:
            between = self.meant(ref)
            self._creators[ref] = (owner_ref(between) if between is not None else None) or ref
        return self._creators[ref]

    def top(self, item: Object) -> str:
        """UID of the Deployment, StatefulSet or DaemonSet at the end of the chain of controllers; "" without a controller."""
        found = self.creator(item)
        return found.uid if found is not None else ""

    @functools.cached_property
    def _creators(self) -> dict[OwnerRef, OwnerRef]:
        """Of what was asked for already: all pods of a ReplicaSet or Job have the same."""
        return {}

    @functools.cached_property
    def _by_uid(self) -> dict[str, tuple[str, Object]]:
        return {uid(item): (kind, item) for kind in GROUPS for item in self.of(kind)}


def template(kind: str, item: Object) -> Mapping[str, Any]:
    """The pod spec: of the pod itself, or of the workload's pod template."""
    spec = spec_of(item)
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
        return int(status_of(item).get("desiredNumberScheduled") or 0)
    found = spec_of(item).get("replicas")
    return 1 if found is None else int(found)
