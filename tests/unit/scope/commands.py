"""Runs commands of pyinfra, one after the other in one process: `python -m tests.unit.scope.commands`. Standard input has them in JSON, each
as its words and what is typed to it. Prints for each its exit status, its output, and how many commands its hosts were sent."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

import pyinfra
from pyinfra.api.output import set_echo, set_formatter
from pyinfra.connectors.fake import FakeConnector
from pyinfra_cli.main import cli, click

sent: list[str] = []


def run(words: list[str], typed: str) -> dict[str, Any]:
    sent.clear()
    said, sys.stdin = io.StringIO(), io.StringIO(typed)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            cli.main(words)
            code: Any = 0
        except SystemExit as end:
            code = end.code
    return {"code": 0 if code is None else code, "said": said.getvalue(), "sent": len(sent)}


def main() -> None:
    pyinfra.is_cli = True
    set_formatter(click.style)
    set_echo(click.echo)
    real = FakeConnector.run_shell_command

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(str(self.host))
        return real(self, *arguments, **options)

    FakeConnector.run_shell_command = counted
    found = [run(words, typed) for words, typed in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
