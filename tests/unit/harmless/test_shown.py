"""Whatever way text takes to the operator's terminal, or to a report: it comes out harmless."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from pyinfra.api import output

from roles.engine import table, voice
from roles.engine.bridge import refusals, refuse
from roles.engine.findings import Result
from roles.engine.findings.render import junit
from roles.engine.scripts import pages
from roles.engine.voice import show, show_lines

ROOT = Path(__file__).resolve().parents[3]
NAME = "w1\x1b]52;c;YQ==\x07\u202e\nHALTED: w2"
SHOWN = "w1\\x1b]52;c;YQ==\\x07\\u202e\\nHALTED: w2"


def test_a_line_stays_one_line(printed: list[str]) -> None:
    show(f"\n[1/2] {NAME}: kubelet")
    show_lines(table.render(["node"], [[NAME]]))
    assert printed == [f"\n[1/2] {SHOWN}: kubelet", f"node\n{'-' * len(SHOWN)}\n{SHOWN}"]


def test_a_reason_of_a_refusal_is_no_other_reason() -> None:
    text = str(refusals([f"{NAME}\n  - cp1: fine", "second"]))
    bars = "w1\\x1b]52;c;YQ==\\x07\\u202e\n    | HALTED: w2\n    |   - cp1: fine"
    assert text == f"refused, nothing was written on any node:\n  - {bars}\n  - second"
    assert str(refuse(NAME)) == SHOWN


def test_reports_have_it_escaped() -> None:
    found = ElementTree.fromstring(junit([Result("w1", "kubelet-gates", "fail", NAME)]).partition("\n")[2])
    failure = found.find(".//failure")
    assert failure is not None and failure.get("message") == SHOWN.replace("\\nHALTED", "\nHALTED")
    assert pages().from_string("{{ name }} <b>").render(name=f"<{NAME}") == f"&lt;{SHOWN} <b>".replace("\\nHALTED", "\nHALTED")


HOST = """
import sys
import pyinfra_cli.main  # as pyinfra's own command does
import click, gevent, pyinfra
from pyinfra.api import output
from pyinfra_cli.exceptions import UnexpectedExternalError
from pyinfra_cli.log import setup_logging
from roles.engine.bridge import terminal

output.set_formatter(click.style)
output.set_echo(click.echo)
setup_logging(20)
terminal.guard()
terminal.guard()
bad = "\\x1b]52;c;YQ==\\x07 \\u202e"
pyinfra.logger.error("    [w1] " + click.style("SSH error (%s)", "red"), bad)
output.echo("[w1] " + bad, err=True)
try:
    raise RuntimeError(bad)
except RuntimeError as error:
    UnexpectedExternalError(error, "deploys/status.py").show()

def fails():
    raise ValueError(bad)

gevent.spawn(fails).join()
"""


def test_what_pyinfra_and_gevent_print_of_a_host_is_harmless(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOST], cwd=ROOT, capture_output=True, check=True, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    )
    said = done.stderr.decode()
    assert said.count("\\x1b]52;c;YQ==\\x07 \\u202e") == 4, said
    assert "\x1b]" not in said and "\x07" not in said and "\u202e" not in said
    assert "Traceback" not in said and "ValueError" in said and "SSH error" in said
    kept = list((tmp_path / "daytwo/errors").iterdir())
    assert len(kept) == 2 and all(path.stat().st_mode & 0o777 == 0o600 and str(path) in said for path in kept)
    assert all("Traceback" in path.read_text() and "\x1b" not in path.read_text() for path in kept)


def test_the_command_itself_is_guarded_before_it_connects() -> None:
    text = (ROOT / "config.py").read_text()
    assert "terminal.guard()" in text and "host_keys.guard()" in text
    assert voice._out is output.echo
