"""The real scheduler, asked about one generated cluster after the other in one shadow: each is written, asked about, and deleted."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roles.engine.kube import Object, full_name, is_ending
from roles.engine.kube.fields import name_of, spec_of, status_of
from roles.engine.kube.pods import node_of
from roles.engine.shadow.control_plane import mark
from roles.engine.shadow.filling import as_new, contents, cordoned, key_of, unjudged
from roles.engine.shadow.question import refused
from tests.integration.shadow import with_etcd

SECONDS, _PAUSE = 20.0, 0.003
_NOW = "2026-01-01T00:00:00Z"
SCHEDULER = "default-scheduler"


@contextlib.contextmanager
def scheduler(folder: Path, binaries: Path) -> Iterator[Scheduler]:
    """Of these binaries, in `folder`, without any object."""
    with with_etcd(folder, binaries) as (port, context):
        yield Scheduler(_Etcd(port, context))


class _Etcd:
    """As the Store of a shadow, over one connection of its own: a handshake for each request takes longer than what is asked here."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=SECONDS)

    def write(self, changes: Mapping[str, Any]) -> None:
        """Each has a revision of its own, for those who watch."""
        for key, item in changes.items():
            put = {"key": _encoded(key), "value": _encoded(json.dumps(item))}
            self._ask([{"requestDeleteRange": {"key": _encoded(key)}} if item is None else {"requestPut": put}])

    def read(self, keys: Iterable[str]) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(keys)
        for response in self._ask([{"requestRange": {"key": _encoded(key)}} for key in found]) if found else ():
            for one in response["response_range"].get("kvs") or ():
                found[base64.b64decode(one["key"]).decode()] = json.loads(base64.b64decode(one["value"]))
        return found

    def _ask(self, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self._connection.request("POST", "/v3/kv/txn", json.dumps({"success": operations}))
        answer = self._connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == http.HTTPStatus.OK, body
        return list(body.get("responses") or ())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Scheduler:
    def __init__(self, store: _Etcd) -> None:
        self._store = store
        self._marks = 0

    @contextlib.contextmanager
    def cluster(self, objects: Mapping[str, Sequence[Object]], without: Collection[str]) -> Iterator[Loaded]:
        """A copy of these, with the nodes `without` cordoned. Pods that wait are written last: the scheduler knows everything else then."""
        there = contents(objects)
        for key, item in there.items():
            if item["kind"] == "Node" and name_of(item) in without:
                there[key] = cordoned(item)
        waiting = {key: item for key, item in there.items() if item["kind"] == "Pod" and not node_of(item)}
        loaded = Loaded(self._store, there)
        try:
            self._seen(loaded, {key: item for key, item in there.items() if key not in waiting})
            loaded.write(waiting)
            yield loaded
        finally:
            gone = sorted(loaded.keys, key=lambda key: not key.startswith("/registry/pods/"))
            self._store.write(dict.fromkeys(gone))

    def _seen(self, loaded: Loaded, items: Mapping[str, Any]) -> None:
        """Write these; the scheduler has seen them when this returns."""
        self._marks += 1
        name = f"daytwo-mark-{self._marks}"
        node, partner, pod = mark(name, SCHEDULER)
        keys = [key_of("Node", node), key_of("Pod", partner), key_of("Pod", pod)]
        loaded.write({**items, **dict(zip(keys, (node, partner, pod), strict=True))})
        wait_until(lambda: bool(node_of(self._store.read(keys)[keys[2]] or {})), f"the scheduler to know {name}")
        loaded.write(dict.fromkeys(reversed(keys)))


class Loaded:
    """A cluster that the scheduler knows."""

    def __init__(self, store: _Etcd, there: Mapping[str, Any]) -> None:
        self._store, self._there = store, there
        self._ending = {key for key, item in there.items() if is_ending(item)}
        self.keys: dict[str, None] = {}
        #: Pods that the scheduler made room for by preempting others.
        self.preempting: list[str] = []

    def write(self, changes: Mapping[str, Any]) -> None:
        self.keys.update(dict.fromkeys(changes))
        self._store.write(changes)

    def move(self, pod: Object, pin: Mapping[str, str] | None = None) -> str:
        """The pod leaves its node, and is created again; the node that it gets, "" if the scheduler refuses it, or is not asked. `pin`: an
        amount that it requests besides."""
        key = key_of("Pod", pod)
        made = as_new(pod, name_of(pod), f"{name_of(pod)}-{len(self.keys)}", _NOW)
        made["spec"]["preemptionPolicy"] = spec_of(pod).get("preemptionPolicy", "PreemptLowerPriority")
        if pin:
            made["spec"]["preemptionPolicy"] = "Never"
            made["spec"]["containers"].append({"name": "pin", "resources": {"requests": dict(pin)}})
        self.write({key: None})
        self.write({key: made})
        if unjudged(pod, (SCHEDULER,), {}).startswith(("its scheduler", "it has scheduling gates")):
            return ""
        found: Object | None = None

        def judged() -> bool:
            nonlocal found
            found = self._store.read([key])[key]
            return found is None or bool(node_of(found)) or refused(found) is not None

        wait_until(judged, f"the scheduler to judge {name_of(pod)}")
        if status_of(found or {}).get("nominatedNodeName"):
            self.preempting.append(full_name(pod))
            self._end_preempted(key)
        return node_of(found or {})

    def _end_preempted(self, by: str) -> None:
        """As kubelets do; then the pod for which they go gets its node, or preempts others."""
        pods = [key for key in self.keys if key.startswith("/registry/pods/")]

        def placed() -> bool:
            found = self._store.read(pods)
            ended = [key for key, one in found.items() if one is not None and is_ending(one) and key not in self._ending]
            self.write(dict.fromkeys(ended))
            return found[by] is None or bool(node_of(found[by] or {}))

        with contextlib.suppress(TimeoutError):
            wait_until(placed, "a pod that preempts others", 3)

    def now(self, pods: Collection[Object]) -> list[Object | None]:
        """The pods as they are."""
        keys = [key_of("Pod", pod) for pod in pods]
        found = self._store.read(keys)
        return [found[key] for key in keys]

    def restore(self, pods: Collection[Object]) -> None:
        """These pods are on their nodes again, as they were."""
        keys = [key_of("Pod", pod) for pod in pods]
        self.write(dict.fromkeys(keys))
        self.write({key: self._there[key] for key in keys})


def wait_until(true: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(_PAUSE)
