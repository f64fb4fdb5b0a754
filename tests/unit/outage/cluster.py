"""A cluster whose time passes: pods that are evicted end, and their replacements come. For drains from their plan to their end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import gevent
import pytest
from gevent.lock import BoundedSemaphore

from roles.engine import timeouts
from roles.engine.kube import controller, is_ending
from roles.engine.objects import Session
from roles.engine.outage import drainer, evicting, reading
from tests.unit.clock import Clock
from tests.unit.disruption.world import pod
from tests.unit.outage.api import ClusterApi, path_of

# Seconds from an eviction until the pod is gone, and until the replacement is Ready.
ENDS, STARTS = 5, 10


class _Session(Session):
    def alone(self, key: str) -> Any:
        return self._locks.setdefault(key, BoundedSemaphore())


class LiveCluster(ClusterApi):
    """A replacement comes to the first node that takes pods."""

    def __init__(self, patch: pytest.MonkeyPatch, *items: Mapping[str, Any]) -> None:
        super().__init__(*items)
        self.clock = Clock()
        for module in (timeouts, evicting, reading, drainer):
            patch.setattr(module, "time", self.clock)
        self._numbers = itertools.count(1)
        self._due: list[tuple[float, Callable[[], object]]] = []
        #: The names of the pods in the order of their evictions, and after each eviction how many others were Ready.
        self.evictions: list[tuple[str, int]] = []
        self.starts = True

    @cached_property
    def session(self) -> Session:  # type: ignore[override]
        return _Session(lambda: self, wait=0)  # type: ignore[arg-type,return-value]

    def node(self, name: str) -> dict[str, Any]:
        return self.one("Node", name)

    def pods(self) -> list[dict[str, Any]]:
        self._advance()
        return [item for item in self.there.values() if "containers" in item.get("spec", {})]

    def _advance(self) -> None:
        for due in [one for one in self._due if one[0] <= self.clock.now]:
            self._due.remove(due)
            due[1]()

    # ---- the API

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        self._advance()
        found = super().get_json(path, timeout, wait=wait)
        gevent.sleep(0)  # as over a network: meanwhile others ask too
        return found

    def create(self, path: str, manifest: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False) -> dict[str, Any]:
        gevent.sleep(0)
        if not path.endswith("/eviction") or dry_run:
            return super().create(path, manifest, timeout, dry_run=dry_run)
        return self._end(path.removesuffix("/eviction"))

    def delete(
        self, path: str, uid: str, timeout: float = 0, *, version: str = "", dry_run: bool = False, grace: int | None = None
    ) -> None:
        self._end(path)

    def _end(self, path: str) -> dict[str, Any]:
        found = self._get(path)
        assert not is_ending(found)
        found["metadata"]["deletionTimestamp"] = self.time
        ready = sum(one["status"]["conditions"][0]["status"] == "True" and not is_ending(one) for one in self.pods())
        self.evictions.append((found["metadata"]["name"], ready))
        self._due.append((self.clock.now + ENDS, lambda: self.there.pop(path)))
        if self.starts:
            self._due.append((self.clock.now + STARTS, lambda: self._replace(found)))
        return {}

    def _replace(self, old: dict[str, Any]) -> None:
        free = next(item for item in self.there.values() if item.get("kind") == "Node" and not item["spec"].get("unschedulable"))
        owner = next(item for item in self.there.values() if item["metadata"].get("uid") == controller(old))
        new = pod(f"{owner['metadata']['name']}-new-{next(self._numbers)}", owner, node=free["metadata"]["name"])
        self.there[path_of(new)] = new
