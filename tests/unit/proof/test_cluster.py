"""What was read of the cluster is kept as long as it counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from roles.engine.api import ApiConnectionLost, GateMetric, NoApi
from roles.engine.proof import Cluster
from roles.engine.proof import cluster as proof_cluster
from roles.engine.proof.cluster import RECENT_SECONDS
from roles.engine.remote import RemoteError
from roles.engine.transaction.model import STABLE_SECONDS
from tests.unit.clock import Clock


def test_the_gates_of_the_last_read_are_those_that_were_proven() -> None:
    answers: list[Any] = [{"A": GateMetric("BETA", False)}, {"A": GateMetric("BETA", True)}, NoApi("away")]

    class Answering(Cluster):
        def query(self, *_: Any) -> Any:
            if isinstance(answer := answers.pop(0), Exception):
                raise answer
            return SimpleNamespace(gates=answer)

    cluster = Answering()
    assert cluster.last_effective("w1", "kubelet") == {}
    for _ in range(2):
        assert cluster.effective("w1", "kubelet", "w1") == cluster.last_effective("w1", "kubelet")
    assert cluster.last_effective("w1", "kubelet")["A"].enabled and cluster.last_effective("w2", "kubelet") == {}
    with pytest.raises(NoApi):
        cluster.effective("w1", "kubelet", "w1")
    assert cluster.last_effective("w1", "kubelet") == {}, "what was read of the process before is nothing of the one after"


def finding(found: list[Any]) -> Cluster:
    """A cluster whose APIs are texts, noted in `found` when they are connected to."""

    class Finding(Cluster):
        def api(self, wait: float = 0.0) -> Any:
            found.append(f"api {len(found)}")
            return found[-1]

        def _at(self, host: str, component: str) -> Any:
            found.append(f"{component} of {host} {len(found)}")
            return found[-1]

    return Finding()


def test_only_reading_keeps_connections() -> None:
    found: list[Any] = []
    cluster = finding(found)
    kept = cluster.kept()
    assert kept.query(str, ("cp1", "etcd")) == kept.query(str, ("cp1", "etcd")) == "etcd of cp1 0"
    with pytest.raises(ZeroDivisionError):
        kept.query(lambda api: 1 / 0, ("cp1", "etcd"))  # whatever is wrong with it: it is not used again
    assert kept.query(str, ("cp1", "etcd")) == "etcd of cp1 1"
    assert cluster.kept().query(str, ("cp1", "etcd")) == "etcd of cp1 2", "nobody reads over the connections of another reading"
    assert [cluster.query(str, ("cp1", "etcd")) for _ in range(2)] == [f"etcd of cp1 {number}" for number in (3, 4)]


def test_queries_that_follow_each_other_share_one_api_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(proof_cluster, "time", clock)
    found: list[Any] = []

    cluster = finding(found)

    def asked(*lost: str) -> str:
        def ask(api: Any) -> str:
            if api in lost:
                raise ApiConnectionLost("cp1", "/", "the SSH connection is lost", "reconnect")
            return str(api)

        return cluster.query(ask)

    assert [asked(), asked()] == ["api 0", "api 0"]
    clock.now += RECENT_SECONDS + 0.1
    assert [asked(), asked("api 1"), asked()] == ["api 1", "api 2", "api 2"]
    assert RECENT_SECONDS < STABLE_SECONDS, "a proof would ask over a connection to the process before"


def test_a_request_by_kubectl_that_gets_no_answer_is_lost_as_one_through_a_tunnel_is() -> None:
    def run(*_: object, **__: object) -> None:
        raise RemoteError("cp1: no answer within 30 s")

    remote = SimpleNamespace(name="cp1", transport=None, uses_ssh=False, ensure_connected=lambda: None, run=run)
    components: Any = {"kube-apiserver": SimpleNamespace(address=("127.0.0.1", 6443))}
    cluster = Cluster()
    cluster._nodes["cp1"] = proof_cluster._ApiNode(cast(Any, remote), cast(Any, None), "admin.conf", components)
    with pytest.raises(ApiConnectionLost, match="no answer within 30 s"):
        cluster._at("cp1", "kube-apiserver").get_json("/version")
