"""The Kubernetes API through the SSH connection to a control-plane node, without a kubeconfig on the operator's disk."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

import gevent
import paramiko
import urllib3
import urllib3.connection

from roles.api import errors
from roles.api.credentials import Identity, MemoryFiles

# The name every kubeadm serving certificate carries, whichever address the API server is reached at.
SERVER_NAME = "kubernetes"
REQUEST_SECONDS = 15
RETRY_SECONDS = 1.0


class Api(Protocol):
    """What daytwo asks of a Kubernetes API."""

    def get(self, path: str, *, wait: float = 0) -> bytes:
        """GET a path; where nothing answers, try again for `wait` seconds. Raises a class of roles.api.errors."""

    def close(self) -> None:
        """Let go of connections and keys."""


def get_json(api: Api, path: str, *, wait: float = 0) -> Any:
    """GET a path and decode its JSON. Raises a class of roles.api.errors."""
    answer = api.get(path, wait=wait)
    try:
        return json.loads(answer)
    except ValueError as error:
        raise errors.ServerError(f"{path}: the answer is not JSON: {answer[:80]!r}") from error


class TunnelApi:
    """GET over TLS through a direct-tcpip channel of the node's SSH transport.

    `verify` False is for the controller-manager and the scheduler only: their serving certificates are self-signed and made
    anew at each start; the channel ends on the node's own loopback.
    """

    def __init__(
        self,
        node: str,
        transport: Callable[[], paramiko.Transport | None],
        address: tuple[str, int],
        identity: Identity,
        *,
        verify: bool = True,
    ) -> None:
        self._node = node
        self._port = address[1]
        self._files = MemoryFiles()
        # The name is never resolved: the pool's connections are channels to `address`.
        self._pool = _pool_class(node, transport, address)(
            "localhost",
            address[1],
            retries=False,
            timeout=REQUEST_SECONDS,
            cert_reqs="CERT_REQUIRED" if verify else "CERT_NONE",
            ca_certs=self._files.path(identity.ca) if verify else None,
            cert_file=self._files.path(identity.certificate) if identity.certificate else None,
            key_file=self._files.path(identity.key) if identity.key else None,
            server_hostname=SERVER_NAME,
            assert_hostname=SERVER_NAME if verify else False,
        )
        self._headers = {"Authorization": f"Bearer {identity.token}"} if identity.token else {}

    def get(self, path: str, *, wait: float = 0) -> bytes:
        end = time.monotonic() + wait
        while True:
            try:
                return self._get(path)
            except (errors.Unreachable, errors.ServerError):
                if time.monotonic() >= end:
                    raise
                time.sleep(RETRY_SECONDS)

    def _get(self, path: str) -> bytes:
        where = f"port {self._port} on {self._node}, {path}"
        try:
            response = self._pool.request("GET", path, headers=self._headers, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError, EOFError, paramiko.SSHException) as error:
            raise errors.Unreachable(f"{where}: {error}") from None
        if response.status == 200:
            return response.data
        kind = {401: errors.Unauthorized, 403: errors.Forbidden, 404: errors.NotFound}.get(response.status, errors.ServerError)
        raise kind(f"{where}: {response.status}: {response.data[:200].decode(errors='replace').strip()}")

    def close(self) -> None:
        self._pool.close()
        self._files.close()


def _pool_class(
    node: str, transport: Callable[[], paramiko.Transport | None], address: tuple[str, int]
) -> type[urllib3.HTTPSConnectionPool]:
    class TunnelConnection(urllib3.connection.HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _through(node, transport(), address)

    class TunnelPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = TunnelConnection

    return TunnelPool


def _through(node: str, transport: paramiko.Transport | None, address: tuple[str, int]) -> socket.socket:
    """One end of a socket pair whose other end is pumped to `address` as seen from the node. No local port is opened."""
    if transport is None or not transport.is_active():
        raise errors.Unreachable(f"{node}: there is no SSH connection to go through")
    try:
        channel = transport.open_channel("direct-tcpip", address, ("127.0.0.1", 0), timeout=REQUEST_SECONDS)
    except paramiko.ChannelException as error:
        # RFC 4254, 5.1: 1 is "administratively prohibited", 2 is "connect failed".
        if error.code == 1:
            raise errors.ForwardingRefused(f"{node}: sshd forbids forwarding ({error.text})") from None
        raise errors.Unreachable(f"{node}: nothing listens on {address[0]}:{address[1]}") from None
    except paramiko.SSHException as error:
        raise errors.Unreachable(f"{node}: {error}") from None
    near, far = socket.socketpair()
    gevent.spawn(_pump, channel.recv, far.sendall, channel, far)
    gevent.spawn(_pump, far.recv, channel.sendall, channel, far)
    return near


def _pump(
    read: Callable[[int], bytes], write: Callable[[bytes], Any], channel: paramiko.Channel, far: socket.socket
) -> None:
    # An error here means that the other direction has ended the connection; the reader of `near` sees its end.
    with contextlib.suppress(OSError, EOFError):
        while data := read(65536):
            write(data)
    channel.close()
    with contextlib.suppress(OSError):
        far.shutdown(socket.SHUT_RDWR)
    far.close()


class KubectlApi:
    """The same by `kubectl get --raw` on the node, for an sshd that forbids forwarding.

    `run` takes a command and gives (exit status, standard output, standard error).
    """

    def __init__(self, node: str, run: Callable[[str], tuple[int, str, str]], kubeconfig: str, server: str) -> None:
        self._node, self._run, self._kubeconfig, self._server = node, run, kubeconfig, server

    def get(self, path: str, *, wait: float = 0) -> bytes:
        command = (
            f"kubectl --kubeconfig {shlex.quote(self._kubeconfig)} --server {shlex.quote(self._server)} "
            f"--tls-server-name {SERVER_NAME} --request-timeout {REQUEST_SECONDS}s get --raw {shlex.quote(path)}"
        )
        end = time.monotonic() + wait
        while True:
            code, out, said = self._run(command)
            if code == 0:
                return out.encode("utf-8", "surrogateescape")
            where = f"{path} (kubectl on {self._node}): {said.strip()[-200:]}"
            for sign, kind in _KUBECTL_SIGNS:
                if sign in said:
                    raise kind(where)
            if time.monotonic() >= end:
                raise errors.Unreachable(where)
            time.sleep(RETRY_SECONDS)

    def close(self) -> None:
        """Nothing is held."""


_KUBECTL_SIGNS: tuple[tuple[str, type[errors.ApiError]], ...] = (
    ("Unauthorized", errors.Unauthorized),
    ("Forbidden", errors.Forbidden),
    ("forbidden", errors.Forbidden),
    ("NotFound", errors.NotFound),
    ("not found", errors.NotFound),
)
