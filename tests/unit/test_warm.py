"""Runs from the process that has loaded pyinfra already are as those of the command itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import operator, warm


def test_a_run_is_as_the_command_itself_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    inventory = tmp_path / "nobody.py"
    inventory.write_text("workers = [('w1', {'ssh_hostname': '127.0.0.1', 'ssh_port': 1})]\n")
    words = [inventory, "deploys/status.py", "-y"]
    number, script = warm.command()
    (tmp_path / "pyinfra").write_text(script)
    (tmp_path / "pyinfra").chmod(0o755)
    options = {"cwd": warm.ROOT, "env": operator.environment(), "stdin": subprocess.DEVNULL, "pass_fds": (number,)}
    real, shells = (
        subprocess.run([folder / "pyinfra", *words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
        for folder in (Path(sys.executable).parent, tmp_path)
    )
    assert (shells.returncode, shells.stdout, shells.stderr) == (real.returncode, real.stdout, real.stderr)
    found = operator.pyinfra("status", "-y", inventory=str(inventory))
    assert (found.code, found.out, found.err) == (real.returncode, real.stdout, real.stderr)
    run = operator.Started("status", "-y", inventory=str(inventory))
    run.process.wait(timeout=600)
    run._reader.join(timeout=20)
    assert not run._reader.is_alive(), "somebody else still has the file that it wrote to"
    assert run.end().out


def test_a_run_that_is_killed_says_so() -> None:
    run = operator.Started("status", "-y", inventory="@local")
    run.send(signal.SIGKILL)
    assert run.end().code == -signal.SIGKILL and operator.Started.end_all()
