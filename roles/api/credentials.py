"""The admin identity of a kubeconfig, held in memory only."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ruamel.yaml import YAML

from roles.api.errors import ApiError


@dataclass(frozen=True)
class Identity:
    """CA, client certificate and key in PEM (or a bearer token), as a kubeconfig gives them inline."""

    ca: bytes
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


def read_kubeconfig(data: bytes, where: str) -> Identity:
    """The identity of the current context. Raises ApiError where it is not given inline; `where` names the file."""
    content = YAML(typ="safe", pure=True).load(data.decode())
    try:
        context = _named(content["contexts"], content["current-context"])["context"]
        cluster = _named(content["clusters"], context["cluster"])["cluster"]
        user = _named(content["users"], context["user"])["user"]
        ca = base64.b64decode(cluster["certificate-authority-data"])
    except (KeyError, TypeError, StopIteration) as error:
        raise ApiError(f"{where}: not a kubeconfig with its certificates inline ({error!r})") from None
    if "token" in user:
        return Identity(ca, token=user["token"])
    try:
        certificate, key = (base64.b64decode(user[name]) for name in ("client-certificate-data", "client-key-data"))
    except KeyError as error:
        raise ApiError(f"{where}: user {context['user']} has neither a token nor {error} inline") from None
    return Identity(ca, certificate, key)


def _named(items: Any, name: str) -> Any:
    return next(item for item in items if item["name"] == name)


class MemoryFiles:
    """Files that exist in memory only (memfd_create(2)): the TLS library wants paths, the disk must not see the key."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def path(self, content: bytes) -> str:
        descriptor = os.memfd_create("daytwo", os.MFD_CLOEXEC)
        self._descriptors.append(descriptor)
        os.write(descriptor, content)
        return f"/proc/self/fd/{descriptor}"

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> MemoryFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
