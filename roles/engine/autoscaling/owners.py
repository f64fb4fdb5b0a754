"""Who owns `spec.replicas` of a scaled workload, and what happens to it at their next apply; and whose the pods are that its selector
matches. Pure.

Sources: website, reference/using-api/server-side-apply (transferring ownership); kubectl apply (three-way merge with the annotation
last-applied-configuration); kubernetes#25238. kube-controller-manager takes each pod that the selector of the scale matches for one of the
target's, whoever controls it (pkg/controller/podautoscaler/replica_calculator.go: GetResourceReplicas, calculatePodRequests);
kubernetes#79365, kubernetes#116339.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.autoscaling.model import Ref
from roles.engine.bounds import read_json
from roles.engine.disruption.strays import Stray
from roles.engine.kube import Object, field_managers, owner_ref
from roles.engine.kube.fields import annotations_of, labels_of

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
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


@dataclass(frozen=True)
class ReplicasOwner:
    """`appliers`: managers that apply `replicas` server-side; `last_applied`: the number in the annotation of `kubectl apply`, None if it
    has none; `by_scale`: the scale subresource owns it, as the autoscaler does after its first change."""

    appliers: tuple[str, ...] = ()
    last_applied: int | None = None
    by_scale: bool = False

    @property
    def resets(self) -> bool:
        """Somebody's next apply changes the count, or fails."""
        return bool(self.appliers) or self.last_applied is not None

    def why(self, workload: str) -> str:
        parts = []
        if self.last_applied is not None:
            parts.append(
                f"`kubectl apply` last applied replicas {self.last_applied}: each further apply sets {workload} back to it, and the first "
                "apply without replicas sets it to 1"
            )
        if self.appliers:
            what = "conflicts with the autoscaler, or sets it back if forced" if self.by_scale else f"sets {workload} back to it"
            drops = "" if self.by_scale else "; the first apply without it sets the count to 1, unless another manager owns it by then"
            parts.append(f"{', '.join(self.appliers)} applies replicas: each further apply {what}{drops}")
        return "; ".join(parts)

    def way_out(self, workload: str) -> str:
        kind, _, name = workload.partition(" ")
        namespace, _, name = name.partition("/")
        parts = []
        if self.last_applied is not None:
            parts.append(f"remove replicas from the annotation first: kubectl apply edit-last-applied -n {namespace} {kind.lower()}/{name}")
        if self.appliers and not self.by_scale:
            parts.append("let the autoscaler change the count once, so that it owns the field")
        return (
            ", then ".join([*parts, "remove replicas from the manifest"])
            + "; deploys/autoscalers.py --data settle_replicas=true does the first step"
        )


def replicas_owner(item: Object | None) -> ReplicasOwner | None:
    """None if there is no object."""
    if item is None:
        return None
    appliers, by_scale = [], False
    for entry in field_managers.entries(item):
        spec = (entry.get("fieldsV1") or {}).get("f:spec")
        if not isinstance(spec, Mapping) or "f:replicas" not in spec:
            continue
        if entry.get("subresource") == "scale":
            by_scale = True
        elif entry.get("operation") == "Apply":
            appliers.append(str(entry.get("manager")))
    return ReplicasOwner(tuple(appliers), last_applied(item), by_scale)


def last_applied(item: Object) -> int | None:
    """The replicas in the annotation of `kubectl apply`."""
    text = annotations_of(item).get(LAST_APPLIED)
    try:
        found: Any = read_json(str(text))["spec"]["replicas"] if text else None
    except (ValueError, KeyError, TypeError):
        return None  # whoever may change the workload may write anything there
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def without_replicas(item: Object) -> str | None:
    """The annotation of `kubectl apply` without replicas; None if it has none."""
    if last_applied(item) is None:
        return None
    found = read_json(annotations_of(item)[LAST_APPLIED])
    del found["spec"]["replicas"]
    return json.dumps(found, separators=(",", ":")) + "\n"


# ---- pods


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
