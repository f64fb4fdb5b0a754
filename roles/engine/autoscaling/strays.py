"""Whose pods a target's selector matches, and whose the autoscaler and its target are. Pure.

kube-controller-manager takes each pod that the selector of the scale matches for one of the target's, whoever controls it
(pkg/controller/podautoscaler/replica_calculator.go: GetResourceReplicas, calculatePodRequests); kubernetes#79365, kubernetes#116339.
"""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine.autoscaling.model import Ref
from roles.engine.disruption.strays import Stray
from roles.engine.kube import Object, owner_ref
from roles.engine.kube.fields import annotations_of, labels_of

#: The kind that controls the pods of a target. A kind that is not here is somebody's own: whose its pods are is not known.
_CONTROLS_PODS = {
    "Deployment": "ReplicaSet",
    "ReplicaSet": "ReplicaSet",
    "StatefulSet": "StatefulSet",
    "ReplicationController": "ReplicationController",
    # Argo Rollouts, OpenShift
    "Rollout": "ReplicaSet",
    "DeploymentConfig": "ReplicationController",
}
#: What is never scaled, so that its pods are of no target, of whatever kind that is.
_NEVER_SCALED = ("Job", "DaemonSet", "Node")
_HASHES = ("pod-template-hash", "rollouts-pod-template-hash")
#: Containers that an admission webhook adds to a pod, and how a pod's template sets their request: annotations by resource.
INJECTED = {
    "istio-proxy": {"cpu": "sidecar.istio.io/proxyCPU", "memory": "sidecar.istio.io/proxyMemory"},
    "linkerd-proxy": {"cpu": "config.linkerd.io/proxy-cpu-request", "memory": "config.linkerd.io/proxy-memory-request"},
    "daprd": {"cpu": "dapr.io/sidecar-cpu-request", "memory": "dapr.io/sidecar-memory-request"},
    "vault-agent": {"cpu": "vault.hashicorp.com/agent-requests-cpu", "memory": "vault.hashicorp.com/agent-requests-mem"},
    "consul-dataplane": {
        "cpu": "consul.hashicorp.com/sidecar-proxy-cpu-request",
        "memory": "consul.hashicorp.com/sidecar-proxy-memory-request",
    },
}
#: The annotation that a tool writes on a workload which it scales to 0 on purpose, and the tool.
SLEEPS = {
    "downscaler/original-replicas": "kube-downscaler",
    "idling.alpha.openshift.io/previous-scale": "OpenShift's idling",
}


def strays(pods: Sequence[Object], target: Ref) -> list[Stray]:
    """The pods that the target surely does not control."""
    return [Stray(pod, owner_ref(pod)) for pod in pods if not _may_control(target, pod)]


def _may_control(target: Ref, pod: Object) -> bool:
    kind, ref = _CONTROLS_PODS.get(target.kind), owner_ref(pod)
    if kind is None:
        return ref is None or ref.kind not in _NEVER_SCALED
    if ref is None or ref.kind != kind:
        return False
    if kind == target.kind:
        return ref.name == target.name
    # The name of a Deployment's ReplicaSet: pkg/controller/deployment/sync.go (getNewReplicaSet); a Rollout's is made like it.
    labels = labels_of(pod)
    suffixes = [f"-{labels[name]}" for name in _HASHES if name in labels]
    return not suffixes or any(not ref.name.endswith(one) or ref.name.removesuffix(one) == target.name for one in suffixes)


def sleeper(item: Object | None) -> str:
    """Which tool holds a workload at 0 pods by its own mark on it; "" if none does. Whoever may edit the workload may write it."""
    annotations = annotations_of(item) if item else {}
    return next((tool for mark, tool in SLEEPS.items() if mark in annotations), "")
