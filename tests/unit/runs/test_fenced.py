"""The operator's side of the cluster's lock, with the lock's real script on this machine, over connections that go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import gevent
import pytest
from gevent import subprocess

from roles.engine.bridge import Feed, Remote
from roles.engine.remote import Answer, ConnectionLost
from roles.engine.runs import lock as locking
from roles.engine.runs.lock import ClusterLock, Locked
from roles.engine.transaction.change_script import Holder
from tests.lab.tools import wait_until


class Node:
    """The lock's node. A connection is cut (the script sees its input end), or goes deaf: both sides live, and nothing comes through."""

    name = "cp1"

    def __init__(self) -> None:
        self.away = False
        self.deaf = False
        self.connects = 0
        self.scripts: list[Any] = []
        self._lost = gevent.event.Event()

    @property
    def alive(self) -> bool:
        return not self._lost.is_set()

    def ensure_connected(self, within: float = 0) -> None:
        if self.away:
            raise ConnectionLost("cp1: no route to host")
        self.connects += self._lost.is_set()
        self._lost = gevent.event.Event()

    def drop(self) -> None:
        self._lost.set()
        self.deaf = False

    def cut(self) -> None:
        self.scripts[-1].stdin.close()
        self.scripts[-1].wait()
        self._lost.set()

    def run(self, script: str, *, on_line: Callable[[str], None], feed: Feed, **more: object) -> Answer:
        lost = self._lost
        process = subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )
        self.scripts.append(process)

        def pour() -> None:
            for text in iter(feed.get, None):
                if not self.deaf and not process.stdin.closed:
                    process.stdin.write(text)
                    process.stdin.flush()

        def hear() -> int:
            for line in process.stdout:
                on_line(line.rstrip("\n"))
            return int(process.wait())

        pourer, hearer = gevent.spawn(pour), gevent.spawn(hear)
        gevent.wait([hearer, lost], count=1)
        pourer.kill()
        if lost.is_set():
            raise ConnectionLost("cp1: the SSH connection was lost")
        return Answer(hearer.get(), [], [])


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(locking, "HOME", str(tmp_path))
    made = Node()
    yield made
    for process in made.scripts:
        process.kill()
        process.wait()


def lock(node: Node, run: str, take_over: str = "") -> ClusterLock:
    return ClusterLock(cast(Remote, node), Holder(run, "ops@desk", "deploys/feature_gates.py"), take_over)


def test_it_is_asked_for_before_each_write_and_given_back(node: Node, tmp_path: Path) -> None:
    held = lock(node, "r1")
    held.ensure()
    held.ensure()
    assert (tmp_path / "cluster").exists() and len(node.scripts) == 1 and held.generation.endswith(" 1")
    held.release()
    assert not (tmp_path / "cluster").exists()


def test_a_lost_connection_is_made_again_and_the_lock_taken_again(node: Node, tmp_path: Path) -> None:
    held = lock(node, "r1")
    held.ensure()
    generation = held.generation
    node.cut()
    held.ensure()
    assert held.generation == generation and len(node.scripts) == 2


def test_a_connection_that_went_deaf_is_given_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    held = lock(node, "r1")
    held.ensure()
    monkeypatch.setattr(locking, "ANSWER_SECONDS", 1)
    node.deaf = True
    held.ensure()
    assert len(node.scripts) == 2, "the holder that was left behind made way"
    wait_until("it to end", lambda: node.scripts[0].poll() is not None, 60)


def test_who_lost_the_lock_to_another_run_writes_nothing_more(node: Node, tmp_path: Path) -> None:
    first = lock(node, "r1")
    first.ensure()
    node.cut()
    second = lock(node, "r2", take_over="r1")
    second.ensure()
    second.release()
    with pytest.raises(Locked, match=r"another run has held this cluster's lock \(on cp1\) since"):
        first.ensure()
    first.release()
    assert not (tmp_path / "cluster").exists()


def test_a_run_that_ends_without_its_connection_still_gives_the_lock_back(node: Node, tmp_path: Path) -> None:
    held = lock(node, "r1")
    held.ensure()
    node.cut()
    assert (tmp_path / "cluster").exists()
    held.release()
    assert not (tmp_path / "cluster").exists() and not list(tmp_path.glob("*.new"))
    lock(node, "r2").ensure()


def test_a_lock_that_cannot_be_given_back_is_said_with_the_way_out(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(locking, "show", said.append)
    held = lock(node, "r1")
    held.ensure()
    node.cut()
    node.away = True
    held.release_or_warn()
    assert "reconnecting" in said[0]
    assert "could not be released" in said[1] and "--data take_over=r1" in said[1]


def test_what_was_never_held_is_not_given_back(node: Node) -> None:
    lock(node, "r1").release()
    assert node.scripts == []
