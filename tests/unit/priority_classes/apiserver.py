"""An API server with one PriorityClass, or one Deployment, that loses answers to requests that it applied, or did not apply."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from roles.engine.api import Api, ApiConnectionLost, Conflict, NoApi, NotFound
from roles.engine.api.errors import Invalid, Timeout, Unreachable
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.remote import ConnectionLost, RemoteError
from tests.unit.priority_classes.world import entry, pod, priority_class, revision, workload

_COLLECTIONS = {path.rpartition("/")[2] for path in COLLECTIONS.values()} | {
    "priorityclasses",
    "events",
    "controllerrevisions",
    "poddisruptionbudgets",
    "resourcequotas",
}


def lost_answers() -> list[Exception]:
    """Each way to lose an answer: in the tunnel, in the API server, and by kubectl on the node."""
    return [
        Timeout("cp1", "/", "timed out waiting for an answer", "look"),
        Unreachable("cp1", "/", "HTTP 504", "try again"),
        ApiConnectionLost("cp1", "/", "the SSH connection is lost", "reconnect"),
        NoApi("no control plane"),
        ConnectionLost("cp1: the SSH connection was lost while a command ran"),
        RemoteError("cp1: no answer within 60 s"),
    ]


LOST = [pytest.param(error, id=type(error).__module__ + "." + type(error).__name__) for error in lost_answers()]


def _lists(path: str) -> tuple[str, str]:
    """The collections of an object: in its namespace, and in all namespaces."""
    own = path.rpartition("/")[0]
    return own, re.sub(r"/namespaces/[^/]+", "", own)


class Server:
    """`objects` by path. `lose` is called at each request, before and after the server applies it, with (when, verb, path); the server
    raises an exception that it returns. `meddle` is called with the same arguments, and may change objects. `answering` False: no answers."""

    def __init__(self, objects: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.objects = dict(objects or {})
        self.log: list[tuple[str, str]] = []
        self.lose: Callable[[str, str, str], Exception | None] = lambda when, verb, path: None
        self.meddle: Callable[[str, str, str], None] = lambda when, verb, path: None
        self.refuse: Callable[[str, str, Mapping[str, Any]], Exception | None] = lambda verb, path, manifest: None
        self.versions = 100

    def _turn(self, when: str, verb: str, path: str) -> None:
        self.meddle(when, verb, path)
        if (error := self.lose(when, verb, path)) is not None:
            raise error

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        self.versions += 1
        item["metadata"]["resourceVersion"] = str(self.versions)
        item["metadata"].setdefault("uid", f"uid-{self.versions}")
        self.objects[path] = item
        return copy.deepcopy(item)

    # ---- as roles.engine.api.Api

    def get_json(self, whole: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        path = urlsplit(whole).path
        self._turn("before", "GET", path)
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        below = [copy.deepcopy(item) for key, item in self.objects.items() if path in _lists(key)]
        if below or path.rpartition("/")[2] in _COLLECTIONS:
            return {"items": below}
        raise NotFound("cp1", path, "404 Not Found", "-")

    def apply(
        self, path: str, manifest: Mapping[str, Any], timeout: float = 0, *, force: bool = False, dry_run: bool = False, wait: float = 0
    ) -> dict[str, Any]:
        self.log.append(("APPLY", path))
        self._turn("before", "APPLY", path)
        if (error := self.refuse("APPLY", path, manifest)) is not None:
            raise error
        there, meta = self.objects.get(path), manifest["metadata"]
        for key in ("uid", "resourceVersion"):
            if key in meta and (there is None or there["metadata"][key] != meta[key]):
                raise Conflict("cp1", path, f"409 Conflict: {key}", "run it again")
        made = self._merged(path, manifest, there)
        self._turn("after", "APPLY", path)
        return made

    def _merged(self, path: str, manifest: Mapping[str, Any], there: dict[str, Any] | None) -> dict[str, Any]:
        if "priorityclasses" not in path:
            item = copy.deepcopy(there) if there is not None else {}
            wanted = ((manifest.get("spec") or {}).get("template") or {}).get("spec", {}).get("priorityClassName")
            spec = item["spec"]["template"]["spec"]
            spec.pop("priorityClassName", None)
            if wanted:
                spec["priorityClassName"] = wanted
            item["metadata"]["managedFields"] = [entry("daytwo", {"f:spec": {"f:template": {"f:spec": {"f:priorityClassName": {}}}}})]
            return self.put(path, item)
        item = {key: copy.deepcopy(value) for key, value in manifest.items() if key not in ("apiVersion", "kind")}
        item.setdefault("preemptionPolicy", "PreemptLowerPriority")
        fields: dict[str, Any] = {f"f:{key}": {} for key in manifest if key not in ("apiVersion", "kind", "metadata")}
        inside = {f"f:{key}": {f"f:{name}": {} for name in item["metadata"].get(key) or {}} for key in ("labels", "annotations")}
        owned = entry("daytwo", {**fields, "f:metadata": inside})
        item["metadata"] = {**item["metadata"], "managedFields": [owned]}
        if there is not None:
            if there["value"] != item["value"]:
                raise Invalid("cp1", path, "422: value is immutable", "-")
            others = [one for one in there["metadata"]["managedFields"] if one["manager"] != "daytwo"]
            item["metadata"] |= {"uid": there["metadata"]["uid"], "managedFields": [*others, owned]}
        return self.put(path, item)

    def delete(self, path: str, uid: str, timeout: float = 0, *, version: str = "", dry_run: bool = False) -> None:
        self.log.append(("DELETE", path))
        self._turn("before", "DELETE", path)
        if (error := self.refuse("DELETE", path, {})) is not None:
            raise error
        there = self.objects.get(path)
        if there is None:
            raise NotFound("cp1", path, "404 Not Found", "-")
        if there["metadata"]["uid"] != uid or (version and there["metadata"]["resourceVersion"] != version):
            raise Conflict("cp1", path, "409 Conflict: precondition", "run it again")
        del self.objects[path]
        self._turn("after", "DELETE", path)

    @property
    def api(self) -> Api:
        return cast("Api", self)


def first(error: Exception, when: str, verb: str) -> Callable[[str, str, str], Exception | None]:
    """Loses the first answer to that verb."""
    left = [error]
    return lambda moment, what, path: left.pop() if left and (moment, what) == (when, verb) else None


WEB = "/apis/apps/v1/namespaces/default/deployments/web"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Cluster(Server):
    """A Deployment with one pod, whose controller applies each write at once, except a class that `fails`."""

    def __init__(self, fails: str = "") -> None:
        item = workload("Deployment", "web", "low", replicas=1, selector={"matchLabels": {"app": "web"}})
        item["metadata"] |= {"resourceVersion": "1", "managedFields": [owner("helm")]}
        classes = {f"{CLASSES}/{name}": priority_class(name, value) for name, value in (("low", 1), ("high", 2))}
        super().__init__({WEB: item, **classes})
        self.fails = fails
        self._roll(item)

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        made = super().put(path, item)
        if path == WEB:
            self._roll(self.objects[WEB])
        return made

    def _roll(self, item: dict[str, Any]) -> None:
        has = item["spec"]["template"]["spec"].get("priorityClassName", "")
        made = revision("ReplicaSet", "one", 1, item)
        self.objects["/apis/apps/v1/namespaces/default/replicasets/one"] = made
        value = 3 if has == "theirs" else self.objects.get(f"{CLASSES}/{has}", {}).get("value", 0)
        self.objects["/api/v1/namespaces/default/pods/web-1"] = pod("web-1", has, made, number=value)
        item["status"]["availableReplicas"] = 0 if self.fails and has == self.fails else 1

    @property
    def has(self) -> str:
        return str(self.objects[WEB]["spec"]["template"]["spec"].get("priorityClassName", ""))

    def others_set(self, name: str) -> None:
        item = self.objects[WEB]
        item["spec"]["template"]["spec"]["priorityClassName"] = name
        item["metadata"]["managedFields"] = [owner("kubectl-edit")]
        self.put(WEB, item)


def owner(manager: str) -> dict[str, Any]:
    return entry(manager, {"f:spec": {"f:template": {"f:spec": {"f:priorityClassName": {}}}}}, "Update")
