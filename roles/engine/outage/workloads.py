"""The workload of a pod, found by its chain of controllers, and how many of its pods are Ready. Pure."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.disruption import DisruptionObjects
from roles.engine.kube import Object, OwnerRef, controller, is_ready, namespace_and_name, owner_ref, uid
from roles.engine.kube.amounts import scaled
from roles.engine.kube.fields import spec_of
from roles.engine.kube.pods import is_alive, node_of
from roles.engine.kube.workloads import is_known, replicas
from roles.engine.outage.model import COUNTED, PodWorkload


@dataclass(frozen=True)
class Workloads:
    """The workloads of all pods of `live`, which has all pods and the kinds that create them."""

    live: DisruptionObjects

    @functools.cached_property
    def daemon_sets(self) -> frozenset[str]:
        """The UIDs of all DaemonSets."""
        return frozenset(map(uid, self.live.of("DaemonSet")))

    @functools.cached_property
    def _ready(self) -> dict[str, int]:
        """Pods that serve, by the UID of their workload."""
        found: dict[str, int] = {}
        for pod in self.live.of("Pod"):
            if is_ready(pod) and is_alive(pod):
                top = self.live.top(pod)
                found[top] = found.get(top, 0) + 1
        return found

    def owner(self, pod: Object) -> tuple[OwnerRef | None, Object | None]:
        """The controller that the pod names, and its object, None if it does not exist (or if its kind is not read)."""
        ref = owner_ref(pod)
        return ref, self.live.meant(ref)

    def of(self, pod: Object) -> PodWorkload | None:
        """None for a pod without a controller, or whose controller does not exist."""
        ref, item = self.owner(pod)
        if ref is None or (item is None and is_known(ref)):
            return None
        if item is None:
            return PodWorkload(ref.kind, ref.namespace, ref.name, ref.uid)
        above = owner_ref(item)
        kind, top = (above.kind, found) if above is not None and (found := self.live.meant(above)) is not None else (ref.kind, item)
        counted = kind in COUNTED
        number, ready = replicas(kind, top) if counted else 0, self._ready.get(uid(top), 0)
        return PodWorkload(kind, *namespace_and_name(top), uid(top), number, top, ready, counted)


def ready_elsewhere(pods: Iterable[Object], of: Collection[str], nodes: Collection[str], gone: Collection[str] = ()) -> int:
    """How many pods serve that have one of the controllers `of` (UIDs), are not on `nodes`, and are not one of `gone` (UIDs)."""
    return sum(
        is_ready(pod) and is_alive(pod) and controller(pod) in of and uid(pod) not in gone and node_of(pod) not in nodes for pod in pods
    )


def own_limit(workload: PodWorkload) -> int:
    """How many of its pods may leave at once if no budget says so: as in its own roll-out, and never all of several.

    A Deployment's maxUnavailable is rounded down (pkg/controller/deployment/util: MaxUnavailable), here to at least one.
    """
    most = 1
    if workload.kind == "Deployment" and workload.found is not None:
        strategy: Mapping[str, Any] = spec_of(workload.found).get("strategy") or {}
        if strategy.get("type") != "Recreate":
            most = scaled((strategy.get("rollingUpdate") or {}).get("maxUnavailable", "25%"), workload.replicas, up=False, otherwise=1)
    elif workload.kind in ("ReplicaSet", "ReplicationController"):
        most = workload.replicas // 4
    return max(1, min(most, workload.replicas - 1))
