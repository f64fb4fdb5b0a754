"""A cluster whose controller rolls out templates: workloads of one pod, and an API server that patches them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from roles.engine.api import Conflict
from tests.unit.disruption.world import pod, workload
from tests.unit.priority_classes.apiserver import Server

PODS = "/api/v1/namespaces/shop/pods"
SETS = "/apis/apps/v1/namespaces/shop/statefulsets"


def made(kind: str = "Deployment", name: str = "web", replicas: int = 2, **more: Any) -> dict[str, Any]:
    """A healthy workload that is rolled out."""
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas)
    counts |= dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), replicas)
    spec = {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {}, "spec": {}}, **more.pop("spec", {})}
    return workload(kind, name, replicas, spec=spec, status={**counts, **more.pop("status", {})}, **more)


class Cluster(Server):
    """StatefulSets of one pod. Their controller recreates it at each change, but only once the one that is there is Ready; the pods of a
    changed template of `fails` never are. `template`: the pod template at first."""

    def __init__(self, *names: str, fails: str = "", template: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.fails, self.writes = fails, list[str]()
        self.first = {"metadata": {}, "spec": {}, **(template or {})}
        for name in names:
            self.put(f"{SETS}/{name}", made("StatefulSet", name, 1, spec={"template": copy.deepcopy(self.first)}))
            self.roll(name)

    def roll(self, name: str) -> None:
        item, path = self.objects[f"{SETS}/{name}"], f"{PODS}/{name}-0"
        template, there = item["spec"]["template"], self.objects.get(path)
        if there is None or there["status"]["conditions"][0]["status"] == "True":
            ready = name != self.fails or template == self.first
            annotations = template["metadata"].get("annotations") or {}
            self.put(path, pod(f"{name}-0", item, app=name, ready=ready, annotations=annotations, spec=copy.deepcopy(template["spec"])))
        serves = int(self.objects[path]["status"]["conditions"][0]["status"] == "True")
        item["status"] = {**item["status"], "availableReplicas": serves, "readyReplicas": serves}

    def patch(self, path: str, changes: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False, wait: float = 0) -> Any:
        item = copy.deepcopy(self.objects[path])
        if changes["metadata"].get("resourceVersion") not in (None, item["metadata"]["resourceVersion"]):
            raise Conflict("cp1", path, "409", "run it again")
        item["spec"] = merged(item["spec"], changes["spec"])
        item["metadata"]["managedFields"] = [{"manager": "daytwo", "operation": "Update", "fieldsV1": fields(changes)}]
        self.writes.append(item["metadata"]["name"])
        self.put(path, item)
        self.roll(item["metadata"]["name"])
        return copy.deepcopy(item)

    def create(self, path: str, body: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False) -> dict[str, Any]:
        """A review of who asks, which has the server's time."""
        return {"metadata": {"creationTimestamp": "2026-03-01T12:00:00Z"}}

    def delete(self, path: str, uid: str, timeout: float = 0, *, version: str = "", dry_run: bool = False) -> None:
        super().delete(path, uid, version=version)
        self.roll(path.rpartition("/")[2].removesuffix("-0"))


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
