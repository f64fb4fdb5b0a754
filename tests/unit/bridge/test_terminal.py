"""What daytwo and pyinfra print on a terminal: its width, and its colours or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roles.engine.screen import columns
from tests.lab import picture

ROOT = Path(__file__).resolve().parents[3]
COMMAND = "pyinfra inventories/prod.py deploys/uncordon.py --data nodes=w1 -y"
HOST = f"""
import pyinfra_cli.main  # as pyinfra's own command does
import click, pyinfra
from pyinfra.api import output
from pyinfra_cli.exceptions import WrappedError
from pyinfra_cli.log import setup_logging
from roles.engine import table, voice
from roles.engine.bridge import refusals, terminal

output.set_formatter(click.style)
output.set_echo(click.echo)
setup_logging(20)
terminal.guard()
WrappedError(refusals(["w1: " + "the kubelet does not answer, " * 4 + "uncordon it: {COMMAND}", "cp1: [red]no\\x1b[2J\\n- fine " + "x " * 40])).show()
pyinfra.logger.info("    Operation" + " " * 60 + "Hosts   Success")
voice.show("HALTED: w1, kubelet: reverted: " + "it does not answer " * 4)
voice.show_lines(table.render(["node", "outcome", "why"], [["w1", "confirmed", "it answers " * 9]]))
voice.show_document('{{"outcome":  "confirmed"}}' + " " * 90 + ".")
"""


def shown(monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[str]:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(picture, "COLUMNS", 80)
    code, lines = picture.record([sys.executable, "-c", HOST], ROOT)
    assert code == 0, lines
    return lines


def test_all_that_is_printed_fits_and_commands_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch)
    plain = [picture.plain(line) for line in lines]
    long = [line.split() for line in plain if columns(line) > 80]
    assert long == [["Operation", "Hosts", "Success"], ['{"outcome":', '"confirmed"}', "."]], plain
    assert any(line.strip() == COMMAND for line in plain) and "    | - fine x x" in "\n".join(plain)
    assert "\x1b[31mHALTED\x1b[0m" in "\n".join(lines) and "\x1b[32mconfirmed\x1b[0m" in "\n".join(lines)
    assert "\x1b[2J" not in "\n".join(lines) and "[red]no\\x1b[2J" in "\n".join(plain)


def test_no_color_has_none_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in "\n".join(shown(monkeypatch, NO_COLOR="1"))


@pytest.mark.parametrize("forced", [True, False])
def test_without_a_terminal_nothing_wraps_and_colours_are_asked_for(forced: bool) -> None:
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "60"} | ({"FORCE_COLOR": "1"} if forced else {})
    done = subprocess.run([sys.executable, "-c", HOST], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert ("\x1b[31mHALTED\x1b[0m" in done.stdout) is ("REFUSED" in done.stderr and "\x1b[31m" in done.stderr) is forced
    plain = picture.plain(done.stdout)
    assert [line.split()[0] for line in plain.splitlines()] == ["HALTED:", "node", "----", "w1", '{"outcome":']
    assert '{"outcome":  "confirmed"}' in done.stdout
