"""API objects as raw JSON: identity, owner, field managers. Pure."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]

#: What the API server records as the owner of the fields that daytwo sets (metadata.managedFields).
FIELD_MANAGER = "daytwo"

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
#: The API server fills these in; they are not part of the desired state.
_FILLED_IN = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")


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


def uid(item: Object) -> str:
    return str(item["metadata"].get("uid", ""))


def version(item: Object) -> str:
    return str(item["metadata"].get("resourceVersion", ""))


def namespace_and_name(item: Object) -> tuple[str, str]:
    return str(item["metadata"].get("namespace", "")), str(item["metadata"]["name"])


def full_name(item: Object) -> str:
    """NAMESPACE/NAME."""
    return "/".join(namespace_and_name(item))


@dataclass(frozen=True)
class OwnerRef:
    """The controller that an object names (metadata.ownerReferences with controller: true)."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def owner_refs(item: Object, *, controllers: bool = False) -> list[OwnerRef]:
    """All owners of an object, or its controller only."""
    namespace = namespace_and_name(item)[0]
    found = (one for one in item["metadata"].get("ownerReferences") or () if one.get("controller") or not controllers)
    parts = ((*(str(one.get(key, "")) for key in ("apiVersion", "kind", "name", "uid")),) for one in found)
    return [OwnerRef(version, kind, namespace, name, uid) for version, kind, name, uid in parts]


def owner_ref(item: Object) -> OwnerRef | None:
    """The controller of an object; None if nothing controls it (metav1.GetControllerOf)."""
    return next(iter(owner_refs(item, controllers=True)), None)


def controller(item: Object) -> str:
    """UID of the owner that controls the object; "" without one."""
    found = owner_ref(item)
    return found.uid if found else ""


def is_ending(item: Object) -> bool:
    """The object is deleted but still exists: a pod in its grace period, or an object with a finalizer."""
    return bool(item["metadata"].get("deletionTimestamp"))


def is_ready(item: Object) -> bool:
    """The condition Ready of a pod or node is True."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


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


def managers(item: Object, *fields: str) -> list[str]:
    """The owners of a field, as `manager` or `manager (Update)`; `fields` is its path in FieldsV1 (`f:value`)."""
    return [
        str(entry.get("manager", "")) + ("" if entry.get("operation") == "Apply" else f" ({entry.get('operation')})")
        for entry in _entries(item, fields)
    ]


def others(item: Object, *fields: str) -> list[str]:
    """The owners of a field other than daytwo, as `managers` shows them: for the API server who applied and who patched are two managers
    of one name (metadata.managedFields), and both are daytwo."""
    return [shown for shown, name in zip(managers(item, *fields), writers(item, *fields), strict=True) if name != FIELD_MANAGER]


def is_own(item: Object, *fields: str) -> bool:
    """daytwo applied the field, and nobody else owns it; that daytwo has patched it too changes nothing."""
    return FIELD_MANAGER in managers(item, *fields) and not others(item, *fields)


def writers(item: Object, *fields: str) -> list[str]:
    """The owners of a field, by name only."""
    return [str(entry.get("manager", "")) for entry in _entries(item, fields)]


def _entries(item: Object, fields: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The entries of managedFields that have a field."""
    for entry in item["metadata"].get("managedFields") or ():
        inner = entry.get("fieldsV1") or {}
        for name in fields:
            inner = inner.get(name) if isinstance(inner, Mapping) else None
        if inner is not None:
            yield entry


def only_ours(item: Object, *fields: str) -> bool:
    """daytwo is the only owner of the field, so the API server removes it when daytwo no longer applies it."""
    return managers(item, *fields) == [FIELD_MANAGER]


def bare(item: Object) -> dict[str, Any]:
    """The object without status and the fields that the API server fills in."""
    found = copy.deepcopy(dict(item))
    found.pop("status", None)
    for key in _FILLED_IN:
        found["metadata"].pop(key, None)
    return found
