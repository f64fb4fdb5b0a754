"""The one way back to a host whose connection was lost, with a real SSH server on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from roles.rollout import host_keys
from roles.rollout import remote as bridge
from roles.rollout.remote import ConnectionLost, Remote
from tests.unit.rollout.test_host_keys import ECDSA, Server, configured, fleet, line

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh client")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(ECDSA)
    host_keys.rules.cache_clear()
    (configured(tmp_path / "config", "yes") / "user").write_text(line(made.name))
    yield made
    made.close()


@pytest.fixture
def remote(server: Server, tmp_path: Path) -> Remote:
    return fleet(server, tmp_path / "config").targets[0]


def lose(remote: Remote) -> None:
    assert remote.transport is not None
    remote.transport.close()


def test_a_connection_that_lives_is_kept_and_a_lost_one_is_made_again(remote: Remote) -> None:
    first = remote.transport
    remote.ensure()
    assert remote.transport is first
    lose(remote)
    remote.ensure()
    assert remote.transport is not first and remote.transport is not None and remote.transport.is_active()


def test_of_several_who_need_it_one_makes_it(remote: Remote, server: Server) -> None:
    lose(remote)
    before = len(server.passwords)
    gevent.joinall([gevent.spawn(remote.ensure) for _ in range(5)], raise_error=True, timeout=60)
    assert len(server.passwords) == before + 1


def test_a_connection_that_failed_is_not_trusted_again(remote: Remote, server: Server) -> None:
    first, before = remote.transport, len(server.passwords)
    remote.reconnect()
    assert remote.transport is not first and len(server.passwords) == before + 1


def test_one_that_stays_away_is_tried_for_as_long_as_is_given(remote: Remote, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    made = Remote._connect
    monkeypatch.setattr(bridge, "RECONNECT_PAUSE", 0.01)

    def connect(self: Remote) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionLost("w1: no route to host")
        made(self)

    monkeypatch.setattr(Remote, "_connect", connect)
    lose(remote)
    with pytest.raises(ConnectionLost, match="no route to host"):
        remote.ensure()
    remote.ensure(within=60)
    assert len(tries) == 3 and remote.transport is not None and remote.transport.is_active()


def test_a_changed_key_is_refused_on_the_way_back_too(remote: Remote, server: Server, tmp_path: Path) -> None:
    (tmp_path / "user").write_text("")
    lose(remote)
    with pytest.raises(ConnectionLost, match="host key of"):
        remote.ensure()
