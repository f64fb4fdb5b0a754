"""Requests on one connection, in their order, each with its own answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.engine.api import errors
from roles.engine.api.kubeconfig import Credentials, tls_context
from roles.engine.tunnels import Tunnel
from tests.unit.api.world import ApiServer, Authority, SshServer


def test_each_body_has_its_answer_in_order(tmp_path: Path) -> None:
    authority = Authority("own")
    api, ssh = ApiServer(authority, tmp_path), SshServer()
    try:
        context = tls_context(Credentials(authority.pem.decode(), *authority.issue("me")))
        tunnel = Tunnel(ssh.transport, ("127.0.0.1", api.port), "cp1", context=context, name="kubernetes")
        answers = iter([(200, b"a" * 70_000), (200, b""), (400, b"no"), (200, b"last")])
        api.answer = lambda path, who: next(answers)
        found = tunnel.in_a_row("/put", [b"1", b"22", b"", b"x" * 200_000])
        assert found == [(200, b"a" * 70_000), (200, b""), (400, b"no"), (200, b"last")]
        assert [body for _, body in api.posted] == [b"1", b"22", b"", b"x" * 200_000]
        assert len(api.handshakes) == 1
        api.answer = lambda path, who: (0, b"")
        with pytest.raises(errors.Unreachable):
            tunnel.in_a_row("/put", [b"1", b"2"])
    finally:
        ssh.close()
        api.close()
