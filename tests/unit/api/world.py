"""A stand-in for one control-plane node: an SSH server that forwards, and an HTTPS server that answers as told."""

from __future__ import annotations

import base64
import datetime
import http.server
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from roles.engine.api.client import TLS_SERVER_NAME
from roles.engine.api.kubeconfig import parse_kubeconfig
from roles.engine.tunnels import TunnelApi

Answer = tuple[int, bytes]


class Authority:
    """A certificate authority, and what it signed. `valid` is for how long it signs from now on."""

    valid = datetime.timedelta(days=1)

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._sign(self.name, self.key.public_key(), [(x509.BasicConstraints(True, None), True)])
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def _sign(self, subject: x509.Name, public: Any, extensions: list[tuple[Any, bool]]) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + self.valid)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, name: str, *addresses: str) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName(name), *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses)]
        certificate = self._sign(subject, key.public_key(), [(x509.SubjectAlternativeName(names), False)])
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return certificate.public_bytes(serialization.Encoding.PEM), private


class ApiServer:
    """HTTPS on loopback, or HTTP without an authority. `answer(path, client common name)` gives status and body.

    `sent` are the verb, path, media type and body of each PATCH and DELETE; `handshakes` the peer of each TLS connection. With `encode`,
    bodies are encoded by it, and called gzip.
    """

    def __init__(self, authority: Authority | None, folder: Path, port: int = 0, address: str = "127.0.0.1") -> None:
        self.answer: Callable[[str, str | None], Answer] = lambda path, who: (200, b"ok")
        self.encode: Callable[[bytes], bytes] | None = None
        self.headers: dict[str, str] = {}
        self.posted: list[tuple[str, bytes]] = []
        self.sent: list[tuple[str, str, str, bytes]] = []
        self.handshakes: list[tuple[str, int]] = []
        self.authority = authority
        context = _server_context(authority, folder, address) if authority else None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                shown = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
                who = next((v for rdn in (shown or {}).get("subject", ()) for k, v in rdn if k == "commonName"), None)
                outer.headers = dict(self.headers)
                status, body = outer.answer(self.path, who)
                if status == 0:  # hang up without a word
                    self.close_connection = True
                    return
                self.send_response(status)
                if outer.encode is not None:
                    body = outer.encode(body)
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                outer.posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.do_GET()

            def _write(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.sent.append((self.command, self.path, self.headers["Content-Type"], body))
                self.do_GET()

            do_PATCH = do_DELETE = _write

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def finish_request(self, request: Any, client_address: Any) -> None:
                if context:
                    request = context.wrap_socket(request, server_side=True)
                    outer.handshakes.append(client_address)
                super().finish_request(request, client_address)

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that refuses our certificate is what some tests are about

        self._server = Server((address, port), Handler)
        self.address = address
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.authority else 'http'}://{self.address}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _server_context(authority: Authority, folder: Path, address: str) -> ssl.SSLContext:
    certificate, key = authority.issue("kubernetes", address)
    (folder / "server.pem").write_bytes(certificate + key)
    (folder / "ca.pem").write_bytes(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


class Etcd:
    """An etcd cluster on loopback, one member per ID, with answers as etcd 3.6.16 gave them (3.5 gives the same)."""

    def __init__(self, authority: Authority | None, folder: Path, *ids: int) -> None:
        self.servers = {number: ApiServer(authority, folder) for number in ids}
        self.health: dict[int, Answer] = dict.fromkeys(ids, (200, b'{"health":"true","reason":""}'))
        self.answers_as = {number: number for number in ids}
        self.members: list[dict[str, Any]] = [
            {"ID": str(number), "name": f"cp{number}", "peerURLs": [f"https://10.0.0.{number}:2380"], "clientURLs": [server.url]}
            for number, server in self.servers.items()
        ]
        for number, server in self.servers.items():
            server.answer = lambda path, who, number=number: self._answer(number, path, who)

    def _answer(self, number: int, path: str, who: str | None) -> Answer:
        if self.servers[number].authority and who != "apiserver-etcd-client":
            return 401, b"client certificate required"
        if path == "/health":
            return self.health[number]
        if path == "/v3/cluster/member/list":
            header = {"cluster_id": "13455796455940752355", "member_id": str(self.answers_as[number]), "raft_term": "2"}
            return 200, json.dumps({"header": header, "members": self.members}).encode()
        return 404, b'{"code":5,"message":"Not Found"}'

    def close(self) -> None:
        for server in self.servers.values():
            server.close()


class SshServer:
    """An SSH server on loopback that takes any key and forwards, or says why not."""

    def __init__(self) -> None:
        self.refusal: int | None = None
        self.forbidden_ports: set[int] = set()
        self.connections: list[tuple[str, int]] = []
        ours, theirs = socket.socketpair()
        self._server = paramiko.Transport(theirs)
        self._server.add_server_key(paramiko.ECDSAKey.generate())
        self._server.start_server(event=threading.Event(), server=_Door(self))
        threading.Thread(target=self._serve, daemon=True).start()
        self.transport = paramiko.Transport(ours)
        self.transport.start_client(timeout=300)
        self.transport.auth_none("root")

    def _serve(self) -> None:
        while self._server.is_active():
            channel = self._server.accept(0.1)
            if channel is not None:
                target = _targets.pop((id(self), channel.get_id()))
                threading.Thread(target=_join, args=(channel, target), daemon=True).start()

    def close(self) -> None:
        self.transport.close()
        self._server.close()


_targets: dict[tuple[int, int], socket.socket] = {}


class _Door(paramiko.ServerInterface):
    def __init__(self, owner: SshServer) -> None:
        self._owner = owner

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "none"

    def check_channel_direct_tcpip_request(self, chanid: int, origin: Any, destination: Any) -> int:
        self._owner.connections.append(destination)
        if self._owner.refusal is not None:
            return self._owner.refusal
        if destination[1] in self._owner.forbidden_ports:
            return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        try:
            target = _targets[(id(self._owner), chanid)] = socket.create_connection(destination, timeout=300)
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            return paramiko.OPEN_FAILED_CONNECT_FAILED
        return paramiko.OPEN_SUCCEEDED


def _join(channel: paramiko.Channel, target: socket.socket) -> None:
    target.settimeout(None)

    def there() -> None:
        try:
            while data := channel.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        target.close()

    threading.Thread(target=there, daemon=True).start()
    try:
        while data := target.recv(65536):
            channel.sendall(data)
    except OSError:
        pass
    channel.close()


def kubeconfig(authority: Authority, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> bytes:
    if cluster is None:
        cluster = {"certificate-authority-data": base64.b64encode(authority.pem).decode()}
    return json.dumps(
        {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://elsewhere:6443", **cluster}}],
            "users": [{"name": "u", "user": user}],
        }
    ).encode()


def certificate_user(authority: Authority, name: str = "admin") -> dict[str, str]:
    certificate, key = authority.issue(name)
    return {"client-certificate-data": base64.b64encode(certificate).decode(), "client-key-data": base64.b64encode(key).decode()}


def through(ssh: SshServer, port: int, config: bytes, name: str = TLS_SERVER_NAME) -> TunnelApi:
    """The API at a port of loopback, as seen from the other end of the SSH connection, which is cp1."""
    return TunnelApi(ssh.transport, parse_kubeconfig(config), ("127.0.0.1", port), "cp1", name)
