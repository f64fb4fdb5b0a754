"""One run's reads: from the kernel where SSH reaches, from the kubelet elsewhere, and of containers that were restarted meanwhile."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from roles.engine import timeouts
from roles.engine.api import Forbidden, NotFound
from roles.engine.bridge import Fleet, Remote
from roles.engine.objects import Session
from roles.engine.remote import RemoteError
from roles.right_size import CollectedUse, SizedWorkload, collect
from roles.right_size import reading as module
from roles.right_size.kernel import KernelUse, NodeUse
from roles.right_size.reading import look_at
from tests.unit.clock import Clock as Monotonic
from tests.unit.right_size.world import ID, MI, OTHER, REPLICA_SET, START, pod

NEXT = "9" * 64
WEB = SizedWorkload("Deployment", "shop", "web")
KUBELET = """container_cpu_usage_seconds_total{{container="app",namespace="shop",pod="far"}} {cpu} {at}
container_memory_working_set_bytes{{container="app",namespace="shop",pod="far"}} 7 {at}
"""


class Clock(Monotonic):
    def time(self) -> float:
        return self.now


class Host:
    name = "w1.example.net"


class World:
    """A cluster with a pod on w1, which SSH reaches, and one on w9, which it does not. `acts` change it before a round of reads."""

    def __init__(self, *acts: Callable[[World], None]) -> None:
        self.clock = Clock()
        self.pods = [pod("near"), pod("far", spec={"nodeName": "w9"})]
        self.pods[1]["status"]["containerStatuses"][0]["containerID"] = f"containerd://{OTHER}"
        self.id, self.used, self.acts, self.asked_for = ID, 10.0, list(acts), [""]
        self.fails: Exception | None = None
        self.api_fails: dict[str, Exception] = {}

    # ---- the fleet

    def each(self, remotes: Sequence[Remote], work: object) -> dict[str, Any]:
        assert [remote.name for remote in remotes] == [Host.name]
        if self.acts:
            self.acts.pop(0)(self)
        now = self.clock.monotonic()
        self.used += 0.5
        use = KernelUse(1000 + now, 50 * MI, 0, 60 * MI, None, 0, self.used)
        return {Host.name: self.fails or NodeUse("b1", START + 100 + now, {("uid-near", self.id): use})}

    # ---- the API

    def asked(self, ask: Callable[[Any], Any], _: str = "") -> Any:
        return ask(self)

    def fetch_all(self, path: str) -> list[Any]:
        return self.get_json(path)["items"]  # type: ignore[no-any-return]

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        kind = path.partition("?")[0].rpartition("/")[2]
        self.asked_for.append(path.partition("?")[0])
        if kind in self.api_fails:
            raise self.api_fails[kind]
        if path == "/api/v1/namespaces/kube-system":
            return {"metadata": {"uid": "c"}}
        items: dict[str, list[Any]] = {
            "pods": self.pods,
            "replicasets": [REPLICA_SET],
            "jobs": [],
            "statefulsets": [],
            "daemonsets": [],
            "nodes": [],
        }
        if kind not in items:
            raise NotFound("cp1", path, "404", "-")
        return {"items": copy.deepcopy(items[kind])}

    def get_raw(self, path: str, timeout: float = 0, *, wait: float = 0) -> bytes:
        assert path == "/api/v1/nodes/w9/proxy/metrics/resource"
        now = self.clock.monotonic()
        return KUBELET.format(cpu=5 + now / 10, at=int((START + now) * 1000)).encode()

    def collect(self, watch: float = 30, interval: float = 10, namespaces: Sequence[str] | None = None) -> CollectedUse:
        nodes = {"w1": cast(Remote, Host()), "w2": cast(Remote, object())}
        return collect(cast(Fleet, self), cast(Session, self), nodes, watch, interval, namespaces)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(timeouts, "time", found.clock)
    monkeypatch.setattr(module, "time", found.clock)
    monkeypatch.setattr(module, "doing", lambda _: None)
    return found


def test_the_kernel_where_ssh_reaches_and_the_kubelet_elsewhere(world: World) -> None:
    found = world.collect()
    near, far = found.seen[ID], found.seen[OTHER]
    assert len(near.reads) == len(far.reads) == 4 and (near.reads[0].peak, far.reads[0].peak) == (60 * MI, None)
    assert near.reads[1].counter is not None and near.reads[0].age == pytest.approx(1100, abs=1)
    assert far.reads[0].source == "kubelet w9" and far.reads[0].memory == 7 and near.reads[0].source == "kernel b1"
    assert found.cluster == "c" and {one.workload for one in found.containers} == {WEB}
    assert any("w9: not read over SSH" in note for note in found.notes) and not found.problems


def test_the_kubelets_read_of_the_life_before_does_not_count(world: World) -> None:
    started = {"running": {"startedAt": datetime.fromtimestamp(START + 1015, UTC).isoformat()}}
    world.pods[1]["status"]["containerStatuses"][0]["state"] = started
    assert len(world.collect().seen[OTHER].reads) == 2, "of four: the others are older than the container"


def test_no_container_is_older_than_the_boot_of_its_node(world: World) -> None:
    world.pods[0]["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": "1970-01-01T00:00:09Z"}}
    read = world.collect(watch=0).seen[ID].reads[0]
    assert read.age == read.clock and read.age is not None and read.age < 10_000


def test_a_container_that_was_restarted_has_two_lives(world: World) -> None:
    def restart(world: World) -> None:
        world.id = NEXT
        state = world.pods[0]["status"]["containerStatuses"][0]
        state["containerID"], state["restartCount"] = f"containerd://{NEXT}", 1

    world.acts = [lambda _: None, lambda _: None, restart]
    found = world.collect(namespaces=["shop"])
    assert (len(found.seen[ID].reads), len(found.seen[NEXT].reads)) == (2, 2)
    assert [one.id for one in found.containers if one.pod == "near"] == [NEXT]
    assert [one.id for one in found.lives if one.pod == "near"] == [NEXT, ID]
    assert "/api/v1/namespaces/shop/pods" in world.asked_for and "/api/v1/pods" not in world.asked_for


def test_a_node_that_fails_is_a_problem_and_the_others_are_shown(world: World) -> None:
    world.fails = RemoteError("w1.example.net: no answer within 60 s")
    found = world.collect()
    assert found.problems == ["w1.example.net: no answer within 60 s"] and len(found.containers) == 2


def test_what_may_not_be_read_is_noted(world: World) -> None:
    world.api_fails = {"horizontalpodautoscalers": Forbidden("cp1", "/hpas", "403", "ask for rights")}
    assert any("horizontalpodautoscalers could not be read" in note for note in world.collect().notes)


def test_a_long_watch_reads_less_often(world: World) -> None:
    found = world.collect(watch=3600, interval=2)
    assert len(found.seen[ID].reads) == module.MOST_READS + 1


def test_no_watch_is_one_read(world: World) -> None:
    assert len(world.collect(watch=0, interval=5).seen[ID].reads) == 1


def test_a_look_at_one_workload(world: World) -> None:
    found = look_at(cast(Fleet, world), cast(Session, world), {"w1": cast(Remote, Host())}, WEB)
    assert set(found.containers) == {("near", "app"), ("far", "app")} and set(found.reads) == {("near", "app")}
    world.fails = RemoteError("w1: gone")
    with pytest.raises(RemoteError):
        look_at(cast(Fleet, world), cast(Session, world), {"w1": cast(Remote, Host())}, WEB)
