"""A connection that is lost is made again: pyinfra's own SSH connector, and a real SSH server on loopback."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import paramiko
import pytest
from pyinfra.api.config import Config
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State

from roles.engine.bridge import Remote, hosts
from roles.engine.remote import ConnectionLost
from tests.unit.bridge.ssh_server import OWN, Server

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here, whose rules these are")


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(OWN)
    yield made
    made.close()


@pytest.fixture
def remote(server: Server, tmp_path: Path) -> Iterator[Remote]:
    (tmp_path / "config").write_text(f"Host *\nStrictHostKeyChecking no\nUserKnownHostsFile {tmp_path}/known\nGlobalKnownHostsFile none\n")
    words = {"hostname": "127.0.0.1", "port": server.port, "user": "ops", "password": "x", "config_file": str(tmp_path / "config")}
    more = {"ssh_allow_agent": False, "ssh_look_for_keys": False}
    inventory = Inventory(([("w1", {**{f"ssh_{key}": value for key, value in words.items()}, **more})], {}))
    State().init(inventory, Config(CONNECT_TIMEOUT=20))
    made = Remote(inventory.get_host("w1"))
    yield made
    made.drop()


def lose(remote: Remote, how: Callable[[], None]) -> paramiko.Transport:
    """The connection that was there, once its end is seen here; pyinfra itself still believes in it."""
    lost = remote.transport
    assert lost is not None and remote.alive
    how()
    end = time.monotonic() + 60
    while remote.alive:
        assert time.monotonic() < end, "the end of the connection was not seen"
        time.sleep(0.01)
    assert remote.connected
    return lost


def test_one_that_lives_stays_as_it_is(remote: Remote, server: Server) -> None:
    remote.ensure_connected()
    first = remote.transport
    remote.ensure_connected()
    assert remote.alive and remote.transport is first and server.tried == 1


def test_one_that_was_lost_is_made_again(remote: Remote, server: Server) -> None:
    remote.ensure_connected()
    lost = lose(remote, server.cut)
    remote.ensure_connected()
    assert remote.alive and remote.transport is not lost and server.tried == 2


def test_all_who_come_at_once_share_one(remote: Remote, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.ensure_connected()
    lose(remote, server.cut)
    reconnect = remote.reconnect
    # As on a network that takes its time: the others have their turn meanwhile.
    monkeypatch.setattr(remote, "reconnect", lambda: (gevent.sleep(0), reconnect()))
    gevent.joinall([gevent.spawn(remote.ensure_connected) for _ in range(5)], raise_error=True)
    assert remote.alive and server.tried == 2


@pytest.mark.parametrize("before", [True, False], ids=["lost", "never-there"])
def test_it_is_tried_again_until_the_time_is_over(remote: Remote, server: Server, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    if before:
        remote.ensure_connected()
        lose(remote, server.close)
    else:
        server.close()
    pauses: list[Server] = []
    monkeypatch.setattr(hosts, "sleep", lambda seconds: pauses.append(Server(OWN, port=server.port)))
    with pytest.raises(ConnectionLost, match=r"^w1: "):
        remote.ensure_connected()
    assert pauses == [] and not remote.alive, "without time it is tried once"
    try:
        remote.ensure_connected(60)
        assert remote.alive and len(pauses) == 1
    finally:
        for made in pauses:
            made.close()
