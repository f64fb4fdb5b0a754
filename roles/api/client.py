"""The Kubernetes API of one control-plane node, reached through the SSH connection there is already.

Two ways with one narrow face (`Api`): HTTPS over a direct-tcpip channel of the SSH transport, or, where the node's sshd
forbids forwarding, kubectl on the node: `kubectl get --raw` to read, and `kubectl proxy` on a socket with curl to write.
No listener, no kubeconfig and no key on the operator's disk.
Every request is a connection of its own: an answer over a kept one could come from an API server that is already ending,
and would prove nothing about the new one.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import json
import shlex
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

import paramiko

from roles.api import errors
from roles.api.kubeconfig import Credentials, parse_kubeconfig, tls_context
from roles.patience import patient

#: Runs one command line in the node's shell, as root: (exit status was 0, stdout, stderr).
Run = Callable[[str], tuple[bool, str, str]]

#: In every kubeadm serving certificate, whatever the node's names and addresses (kubeadm: pkiutil.GetAPIServerAltNames).
TLS_SERVER_NAME = "kubernetes"
ADMIN_CONF = "/etc/kubernetes/admin.conf"

TIMEOUT = 15.0
#: Pause between two tries while waiting for an API that is away.
PAUSE = 0.5
#: An API server that just came back answers 403 until it has read its RBAC rules.
SETTLE = 10.0

#: What the API server notes as the owner of the fields that daytwo sets (metadata.managedFields).
FIELD_MANAGER = "daytwo"

_CHUNK = 65536
#: RFC 4254, section 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED. sshd decides it before it tries the port.
_PROHIBITED = 1


class Api(Protocol):
    """One node's API. `path` is absolute, with its query; all times are seconds on the monotonic clock.

    `timeout` bounds one try as a whole. With `wait`, errors that pass by themselves (nothing listens, no answer in time,
    HTTP 5xx) are tried again for that long altogether; the last of them is raised then.
    """

    @property
    def host(self) -> str:
        """The node whose API this is."""

    def get_raw(self, path: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> bytes:
        """The body of a GET. Raises an ApiError."""

    def get_json(self, path: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> dict[str, Any]:
        """The body of a GET, a JSON object. Raises an ApiError."""

    def apply(
        self,
        path: str,
        manifest: Mapping[str, Any],
        timeout: float = TIMEOUT,
        *,
        force: bool = False,
        dry_run: bool = False,
        wait: float = 0.0,
    ) -> dict[str, Any]:
        """Server-side apply as FIELD_MANAGER; the object as it is then (as it would be, with `dry_run`).

        `path` is the object's own; a metadata.uid or metadata.resourceVersion in the manifest is a precondition. Unknown fields
        are refused. With `force`, fields of other managers are taken over; else Conflict names them. Raises an ApiError.
        """

    def patch(
        self, path: str, changes: Mapping[str, Any], timeout: float = TIMEOUT, *, dry_run: bool = False, wait: float = 0.0
    ) -> dict[str, Any]:
        """Strategic merge patch of an object, or of a subresource of it, as FIELD_MANAGER; the object as it is then (as it would be, with
        `dry_run`).

        A metadata.uid or metadata.resourceVersion in `changes` is a precondition: Conflict where it is another one by now. Unknown
        fields are refused. Raises an ApiError.
        """

    def delete(self, path: str, uid: str, timeout: float = TIMEOUT, *, version: str = "", dry_run: bool = False) -> None:
        """Delete the very object with this UID (and resourceVersion `version`, where given): Conflict where it is another one
        by now. Raises an ApiError."""


class _Base:
    """What both ways share: checking the path, waiting, JSON."""

    def __init__(self, host: str) -> None:
        self._host = host

    @property
    def host(self) -> str:
        return self._host

    def get_raw(self, path: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> bytes:
        return self._tried("GET", path, lambda limit: self._get(path, limit), timeout, wait)

    def apply(
        self,
        path: str,
        manifest: Mapping[str, Any],
        timeout: float = TIMEOUT,
        *,
        force: bool = False,
        dry_run: bool = False,
        wait: float = 0.0,
    ) -> dict[str, Any]:
        # JSON is YAML, and the one media type of server-side apply that all versions take is YAML's.
        return self._patched(path, "application/apply-patch+yaml", manifest, {"force": str(force).lower()}, timeout, dry_run, wait)

    def patch(
        self, path: str, changes: Mapping[str, Any], timeout: float = TIMEOUT, *, dry_run: bool = False, wait: float = 0.0
    ) -> dict[str, Any]:
        return self._patched(path, "application/strategic-merge-patch+json", changes, {}, timeout, dry_run, wait)

    def _patched(
        self, path: str, content: str, changes: Mapping[str, Any], more: Mapping[str, str], timeout: float, dry_run: bool, wait: float
    ) -> dict[str, Any]:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", **more, **({"dryRun": "All"} if dry_run else {})}
        body = json.dumps(changes).encode()
        whole = f"{path}?{urlencode(query)}"

        def send(limit: float) -> bytes:
            return self._send("PATCH", whole, content, body, limit)

        # The same twice comes to the same, so it can be tried again.
        return self._object("PATCH", whole, self._tried("PATCH", whole, send, timeout, wait))

    def delete(self, path: str, uid: str, timeout: float = TIMEOUT, *, version: str = "", dry_run: bool = False) -> None:
        preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        if dry_run:
            options["dryRun"] = ["All"]
        body = json.dumps(options).encode()
        self._tried("DELETE", path, lambda limit: self._send("DELETE", path, "application/json", body, limit), timeout, 0.0)

    def _tried(self, verb: str, path: str, send: Callable[[float], bytes], timeout: float, wait: float) -> bytes:
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise ValueError(f"not an absolute, percent-encoded path: {path!r}")
        timeout, wait = patient(timeout), patient(wait)
        begun = time.monotonic()
        until = begun + wait
        settled: float | None = None
        while True:
            now = time.monotonic()
            # While waiting, no try may outlast the deadline; but a try always gets a moment.
            limit = min(timeout, max(until - now, PAUSE)) if wait else timeout
            try:
                return send(limit)
            except errors.ApiError as error:
                if verb != "GET":
                    error.verb, error.path = verb, path.partition("?")[0]
                now = time.monotonic()
                if error.passing:
                    settled = now + patient(SETTLE)
                elif not isinstance(error, errors.Forbidden) or settled is None or now > settled:
                    raise
                if now + PAUSE > until:
                    if wait:
                        error.rule = f"{error.rule}, tried for {now - begun:.0f} s"
                    raise
            time.sleep(PAUSE)

    def get_json(self, path: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> dict[str, Any]:
        return self._object("GET", path, self.get_raw(path, timeout, wait=wait))

    def _object(self, verb: str, path: str, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError as error:
            raise errors.Unusable(self._host, path, f"the answer is no JSON ({error})", "is this the address of a Kubernetes API?").on(
                verb
            ) from None
        if not isinstance(found, dict):
            raise errors.Unusable(self._host, path, "the answer is JSON, but no object", "ask for an object's path").on(verb)
        return found

    def _get(self, path: str, timeout: float) -> bytes:
        raise NotImplementedError

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        raise NotImplementedError


@dataclass(frozen=True)
class Peer:
    """What a tunnel ends at, in the words of its error messages. `instead` is what would do where forwarding is forbidden."""

    name: str
    authority: str
    tls_way_out: str
    instead: str


_APISERVER = Peer(
    "kube-apiserver",
    "the kubeconfig's CA",
    "use this cluster's kubeconfig",
    "kubectl",
)


class Tunnel:
    """HTTP requests to `server` through direct-tcpip channels of an SSH transport: over TLS, or plain without a `context`.

    `host` is the node at the transport's other end, `name` what the server's certificate must be valid for. A `token` is sent only
    where `context` verifies the server's certificate and name.
    """

    def __init__(
        self,
        transport: paramiko.Transport,
        server: tuple[str, int],
        host: str,
        *,
        context: ssl.SSLContext | None,
        name: str,
        token: str | None = None,
        peer: Peer = _APISERVER,
    ) -> None:
        self._transport = transport
        self._server = server
        self._host = host
        self._context = context
        self._name = name
        # A token is a password: whoever gets it is the cluster's admin. It goes to nobody whose certificate was not verified.
        self._token = token if _verifies(context) else None
        self._peer = peer

    @property
    def _where(self) -> str:
        return f"{'https' if self._context else 'http'}://{self._server[0]}:{self._server[1]} as seen from {self._host}"

    def probe(self, timeout: float = TIMEOUT) -> None:
        """Raises ForwardingForbidden where sshd does not forward, ConnectionLost without SSH; a dead server is no matter."""
        deadline = time.monotonic() + patient(timeout)
        with contextlib.suppress(errors.Unreachable, errors.Timeout):
            self._open("/", deadline).close()

    def request(
        self, path: str, timeout: float = TIMEOUT, body: bytes | None = None, *, verb: str = "", content: str = "application/json"
    ) -> tuple[int, bytes]:
        """HTTP status and body of a GET, or of a POST (or another `verb`) where a `body` of the media type `content` is given.

        Raises Unreachable, Timeout, TLS, ConnectionLost, ForwardingForbidden.
        """
        deadline = time.monotonic() + timeout
        channel = self._open(path, deadline)
        try:
            stream = _TlsStream(channel, self._context, self._name, deadline) if self._context else _Stream(channel, deadline)
            try:
                stream.handshake()
                return self._exchange(stream, verb or ("GET" if body is None else "POST"), path, body, content)
            finally:
                channel.close()
        except ssl.SSLCertVerificationError as error:
            raise errors.TLS(
                self._host,
                path,
                f"the certificate at {self._where} is not valid for {self._name!r} by {self._peer.authority} ({error.verify_message})",
                _tls_way_out(error.verify_message) or self._peer.tls_way_out,
            ) from error
        except TimeoutError as error:
            raise self._timeout(path, "for an answer") from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise self._closed(path, error) from error
        except ssl.SSLError as error:
            raise errors.TLS(
                self._host,
                path,
                f"no TLS with {self._where} ({error.reason or error})",
                f"is {self._peer.name} there, and does it take this certificate?",
            ) from error
        except (http.client.HTTPException, EOFError, OSError, paramiko.SSHException) as error:
            if not self._transport.is_active():
                raise self._lost(path, error) from error
            raise self._closed(path, error) from error

    def _open(self, path: str, deadline: float) -> paramiko.Channel:
        try:
            return self._transport.open_channel(
                "direct-tcpip", self._server, ("127.0.0.1", 0), timeout=max(deadline - time.monotonic(), 0.1)
            )
        except paramiko.ChannelException as error:
            if error.code == _PROHIBITED:
                raise errors.ForwardingForbidden(
                    self._host,
                    path,
                    f"its sshd forbids forwarding to {self._server[0]}:{self._server[1]}",
                    f"allow it for this user (AllowTcpForwarding local, PermitOpen), or have {self._peer.instead} on the node",
                ) from error
            raise errors.Unreachable(
                self._host,
                path,
                f"nothing accepts connections at {self._where} ({error.text or error.code})",
                f"look at the {self._peer.name} there: `crictl ps -a`, `journalctl -u kubelet`",
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            if not self._transport.is_active():
                raise self._lost(path, error) from error
            if "timeout" in str(error).lower():
                raise self._timeout(path, "to connect") from error
            raise errors.Unreachable(self._host, path, f"no channel to {self._where} ({error})", "try again") from error

    def _lost(self, path: str, error: object) -> errors.ConnectionLost:
        return errors.ConnectionLost(self._host, path, f"the SSH connection is gone ({error or 'closed'})", "connect to the node again")

    def _timeout(self, path: str, what: str) -> errors.Timeout:
        return errors.Timeout(
            self._host, path, f"out of time {what} at {self._where}", f"look at the node's load and its {self._peer.name}"
        )

    def _closed(self, path: str, error: Exception) -> errors.Unreachable:
        return errors.Unreachable(
            self._host,
            path,
            f"{self._where} closed the connection in mid-answer ({error or type(error).__name__})",
            "it is starting or stopping: try again",
        )

    def _exchange(self, stream: _Stream, verb: str, path: str, body: bytes | None, content: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._server[0], self._server[1])
        connection.sock = stream  # http.client asks no more of it than what it has
        headers = {"Accept": "application/json, */*", "Accept-Encoding": "identity", "User-Agent": "daytwo"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = content
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()


class TunnelApi(_Base):
    """HTTPS through direct-tcpip channels of an SSH transport.

    Without `verify` for the controller-manager and the scheduler only: their serving certificates are self-signed and made anew
    at each start, and the channel ends on the node's own loopback. Such a peer sees a client certificate, which is no use to it (the
    key signs this one handshake), and never a token: without a client certificate it is not asked at all (Untold).
    """

    def __init__(
        self,
        transport: paramiko.Transport,
        credentials: Credentials,
        server: tuple[str, int],
        host: str,
        tls_server_name: str = TLS_SERVER_NAME,
        verify: bool = True,
    ) -> None:
        super().__init__(host)
        context = tls_context(credentials, verify)
        self._nobody = not verify and credentials.certificate is None
        self._tunnel = Tunnel(transport, server, host, context=context, name=tls_server_name, token=credentials.token)

    def probe(self, timeout: float = TIMEOUT) -> None:
        """Raises ForwardingForbidden where sshd does not forward, ConnectionLost without SSH; a dead API is no matter."""
        self._tunnel.probe(timeout)

    def _get(self, path: str, timeout: float) -> bytes:
        self._who(path)
        status, body = self._tunnel.request(path, timeout)
        if status == http.HTTPStatus.OK:
            return body
        raise _by_status(self._host, path, status, body)

    def _who(self, path: str) -> None:
        if self._nobody:
            raise errors.Untold(
                self._host,
                path,
                "the certificate there is self-signed and cannot be verified, and all that the kubeconfig has is a bearer "
                "token, which is not sent to such a peer",
                "have a kubeconfig with a client certificate there, such as kubeadm's admin.conf",
            )

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        self._who(path)
        status, answer = self._tunnel.request(path, timeout, body, verb=verb, content=content)
        if status in _DONE:
            return answer
        raise _by_status(self._host, path, status, answer).on(verb)


def _verifies(context: ssl.SSLContext | None) -> bool:
    return context is not None and context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname


class _Stream(io.RawIOBase):
    """A channel as http.client uses a socket. Times out at `deadline`.

    Uses nothing but the channel's own recv and send, so it yields where those do: to threads, or to gevent's hub.
    """

    def __init__(self, channel: paramiko.Channel, deadline: float) -> None:
        super().__init__()
        self._channel = channel
        self._deadline = deadline

    def handshake(self) -> None:
        """Nothing to agree on."""

    def sendall(self, data: bytes) -> None:
        self._arm()
        self._channel.sendall(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, _CHUNK)

    def close(self) -> None:
        """Nothing: http.client closes early and reads on. The channel is closed by who opened it."""

    def _read(self, most: int) -> bytes:
        self._arm()
        return self._channel.recv(most)

    def _arm(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._channel.settimeout(left)


class _TlsStream(_Stream):
    """TLS in memory over a channel: a channel has no file descriptor that ssl could wrap."""

    def __init__(self, channel: paramiko.Channel, context: ssl.SSLContext, name: str, deadline: float) -> None:
        super().__init__(channel, deadline)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def handshake(self) -> None:
        self._pump(self._tls.do_handshake)

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._pump(functools.partial(self._tls.write, view)) :]

    def _read(self, most: int) -> bytes:
        try:
            data: bytes = self._pump(lambda: self._tls.read(most))
        except ssl.SSLZeroReturnError:
            return b""
        return data

    def _pump(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._flush()
                self._arm()
                data = self._channel.recv(_CHUNK)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
                continue
            self._flush()
            return result

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._arm()
            self._channel.sendall(data)


class KubectlApi(_Base):
    """`kubectl get --raw` on the node, for where forwarding is forbidden. Credentials stay in the node's own file."""

    def __init__(
        self,
        run: Run,
        server: tuple[str, int],
        host: str,
        kubeconfig_path: str = ADMIN_CONF,
        tls_server_name: str = TLS_SERVER_NAME,
    ) -> None:
        super().__init__(host)
        self._run = run
        self._server = server
        self._path = kubeconfig_path
        self._name = tls_server_name

    def _get(self, path: str, timeout: float) -> bytes:
        url = self._url
        arguments = [
            "kubectl",
            f"--kubeconfig={self._path}",
            f"--server={url}",
            f"--tls-server-name={self._name}",
            # Whole milliseconds: Go's durations know no exponents.
            f"--request-timeout={max(int(timeout * 1000), 1)}ms",
            "get",
            f"--raw={path}",
        ]
        # kubectl asks for a user name where a kubeconfig has none: from nobody.
        ok, out, err = self._run(shlex.join(arguments) + " </dev/null")
        if ok:
            return out.encode("utf-8", "surrogateescape")
        raise self._failed(path, url, " ".join(err.split()) or "kubectl failed without a word")

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        # `kubectl apply` is no way: it hands the fields of client-side apply over to its own field manager, and then drops those
        # that our manifest does not have (kubectl/pkg/cmd/apply: migrateToSSAIfNecessary). Nor can kubectl send a raw PATCH.
        url = self._url
        proxy = shlex.join(
            [
                "kubectl",
                f"--kubeconfig={self._path}",
                f"--server={url}",
                f"--tls-server-name={self._name}",
                "proxy",
            ]
        )
        curl = shlex.join(
            ["curl", "-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", str(max(int(timeout), 1))]
            + ["--write-out", "\\n%{http_code}", "--request", verb, "--header", f"Content-Type: {content}"]
            + ["--header", "Accept: application/json", "--data-binary", "@-", f"http://localhost{path}"]
        )
        script = _BY_PROXY.format(proxy=proxy, curl=curl, body=base64.b64encode(body).decode())
        ok, out, err = self._run(script)
        answer, _, status = out.rstrip("\n").rpartition("\n")
        said = " ".join(err.split())
        if not ok or not status.isdigit():
            raise self._failed(path, url, said or "kubectl proxy failed without a word").on(verb)
        data = answer.encode("utf-8", "surrogateescape")
        if int(status) in _DONE:
            return data
        if int(status) in (500, 502) and not answer.lstrip().startswith("{"):
            # The proxy's own words: it did not reach the API server, or does not believe it.
            raise self._failed(path, url, " ".join(answer.split())).on(verb)
        raise _by_status(self._host, path, int(status), data).on(verb)

    @property
    def _url(self) -> str:
        address, port = self._server
        return f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"

    def _failed(self, path: str, url: str, text: str) -> errors.ApiError:
        host = self._host
        lower = text.lower()
        for reason, status in _REASONS.items():
            if f"error from server ({reason})".lower() in lower:
                return _by_status(host, path, status, text.encode())
        if "error from server (" in lower or lower.startswith("error from server:"):
            # Kubernetes' other reasons (ServiceUnavailable, InternalError, Timeout...), and a server that only just starts.
            return errors.Unreachable(host, path, f"kubectl on the node says: {text}", "look at the kube-apiserver there")
        if "must be logged in" in lower or "please enter username" in lower or "unauthorized" in lower:
            return _by_status(host, path, 401, text.encode())
        if "x509:" in lower or "tls:" in lower or "http response to https client" in lower:
            return errors.TLS(
                host,
                path,
                f"{url} is not valid for {self._name!r} by the CA in {self._path} ({text})",
                _tls_way_out(lower) or _APISERVER.tls_way_out,
            )
        if "timeout" in lower or "timed out" in lower or "deadline exceeded" in lower:
            return errors.Timeout(host, path, f"out of time for an answer at {url} ({text})", "look at the kube-apiserver there")
        if any(word in lower for word in ("refused", "unable to connect", "connection reset", "eof", "no route")):
            return errors.Unreachable(
                host,
                path,
                f"nothing answers at {url} as seen from {host} ({text})",
                "look at the kube-apiserver there: `crictl ps -a`, `journalctl -u kubelet`",
            )
        if "not found" in lower:
            tool = "curl" if "curl" in lower else "kubectl"
            return errors.ForwardingForbidden(
                host, path, f"forwarding is forbidden, and there is no {tool} ({text})", "allow one of the two"
            )
        return errors.Unusable(host, path, f"kubectl failed ({text})", f"run it by hand there, with --kubeconfig={self._path}")


#: kubectl proxy on a socket that only root reaches, curl through it, and nothing left of either. One request each time: what the
#: proxy could keep is a connection to an API server that ends.
_BY_PROXY = """\
command -v kubectl >/dev/null || {{ echo "sh: kubectl: not found" >&2; exit 127; }}
command -v curl >/dev/null || {{ echo "sh: curl: not found" >&2; exit 127; }}
d=$(mktemp -d) || exit 1
trap 'kill "$p" 2>/dev/null; rm -rf "$d"' EXIT
trap 'exit 1' HUP INT TERM
{proxy} --unix-socket="$d/api" >"$d/log" 2>&1 </dev/null &
p=$!
i=0
while [ ! -S "$d/api" ] && kill -0 "$p" 2>/dev/null && [ "$i" -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
[ -S "$d/api" ] || {{ tail -n 3 "$d/log" >&2; exit 1; }}
printf %s {body} | base64 -d | {curl} --unix-socket "$d/api"
"""
#: An apply with a field that the kind does not have is a 500 (apimachinery/pkg/util/managedfields/internal/structuredmerge.go).
_UNTYPED = "failed to create typed patch object"
#: HTTP statuses of a write that was done, or of a deletion that was taken on.
_DONE = frozenset({200, 201, 202})
#: Reasons as kubectl prints them (apimachinery meta/v1/types.go: StatusReason) where they mean more than "not now".
_REASONS = {"Unauthorized": 401, "Forbidden": 403, "NotFound": 404, "BadRequest": 400, "MethodNotAllowed": 405, "Expired": 410}
_NOBODY = "system:anonymous"
_BUSY = frozenset({429, 500, 502, 503, 504})


def _by_status(host: str, path: str, status: int, body: bytes) -> errors.ApiError:
    said = _said(body)
    if status == 401:
        return errors.Unauthorized(
            host, path, f"401 Unauthorized: the API does not accept these credentials ({said})",
            "the certificate may have expired: `kubeadm certs check-expiration`",
        )  # fmt: skip
    if status == 403:
        return _forbidden(host, path, said)
    if status == 404:
        return errors.NotFound(host, path, f"404 Not Found ({said})", "check the name; this version may not have the path")
    if status == 409:
        return _conflict(host, path, said, body)
    if status == 410:
        return errors.Gone(host, path, f"410 Gone ({said})", "ask from the beginning")
    if status in (400, 422) or (status == 500 and said.startswith(_UNTYPED)):
        return errors.Invalid(host, path, f"HTTP {status}: the API refuses the object ({said})", "mend what it names")
    if status in _BUSY:
        return errors.Unreachable(host, path, f"HTTP {status}: the API, or the node behind it, is not ready ({said})", "try again")
    return errors.Unusable(host, path, f"HTTP {status} ({said})", "is this the address of a Kubernetes API?")


def _forbidden(host: str, path: str, said: str) -> errors.Forbidden:
    refusal = errors.rbac_refusal(said)
    if refusal is not None and refusal.identity == _NOBODY:
        # A controller-manager or scheduler that started while the API was away: it reads the clients' CA from there as soon as it can
        # (apiserver/pkg/server/dynamiccertificates/configmap_cafile_content.go), which took 80 s.
        error = errors.Forbidden(
            host, path, f"403 Forbidden: it takes these credentials for nobody's ({said})",
            "a component that started while the API was away knows no credentials until it has read the cluster's CA: try again in two "
            "minutes; of an API server, look at the kubeconfig's user",
        )  # fmt: skip
        error.passing = True
        return error
    if refusal is not None:
        error = errors.Forbidden(
            host, path,
            f"403 Forbidden: RBAC: {refusal.identity!r} may not {refusal.verb} {refusal.resource} {refusal.scope} ({said})",
            f"grant {refusal.identity!r} the verb {refusal.verb} on {refusal.resource} by a (Cluster)Role, "
            "or use the credentials of a cluster admin (admin.conf, or super-admin.conf from 1.29)",
        )  # fmt: skip
        error.refusal = refusal
        return error
    return errors.Forbidden(
        host, path, f"403 Forbidden: these credentials may not do it, or an admission plugin is against it ({said})",
        "use those of a cluster admin (admin.conf, or super-admin.conf from 1.29)",
    )  # fmt: skip


def _conflict(host: str, path: str, said: str, body: bytes) -> errors.Conflict:
    owners = errors.owners(body)
    if owners:
        told = ", ".join(f"{owner.field} is owned by the field manager {owner.manager!r}" for owner in owners)
        error = errors.Conflict(
            host, path, f"409 Conflict: {told}",
            "let that manager set it, or take it over by --data force=true (it may set it back)",
        )  # fmt: skip
        error.owners = owners
        return error
    return errors.Conflict(
        host, path, f"409 Conflict: the object was changed or replaced since it was looked at ({said})", "run it again, from a new look"
    )


def _tls_way_out(text: str) -> str | None:
    """What to do about a certificate that is refused, by the words of OpenSSL or of Go's crypto/x509; None for other reasons."""
    lower = text.lower()
    if "expired" in lower or "not yet valid" in lower:
        return "look at the clocks; then renew it there (`kubeadm certs renew apiserver`, or what made it) and restart the kube-apiserver"
    if "unknown authority" in lower or "issuer certificate" in lower or "self-signed" in lower or "self signed" in lower:
        return "another CA signed it: use this cluster's kubeconfig, whose certificate-authority-data is the CA that signs its API server"
    if "hostname mismatch" in lower or "certificate is valid for" in lower or "ip address mismatch" in lower:
        return (
            f"daytwo asks for the name {TLS_SERVER_NAME!r}, which every certificate of kubeadm's has: have the kube-apiserver's serving "
            "certificate made with it (kubeadm: delete apiserver.crt and apiserver.key, `kubeadm init phase certs apiserver`, restart it)"
        )
    return None


def _said(body: bytes) -> str:
    """The server's own words on one line: the message of a Status object, the checks of /readyz that failed, else the text; cut
    at 300 characters."""
    text = body[:65536].decode("utf-8", "replace")
    text = "; ".join(line for line in text.splitlines() if line.startswith("[-]")) or text
    try:
        found = json.loads(text)
        text = str(found.get("message") or text) if isinstance(found, dict) else text
    except ValueError:
        pass
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 300 else text[:300] + "..."


@contextlib.contextmanager
def open_api(
    transport: paramiko.Transport | None,
    kubeconfig: bytes,
    server: tuple[str, int],
    *,
    host: str,
    run: Run | None = None,
    kubeconfig_path: str = ADMIN_CONF,
    tls_server_name: str = TLS_SERVER_NAME,
    timeout: float = TIMEOUT,
) -> Iterator[Api]:
    """The API of the control-plane node `host`, at `server` (address and port as seen from that very node).

    Give its own apiserver's --advertise-address and --secure-port, or 127.0.0.1: never a load balancer, behind which
    any other node may answer. `transport` is None where the connection is not SSH. Where forwarding is forbidden,
    kubectl is run on the node through `run`, with the node's `kubeconfig_path`. `kubeconfig` is that file's content.

    Raises KubeconfigError, ForwardingForbidden (without `run`), ConnectionLost. An API that is away is no error here.
    """
    api: Api | None = None
    if transport is not None:
        tunnel = TunnelApi(transport, parse_kubeconfig(kubeconfig), server, host, tls_server_name)
        try:
            tunnel.probe(timeout)
            api = tunnel
        except errors.ForwardingForbidden:
            if run is None:
                raise
    if api is None:
        if run is None:
            raise errors.ForwardingForbidden(
                host, "/", "there is no SSH connection to forward through", "give a way to run kubectl on the node"
            )
        api = KubectlApi(run, server, host, kubeconfig_path, tls_server_name)
    yield api
