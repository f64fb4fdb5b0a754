"""What a shadow control plane is filled with: of the cluster's objects what a scheduler reads, and nothing else. Pure.

The objects go straight to the shadow's etcd, as JSON, so they keep their UIDs, times and status, and no admission sees them a second time.
No environment, command, annotation of an owner, Secret or ConfigMap is copied: kube-scheduler's plugins read none of these
(Kubernetes 1.36: pkg/scheduler/framework/plugins). Keys: pkg/kubeapiserver, pkg/registry (`/registry/RESOURCE/NAMESPACE/NAME`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.kube import Object, full_name, pods
from roles.engine.kube.fields import (
    annotations_of,
    containers_of,
    labels_of,
    meta_of,
    name_of,
    namespace_of,
    spec_of,
    status_of,
    volumes_of,
)
from roles.engine.kube.workloads import COLLECTIONS

PODS = "pods"
#: Annotations of volumes' objects that the scheduler reads (component-helpers/storage/volume/pv_helpers.go; csi-translation-lib).
_OF_VOLUMES = ("pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "storage.alpha.kubernetes.io/")
_METADATA = (
    "name",
    "namespace",
    "uid",
    "labels",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
)
_POD = (
    "affinity", "hostNetwork", "nodeName", "nodeSelector", "os", "overhead", "preemptionPolicy", "priority", "priorityClassName",
    "resourceClaims", "resources", "restartPolicy", "schedulerName", "schedulingGates", "terminationGracePeriodSeconds", "tolerations",
    "topologySpreadConstraints", "workloadRef",
)  # fmt: skip
_POD_STATUS = ("phase", "nominatedNodeName", "conditions", "resize", "startTime", "resources", "allocatedResources")
_CONTAINER = ("name", "image", "resources", "ports", "restartPolicy")
_CONTAINER_STATUS = ("name", "resources", "allocatedResources", "started", "ready")
#: By source of a volume, what identifies it.
_SOURCES = {
    "awsElasticBlockStore": ("volumeID", "readOnly", "partition"),
    "azureDisk": ("diskName", "diskURI", "kind"),
    "cinder": ("volumeID",),
    "csi": ("driver", "volumeHandle", "readOnly"),
    "ephemeral": ("volumeClaimTemplate",),
    "gcePersistentDisk": ("pdName", "readOnly", "partition", "fsType"),
    "iscsi": ("targetPortal", "iqn", "lun", "readOnly"),
    "persistentVolumeClaim": ("claimName", "readOnly"),
    "rbd": ("monitors", "image", "pool", "readOnly"),
    "vsphereVolume": ("volumePath",),
}
_VOLUME = ("accessModes", "capacity", "claimRef", "nodeAffinity", "persistentVolumeReclaimPolicy", "storageClassName", "volumeMode")


@dataclass(frozen=True)
class Filled:
    """What is copied of one kind: its `collection` in the API, its folder in etcd, its version, and what is kept of an object."""

    collection: str
    folder: str
    version: str
    parts: Callable[[Object], Mapping[str, Any]]
    annotated: bool = False


def _some(of: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: of[key] for key in keys if of.get(key) is not None}


def _spec(*keys: str) -> Callable[[Object], Mapping[str, Any]]:
    return lambda item: {"spec": _some(spec_of(item), keys)}


def _top(*keys: str) -> Callable[[Object], Mapping[str, Any]]:
    return lambda item: _some(item, keys)


def _node(item: Object) -> Mapping[str, Any]:
    status = _some(status_of(item), ("allocatable", "capacity", "conditions", "images", "declaredFeatures", "nodeInfo"))
    return {"spec": _some(spec_of(item), ("unschedulable", "taints")), "status": status}


def _source(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: _some(holder[kind], keys) for kind, keys in _SOURCES.items() if isinstance(holder.get(kind), Mapping)}


def _container(one: Mapping[str, Any]) -> dict[str, Any]:
    return _some(one, _CONTAINER)


def _pod(item: Object) -> Mapping[str, Any]:
    spec, status = spec_of(item), status_of(item)
    kept = _some(spec, _POD)
    kept["containers"] = [_container(one) for one in containers_of(item)]
    if spec.get("initContainers"):
        kept["initContainers"] = [_container(one) for one in spec["initContainers"]]
    # Others count for nothing, but their number is that of the pod.
    kept["volumes"] = [{"name": one.get("name"), **(_source(one) or {"emptyDir": {}})} for one in volumes_of(item)]
    said = _some(status, _POD_STATUS)
    for key in ("containerStatuses", "initContainerStatuses"):
        if status.get(key):
            said[key] = [_some(one, _CONTAINER_STATUS) for one in status[key]]
    return {"spec": kept, "status": said}


def _volume(item: Object) -> Mapping[str, Any]:
    spec = spec_of(item)
    return {
        "spec": {**_some(spec, _VOLUME), **(_source(spec) or {"hostPath": {"path": "/"}})},
        "status": _some(status_of(item), ("phase",)),
    }


def _claim(item: Object) -> Mapping[str, Any]:
    keys = ("accessModes", "resources", "selector", "storageClassName", "volumeMode", "volumeName")
    return {"spec": _some(spec_of(item), keys), "status": _some(status_of(item), ("accessModes", "capacity", "phase"))}


def _service(item: Object) -> Mapping[str, Any]:
    # Only its selector counts, for the spread of pods without constraints; its address is none of the shadow's.
    return {"spec": {**_some(spec_of(item), ("selector",)), "clusterIP": "None", "clusterIPs": ["None"], "type": "ClusterIP"}}


def _workload(item: Object) -> Mapping[str, Any]:
    return {"spec": _some(spec_of(item), ("selector", "replicas"))}


#: By kind. A kind that was not read is left out.
FILLED = {
    "Namespace": Filled("/api/v1/namespaces", "namespaces", "v1", lambda item: {}),
    "Node": Filled("/api/v1/nodes", "minions", "v1", _node),
    "Pod": Filled(COLLECTIONS["Pod"], PODS, "v1", _pod),
    "Service": Filled("/api/v1/services", "services/specs", "v1", _service),
    "ReplicationController": Filled(COLLECTIONS["ReplicationController"], "controllers", "v1", _workload),
    "ReplicaSet": Filled(COLLECTIONS["ReplicaSet"], "replicasets", "apps/v1", _workload),
    "StatefulSet": Filled(COLLECTIONS["StatefulSet"], "statefulsets", "apps/v1", _workload),
    "PersistentVolumeClaim": Filled("/api/v1/persistentvolumeclaims", "persistentvolumeclaims", "v1", _claim, annotated=True),
    "PersistentVolume": Filled("/api/v1/persistentvolumes", "persistentvolumes", "v1", _volume, annotated=True),
    "StorageClass": Filled(
        "/apis/storage.k8s.io/v1/storageclasses", "storageclasses", "storage.k8s.io/v1",
        _top("provisioner", "volumeBindingMode", "allowedTopologies", "reclaimPolicy"), annotated=True,
    ),
    "CSINode": Filled("/apis/storage.k8s.io/v1/csinodes", "csinodes", "storage.k8s.io/v1", _spec("drivers"), annotated=True),
    "CSIDriver": Filled(
        "/apis/storage.k8s.io/v1/csidrivers", "csidrivers", "storage.k8s.io/v1",
        _spec("attachRequired", "storageCapacity", "volumeLifecycleModes", "podInfoOnMount"),
    ),
    "CSIStorageCapacity": Filled(
        "/apis/storage.k8s.io/v1/csistoragecapacities", "csistoragecapacities", "storage.k8s.io/v1",
        _top("nodeTopology", "storageClassName", "capacity", "maximumVolumeSize"),
    ),
    "VolumeAttachment": Filled(
        "/apis/storage.k8s.io/v1/volumeattachments", "volumeattachments", "storage.k8s.io/v1",
        _spec("attacher", "nodeName", "source"),
    ),
}  # fmt: skip
#: What must be read for a shadow, by kind.
KINDS_OF_SHADOW = {kind: one.collection for kind, one in FILLED.items()}


def key_of(kind: str, item: Object) -> str:
    """Its key in etcd. Raises ValueError for a name that is no part of a key; the API gives none such."""
    parts = [part for part in (namespace_of(item), name_of(item)) if part]
    if not parts or any("/" in part or part in (".", "..") or not part.isprintable() for part in parts):
        raise ValueError(f"{kind} {full_name(item)!r} has a name that no object can have")
    return "/".join(("/registry", FILLED[kind].folder, *parts))


def stripped(kind: str, item: Object) -> dict[str, Any]:
    """The object with what a scheduler reads of it."""
    filled = FILLED[kind]
    meta = _some(meta_of(item), _METADATA)
    kept = {key: value for key, value in annotations_of(item).items() if filled.annotated and key.startswith(_OF_VOLUMES)}
    if kept:
        meta["annotations"] = kept
    return {"apiVersion": filled.version, "kind": kind, "metadata": meta, **filled.parts(item)}


def contents(objects: Mapping[str, Collection[Object]]) -> dict[str, dict[str, Any]]:
    """By key of etcd, the copy of a cluster. `objects` by kind; a pod that is over holds nothing, and is left out. Raises ValueError."""
    return dict(_contents(objects))


def _contents(objects: Mapping[str, Collection[Object]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in FILLED:
        for item in objects.get(kind, ()):
            if kind != "Pod" or not pods.is_over(item):
                yield key_of(kind, item), stripped(kind, item)


def as_new(pod: Object, name: str, of_uid: str, now: str) -> dict[str, Any]:
    """The pod as a controller creates it, on no node. It never preempts: the question is whether there is room."""
    made = stripped("Pod", pod)
    spec = {key: value for key, value in spec_of(made).items() if key != "nodeName"}
    labels = labels_of(made)
    meta = {"name": name, "namespace": pods.namespace(pod), "uid": of_uid, "labels": labels, "creationTimestamp": now}
    owners = meta_of(made).get("ownerReferences")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, **({"ownerReferences": owners} if owners else {})},
        "spec": {**spec, "preemptionPolicy": "Never"},
        "status": {"phase": "Pending"},
    }


def cordoned(node: Object) -> dict[str, Any]:
    """The node as it is once it takes no new pods."""
    spec = spec_of(node)
    taints = [one for one in spec.get("taints") or () if one.get("key") != _UNSCHEDULABLE]
    return {**node, "spec": {**spec, "unschedulable": True, "taints": [*taints, {"key": _UNSCHEDULABLE, "effect": "NoSchedule"}]}}


_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def unjudged(pod: Object, schedulers: Collection[str], claims: Mapping[str, Object]) -> str:
    """Why the shadow cannot tell where a pod goes; "" if it can. `schedulers`: the names that its scheduler answers to; `claims`: by
    NAMESPACE/NAME, all PersistentVolumeClaims."""
    spec = spec_of(pod)
    scheduler = str(spec.get("schedulerName") or "default-scheduler")
    if scheduler not in schedulers:
        return f"its scheduler is {scheduler}, not kube-scheduler"
    if spec.get("resourceClaims"):
        return "it has resource claims, which other controllers allocate"
    if spec.get("schedulingGates"):
        return "it has scheduling gates, which something else removes"
    for one in volumes_of(pod):
        if one.get("ephemeral") is not None:
            return f"its volume {one.get('name')} would be provisioned for it"
        claim = (one.get("persistentVolumeClaim") or {}).get("claimName")
        found = claims.get(f"{pods.namespace(pod)}/{claim}") if claim else None
        if claim and (found is None or not spec_of(found).get("volumeName")):
            return f"its claim {claim} has no volume yet"
    return ""


def size_of(contents: Mapping[str, Object]) -> int:
    """Of the copy, in bytes, about."""
    sample = list(contents.values())[:: max(1, len(contents) // 500)]
    return round(sum(len(json.dumps(one)) for one in sample) / max(1, len(sample)) * len(contents))


def profiles_of(configuration: Mapping[str, Any]) -> Sequence[str]:
    """The names of schedulers in a KubeSchedulerConfiguration; a default one has one."""
    found = configuration.get("profiles")
    return [str(one.get("schedulerName") or "default-scheduler") for one in found or () if isinstance(one, Mapping)] or [
        "default-scheduler"
    ]
