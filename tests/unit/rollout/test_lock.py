"""The script that holds the cluster's lock, on a scratch folder: who is refused, and what it is told of the holder."""

from __future__ import annotations

import fcntl
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from roles.change import Change, FileEdit, keep_script, stage_script
from roles.change.bundle import HOME, Holder
from roles.rollout import lock as locking
from roles.rollout.lock import ClusterLock, Locked
from roles.rollout.remote import Answer, ConnectionLost, Feed
from roles.scripts import templates
from tests.lab.tools import wait_until


def script(home: Path, run: str, take_over: str = "", had: str = "") -> str:
    holder = Holder(run, "ops@desk", "deploys/feature_gates.py")
    return (
        templates().get_template("lock.sh.j2").render(home=str(home), run=run, take_over=take_over, life=60, holder=holder.lines, had=had)
    )


def begun(home: Path, run: str, take_over: str = "", had: str = "") -> subprocess.Popen[str]:
    command = ["sh", "-c", script(home, run, take_over, had)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def words(holder: subprocess.Popen[str], said: str = "q") -> list[str]:
    """The first word of each line, until it was released."""
    return [line.split(" ")[0] for line in holder.communicate(said, timeout=600)[0].splitlines()]


def fence(home: Path) -> str:
    return (home / "generation").read_text().strip()


def test_each_run_gets_the_next_number(tmp_path: Path) -> None:
    numbers = []
    for run in ("r1", "r2", "r3"):
        told = begun(tmp_path, run).communicate("q", timeout=600)[0].splitlines()[0]
        assert told == f"locked {fence(tmp_path)}"
        numbers.append(told.split(" "))
    assert len({name for _, name, _ in numbers}) == 1, "one lock has one name"
    first = int(numbers[0][2])
    assert [int(number) for _, _, number in numbers] == [first, first + 1, first + 2]
    assert first > 1_700_000_000, "above whatever was given before its numbers were lost"


def test_a_run_that_lost_it_takes_it_again_and_keeps_its_number(tmp_path: Path) -> None:
    assert words(begun(tmp_path, "r1"), "..") == ["locked"]
    assert (tmp_path / "cluster").exists()
    had = fence(tmp_path)
    assert words(begun(tmp_path, "r1", had=had)) == ["locked", "released"] and fence(tmp_path) == had


def test_a_run_that_another_one_came_after_is_refused(tmp_path: Path) -> None:
    """It was taken over and released: nothing says so any more but the number."""
    assert words(begun(tmp_path, "r1"), ".") == ["locked"]
    had = fence(tmp_path)
    taker = begun(tmp_path, "r2", "r1")
    assert words(taker) == ["taken", "locked", "released"] and not (tmp_path / "cluster").exists()
    told = begun(tmp_path, "r1", had=had).communicate("q", timeout=600)[0].splitlines()
    assert told[0] == "held run=" and told[-1] == "held left=fenced"
    # One that holds it no more in good order either, or whose numbers were taken away.
    (tmp_path / "generation").unlink()
    assert words(begun(tmp_path, "r1", had=had))[-1] == "held" and not (tmp_path / "generation").exists()


def test_a_holder_is_asked_whether_it_still_holds(tmp_path: Path) -> None:
    assert words(begun(tmp_path, "r1"), ".?.?q") == ["locked", "still", "still", "released"]
    holder = begun(tmp_path, "r2")
    assert holder.stdout is not None and holder.stdout.readline().startswith("locked ")
    (tmp_path / "generation").write_text("another 9\n")
    assert holder.communicate("?q", timeout=600)[0] == "" and holder.returncode == 1


def test_a_second_run_is_told_who_holds_it(tmp_path: Path) -> None:
    first = begun(tmp_path, "r1")
    assert first.stdout is not None and first.stdout.readline().startswith("locked ")
    told = begun(tmp_path, "r2").communicate("", timeout=600)[0].splitlines()
    assert told[:3] == ["held run=r1", "held who=ops@desk", "held command=deploys/feature_gates.py"]
    assert re.fullmatch(r"held left=alive; its sign of life is good for \d+ s", told[3]), told[3]
    assert first.communicate("q", timeout=600)[0] == "released\n"
    third = begun(tmp_path, "r3")
    assert words(third) == ["locked", "released"]


def test_a_holder_that_has_yet_to_write_its_name_is_waited_for(tmp_path: Path) -> None:
    with (tmp_path / "cluster.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = begun(tmp_path, "r2")
        # It has tried to take the lock once it sleeps before its next look.
        wait_until("the second run to wait for the name", lambda: "sleep" in _children(second.pid), 30)
        (tmp_path / "name").write_text("run=r1\nwho=ops@desk\ncommand=c\nexpires=99999999999\n")
        (tmp_path / "name").rename(tmp_path / "cluster")
        told = second.communicate("", timeout=600)[0].splitlines()
    assert told[0] == "held run=r1"
    assert told[3].startswith("held left=alive; its sign of life is good for 9")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed (make lint installs it)")
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    command = ["shellcheck", "--shell=sh", "--severity=info", "-"]
    for text in (script(tmp_path, "r1", had="lock 5"), keep_script("r1-x", Holder("r1", "w", "c"), "staged", [], fence="lock 5")):
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout


def test_what_a_dead_holder_left_is_taken_over_by_name_only(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text("run=r1\nwho=ops@desk\ncommand=c\nexpires=1\n")
    assert begun(tmp_path, "r2").communicate("", timeout=600)[0].splitlines()[-1] == "held left=gone"
    assert words(begun(tmp_path, "r2", "r1")) == ["taken", "locked", "released"]


class Node:
    """The lock's node as a run sees it. `mute`: the connection is dead, and nobody noticed; `away`: so many tries to connect fail."""

    name = "cp1"

    def __init__(self) -> None:
        self.generation, self.mute, self.away, self.takes = 5, False, 0, 0

    def ensure(self, within: float = 0) -> None:
        for _ in range(self.away if within else 0):
            self.away -= 1
        if self.away:
            raise ConnectionLost("cp1: no route to host")

    def reconnect(self) -> None:
        self.mute = False

    def run(self, script: str, *, on_line: Callable[[str], None], feed: Feed, **_: Any) -> Answer:
        self.takes += 1
        had = shlex.split(script.split("\nhad=")[1].splitlines()[0])[0]
        if had and had != f"lock {self.generation}":
            on_line("held run=")
            on_line("held left=fenced")
            return Answer(0, [], [])
        self.generation += not had
        on_line(f"locked lock {self.generation}")
        while (said := feed.get()) not in ("q", None):
            if said == "?" and not self.mute:
                on_line("still")
        return Answer(0, [], [])


def locked(node: Node) -> ClusterLock:
    return ClusterLock(cast(Any, node), Holder("r1", "ops@desk", "deploy"))


def test_every_step_asks_the_node_itself() -> None:
    node = Node()
    lock = locked(node)
    lock.ensure()
    lock.ensure()
    assert (node.takes, lock.fence, lock.generation) == (1, "lock 6", 6)


def test_a_lost_connection_is_made_again_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slept: it believes that it holds the lock, and its connection is dead without a sign."""
    monkeypatch.setattr(locking, "STILL_SECONDS", 0.2)
    node = Node()
    lock = locked(node)
    lock.ensure()
    node.mute, node.away = True, 3
    lock.ensure()
    assert (node.takes, lock.fence) == (2, "lock 6"), "taken again, by the same number"


def test_after_another_run_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "STILL_SECONDS", 0.2)
    node = Node()
    lock = locked(node)
    lock.ensure()
    node.mute, node.generation = True, 7
    with pytest.raises(Locked, match="this run lost the cluster's lock on cp1, and another run had it since: its plan is of before that"):
        lock.ensure()
    with pytest.raises(Locked):
        lock.ensure()


@pytest.mark.parametrize(
    ("newest", "own", "goes_on"),
    [
        ("", "a 5", True),
        ("a 4", "a 5", True),
        ("a 5", "a 5", True),
        ("a 6", "a 5", False),
        ("b 6", "a 5", True),
        ("odd", "a 5", True),
        ("a 6", "", True),
    ],
)
def test_a_node_refuses_a_run_that_a_newer_one_came_before(tmp_path: Path, newest: str, own: str, goes_on: bool) -> None:
    home = tmp_path / "daytwo"
    home.mkdir()
    (home / "fence").write_text(newest + "\n")
    kept = keep_script("r1-cluster-x", Holder("r1", "ops@desk", "deploy"), "staged", [], home=str(home), fence=own)
    done = subprocess.run(["sh", "-s"], input=kept, text=True, capture_output=True, check=False)
    assert (done.returncode == 0, (home / "changes").exists()) == (goes_on, goes_on), done.stderr
    assert (home / "fence").read_text().strip() == (own if goes_on and own else newest)
    assert goes_on or "another run was here since this one lost the cluster's lock" in done.stderr
    files = (FileEdit(str(tmp_path / "a"), None, b"x"),)
    change = Change("r1-w1-kubelet", "w1", "kubelet", "kubelet", "u.service", "s", files, "http://127.0.0.1/", None, None)
    staged = stage_script(change, Holder("r1", "ops@desk", "deploy"), {}, own).partition("lay_down() {")[0].replace(HOME, str(home))
    (home / "fence").write_text(newest + "\n")
    told = subprocess.run(["sh", "-s"], input=staged, text=True, capture_output=True, check=False).stdout
    assert goes_on or told.startswith("state=refused\nreason=another run was here since")
    assert (told == "") == goes_on


def _children(pid: int) -> set[str]:
    """What the children of a process are called (proc(5))."""
    numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = (Path(f"/proc/{number}/comm") for number in numbers)
    return {comm.read_text().strip() for comm in found if comm.exists()}
