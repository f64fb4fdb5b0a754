"""Nodes whose kubelet's fields are planned: their state, their pods, and the plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from roles.engine import control_plane
from roles.engine.api import NoApi
from roles.engine.api.nodes import NodeUsage
from roles.engine.editing import ABSENT
from roles.engine.kubelet import KubeletState, find
from roles.engine.kubelet.runtime import Runtime
from roles.engine.node import File
from roles.engine.node_changes import NodePlan
from roles.engine.proof import Cluster
from roles.kubelet_config import DesiredFields, FieldsRequest, Settled, allocatable_impact, carry_out
from roles.kubelet_config.carry_out import FieldsPlan
from roles.kubelet_config.plan import settle
from tests.unit.node import node
from tests.unit.node.node import parse

GIB = 2**30
RUNNING: dict[str, Any] = {
    "maxPods": 110,
    "evictionHard": {"memory.available": "100Mi"},
    "enforceNodeAllocatable": ["pods"],
    "staticPodPath": "/etc/kubernetes/manifests",
}


def pod(name: str, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": name, "uid": name, "creationTimestamp": f"2026-01-01T00:00:{len(name):02d}Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


def state(
    config: str = "", conditions: tuple[tuple[str, str], ...] = (("Ready", "True"),), pods_use: int = GIB, **running: Any
) -> KubeletState:
    """A node with 4 CPUs, 8 GiB and two pods; its kubelet's file ends with `config`."""
    found = find(parse("n1", node.answer(files={"/var/lib/kubelet/config.yaml": node.CONFIG + config.encode()})))
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "nodeInfo": {"kubeletVersion": "v1.36.3"},
        "conditions": [{"type": kind, "status": value, "reason": "Why", "message": "because"} for kind, value in conditions],
    }
    stats = {"availableBytes": 8 * GIB - pods_use, "workingSetBytes": pods_use}
    summary = {"node": {"memory": stats, "systemContainers": [{"name": "pods", "memory": stats}]}, "pods": []}
    return KubeletState("n1", found, {**RUNNING, **running}, {"metadata": {"name": "n1"}, "status": status}, [pod("a"), pod("bb")], summary)


def node_plan(given: KubeletState, fields: dict[str, Any], *, allow_evictions: bool = False) -> NodePlan[FieldsPlan]:
    expected = {name: None if value is ABSENT else value for name, value in fields.items()}
    desired = FieldsRequest({}, lambda _: Settled(fields, expected, "as desired"), allocatable_impact, allow_evictions=allow_evictions)
    return carry_out.plan_node("r1", given, control_plane.look(given.kubelet), desired)


def plan(given: KubeletState, fields: dict[str, Any], *, allow_evictions: bool = False) -> FieldsPlan:
    (made,) = node_plan(given, fields, allow_evictions=allow_evictions).planned
    return made


class Now(Cluster):
    """The node's state when its turn comes; or the API does not answer."""

    def __init__(self, given: KubeletState | None) -> None:
        super().__init__()
        self.given, self.reads = given, 0

    def _answer(self) -> KubeletState:
        if self.given is None:
            raise NoApi("no API")
        return self.given

    def configuration(self, node_name: str) -> dict[str, Any]:
        self.reads += 1
        return self._answer().configuration

    def usage(self, node_name: str, wait: float = 0) -> NodeUsage:
        return NodeUsage(self._answer().summary, self._answer().pods, self._answer().node)


def owned(name: str, kind: str, version: str = "apps/v1") -> dict[str, Any]:
    made = pod(name)
    made["metadata"]["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": "x", "controller": True}]
    return made


def left() -> list[dict[str, Any]]:
    """What a drain leaves: of a DaemonSet, static, ended."""
    static, done = pod("static"), pod("done")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    done["status"]["phase"] = "Succeeded"
    return [owned("agent", "DaemonSet"), static, done]


def drained(given: KubeletState, cordoned: bool = True, pods: list[dict[str, Any]] | None = None) -> KubeletState:
    return replace(given, node={**given.node, "spec": {"unschedulable": cordoned}}, pods=left() if pods is None else pods)


def plan_fields(at: KubeletState, fields: dict[str, Any], *, may_drain: bool = False) -> NodePlan[FieldsPlan]:
    request = FieldsRequest({}, partial(settle, DesiredFields(kubelet_config=fields)), allocatable_impact)
    return carry_out.plan_node("r1", at, control_plane.look(at.kubelet), request, may_drain=may_drain)


PLACE = "/etc/containerd/config.toml:14: SystemdCgroup = true"
# containerd 1.7, which reports nothing; and containerd 2.
CONTAINERD_17 = Runtime("containerd 1.7.24", None, {"runc": "systemd"}, (PLACE,))
CONTAINERD_CONFIG = b"""version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
PATH = "/etc/containerd/config.toml"
FILE = File(PATH, "file", 0o644, mtime=900, data=CONTAINERD_CONFIG)
SERVED = replace(CONTAINERD_17, unit="containerd.service", path=PATH, started=1000, file=FILE)
