"""An API server that loses answers to requests that it applied, or did not apply."""

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
from tests.unit.priority_classes.world import entry

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
        self.versions, self.forced = 100, False

    def _turn(self, when: str, verb: str, path: str) -> None:
        self.meddle(when, verb, path)
        if (error := self.lose(when, verb, path)) is not None:
            raise error

    def at(self, when: str, verb: str, act: Callable[[], object]) -> None:
        """Others act before or after each request of that verb is applied."""

        def meddle(moment: str, what: str, path: str) -> None:
            if (moment, what) == (when, verb):
                act()

        self.meddle = meddle

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        self.versions += 1
        item["metadata"]["resourceVersion"] = str(self.versions)
        item["metadata"].setdefault("uid", f"uid-{self.versions}")
        self.objects[path] = item
        return copy.deepcopy(item)

    def _checked(self, verb: str, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The object that a write is of, as the preconditions in its body want it."""
        self.log.append((verb, path))
        self._turn("before", verb, path)
        if (error := self.refuse(verb, path, body)) is not None:
            raise error
        there = copy.deepcopy(self.objects.get(path))
        if there is None and verb != "APPLY":
            raise NotFound("cp1", path, "404 Not Found", "-")
        for key in ("uid", "resourceVersion"):
            if key in body["metadata"] and (there is None or there["metadata"][key] != body["metadata"][key]):
                raise Conflict("cp1", path, f"409 Conflict: {key}", "run it again")
        return there

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
        there, self.forced = self._checked("APPLY", path, manifest), force
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
        self._checked("DELETE", path, {"metadata": {"uid": uid, **({"resourceVersion": version} if version else {})}})
        del self.objects[path]
        self._turn("after", "DELETE", path)

    @property
    def api(self) -> Api:
        return cast("Api", self)


def first(error: Exception, when: str, verb: str) -> Callable[[str, str, str], Exception | None]:
    """Loses the first answer to that verb."""
    left = [error]
    return lambda moment, what, path: left.pop() if left and (moment, what) == (when, verb) else None


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
