"""Where text is shown: all that daytwo prints goes through here, and so does what pyinfra, its errors and gevent print beside it.

Text of a node, a pod or the API never reaches the terminal raw (roles/engine/harmless.py). Written for pyinfra 3.10 (api/output.py,
pyinfra_cli/log.py, pyinfra_cli/exceptions.py). config.py calls `guard` before pyinfra connects to any host.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import gevent
import pyinfra
from pyinfra.api import output

from roles.engine.harmless import coloured, harmless, one_line


def show(text: str = "") -> None:
    """Print one line for the operator, on standard output, after as many empty ones as `text` has line feeds at its beginning. A line
    feed elsewhere is part of a value, and shown as `\\n`."""
    line = text.lstrip("\n")
    output.echo("\n" * (len(text) - len(line)) + one_line(line))


def show_lines(text: str) -> None:
    """Print text whose lines are daytwo's own: a table, a diff, a document. Values in it had their line feeds taken away by who put them
    there, or stand behind a mark that a line of daytwo's never begins with."""
    output.echo(harmless(text))


class _Log(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            record.msg, record.args = coloured(record.getMessage()), None
        return True


class _StandardError:
    """Standard error as it is at the time, for tracebacks."""

    def write(self, text: str) -> int:
        return sys.stderr.write(coloured(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def guard() -> None:
    """From now on what pyinfra prints of hosts is harmless: log lines, output of commands, messages and tracebacks of errors. Once is
    enough, and twice does no harm."""
    if not any(isinstance(one, _Log) for one in pyinfra.logger.filters):
        pyinfra.logger.addFilter(_Log())
    if output.is_output_active() and not hasattr(output._echo, "guarded"):
        output.set_echo(_guarded(output._echo))
    gevent.get_hub().exception_stream = _StandardError()
    errors = sys.modules.get("pyinfra_cli.exceptions")  # to import it would change how the interpreter runs (gevent's monkey)
    if errors is not None and not hasattr(errors.UnexpectedMixin, "guarded"):
        mixin: Any = errors.UnexpectedMixin
        lines, exception = mixin.get_traceback_lines, mixin.get_exception
        mixin.get_traceback_lines = lambda self: [coloured(line) for line in lines(self)]
        mixin.get_exception = lambda self: coloured(exception(self))
        mixin.guarded = True


def _guarded(echo: Any) -> Any:
    def guarded(message: Any = None, **options: Any) -> None:
        echo(coloured(message) if isinstance(message, str) else message, **options)

    guarded.guarded = True  # type: ignore[attr-defined]
    return guarded
