"""The script that holds the cluster's lock, on a scratch folder: who is refused, and what it is told of the holder."""

from __future__ import annotations

import fcntl
import re
import subprocess
from pathlib import Path

from roles.change.bundle import Holder
from roles.scripts import templates
from tests.lab.tools import wait_until


def script(home: Path, run: str, take_over: str = "") -> str:
    holder = Holder(run, "ops@desk", "deploys/feature_gates.py")
    return templates().get_template("lock.sh.j2").render(home=str(home), run=run, take_over=take_over, life=60, holder=holder.lines)


def begun(home: Path, run: str, take_over: str = "") -> subprocess.Popen[str]:
    command = ["sh", "-c", script(home, run, take_over)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_run_is_told_who_holds_it(tmp_path: Path) -> None:
    first = begun(tmp_path, "r1")
    assert first.stdout is not None and first.stdout.readline() == "locked\n"
    told = begun(tmp_path, "r2").communicate("", timeout=600)[0].splitlines()
    assert told[:3] == ["held run=r1", "held who=ops@desk", "held command=deploys/feature_gates.py"]
    assert re.fullmatch(r"held left=alive; its sign of life is good for \d+ s", told[3]), told[3]
    assert first.communicate("q", timeout=600)[0] == "released\n"
    third = begun(tmp_path, "r3")
    assert third.communicate("q", timeout=600)[0] == "locked\nreleased\n"


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


def test_what_a_dead_holder_left_is_taken_over_by_name_only(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text("run=r1\nwho=ops@desk\ncommand=c\nexpires=1\n")
    assert begun(tmp_path, "r2").communicate("", timeout=600)[0].splitlines()[-1] == "held left=gone"
    assert begun(tmp_path, "r2", "r1").communicate("q", timeout=600)[0].splitlines() == ["taken over r1 of ops@desk", "locked", "released"]


def _children(pid: int) -> set[str]:
    """What the children of a process are called (proc(5))."""
    numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = (Path(f"/proc/{number}/comm") for number in numbers)
    return {comm.read_text().strip() for comm in found if comm.exists()}
