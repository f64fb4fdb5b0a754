"""A probe pod: the proof that a node can start a new pod. Pure.

It is placed on its node without the scheduler, tolerates every taint, requests nothing, runs an image of the node, and ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from roles.engine.harmless import one_line
from roles.engine.kube import holds
from roles.engine.kube.fields import status_of
from roles.engine.kube.pods import is_over

NAMESPACE: Final = "kube-system"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Its label; the value is the name of its node.
LABEL: Final = "daytwo.dev/probe-of"
_MOST_NAME = 200
# Without an image of its own the sandbox alone is the proof.
_NO_IMAGE = "registry.k8s.io/pause:3.10"


def image_of(node: Mapping[str, Any]) -> str:
    """A pause image that a node has already: it is small, and does nothing until it is stopped; "" if there is none."""
    names = [str(name) for entry in status_of(node).get("images") or () for name in entry.get("names") or ()]
    pauses = [name for name in names if "/pause" in name.partition("@")[0]]
    return next((name for name in pauses if "@" not in name), pauses[0] if pauses else "")


def probe_pod(run: str, node: str, image: str, seconds: int, *, host_network: bool = False) -> dict[str, Any]:
    """The object of the pod; `image`: one that the node has ("": none is known); `seconds`: after which it ends by itself;
    `host_network`: in the network of the node, as the control plane's pods are."""
    name = f"daytwo-probe-{run}-{node}"[:_MOST_NAME].lower().strip("-.")
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/managed-by": "daytwo", LABEL: node[:63]}},
        "spec": {
            "nodeName": node,
            "hostNetwork": host_network,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": seconds,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65534},
            "containers": [
                {"name": "pause", "image": image or _NO_IMAGE, "imagePullPolicy": "Never", "securityContext": restricted},
            ],
        },
    }


ProbeState = Literal["waits", "sandbox", "runs", "failed"]


def state_of(pod: Mapping[str, Any]) -> ProbeState:
    """How far it is. `sandbox`: its sandbox runs and has its network (PodReadyToStartContainers, from 1.29 on); `failed`: its kubelet
    does not admit it."""
    status = status_of(pod)
    containers = status.get("containerStatuses") or ()
    if any((one.get("state") or {}).get("running") for one in containers):
        return "runs"
    if is_over(pod):
        return "failed"
    return "sandbox" if holds(pod, "PodReadyToStartContainers") else "waits"


def why_not(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """What its kubelet says of a pod that does not start: its warnings, the last first; or its status."""
    said = [str(one.get("message") or "") for one in events if one.get("type") == "Warning" and one.get("message")]
    status = status_of(pod)
    waiting = [
        f"{found.get('reason', '')}: {found.get('message', '')}".strip(": ")
        for one in status.get("containerStatuses") or ()
        if (found := (one.get("state") or {}).get("waiting"))
    ]
    own = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    return one_line(next(filter(None, [*reversed(said), own, *waiting]), "its kubelet says nothing of it"))[:600]
