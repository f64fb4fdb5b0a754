"""An API server in memory for tests of drains: objects by path, with what controllers would do, and when the operator's machine dies."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from roles.engine.api import Conflict, NotFound
from roles.engine.api.errors import by_status
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.engine.object_runs import KeptRecords
from roles.engine.objects import Session
from roles.engine.outage.reading import KINDS_OF_DRAIN

Write = tuple[str, str, Mapping[str, Any]]


def path_of(item: Mapping[str, Any]) -> str:
    """The path of an object of tests/unit/disruption/world.py."""
    spec = item.get("spec") or {}
    kind = item.get("kind") or ("Pod" if "containers" in spec else "PodDisruptionBudget")
    head, _, resource = KINDS_OF_DRAIN[kind].rpartition("/")
    namespace = item["metadata"].get("namespace")
    return f"{head}/{f'namespaces/{namespace}/' if namespace else ''}{resource}/{item['metadata']['name']}"


class Killed(BaseException):
    """The operator's machine died: no handler of errors runs."""


class ClusterApi:
    """`writes` has (verb, path, body) of all writes. `after(write)` runs after each one, as controllers do; it may raise Killed. `refuse`
    returns the cause for which a budget refuses the eviction of a pod, "" if it does not; `deny` the status code and the words of somebody
    else who does, and whether the request is a dry run decides too. `time`: its clock."""

    host = "cp1"

    def __init__(self, *items: Mapping[str, Any]) -> None:
        self.there: dict[str, dict[str, Any]] = {path_of(item): copy.deepcopy(dict(item)) for item in items}
        self.writes: list[Write] = []
        self.reads: list[str] = []
        self.graces: list[int | None] = []
        self.after: Callable[[Write], None] = lambda write: None
        self.time = "2026-03-01T12:00:00Z"
        self.refuse: Callable[[Mapping[str, Any]], str] = lambda pod: ""
        self.deny: Callable[[Mapping[str, Any], bool], tuple[int, str] | None] = lambda pod, dry_run: None

    @property
    def session(self) -> Session:
        return Session(lambda: self, wait=0, recorded=KeptRecords(None))  # type: ignore[arg-type,return-value]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        return next(
            item for path, item in self.there.items() if path.endswith(f"{KINDS_OF_DRAIN[kind].rpartition('/')[2]}/{name}")
        )  # fmt: skip

    def add(self, *items: Mapping[str, Any]) -> None:
        self.there |= {path_of(item): copy.deepcopy(dict(item)) for item in items}

    def evicted(self) -> list[str]:
        return [path.split("/")[-2] for verb, path, _ in self.writes if verb == "create"]

    def deleted(self) -> list[str]:
        return [path.rpartition("/")[2] for verb, path, _ in self.writes if verb == "delete"]

    # ---- the API

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        where, _, query = path.partition("?")
        self.reads.append(where)
        if not query:
            return copy.deepcopy(self._get(where))
        node = parse_qs(query).get("fieldSelector", [""])[0].removeprefix("spec.nodeName=")
        found = [item for one, item in self.there.items() if _in(one, where)]
        return {"items": copy.deepcopy([item for item in found if not node or item["spec"].get("nodeName") == node])}

    def patch(self, path: str, changes: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False, wait: float = 0) -> dict[str, Any]:
        item = self._get(path)
        if (changes.get("metadata") or {}).get("uid") != item["metadata"].get("uid"):
            raise Conflict("cp1", path, "another object", "look")
        if dry_run:
            return copy.deepcopy(item)
        _merge(item, changes)
        if not item["spec"].get("unschedulable"):
            item["spec"].pop("taints", None)  # as kube-controller-manager does
        spec = {f"f:{key}": {} for key in changes.get("spec") or ()}
        names = {f"f:{key}": {} for key in (changes.get("metadata") or {}).get("annotations") or ()}
        fields = {"f:spec": spec, "f:metadata": {"f:annotations": names}}
        item["metadata"].setdefault("managedFields", []).append({"manager": FIELD_MANAGER, "operation": "Update", "fieldsV1": fields})
        self._wrote("patch", path, changes)
        return copy.deepcopy(item)

    def create(self, path: str, manifest: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False) -> dict[str, Any]:
        if path.endswith("selfsubjectreviews"):
            return {"metadata": {"creationTimestamp": self.time}}
        pod = self._get(path.removesuffix("/eviction"))
        if denied := self.deny(pod, dry_run):
            raise by_status("cp1", path, denied[0], json.dumps({"kind": "Status", "message": denied[1]}).encode())
        if why := self.refuse(pod):
            body = f'{{"details": {{"causes": [{{"reason": "DisruptionBudget", "message": "{why}"}}]}}, "message": "{why}"}}'
            raise by_status("cp1", path, 429, body.encode())
        if not dry_run:
            del self.there[path.removesuffix("/eviction")]
            self._wrote("create", path, manifest)
        return {}

    def delete(
        self, path: str, uid: str, timeout: float = 0, *, version: str = "", dry_run: bool = False, grace: int | None = None
    ) -> None:
        assert self._get(path)["metadata"]["uid"] == uid
        self.graces.append(grace)
        del self.there[path]
        self._wrote("delete", path, {})

    def _get(self, path: str) -> dict[str, Any]:
        if path not in self.there:
            raise NotFound("cp1", path, "it does not exist", "look")
        return self.there[path]

    def _wrote(self, verb: str, path: str, body: Mapping[str, Any]) -> None:
        self.writes.append((verb, path, body))
        self.after(self.writes[-1])


def _in(path: str, collection: str) -> bool:
    """An object is in the collection of its namespace, and in that of all namespaces."""
    own, _, _ = path.rpartition("/")
    head, found, rest = own.partition("/namespaces/")
    return own == collection or (bool(found) and f"{head}/{rest.partition('/')[2]}" == collection)


def _merge(item: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping):
            _merge(item.setdefault(key, {}), value)
        elif value is None:
            item.pop(key, None)
        else:
            item[key] = value
