"""Plans and reports read the API over few connections; a proof does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gevent import monkey

from roles.engine.api.kubeconfig import parse_kubeconfig
from roles.engine.bridge import at_once, whole
from roles.engine.bridge.tasks import AsyncResult, Timeout, sleep, spawn
from roles.engine.control_plane import COMPONENTS
from roles.engine.proof import Cluster
from roles.engine.proof.cluster import _ApiNode
from roles.engine.proof.kept import ANY, APISERVER, MOST, WORTH, At, KeptConnections
from tests.unit.api.world import ApiServer, Authority, SshServer, certificate_user, kubeconfig

HOSTS = ("cp1", "cp2", "cp3")
PATCHED = monkey.is_module_patched("socket")


@dataclass(eq=False)
class Connection:
    """`host` as an Api has it."""

    host: str
    server: At
    uses: int = 0


class Opened:
    """What a pool has opened."""

    def __init__(self, hosts: Sequence[str] = HOSTS, unready: Sequence[str] = ()) -> None:
        self.made: list[Connection] = []
        self.unready = set(unready)
        self.failing = 0
        self.pool = KeptConnections(hosts, cast(Any, self._at), cast(Any, self._any))

    def _at(self, at: At) -> tuple[Connection, bool]:
        sleep(0)
        if self.failing:
            self.failing -= 1
            raise ConnectionError(at[0])
        self.made.append(Connection(at[0], at))
        return self.made[-1], at[1] == APISERVER and at[0] not in self.unready

    def _any(self, hosts: Sequence[str], wait: float) -> Connection:
        return self._at((next(host for host in hosts if host not in self.unready), APISERVER))[0]

    def ask(self, at: At = ANY) -> Connection:
        """One question, during which others come in."""

        def question(api: Any) -> Connection:
            api.uses += 1
            uses = api.uses
            sleep(0)
            assert api.uses == uses, "two questions at the same time over one connection"
            return cast(Connection, api)

        return self.pool.ask(question, at)

    def all(self, *ats: At) -> list[Any]:
        with Timeout(60):
            return at_once([partial(self.ask, at) for at in ats], 1000)


def test_reads_share_the_connections_of_the_api_servers_that_are_asked_anyway() -> None:
    opened = Opened()
    own = [(host, name) for host in HOSTS for name in COMPONENTS]
    answers = opened.all(ANY, *own, *own)
    assert sorted(one.server for one in opened.made) == sorted(own)
    assert [one.server for one in answers[1:]] == own * 2, "what is asked of one server is answered by that one"
    assert {one.host for one in opened.all(*[ANY] * 10)} == set(HOSTS) and len(opened.made) == 9
    assert opened.pool.ask(lambda api: api) in opened.made


@pytest.mark.parametrize(("reads", "connections"), [(1, 1), (1 + WORTH, 1), (2 + WORTH, 2), (10, 2), (100, MOST), (1000, MOST)])
def test_more_connections_for_many_reads(reads: int, connections: int) -> None:
    opened = Opened(("cp1",))
    assert len(opened.all(*[ANY] * reads)) == reads
    assert len(opened.made) == connections and sum(one.uses for one in opened.made) == reads


def test_they_are_spread_over_the_api_servers() -> None:
    opened = Opened()
    opened.all(*[ANY] * 1000)
    hosts = [one.host for one in opened.made]
    assert sorted(map(hosts.count, HOSTS)) == [2, 3, 3]


def test_an_api_server_that_is_not_ready_answers_for_nobody_else() -> None:
    opened = Opened(unready=("cp1",))
    answers = opened.all(("cp1", APISERVER), *[ANY] * 100)
    assert answers[0].host == "cp1" and {one.host for one in answers[1:]} == {"cp2", "cp3"}


def test_a_connection_that_fails_leaves_nobody_waiting() -> None:
    opened = Opened(("cp1",))
    opened.failing = 2
    answers = opened.all(*[ANY] * 10)
    assert [type(one) for one in answers].count(ConnectionError) == 2 and len(opened.made) == 2

    def broken(_: Any) -> None:
        sleep(0)
        raise ValueError("whatever is wrong")

    answers = at_once([partial(opened.pool.ask, broken), *[partial(opened.pool.ask, lambda api: api)] * 3])
    assert isinstance(answers[0], ValueError) and all(one in opened.made for one in answers[1:])
    both = [one for one in opened.made if one in opened.all(*[ANY] * 2)]
    assert len(both) <= 2, "the one that failed is not used again"


def test_who_no_longer_waits_gets_nothing() -> None:
    opened, release = Opened(("cp1",)), AsyncResult()
    first = spawn(opened.pool.ask, lambda _: release.get())
    sleep(0)

    def impatient() -> Any:
        with Timeout(0.001, TimeoutError):
            return opened.ask()

    assert [type(one) for one in at_once([impatient] * 2)] == [TimeoutError] * 2
    release.set("answer")
    assert first.get() == "answer" and opened.ask() is opened.made[0] and len(opened.made) == 1


# ---- three control-plane nodes over real SSH and real TLS


def metrics(path: str, _: str | None) -> tuple[int, bytes]:
    if path == "/version":
        return 200, json.dumps({"gitVersion": "v1.36.3"}).encode()
    if path.startswith("/api/v1/nodes?"):
        return 200, json.dumps({"items": [{"metadata": {"name": "w1"}, "status": {"images": ["i"]}}]}).encode()
    return 200, b'kubernetes_feature_enabled{name="A",stage="BETA"} 1\n'


@pytest.fixture
def planes(tmp_path: Path) -> Iterator[tuple[Cluster, list[ApiServer]]]:
    authority = Authority("cluster")
    credentials = parse_kubeconfig(kubeconfig(authority, certificate_user(authority)))
    cluster, servers, doors = Cluster(), [], []
    for host in HOSTS:
        doors.append(SshServer())
        components = {}
        for name in COMPONENTS:
            (folder := tmp_path / host / name).mkdir(parents=True)
            servers.append(ApiServer(authority, folder))
            servers[-1].answer = metrics
            components[name] = SimpleNamespace(address=("127.0.0.1", servers[-1].port))
        remote = SimpleNamespace(name=host, transport=doors[-1].transport, uses_ssh=True, ensure_connected=lambda: None)
        cluster._nodes[host] = _ApiNode(cast(Any, remote), credentials, "admin.conf", cast(Any, components))
    yield cluster, servers
    for one in (*servers, *doors):
        one.close()


def read(cluster: Cluster, nodes: int) -> None:
    """As a report does."""
    own = [(host, name) for host in HOSTS for name in COMPONENTS]
    works: list[Callable[[], Any]] = [cluster.nodes, *(partial(cluster.component_version, *at) for at in own)]
    whole(dict(enumerate(at_once(works))))
    works = [partial(cluster.effective, f"w{number}", "kubelet", f"w{number}") for number in range(nodes)]
    whole(dict(enumerate(at_once([*works, *(partial(cluster.effective, *at, at[0]) for at in own)]))))
    assert cluster.known_nodes() == cluster.nodes() == {"w1": {"metadata": {"name": "w1"}, "status": {}}}
    whole(dict(enumerate(at_once([cluster.api, cluster.api]))))


@pytest.mark.parametrize(("nodes", "handshakes"), [(7, 9), (997, 9 + MOST - len(HOSTS))], ids=str)
def test_handshakes_of_a_report(planes: tuple[Cluster, list[ApiServer]], nodes: int, handshakes: int) -> None:
    cluster, servers = planes
    read(cluster.kept(), nodes)
    if PATCHED:  # else nobody reads at the same time
        assert sum(len(one.handshakes) for one in servers) == handshakes
        assert max(len(one.handshakes) for one in servers) <= 3
    seen = len(servers[0].handshakes)
    for _ in range(2):
        cluster.effective("cp1", APISERVER, "cp1")
    assert len(servers[0].handshakes) == seen + 2, "each proof has its own new connection"
