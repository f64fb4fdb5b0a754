"""The Lease object, by the API: read, created, and replaced only as it was read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from roles.engine.api import Api, find_object
from roles.engine.harmless import one_line
from roles.engine.kube import Object, version
from roles.engine.kube.fields import spec_of
from roles.engine.kube.workloads import namespaced, object_path

COLLECTION = "/apis/coordination.k8s.io/v1/leases"
#: Seconds for one request: a holder that waits longer could not renew in time.
REQUEST_SECONDS = 5.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST = 120
_MOST_SECONDS = 3600


@dataclass(frozen=True)
class Record:
    """A Lease as it was read. `holder` is "" for one that nobody holds; `seconds`: how long it lasts without a renewal; `version` is for
    the next write, "" if there is no Lease yet; `transitions`: how often it got another holder. Others may have written anything."""

    version: str = ""
    holder: str = ""
    seconds: int = 0
    renewed: str = ""
    transitions: int = 0

    @classmethod
    def of(cls, item: Object | None) -> Record:
        if item is None:
            return cls()
        spec = spec_of(item)
        numbers = [spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")]
        seconds, transitions = (one if isinstance(one, int) and one > 0 else 0 for one in numbers)
        holder, renewed = (one_line(str(spec.get(name) or ""))[:_LONGEST] for name in ("holderIdentity", "renewTime"))
        return cls(version(item), holder, min(seconds, _MOST_SECONDS), renewed, transitions)


class LeasePort(Protocol):
    """How a Lease is reached. Both raise ApiFailure; `write` raises Conflict if the Lease is not as it was read any more."""

    def read(self) -> Record: ...
    def write(self, before: Record, spec: Mapping[str, Any]) -> Record: ...


class ApiLease:
    """A Lease by its namespace and name. `ask` asks an API server, once (Session.asked of a session that does not wait). Raises ValueError
    for a name that no Lease may have."""

    def __init__(self, ask: Callable[[Callable[[Api], Object | None]], Object | None], namespace: str, name: str) -> None:
        for text in (namespace, name):
            if not _NAME.fullmatch(text):
                raise ValueError(f"{text!r} is no name of a Lease: lower-case letters, digits and hyphens, at most 63")
        self._ask, self._name = ask, name
        self._collection, self.path = namespaced(COLLECTION, namespace), object_path(COLLECTION, namespace, name)

    def read(self) -> Record:
        return Record.of(self._ask(lambda api: find_object(api, self.path, REQUEST_SECONDS)))

    def write(self, before: Record, spec: Mapping[str, Any]) -> Record:
        if before.version:
            # The version makes the patch one of exactly the Lease that was read (409 otherwise).
            patch = {"metadata": {"resourceVersion": before.version}, "spec": dict(spec)}
            return Record.of(self._ask(lambda api: api.patch(self.path, patch, REQUEST_SECONDS)))
        made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}, "spec": dict(spec)}
        return Record.of(self._ask(lambda api: api.create(self._collection, made, REQUEST_SECONDS)))
