"""HTTP through the existing SSH connection: direct-tcpip channels, no listener, no kubeconfig and no key on the operator's disk.

Each request has its own connection. Only the reads of one `TunnelApi` may reuse the connection of its previous read: an answer over a
kept connection may come from an API server that is already ending. So the proof of a new process needs a new `TunnelApi`.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from roles.engine.api import errors
from roles.engine.api.client import CA_WAY_OUT, DONE, TIMEOUT, TLS_SERVER_NAME, Api, tls_way_out
from roles.engine.api.kubeconfig import Credentials, tls_context
from roles.engine.bounds import MOST_BYTES
from roles.engine.bridge.channels import Channel, ChannelException, SSHException, Transport
from roles.engine.timeouts import patient

_CHUNK = 65536
#: RFC 4254, section 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED. sshd decides it before it tries the port.
_PROHIBITED = 1
#: As many connections of one SSH transport are kept.
MOST_KEPT = 8


@dataclass(frozen=True)
class Peer:
    """The server at the end of a tunnel, for its error messages. `instead` is the tool that is used if forwarding is forbidden."""

    name: str
    authority: str
    tls_way_out: str
    instead: str


_APISERVER = Peer("kube-apiserver", "the kubeconfig's CA", CA_WAY_OUT, "kubectl")


class Tunnel:
    """HTTP requests to `server` through direct-tcpip channels of an SSH transport: over TLS, or plain without a `context`.

    `host` is the node at the transport's other end, `name` what the server's certificate must be valid for. A `token` is sent only if
    `context` verifies the server's certificate and name.
    """

    def __init__(
        self,
        transport: Transport,
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
        # A token is a password: a server that gets it can act as the cluster's admin. It is only sent to a verified server.
        self._token = token if _verifies(context) else None
        self._peer = peer

    @property
    def _where(self) -> str:
        return f"{'https' if self._context else 'http'}://{self._server[0]}:{self._server[1]} as seen from {self._host}"

    def probe(self, timeout: float = TIMEOUT) -> None:
        """Raises ForwardingForbidden if sshd does not forward, ApiConnectionLost without SSH; a dead server does not matter. The first read
        uses the connection that it opens."""
        with contextlib.suppress(errors.Unreachable, errors.Timeout):
            self._keep(self._open("/", time.monotonic() + patient(timeout)))

    def read(self, path: str, timeout: float = TIMEOUT) -> tuple[int, bytes]:
        """HTTP status and body of a GET, over the connection of the previous read if it still exists. `timeout` and errors are those of
        `request`."""
        deadline = time.monotonic() + timeout
        stream = self._kept()
        if stream is not None:
            # The server may have closed it since; reading once more does no harm.
            with contextlib.suppress(errors.Unreachable):
                return self._exchange(stream, deadline, "GET", path, keep=True)
        return self._exchange(self._open(path, deadline), deadline, "GET", path, keep=True)

    def request(
        self, path: str, timeout: float = TIMEOUT, body: bytes | None = None, *, verb: str = "", content: str = "application/json"
    ) -> tuple[int, bytes]:
        """HTTP status and body of a GET, or of a POST (or another `verb`) if a `body` of the media type `content` is given.
        `timeout`: seconds, already multiplied by the patience.

        Raises Unreachable, Timeout, TLS, ApiConnectionLost, ForwardingForbidden.
        """
        deadline = time.monotonic() + timeout
        verb = verb or ("GET" if body is None else "POST")
        return self._exchange(self._open(path, deadline), deadline, verb, path, body, content)

    def in_a_row(self, path: str, bodies: Sequence[bytes], timeout: float = TIMEOUT) -> list[tuple[int, bytes]]:
        """POST these bodies over one connection, in their order, without waiting for each answer: so many that the answers fit into the
        buffers between here and the server, which sends none before it has read a request (RFC 9112, section 9.3.2). `timeout` and errors
        are those of `request`."""
        stream = self._open(path, time.monotonic() + timeout)
        stream.deadline = time.monotonic() + timeout
        head = f"POST {path} HTTP/1.1\r\nHost: {self._name}\r\nContent-Type: application/json\r\nContent-Length: "
        try:
            with self._named(path):
                stream.handshake()
                stream.sendall(b"".join(f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies))
                answers = _Answers(stream)
                return [answers.next(lambda response: self._plain(path, response)) for _ in bodies]
        finally:
            stream.channel.close()

    def handshake(self, deadline: float) -> bytes | None:
        """The certificate that the server presents in a handshake, as DER; None without TLS. Errors are those of `request`."""
        stream = self._open("/", deadline)
        stream.deadline = deadline
        try:
            with self._named("/"):
                stream.handshake()
                return stream.certificate
        finally:
            stream.channel.close()

    def _exchange(
        self,
        stream: _ChannelSocket,
        deadline: float,
        verb: str,
        path: str,
        body: bytes | None = None,
        content: str = "",
        *,
        keep: bool = False,
    ) -> tuple[int, bytes]:
        stream.deadline = deadline
        connection = http.client.HTTPConnection(self._server[0], self._server[1])
        connection.sock = stream  # it has all methods that http.client uses
        headers = {"Accept": "application/json, */*", "Accept-Encoding": "gzip", "User-Agent": "daytwo"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = content
        kept = False
        try:
            with self._named(path):
                stream.handshake()
                connection.request(verb, path, body, headers)
                response = connection.getresponse()
                answer = response.status, self._plain(path, response)
            # A server with an error may be about to end.
            kept = keep and response.status == HTTPStatus.OK and not response.will_close
            if kept:
                self._keep(stream)
            return answer
        finally:
            if not kept:
                stream.channel.close()

    def _plain(self, path: str, response: http.client.HTTPResponse) -> bytes:
        """The body of an answer, decompressed. Metrics are a tenth as long compressed. Neither form may have more than MOST_BYTES: a peer
        could fill the memory."""
        body = bytearray()
        while len(body) <= MOST_BYTES and (part := response.read(_CHUNK)):
            body += part
        if len(body) > MOST_BYTES:
            raise self._too_long(path, f"its answer is longer than {MOST_BYTES >> 20} MiB")
        if response.headers.get("Content-Encoding") != "gzip":
            return bytes(body)
        inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # the format of gzip, not of zlib
        try:
            plain = inflater.decompress(body, MOST_BYTES)
        except zlib.error as error:
            raise http.client.HTTPException(f"its compressed answer is damaged: {error}") from error
        if not inflater.eof:
            raise self._too_long(path, f"its compressed answer is incomplete, or longer than {MOST_BYTES >> 20} MiB")
        return plain

    def _too_long(self, path: str, rule: str) -> errors.Unusable:
        return errors.Unusable(self._host, path, f"{self._where}: {rule}", f"check the {self._peer.name} there")

    def _kept(self) -> _ChannelSocket | None:
        """The connection of the previous read, for one read only: a concurrent read gets another one."""
        return KEPT.get(self._transport, {}).pop(self, None)

    def _keep(self, stream: _ChannelSocket) -> None:
        over = [stream for other in list(KEPT) if not other.is_active() for stream in KEPT.pop(other).values()]
        kept = KEPT.setdefault(self._transport, {})
        over += [kept.pop(self)] if self in kept else []
        over += [kept.pop(next(iter(kept)))] if len(kept) >= MOST_KEPT else []
        kept[self] = stream
        for old in over:
            old.channel.close()

    @contextlib.contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Turns errors of a connection into this package's errors."""
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            refused = errors.TLS(
                self._host,
                path,
                f"the certificate at {self._where} is not valid for {self._name!r} by {self._peer.authority} ({error.verify_message})",
                # The words about kubeconfigs are of an API server alone.
                (self._peer.authority == _APISERVER.authority and tls_way_out(error.verify_message)) or self._peer.tls_way_out,
            )
            refused.verify_message = error.verify_message
            raise refused from error
        except TimeoutError as error:
            raise self._timeout(path, "waiting for an answer from") from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise self._closed(path, error) from error
        except ssl.SSLError as error:
            raise errors.TLS(
                self._host,
                path,
                f"no TLS with {self._where} ({error.reason or error})",
                f"does {self._peer.name} run there, and does it accept this certificate?",
            ) from error
        except (http.client.HTTPException, EOFError, OSError, SSHException) as error:
            if not self._transport.is_active():
                raise self._lost(path, error) from error
            raise self._closed(path, error) from error

    def _open(self, path: str, deadline: float) -> _ChannelSocket:
        try:
            channel = self._transport.open_channel(
                "direct-tcpip", self._server, ("127.0.0.1", 0), timeout=max(deadline - time.monotonic(), 0.1)
            )
        except ChannelException as error:
            if error.code == _PROHIBITED:
                raise errors.ForwardingForbidden(
                    self._host,
                    path,
                    f"its sshd forbids forwarding to {self._server[0]}:{self._server[1]}",
                    f"allow it for this user (AllowTcpForwarding local, PermitOpen), or install {self._peer.instead} on the node",
                ) from error
            raise errors.Unreachable(
                self._host,
                path,
                f"nothing accepts connections at {self._where} ({error.text or error.code})",
                f"check the {self._peer.name} there: `crictl ps -a`, `journalctl -u kubelet`",
            ) from error
        except (SSHException, OSError, EOFError) as error:
            if not self._transport.is_active():
                raise self._lost(path, error) from error
            if "timeout" in str(error).lower():
                raise self._timeout(path, "connecting to") from error
            raise errors.Unreachable(self._host, path, f"no channel to {self._where} ({error})", "try again") from error
        return _ChannelSocket(channel, self._context, self._name)

    def _lost(self, path: str, error: object) -> errors.ApiConnectionLost:
        return errors.ApiConnectionLost(
            self._host, path, f"the SSH connection is lost ({error or 'closed'})", "fix the connection to the node"
        )

    def _timeout(self, path: str, what: str) -> errors.Timeout:
        return errors.Timeout(self._host, path, f"timed out {what} {self._where}", f"check the node's load and its {self._peer.name}")

    def _closed(self, path: str, error: Exception) -> errors.Unreachable:
        return errors.Unreachable(
            self._host,
            path,
            f"{self._where} closed the connection during its answer ({error or type(error).__name__})",
            "it is starting or stopping: try again",
        )


class TunnelApi(Api):
    """HTTPS through direct-tcpip channels of an SSH transport.

    Verified but for the controller-manager and the scheduler (`component`): their serving certificates are self-signed and new at each
    start, and the channel ends on the node's own loopback. Such a peer gets a client certificate, which it cannot misuse (the key signs
    only this handshake), but never a token: without a client certificate it is not asked at all (UnverifiedPeer).
    """

    def __init__(
        self,
        transport: Transport,
        credentials: Credentials,
        server: tuple[str, int],
        host: str,
        tls_server_name: str = TLS_SERVER_NAME,
        component: str = _APISERVER.name,
    ) -> None:
        super().__init__(host)
        verify = component == _APISERVER.name
        context = tls_context(credentials, verify)
        self._only_token = not verify and credentials.certificate is None
        peer = replace(_APISERVER, name=component)
        self._tunnel = Tunnel(transport, server, host, context=context, name=tls_server_name, token=credentials.token, peer=peer)

    def probe(self, timeout: float = TIMEOUT) -> None:
        """Raises ForwardingForbidden if sshd does not forward, ApiConnectionLost without SSH; a dead API does not matter."""
        self._tunnel.probe(timeout)

    def _get(self, path: str, timeout: float) -> bytes:
        self._check_peer(path)
        status, body = self._tunnel.read(path, timeout)
        if status == HTTPStatus.OK:
            return body
        raise errors.by_status(self._host, path, status, body)

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        self._check_peer(path)
        status, answer = self._tunnel.request(path, timeout, body, verb=verb, content=content)
        if status in DONE:
            return answer
        raise errors.by_status(self._host, path, status, answer)

    def _check_peer(self, path: str) -> None:
        if self._only_token:
            raise errors.UnverifiedPeer(
                self._host,
                path,
                "the server's certificate is self-signed and cannot be verified, and the kubeconfig has only a bearer token, which is not "
                "sent to such a server",
                "put a kubeconfig with a client certificate on the node, such as kubeadm's admin.conf",
            )


def _verifies(context: ssl.SSLContext | None) -> bool:
    return context is not None and context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname


class _ChannelSocket(io.RawIOBase):
    """A channel with the methods of a socket that http.client uses; it times out at `deadline`. TLS is in memory: a channel has no file
    descriptor for ssl to wrap.

    It uses only the channel's own recv and send, so it yields where these do: to threads, or to gevent's hub.
    """

    def __init__(self, channel: Channel, context: ssl.SSLContext | None, name: str) -> None:
        super().__init__()
        self.channel = channel
        self.deadline = 0.0
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name) if context else None

    def handshake(self) -> None:
        """Does nothing in plain text, or the second time."""
        if self._tls:
            self._pump(self._tls.do_handshake)

    @property
    def certificate(self) -> bytes | None:
        """That of the peer, as DER, after a handshake."""
        return self._tls.getpeercert(binary_form=True) if self._tls else None

    def sendall(self, data: bytes) -> None:
        if self._tls is None:
            return self._armed().sendall(data)
        view = memoryview(data)
        while view:
            view = view[self._pump(self._tls.write, view) :]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._tls is None:
            data = self._armed().recv(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        try:
            return int(self._pump(self._tls.read, len(buffer), buffer))
        except ssl.SSLZeroReturnError:
            return 0

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, _CHUNK)

    def close(self) -> None:
        """Does nothing: http.client closes early and reads on. The code that opened the channel closes it."""

    def _pump(self, step: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                result = step(*arguments)
            except ssl.SSLWantReadError:
                self._flush()
                data = self._armed().recv(_CHUNK)
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
            self._armed().sendall(data)

    def _armed(self) -> Channel:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.channel.settimeout(left)
        return self.channel


class _Answers:
    """Several answers on one connection: what one of them has read too far belongs to the next."""

    def __init__(self, stream: _ChannelSocket) -> None:
        self._file = _KeptOpen(stream, _CHUNK)

    def makefile(self, mode: str) -> io.BufferedReader:
        return self._file

    def next(self, read: Callable[[http.client.HTTPResponse], bytes]) -> tuple[int, bytes]:
        response = http.client.HTTPResponse(self, method="POST")  # type: ignore[arg-type]  # it uses makefile only
        response.begin()
        return response.status, read(response)


class _KeptOpen(io.BufferedReader):
    def close(self) -> None:
        """Does nothing: http.client closes it after each answer."""


#: The newest connections of each SSH transport that are kept for reading, by owner. Kept here, they are closed by a call, and never by the
#: garbage collector during a message (Channel.__del__ sends one, and waits for the lock that its own thread may hold).
KEPT: dict[Transport, dict[Tunnel, _ChannelSocket]] = {}
