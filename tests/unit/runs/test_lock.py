"""The script that holds the cluster's lock, on a scratch folder: who is refused, and what it is told of the holder."""

from __future__ import annotations

import fcntl
import re
import subprocess
from pathlib import Path

import pytest

from roles.engine.scripts import templates
from roles.engine.transaction.change_script import Holder
from tests.lab.tools import wait_until


def script(home: Path, run: str, take_over: str = "", generation: str = "") -> str:
    holder = Holder(run, "ops@desk", "deploys/feature_gates.py")
    return (
        templates()
        .get_template("lock.sh.j2")
        .render(home=str(home), run=run, generation=generation, take_over=take_over, life=60, holder=holder.lines)
    )


def begun(home: Path, run: str, take_over: str = "", generation: str = "") -> subprocess.Popen[str]:
    command = ["sh", "-c", script(home, run, take_over, generation)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_run_is_told_who_holds_it(tmp_path: Path) -> None:
    first = begun(tmp_path, "r1")
    assert first.stdout is not None and first.stdout.readline().startswith("locked ")
    told = begun(tmp_path, "r2").communicate("", timeout=600)[0].splitlines()
    assert told[:3] == ["held run=r1", "held who=ops@desk", "held command=deploys/feature_gates.py"]
    assert re.fullmatch(r"held left=alive; its heartbeat is valid for \d+ s", told[3]), told[3]
    assert first.communicate("q", timeout=600)[0] == "released\n"
    third = begun(tmp_path, "r3")
    assert re.fullmatch(r"locked \S+ 2\nreleased\n", third.communicate("q", timeout=600)[0])


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
    assert told[3].startswith("held left=alive; its heartbeat is valid for 9")


def test_what_a_dead_holder_left_is_taken_over_by_name_only(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text("run=r1\nwho=ops@desk\ncommand=c\nexpires=1\n")
    assert begun(tmp_path, "r2").communicate("", timeout=600)[0].splitlines()[-1] == "held left=gone"
    told = begun(tmp_path, "r2", "r1").communicate("q", timeout=600)[0].splitlines()
    assert told[0] == "taken over r1 of ops@desk" and re.fullmatch(r"locked \S+ 1", told[1]) and told[2:] == ["released"]


def locked(holder: subprocess.Popen[str]) -> str:
    """The generation that a holder got."""
    assert holder.stdout is not None
    word, _, generation = holder.stdout.readline().strip().partition(" ")
    assert word == "locked"
    return generation


def ended(holder: subprocess.Popen[str]) -> None:
    """As with a lost connection, the end of its standard input."""
    assert holder.communicate("", timeout=600)[0] == "" and holder.returncode == 1


def test_who_lost_it_takes_it_again_where_nobody_else_has_held_it(tmp_path: Path) -> None:
    first = begun(tmp_path, "r1")
    generation = locked(first)
    ended(first)
    again = begun(tmp_path, "r1", generation=generation)
    assert locked(again) == generation
    assert again.communicate("q", timeout=600)[0] == "released\n"


def test_who_lost_it_goes_no_further_once_somebody_else_has_held_it(tmp_path: Path) -> None:
    first = begun(tmp_path, "r1")
    generation = locked(first)
    ended(first)
    assert "released" in begun(tmp_path, "r2", take_over="r1").communicate("q", timeout=600)[0]
    assert begun(tmp_path, "r1", generation=generation).communicate("q", timeout=600)[0] == "overtaken\n"


def test_a_holder_of_the_same_run_that_a_dead_connection_left_behind_makes_way(tmp_path: Path) -> None:
    first = begun(tmp_path, "r1")
    generation = locked(first)
    again = begun(tmp_path, "r1", generation=generation)
    assert locked(again) == generation
    assert first.wait(timeout=600) != 0
    assert again.communicate("?q", timeout=600)[0] == "held\nreleased\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.generation", "cluster.lock"]


def test_only_who_holds_the_lock_is_ended(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        (tmp_path / "cluster").write_text(f"run=r1\nwho=ops@desk\ncommand=c\nexpires=1\npid={stranger.pid}\n")
        with (tmp_path / "cluster.lock").open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            second = begun(tmp_path, "r1")
            wait_until("it to wait for the lock", lambda: "flock" in _children(second.pid), 30)
            fcntl.flock(held, fcntl.LOCK_UN)
            locked(second)
        assert stranger.poll() is None
        second.communicate("q", timeout=600)
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("text", ["", "nonsense", "a b c", "0a -1", "$(reboot) 7", "\n"])
def test_a_generation_that_others_wrote_begins_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.generation").write_text(text)
    holder = begun(tmp_path, "r1")
    assert re.fullmatch(r"[0-9a-f-]{36} 1", locked(holder))
    holder.communicate("q", timeout=600)


def _children(pid: int) -> set[str]:
    """What the children of a process are called (proc(5))."""
    numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = (Path(f"/proc/{number}/comm") for number in numbers)
    return {comm.read_text().strip() for comm in found if comm.exists()}
