"""Runs commands of pyinfra, one after the other in one process: `python -m tests.unit.scope.commands`, as lists of words in JSON on standard
input. Prints for each its exit status, its output, and how many commands its hosts were sent."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

import click
import pyinfra
import pyinfra_cli.main  # noqa: F401 - its import makes gevent's patches, before anything else is imported
from pyinfra.api.output import set_echo, set_formatter
from pyinfra.connectors.fake import FakeConnector
from pyinfra_cli.cli import cli

sent = 0


def run(words: list[str]) -> dict[str, Any]:
    global sent
    sent, said = 0, io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            cli.main(words)
            code: Any = 0
        except SystemExit as end:
            code = end.code
    return {"code": 0 if code is None else code, "said": said.getvalue(), "sent": sent}


def main() -> None:
    pyinfra.is_cli = True
    set_formatter(click.style)
    set_echo(click.echo)
    real = FakeConnector.run_shell_command

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        global sent
        sent += 1
        return real(self, *arguments, **options)

    FakeConnector.run_shell_command = counted
    found = [run(words) for words in json.load(sys.stdin)]
    json.dump(found, sys.__stdout__)


if __name__ == "__main__":
    main()
