"""Output that nobody reads any more, as after `| head`: a command that has changed nothing ends as by SIGPIPE, and a run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.scope.fake_hosts import HOSTS

ROOT = Path(__file__).resolve().parents[3]
#: A real run on API objects, whose step says something before it writes.
RUN = """
import sys
import click
from pyinfra.api.output import set_echo
set_echo(click.echo)
from roles.engine.bridge import terminal
from roles.engine.context import ClusterStep, Stage
from tests.unit.hosts import object_run
from tests.unit.objects.test_object_run import step
terminal.guard()
def loud(context):
    context.say("x" * 100)
    return step("a").write(context)
made = object_run(Stage([ClusterStep("a", "", "", loud, "", about={"path": "/a", "uid": "u"})]))
sys.stderr.write(f"{made.steps[0].outcome} {made.record.path.exists()}")
"""


def without_reader(folder: Path, *words: str, both: bool = False) -> subprocess.Popen[bytes]:
    """A command whose standard output, and with `both` its standard error, nobody reads from the beginning."""
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYINFRA_PROGRESS": "off", "XDG_STATE_HOME": str(folder)}
    errors = write if both else subprocess.PIPE
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=environment, stdout=write, stderr=errors)
    os.close(write)
    return process


@pytest.mark.parametrize("both", [False, True])
def test_a_command_that_has_changed_nothing_ends_quietly(tmp_path: Path, both: bool) -> None:
    (tmp_path / "hosts.py").write_text(HOSTS)
    (tmp_path / "loud.py").write_text("from roles.engine import bridge, voice\n\nbridge.run_once('x', lambda fleet: voice.show('x'))\n")
    words = (str(Path(sys.executable).with_name("pyinfra")), str(tmp_path / "hosts.py"), str(tmp_path / "loud.py"), "-y")
    process = without_reader(tmp_path, *words, both=both)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 141
    assert said in (None, b"--> Loading config...\n")
    assert not (tmp_path / "daytwo/errors").exists(), "it is no defect"


def test_a_run_goes_on_to_its_end_and_has_its_record(tmp_path: Path) -> None:
    process = without_reader(tmp_path, "-c", RUN)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, b"done True")
