"""Hosts that do not answer, with pyinfra's real command: the others go on, the exit status is 1, and a later failure still stops the run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOOK = """
from roles.engine.bridge import run_once
from roles.engine.voice import show
run_once("look", lambda fleet: show(f"reached {[one.name for one in fleet.targets]}, not {[one.unreachable for one in fleet.unreachable]}"))
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else gets."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def run(folder: Path, hosts: str, *deploys: str, more: tuple[str, ...] = ("-y",)) -> subprocess.CompletedProcess[str]:
    (folder / "inventory.py").write_text(f"hosts = [{hosts}]\n")
    names = []
    for number, text in enumerate(deploys):
        names.append(folder / f"deploy{number}.py")
        names[-1].write_text(text)
    pyinfra = Path(sys.executable).with_name("pyinfra")
    environment = {**os.environ, "PYINFRA_PROGRESS": "off", "LC_ALL": "C.UTF-8"}
    command = [pyinfra, folder / "inventory.py", *names, *more]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL
    )


def away(port: int) -> str:
    return f"('w9', {{'ssh_hostname': '127.0.0.1', 'ssh_port': {port}}})"


@pytest.mark.parametrize("more", [("-y",), ("--dry",)])
def test_the_others_go_on_and_the_reason_is_kept(tmp_path: Path, port: int, more: tuple[str, ...]) -> None:
    done = run(tmp_path, f"'@local', {away(port)}", LOOK, more=more)
    assert f"reached ['@local'], not ['w9: unreachable: Could not connect (Unable to connect to port {port} on 127.0.0.1)']" in done.stdout
    assert done.returncode == 1 and "continue?" not in done.stdout + done.stderr


def test_a_host_that_limit_leaves_out_is_not_missed(tmp_path: Path, port: int) -> None:
    done = run(tmp_path, f"'@local', {away(port)}", LOOK, more=("-y", "--limit", "@local"))
    assert "reached ['@local'], not []" in done.stdout and done.returncode == 0


def test_no_host_at_all(tmp_path: Path, port: int) -> None:
    done = run(tmp_path, away(port), LOOK)
    assert "no host of this run can be connected to; fix the connection" in done.stderr and "reached" not in done.stdout
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_a_failure_after_that_still_stops_the_run(tmp_path: Path, port: int) -> None:
    deploys = (
        "from pyinfra.operations import server\nserver.shell('exit 3')",
        f"from pyinfra.operations import server\nserver.shell('touch {tmp_path}/ran')",
    )
    done = run(tmp_path, f"'@local', {away(port)}", *deploys)
    assert done.returncode == 1 and not (tmp_path / "ran").exists()
    done = run(tmp_path, f"'@local', {away(port)}", deploys[1])
    assert done.returncode == 1 and (tmp_path / "ran").exists()


CONCLUDES = """
from roles.engine.bridge import run_once
from roles.engine.voice import conclude
run_once("read", lambda fleet: conclude("what came of it", halted=HALTED))
"""
FAILS = 'from pyinfra.operations import server\nserver.shell(commands=["false"])\n'


@pytest.mark.parametrize("halted", [True, False])
def test_a_failure_is_said_once_and_not_because_an_earlier_deploy_has_ended_well(tmp_path: Path, halted: bool) -> None:
    done = run(tmp_path, "'@local'", CONCLUDES.replace("HALTED", str(halted)), FAILS)
    assert done.returncode == 1 and "what came of it" in done.stdout
    assert ("FAILED: the run ended without success on @local" in done.stderr) is not halted, done.stderr
