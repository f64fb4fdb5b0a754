"""Whose pods a target's selector matches, and whose the autoscaler and its target are. Pure.

kube-controller-manager takes each pod that the selector of the scale matches for one of the target's, whoever controls it
(pkg/controller/podautoscaler/replica_calculator.go: GetResourceReplicas, calculatePodRequests); kubernetes#79365, kubernetes#116339.
"""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine.autoscaling.model import Ref
from roles.engine.disruption import Stray
from roles.engine.object_changes import Object, owner_ref

#: The kind that controls the pods of a target. A kind that is not here is somebody's own: whose its pods are is not known.
_CONTROLS_PODS = {
    "Deployment": "ReplicaSet",
    "ReplicaSet": "ReplicaSet",
    "StatefulSet": "StatefulSet",
    "ReplicationController": "ReplicationController",
}
_HASH = "pod-template-hash"
#: The annotation that a tool writes on a workload which it scales to 0 on purpose, and the tool.
SLEEPS = {
    "downscaler/original-replicas": "kube-downscaler",
    "idling.alpha.openshift.io/previous-scale": "OpenShift's idling",
}


def strays(pods: Sequence[Object], target: Ref) -> list[Stray]:
    """The pods that the target surely does not control."""
    return [Stray(pod, owner_ref(pod)) for pod in pods if not _may_control(target, pod)]


def _may_control(target: Ref, pod: Object) -> bool:
    kind = _CONTROLS_PODS.get(target.kind)
    if kind is None:
        return True
    ref = owner_ref(pod)
    if ref is None or ref.kind != kind:
        return False
    if kind == target.kind:
        return ref.name == target.name
    # The name of a Deployment's ReplicaSet: pkg/controller/deployment/sync.go (getNewReplicaSet).
    suffix = f"-{(pod['metadata'].get('labels') or {}).get(_HASH)}"
    return not ref.name.endswith(suffix) or ref.name.removesuffix(suffix) == target.name


def sleeper(item: Object | None) -> str:
    """Which tool holds a workload at 0 pods by its own mark on it; "" if none does. Whoever may edit the workload may write it."""
    annotations = (item["metadata"].get("annotations") or {}) if item else {}
    return next((tool for mark, tool in SLEEPS.items() if mark in annotations), "")
