"""A cluster whose controller rolls out templates: workloads of one pod, and an API server that writes them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tests.unit.apiserver import CLASSES, Server
from tests.unit.disruption.world import pod, workload
from tests.unit.priority_classes.world import priority_class

PODS = "/api/v1/namespaces/shop/pods"


def made(kind: str = "Deployment", name: str = "web", replicas: int = 2, **more: Any) -> dict[str, Any]:
    """A healthy workload that is rolled out."""
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas)
    counts |= dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), replicas)
    spec = {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {}, "spec": {}}, **more.pop("spec", {})}
    return workload(kind, name, replicas, spec=spec, status={**counts, **more.pop("status", {})}, **more)


class Cluster(Server):
    """Workloads of one pod, and the classes low and high. The controller recreates the pod at each change, that of a StatefulSet only once
    the pod that is there is Ready; the pods of a changed template of `fails` never are. `template`: the pod template at first."""

    def __init__(self, *names: str, kind: str = "StatefulSet", fails: str = "", template: Mapping[str, Any] | None = None) -> None:
        super().__init__({f"{CLASSES}/{name}": priority_class(name, value) for name, value in (("low", 1), ("high", 2))})
        self.kind, self.fails = kind, fails
        self.workloads = f"/apis/apps/v1/namespaces/shop/{kind.lower()}s"
        self.first = {"metadata": {}, "spec": {}, **(template or {})}
        for name in names:
            item = made(kind, name, 1, spec={"template": copy.deepcopy(self.first)})
            self._own(item, "helm", {"spec": {"template": self.first}})
            self.put(f"{self.workloads}/{name}", item)

    @staticmethod
    def _own(item: dict[str, Any], manager: str, written: Mapping[str, Any]) -> None:
        item["metadata"]["managedFields"] = [{"manager": manager, "operation": "Update", "fieldsV1": fields(written)}]

    @property
    def writes(self) -> list[str]:
        """The workloads that were to be written."""
        return [path.rpartition("/")[2] for verb, path in self.log if verb != "DELETE" and path.startswith(self.workloads)]

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        found = super().put(path, item)
        if path.startswith(self.workloads):
            self._roll(path)
        return found

    def _checked(self, verb: str, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        assert "uid" in body["metadata"] or not path.startswith(self.workloads), "of this workload, and of no other one of its name"
        return super()._checked(verb, path, body)

    def _roll(self, at: str) -> None:
        item, name = self.objects[at], at.rpartition("/")[2]
        template, path = item["spec"]["template"], f"{PODS}/{name}-0"
        there, owner = self.objects.get(path), item
        if self.kind == "Deployment":
            owner = workload("ReplicaSet", f"{name}-1", 1, item)
            super().put(f"/apis/apps/v1/namespaces/shop/replicasets/{name}-1", owner)
        if self.kind != "StatefulSet" or there is None or there["status"]["conditions"][0]["status"] == "True":
            ready = name != self.fails or template == self.first
            spec, annotations = copy.deepcopy(template["spec"]), template["metadata"].get("annotations") or {}
            spec["priority"] = self.objects.get(f"{CLASSES}/{spec.get('priorityClassName')}", {}).get("value", 0)
            super().put(path, pod(f"{name}-0", owner, app=name, ready=ready, annotations=annotations, spec=spec))
        serves = int(self.objects[path]["status"]["conditions"][0]["status"] == "True")
        item["status"] = {**item["status"], "availableReplicas": serves, "readyReplicas": serves}

    def patch(self, path: str, changes: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False, wait: float = 0) -> Any:
        item = self._checked("PATCH", path, changes)
        assert item is not None
        item["spec"] = merged(item["spec"], changes["spec"])
        self._own(item, "daytwo", changes)
        found = self.put(path, item)
        self._turn("after", "PATCH", path)
        return found

    def create(self, path: str, body: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False) -> dict[str, Any]:
        """A review of who asks, which has the server's time."""
        return {"metadata": {"creationTimestamp": "2026-03-01T12:00:00Z"}}

    def delete(self, path: str, uid: str, timeout: float = 0, *, version: str = "", dry_run: bool = False) -> None:
        super().delete(path, uid, version=version)
        owner = f"{self.workloads}/{path.rpartition('/')[2].removesuffix('-0')}"
        if path.startswith(PODS) and owner in self.objects:
            self._roll(owner)

    def others_write(self, name: str, changes: Mapping[str, Any]) -> None:
        """Someone else changes the template of a workload."""
        item = copy.deepcopy(self.objects[f"{self.workloads}/{name}"])
        item["spec"]["template"] = merged(item["spec"]["template"], changes)
        self._own(item, "kubectl-edit", {"spec": {"template": changes}})
        self.put(f"{self.workloads}/{name}", item)


def merged(there: Any, changes: Any) -> Any:
    """A strategic merge: lists by the names of their entries; None removes, and what is empty then goes."""
    if isinstance(changes, list):
        by_name = {one["name"]: one for one in changes}
        return [merged(one, by_name.get(one["name"], {})) for one in there]
    if not isinstance(changes, Mapping):
        return changes
    found = {**(there or {}), **{key: merged((there or {}).get(key), value) for key, value in changes.items()}}
    return {key: value for key, value in found.items() if value is not None and not (key == "annotations" and not value)}


def fields(changes: Any) -> Any:
    return {f"f:{key}": fields(value) for key, value in changes.items()} if isinstance(changes, Mapping) else {}
