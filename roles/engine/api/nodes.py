"""What kubelets, components and the API say of nodes and processes, as small typed results. Each function is one request and may raise an
ApiError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from roles.engine.api.client import TIMEOUT, Api
from roles.engine.api.errors import Unusable
from roles.engine.api.metrics import GateMetric, MetricsError, parse_feature_gates, parse_start_time, parse_version
from roles.engine.api.read import list_objects, objects, odd
from roles.engine.bounds import misshaped, moment
from roles.engine.harmless import one_line
from roles.engine.kube import condition, is_ending, owner_ref
from roles.engine.kube.fields import annotations_of, meta_of, spec_of, status_of
from roles.engine.kube.pods import CONFIG_HASH, is_static
from roles.engine.kube.workloads import node_path, object_path
from roles.engine.kubelet import SHAPE

# What a kubelet says of itself, as far as daytwo reads it (k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go). Root on its node can make it
# say anything, and then this node is not readable: no other one is concerned.
_SPACE = dict.fromkeys(("availableBytes", "capacityBytes", "usedBytes", "inodesFree", "inodes", "inodesUsed"), int)
_MEMORY = dict.fromkeys(("availableBytes", "usageBytes", "workingSetBytes", "rssBytes"), int)
_SUMMARY = {
    "node": {
        "nodeName": str,
        "systemContainers": [{"name": str, "memory": _MEMORY}],
        "memory": _MEMORY,
        "fs": _SPACE,
        "runtime": {"imageFs": _SPACE, "containerFs": _SPACE},
        "rlimit": {"maxpid": int, "curproc": int},
    },
    "pods": [
        {
            "podRef": {"name": str, "namespace": str, "uid": str},
            "memory": _MEMORY,
            "process_stats": {"process_count": int},
            "containers": [{"name": str, "memory": _MEMORY, "rootfs": _SPACE, "logs": _SPACE}],
            "volume": [{"name": str, **_SPACE}],
            "ephemeral-storage": _SPACE,
        }
    ],
}


@dataclass(frozen=True)
class ProcessMetrics:
    """What a running component reports about itself. `started` in seconds since the epoch, by its node's clock."""

    gates: Mapping[str, GateMetric]
    started: float | None
    version: str | None


@dataclass(frozen=True)
class NodeLease:
    """The heartbeat of a node's kubelet. `renewed` is by the node's clock; None when never renewed."""

    holder: str
    renewed: datetime | None
    duration: int


@dataclass(frozen=True)
class NodeUsage:
    """One node as the API has it, all as plain JSON: /stats/summary of its kubelet, its pods, its Node object."""

    summary: dict[str, Any]
    pods: list[dict[str, Any]]
    node: dict[str, Any]


@dataclass(frozen=True)
class ContainerStatus:
    """One container of a pod. `id` is the running or last container's; `running_since` is None if it does not run."""

    name: str
    id: str
    ready: bool
    restarts: int
    running_since: datetime | None


@dataclass(frozen=True)
class PodStatus:
    """One pod of a node. `reason` is why it is Failed (Evicted, OutOfcpu...); `config_hash` is a static pod's UID.

    `was_evicted`: its kubelet ended it. Such a pod is not always Failed: if its containers exit with 0, it is Succeeded, without a reason.
    Eviction, preemption and shutdown leave a condition (DisruptionTarget, reason TerminationByKubelet: KEP-3329, 1.26 and later). A
    starting kubelet that rejects a pod leaves none; but nothing else brings a pod with restartPolicy Always to this phase, unless it was
    deleted: then its last status comes before it is gone.

    `controller` is what created it and replaces it, as Kind/name, and `controller_uid` its UID; "" if there is none.
    """

    namespace: str
    name: str
    uid: str
    phase: str
    reason: str
    deleted: bool
    mirror: bool
    config_hash: str
    containers: tuple[ContainerStatus, ...]
    was_evicted: bool = False
    controller: str = ""
    controller_uid: str = ""


def component_metrics(api: Api, timeout: float = TIMEOUT, *, wait: float = 0.0) -> ProcessMetrics:
    """Of the component at the Api's own address: an API server, or another one that the Api was created for."""
    return _metrics(api, "/metrics", timeout, wait)


def kubelet_metrics(api: Api, node: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> ProcessMetrics:
    """Of a node's kubelet, through the API."""
    return _metrics(api, f"{node_path(node)}/proxy/metrics", timeout, wait)


def kubelet_path(node: str, path: str) -> str:
    """A path of a node's kubelet, as the API serves it."""
    return f"{node_path(node)}/proxy{path}"


def _metrics(api: Api, path: str, timeout: float, wait: float) -> ProcessMetrics:
    text = api.get_raw(path, timeout, wait=wait)
    try:
        return ProcessMetrics(parse_feature_gates(text), parse_start_time(text), parse_version(text))
    except MetricsError as error:
        raise Unusable(api.host, path, str(error), "what it should prove counts as not proven") from error


def kubelet_config(api: Api, node: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> dict[str, Any]:
    """The running kubelet's whole configuration (KubeletConfiguration, v1beta1). Its gates are only those set by name."""
    path = f"{node_path(node)}/proxy/configz"
    found = api.get_json(path, timeout, wait=wait).get("kubeletconfig")
    if not isinstance(found, dict):
        raise Unusable(api.host, path, "the answer has no kubeletconfig", "is enableDebuggingHandlers false on the node?")
    return _shaped(api, path, found, SHAPE)


def node_lease(api: Api, node: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> NodeLease:
    """The node's lease in kube-node-lease. A renewal by the new process proves that it reaches the API."""
    path = object_path("/apis/coordination.k8s.io/v1/leases", "kube-node-lease", node)
    found = api.get_json(path, timeout, wait=wait)
    try:
        spec = found["spec"]
        renewed = moment(spec.get("renewTime"))
        if renewed is None and spec.get("renewTime"):
            raise ValueError("renewTime is no time")
        return NodeLease(spec.get("holderIdentity") or "", renewed, int(spec.get("leaseDurationSeconds") or 0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise odd(api, path, error) from error


def node_pods(api: Api, node: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> list[PodStatus]:
    """All pods that are bound to a node, of all namespaces, sorted by namespace and name."""
    path = f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}"
    found = api.get_json(path, timeout, wait=wait)
    try:
        return sorted((_pod(item) for item in found["items"]), key=lambda pod: (pod.namespace, pod.name))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise odd(api, path, error) from error


def node_with_pods(api: Api, node: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A node and all pods on it, as the API has them."""
    pods = list_objects(api, "/api/v1/pods", fields=f"spec.nodeName={node}", timeout=timeout, wait=wait)
    return api.get_json(node_path(node), timeout, wait=wait), pods


def node_usage(api: Api, node: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> NodeUsage:
    """Reads the summary first: then all its pods are in the list, except those that ended meanwhile."""
    path = f"{node_path(node)}/proxy/stats/summary"
    summary = api.get_json(path, timeout, wait=wait)
    if not isinstance(summary.get("node"), dict):
        raise Unusable(api.host, path, "the answer has no node", "is enableDebuggingHandlers false on the node?")
    if not all(one.get("podRef") for one in _shaped(api, path, summary, _SUMMARY).get("pods") or ()):
        raise Unusable(api.host, path, "the answer has a pod without podRef", "look at what answers at the kubelet's port there")
    listed = f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}"
    try:
        pods = objects(api.get_json(listed, timeout, wait=wait).get("items") or [])
    except TypeError as error:
        raise odd(api, listed, error) from error
    return NodeUsage(summary, pods, api.get_json(node_path(node), timeout, wait=wait))


def _pod(item: dict[str, Any]) -> PodStatus:
    meta, status = meta_of(item), status_of(item)
    target = condition(item, "DisruptionTarget")
    disrupted = (target.get("status"), target.get("reason")) == ("True", "TerminationByKubelet")
    restarted = spec_of(item).get("restartPolicy") == "Always"
    owner = owner_ref(item)
    return PodStatus(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        phase=status.get("phase") or "Unknown",
        reason=status.get("reason") or "",
        deleted=is_ending(item),
        mirror=is_static(item),
        config_hash=annotations_of(item).get(CONFIG_HASH, ""),
        containers=tuple(
            _container(entry)
            for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
            for entry in status.get(kind) or []
        ),
        was_evicted=disrupted or (restarted and status.get("phase") == "Succeeded" and not is_ending(item)),
        controller=f"{owner.kind}/{owner.name}" if owner else "",
        controller_uid=owner.uid if owner else "",
    )


def _container(entry: dict[str, Any]) -> ContainerStatus:
    running = (entry.get("state") or {}).get("running") or {}
    return ContainerStatus(
        name=entry["name"],
        id=entry.get("containerID") or "",
        ready=bool(entry.get("ready")),
        restarts=int(entry.get("restartCount") or 0),
        running_since=moment(running.get("startedAt")),
    )


def _shaped(api: Api, path: str, found: dict[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """Raises Unusable."""
    if why := misshaped(found, shape):
        raise Unusable(
            api.host, path, f"the answer is not a kubelet's: {one_line(why)}", "look at what answers at the kubelet's port there"
        )
    return found
