"""A real HTTPS API server and a real SSH server on loopback, for whatever speaks to the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.api import Api
from tests.unit.api.world import ApiServer, Authority, SshServer, certificate_user, kubeconfig, through


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("cluster")


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Iterator[ApiServer]:
    made = ApiServer(authority, tmp_path)
    yield made
    made.close()


@pytest.fixture
def ssh() -> Iterator[SshServer]:
    made = SshServer()
    yield made
    made.close()


@pytest.fixture
def api(ssh: SshServer, server: ApiServer, authority: Authority) -> Api:
    return through(ssh, server.port, kubeconfig(authority, certificate_user(authority)))
