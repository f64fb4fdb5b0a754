"""The certificate that a server presents: a real SSH transport and real TLS, on loopback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from roles.engine.api.errors import ForwardingForbidden
from roles.engine.certificates import parse_der
from roles.engine.tunnels.served import Served, served
from tests.unit.api.world import ApiServer, Authority, SshServer


def ask(ssh: SshServer, port: int, authority: Authority, address: str = "127.0.0.1") -> Served:
    return served(ssh.transport, "cp1", (address, port), authority.pem.decode(), "kubelet")


def test_a_certificate_of_the_authority(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    found = ask(ssh, server.port, authority)
    assert found.problem == ""
    assert found.certificate is not None and parse_der(found.certificate).names.ips == ("127.0.0.1",)


def test_a_certificate_of_another_authority_is_shown_and_not_verified(ssh: SshServer, server: ApiServer) -> None:
    found = ask(ssh, server.port, Authority("another"))
    assert "certificate" in found.problem
    assert found.certificate is not None and parse_der(found.certificate).common_name == "kubernetes"


def test_a_certificate_for_another_address(ssh: SshServer, authority: Authority, tmp_path: Path) -> None:
    other = ApiServer(authority, tmp_path, address="0.0.0.0")
    try:
        found = ask(ssh, other.port, authority)
        assert found.certificate is not None and "mismatch" in found.problem
    finally:
        other.close()


def test_no_tls_and_nothing_at_all(ssh: SshServer, authority: Authority, tmp_path: Path) -> None:
    plain = ApiServer(None, tmp_path)
    try:
        found = ask(ssh, plain.port, authority)
        assert (found.certificate, found.absent) == (None, False) and found.problem
    finally:
        plain.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found = ask(ssh, free.getsockname()[1], authority)
    assert (found.certificate, found.absent) == (None, True)


def test_an_sshd_that_does_not_forward(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    ssh.forbidden_ports.add(server.port)
    with pytest.raises(ForwardingForbidden, match="AllowTcpForwarding"):
        ask(ssh, server.port, authority)
