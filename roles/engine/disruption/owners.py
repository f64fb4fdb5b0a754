"""The controllers of pods and their scales, found as kube-controller-manager finds them for a PodDisruptionBudget. Pure.

kubernetes 1.36, pkg/controller/disruption/disruption.go: finders, getPodDeployment, getPodReplicaSet, getScaleController.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from roles.engine.kube import Object, OwnerRef, namespace_and_name, owner_ref, uid
from roles.engine.kube.workloads import ObservedObjects, is_known, replicas

PDB = "PodDisruptionBudget"
#: Kinds whose scale is read from the object itself.
_SCALED = ("ReplicationController", "Deployment", "ReplicaSet", "StatefulSet")
#: Kinds of Kubernetes without a scale subresource, by group and kind: their resource. (The owner of a static pod is its Node.)
_WITHOUT_SCALE = {
    ("apps", "DaemonSet"): "daemonsets.apps",
    ("batch", "Job"): "jobs.batch",
    ("batch", "CronJob"): "cronjobs.batch",
    ("", "Node"): "nodes",
    ("", "Pod"): "pods",
}
NO_SCALE = "does not implement the scale subresource"


@dataclass(frozen=True)
class Scale:
    """The API's answer to a question for the scale subresource of an owner. `uid` is "" if the object does not exist.

    `problem`: what kube-controller-manager says instead of a number, such as `jobs.batch does not implement the scale subresource`;
    `unread`: why daytwo could not read it; then the budgets of its pods cannot be computed.
    """

    uid: str = ""
    replicas: int = 0
    problem: str = ""
    unread: str = ""


@dataclass(frozen=True)
class Controller:
    """What scales a pod: the Deployment, or another owner with a scale. `replicas`: the desired number of pods. `found`: the object, None
    if only its scale is known."""

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int = 0
    found: Object | None = field(default=None, compare=False, repr=False)

    @property
    def place(self) -> tuple[str, str, str]:
        return self.namespace, self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Unscaled(Exception):
    """The error with which kube-controller-manager gives up on a budget, in its words. `lasts`: it stays as long as the pod exists;
    `unread`: it is daytwo that does not know."""

    def __init__(self, text: str, *, lasts: bool, unread: bool = False) -> None:
        super().__init__(text)
        self.lasts = lasts
        self.unread = unread


@dataclass(frozen=True)
class DisruptionObjects(ObservedObjects):
    """What decides about evictions: the objects by kind (Pod, PodDisruptionBudget, Deployment, ReplicaSet, StatefulSet,
    ReplicationController; more are allowed), of whole namespaces, and the scales of other owners (`scales`, by OwnerRef)."""

    scales: Mapping[OwnerRef, Scale] = field(default_factory=dict)

    def controller_of(self, pod: Object) -> Controller | None:
        """What scales the pod; None if nothing controls it. Raises Unscaled."""
        ref = owner_ref(pod)
        if ref is None:
            return None
        if ref not in self._scaled:
            self._scaled[ref] = self._controller(ref)
        return self._scaled[ref] or self._other(pod, ref)

    @functools.cached_property
    def _scaled(self) -> dict[OwnerRef, Controller | None]:
        """Of what was asked for already."""
        return {}

    def _controller(self, ref: OwnerRef) -> Controller | None:
        found = self.meant(ref) if ref.kind in _SCALED else None
        if found is None:
            return None
        above = owner_ref(found) if ref.kind == "ReplicaSet" else None
        deployment = self.meant(above) if above is not None and above.kind == "Deployment" else None
        # A ReplicaSet whose Deployment is gone counts by itself.
        return _controller("Deployment", deployment) if deployment is not None else _controller(ref.kind, found)

    def _other(self, pod: Object, ref: OwnerRef) -> Controller:
        resource = _WITHOUT_SCALE.get((ref.group, ref.kind))
        if resource is not None:
            raise Unscaled(f"{resource} {NO_SCALE}", lasts=True)
        scale = self.scales.get(ref)
        if scale is None and not self.asks_for(ref):
            scale = Scale()
        if scale is None or scale.unread:
            raise Unscaled(f"the scale of {ref} was not read{f': {scale.unread}' if scale else ''}", lasts=False, unread=True)
        if scale.problem:
            raise Unscaled(scale.problem, lasts=True)
        if scale.uid != ref.uid:
            raise Unscaled(f'found no controllers for pod "{namespace_and_name(pod)[1]}"', lasts=False)
        return Controller(ref.kind, ref.namespace, ref.name, ref.uid, scale.replicas)

    @staticmethod
    def asks_for(ref: OwnerRef) -> bool:
        """The API must be asked for the scale of this owner: it is no kind of Kubernetes itself."""
        return (ref.group, ref.kind) not in _WITHOUT_SCALE and not is_known(ref)


def _controller(kind: str, found: Object) -> Controller:
    return Controller(kind, *namespace_and_name(found), uid(found), replicas(kind, found), found)
