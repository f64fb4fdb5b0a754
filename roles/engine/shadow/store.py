"""The etcd of a shadow control plane, through the SSH connection: its gateway speaks JSON (etcd 3.4 and later: api/etcdserverpb/rpc.proto).

Objects are written here and not through the API: 10,000 pods take 2 s, and keep what the API server would replace.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from roles.engine.api.kubeconfig import tls_context
from roles.engine.bounds import read_json
from roles.engine.bridge.channels import Transport
from roles.engine.harmless import one_line
from roles.engine.shadow.credentials import SERVER_NAME, ShadowCredentials
from roles.engine.shadow.programs import MOST_BYTES, MOST_OPERATIONS, Ports
from roles.engine.timeouts import patient
from roles.engine.tunnels import Peer, Tunnel

#: Seconds for one request: a full one takes 0.2 s.
SECONDS = 30.0
_TXN = "/v3/kv/txn"
# Requests at once on one connection; each answer has about 300 bytes.
_IN_A_ROW = 64


class ShadowError(Exception):
    """The shadow control plane does not run, or does not answer: nothing is known of a placement. Names the host."""


class Store:
    """What the shadow holds, by key. Every method may raise ShadowError and an ApiError."""

    def __init__(self, transport: Transport, host: str, ports: Ports, own: ShadowCredentials) -> None:
        self._host = host
        context = tls_context(own.as_client)

        def tunnel(port: int, name: str) -> Tunnel:
            way_out = "another program answers on its port: run this again"
            peer = Peer(f"shadow's {name}", "the shadow's own authority", way_out, "OpenSSH's forwarding")
            return Tunnel(transport, ("127.0.0.1", port), host, context=context, name=SERVER_NAME, peer=peer)

        self._etcd = tunnel(ports.etcd, "etcd")
        self._api = tunnel(ports.api, "kube-apiserver")
        self._scheduler = tunnel(ports.scheduler, "kube-scheduler")

    def fill(self, contents: Mapping[str, Mapping[str, Any]]) -> None:
        """Write many objects at once, as long as nobody watches."""
        for operations in _chunks({"requestPut": _put(key, item)} for key, item in contents.items()):
            self._txn(operations)

    def write(self, changes: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write each object, or delete it if it is None, in their order. Each has a revision of its own: who watches continues after a
        revision, and would miss the rest of one."""
        pairs = [*changes.items()]
        for first in range(0, len(pairs), _IN_A_ROW):
            operations = ([_operation(key, item)] for key, item in pairs[first : first + _IN_A_ROW])
            bodies = [json.dumps({"success": one}).encode() for one in operations]
            for status, body in self._etcd.in_a_row(_TXN, bodies, patient(SECONDS)):
                self._check(status, body)

    def read(self, keys: Collection[str]) -> dict[str, dict[str, Any] | None]:
        """The objects with these keys, None for one that is not there."""
        found: dict[str, dict[str, Any] | None] = dict.fromkeys(keys)
        for operations in _chunks({"requestRange": {"key": _encoded(key.encode())}} for key in keys):
            for response in self._txn(operations).get("responses") or ():
                for one in response["response_range"].get("kvs") or ():
                    found[base64.b64decode(one["key"]).decode()] = read_json(base64.b64decode(one["value"]))
        return found

    def healthy(self) -> bool:
        return self._etcd.request("/health", patient(SECONDS))[0] == HTTPStatus.OK

    def ready(self) -> bool:
        """The API server serves."""
        return self._api.read("/readyz", patient(SECONDS))[0] == HTTPStatus.OK

    def metrics(self) -> str:
        """Of the scheduler; "" if it does not give them."""
        status, body = self._scheduler.read("/metrics", patient(SECONDS))
        return body.decode("utf-8", "replace") if status == HTTPStatus.OK else ""

    def _txn(self, operations: list[dict[str, Any]]) -> dict[str, Any]:
        status, body = self._etcd.request(_TXN, patient(SECONDS), json.dumps({"success": operations}).encode())
        self._check(status, body)
        found = read_json(body)
        assert isinstance(found, dict)
        return found

    def _check(self, status: int, body: bytes) -> None:
        if status != HTTPStatus.OK:
            said = one_line(body[:200].decode("utf-8", "replace"))
            raise ShadowError(f"{self._host}: etcd of the shadow control plane says HTTP {status}: {said}")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _put(key: str, item: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": _encoded(key.encode()), "value": _encoded(json.dumps(item).encode())}


def _operation(key: str, item: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"requestDeleteRange": {"key": _encoded(key.encode())}} if item is None else {"requestPut": _put(key, item)}


def _chunks(operations: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk, size = [], 0
    for one in operations:
        chunk.append(one)
        size += len(one.get("requestPut", {}).get("value", "")) + 200
        if len(chunk) >= MOST_OPERATIONS // 2 or size >= MOST_BYTES // 2:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
