"""A cluster in memory whose API evicts, cordons and uncordons: for drains from their plan to their end."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest
from gevent.lock import BoundedSemaphore

from roles.engine import timeouts
from roles.engine.disruption import DisruptionObjects
from roles.engine.kube import controller, is_ending
from roles.engine.objects import Session
from roles.engine.outage import drainer, evicting, reading
from roles.engine.outage import node as outage_node
from tests.unit.clock import Clock
from tests.unit.disruption.world import NOW, pod, world

# Seconds from an eviction until the pod is gone, and until the replacement is Ready.
ENDS, STARTS = 5, 10


class LiveCluster:
    """Stands in for a session. Its objects have a UID of their own. A replacement comes to the first node that takes pods."""

    def __init__(self, patch: pytest.MonkeyPatch, *items: dict[str, Any]) -> None:
        self.clock = Clock()
        for module in (timeouts, evicting, reading, drainer):
            patch.setattr(module, "time", self.clock)
        for module in (outage_node, drainer):
            patch.setattr(module, "read_drain", lambda session: session.world())
            patch.setattr(module, "cluster_time", lambda session: NOW)
        patch.setattr(drainer, "read_disruption", lambda api: self.world())
        self.items = {item["metadata"]["uid"]: copy.deepcopy(item) for item in items}
        self._locks: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._due: list[tuple[float, Callable[[], None]]] = []
        #: The names of the pods in the order of their evictions, and after each eviction how many others were Ready.
        self.evicted: list[tuple[str, int]] = []
        self.starts = True

    @property
    def session(self) -> Session:
        return cast(Session, self)

    def world(self) -> DisruptionObjects:
        self._advance()
        return world(*self.items.values())

    def node(self, name: str) -> dict[str, Any]:
        return next(item for item in self.items.values() if item.get("kind") == "Node" and item["metadata"]["name"] == name)

    def pods(self) -> list[dict[str, Any]]:
        self._advance()
        return [item for item in self.items.values() if "containers" in item.get("spec", {})]

    def ready(self) -> int:
        return sum(one["status"]["conditions"][0]["status"] == "True" and not is_ending(one) for one in self.pods())

    def _advance(self) -> None:
        for due in [one for one in self._due if one[0] <= self.clock.now]:
            self._due.remove(due)
            due[1]()

    # ---- the session

    def create(self, path: str, body: Any, what: str) -> None:
        self.asked(lambda api: api.create(path, body))

    def alone(self, key: str) -> Any:
        return self._locks.setdefault(key, BoundedSemaphore())

    def asked(self, ask: Callable[[Any], Any], what: str = "") -> Any:
        gevent.sleep(0)  # as over a network: meanwhile others ask too
        return ask(SimpleNamespace(create=self._create, patch=self._patch))

    unconflicted = Session.unconflicted

    def written(self, path: str, send: Callable[[Any], Any], done: Callable[[Any], bool]) -> Any:
        return self.asked(send)

    def fetch(self, path: str) -> dict[str, Any] | None:
        name = path.rpartition("/")[2]
        return next((item for item in self.items.values() if item["metadata"]["name"] == name), None)

    def fetch_all(self, path: str, fields: str = "", labels: str = "") -> list[dict[str, Any]]:
        gevent.sleep(0)
        kind = path.rpartition("/")[2]
        if kind != "pods":
            return [item for item in self.items.values() if str(item.get("kind", "")).lower() + "s" == kind]
        return [one for one in self.pods() if not fields or one["spec"]["nodeName"] == fields.partition("=")[2]]

    def _patch(self, path: str, body: dict[str, Any], dry_run: bool = False) -> dict[str, Any]:
        item = self.fetch(path)
        assert item is not None
        for key, value in (body["metadata"].get("annotations") or {}).items():
            notes = item["metadata"].setdefault("annotations", {})
            notes.update({key: value}) if value is not None else notes.pop(key, None)
        for key, value in (body.get("spec") or {}).items():
            item["spec"].update({key: value}) if value is not None else item["spec"].pop(key, None)
            if key == "unschedulable" and not value:
                item["spec"].pop("taints", None)  # as kube-controller-manager does
            manager = {"manager": "daytwo", "operation": "Update", "fieldsV1": {"f:spec": {f"f:{key}": {}}}}
            item["metadata"]["managedFields"] = [manager] if value is not None else []
        return item

    def _create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path.endswith("/eviction")
        return self._end(self.items[body["deleteOptions"]["preconditions"]["uid"]])

    def deleted(self, path: str, item: dict[str, Any], *, grace: int | None = None) -> None:
        self._end(self.items[item["metadata"]["uid"]])

    def _end(self, found: dict[str, Any]) -> dict[str, Any]:
        assert not is_ending(found)
        found["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
        self.evicted.append((found["metadata"]["name"], self.ready()))
        self._due.append((self.clock.now + ENDS, lambda: cast(None, self.items.pop(found["metadata"]["uid"]))))
        if self.starts:
            self._due.append((self.clock.now + STARTS, lambda: self._replace(found)))
        return {}

    def _replace(self, old: dict[str, Any]) -> None:
        free = next(
            item for item in self.items.values() if item.get("kind") == "Node" and not item["spec"].get("unschedulable")
        )  # fmt: skip
        owner = next(item for item in self.items.values() if item["metadata"]["uid"] == controller(old))
        new = pod(f"{owner['metadata']['name']}-new-{next(self._numbers)}", owner, node=free["metadata"]["name"])
        self.items[new["metadata"]["uid"]] = new
