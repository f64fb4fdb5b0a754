"""What is typed: python -m tests.lab and python -m tests.lab.show."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.__main__ import parser
from tests.lab.show import line

ROOT = Path(__file__).resolve().parents[3]


def show(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.lab.show", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_a_command_is_shown_before_its_output_and_its_code_passed_on() -> None:
    done = show("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "$ sh -c 'echo out; echo err >&2; exit 3'\nout\n", "err\n")


def test_a_missing_command() -> None:
    done = show("no-such-program")
    assert (done.returncode, done.stdout) == (127, "$ no-such-program\n")
    assert done.stderr == "no-such-program: No such file or directory\n"


def test_bold_on_a_terminal_only() -> None:
    assert line(["ls", "a b"], tty=False) == "$ ls 'a b'"
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "tests.lab.show", "true"], cwd=ROOT, stdout=theirs, check=False)
    os.close(theirs)
    shown = os.read(ours, 100)
    os.close(ours)
    assert done.returncode == 0
    assert shown == b"\x1b[1m$ true\x1b[0m\r\n"


def test_a_command_for_a_node_is_passed_on_as_typed() -> None:
    given = parser().parse_args(["ssh", "w1", "ls", "-l", "--all"])
    assert (given.node, given.command) == ("w1", ["ls", "-l", "--all"])


def test_the_shape_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_PLANES", "3")
    monkeypatch.setenv("WORKERS", "")
    given = parser().parse_args(["up"])
    assert (given.control_planes, given.workers) == (3, 2)
