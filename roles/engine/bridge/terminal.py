"""Output to the terminal: all text of daytwo, and that of pyinfra, its errors and gevent, goes through this module.

Text from a node, a pod or the API never reaches the terminal raw (roles/engine/harmless.py). Written for pyinfra 3.10 (api/output.py,
pyinfra_cli/log.py, pyinfra_cli/exceptions.py). config.py calls `guard` before pyinfra connects to any host.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import signal
import sys
from typing import Any

import gevent
import pyinfra
from pyinfra.api import output
from pyinfra.api.state import State

from roles.engine import folding, voice
from roles.engine.bridge import command_line, unforeseen
from roles.engine.harmless import coloured
from roles.engine.screen import has_colours, painted, width, wrap

# `[w1] ...`, maybe in colour.
_OF_A_HOST = re.compile(r"(?:\x1b\[[0-9;]*m)*\[")
# How pyinfra says that an operation failed.
_COUNTED = re.compile(r"executed [0-9]+ commands")

# Of pyinfra's lines, by its formatter.
_INDENT = 4


class _Log(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            record.msg, record.args = "\n".join(map(_fitting, coloured(record.getMessage()).split("\n"))), None
            if command_line.is_quiet():
                # daytwo has said what it did, and why a host failed.
                return record.levelno > logging.INFO and not _COUNTED.search(record.msg)
            # What pyinfra says of each host (Connected, Ready, Success), unless it is a warning or an error.
            return not (record.levelno == logging.INFO and folding.folds() and _OF_A_HOST.match(record.msg))
        return True


def _fitting(line: str) -> str:
    """Wrapped, unless it is a row of pyinfra's own tables, which has columns."""
    most = width(sys.stderr)
    return line if "  " in line.strip() else wrap(line, most and most - _INDENT)


def guard() -> None:
    """From now on pyinfra's output is harmless: log lines, output of commands and messages; of an error that nobody expects only a
    sentence, and its traceback is in a file. Calling it again changes nothing."""
    if not any(isinstance(one, _Log) for one in pyinfra.logger.filters):
        pyinfra.logger.addFilter(_Log())
    voice.speak_by(output.echo)
    if output.is_output_active() and not hasattr(output._echo, "guarded"):
        output.set_echo(_guarded(output._echo))
    if not hasattr(State.init, "guarded"):
        State.init = _counted(State.init)
    gevent.get_hub().print_exception = lambda context, kind, error, trace: unforeseen.say(error)
    errors = sys.modules.get("pyinfra_cli.exceptions")  # importing it would change the interpreter (gevent's monkey patches)
    if errors is not None:
        # click.echo asks it whether to keep colours, for all that pyinfra and daytwo print.
        errors.click.utils.resolve_color_default = lambda color=None: has_colours() if color is None else color
        if not hasattr(errors.WrappedError.show, "guarded"):
            errors.WrappedError.show = _refusing(errors.WrappedError.show)
        for one in (errors.UnexpectedExternalError, errors.UnexpectedInternalError):
            one.show = lambda self, file=None: unforeseen.say(self.exception)


def _refusing(show: Any) -> Any:
    """A refusal in daytwo's words alone. Other errors are pyinfra's."""

    @functools.wraps(show)
    def refusing(self: Any, file: Any = None) -> None:
        if isinstance(self.exception, unforeseen.RunRefused):
            if said := self.exception.last_lines:
                text = "\n".join(wrap(line, width(sys.stderr)) for line in coloured(said).split("\n"))
                output.echo(painted(text) if has_colours(sys.stderr) else text, err=True)
        else:
            show(self, file)

    refusing.guarded = True  # type: ignore[attr-defined]
    return refusing


def _unread(broken: Any) -> None:
    """The reader of a pipe has ended, as `head` does. What follows is written to nowhere (docs.python.org, signal, Note on SIGPIPE), and a
    process that has changed nothing ends as by SIGPIPE."""
    pipe = os.fstat(broken.fileno())
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if os.path.samestat(os.fstat(stream.fileno()), pipe):
            os.dup2(null, stream.fileno())
    os.close(null)
    if not _keeps_on:
        command_line.leave_by(signal.SIGPIPE)


def _counted(init: Any) -> Any:
    """State.init, which then says how many hosts the run has."""

    @functools.wraps(init)
    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        hosts = [host for host in self.inventory if self.is_host_in_limit(host)]
        with contextlib.suppress(ValueError):  # the first deploy refuses that
            folding.set_run(len(hosts), (host.data.get(folding.KEY) for host in hosts))

    counted.guarded = True  # type: ignore[attr-defined]
    return counted


_keeps_on = False


def keep_on() -> None:
    """From now on something may have been changed: if nobody reads the output any more, the run goes on without it. Its record has it."""
    global _keeps_on  # noqa: PLW0603 - one process is one run
    _keeps_on = True


def _guarded(echo: Any) -> Any:
    def guarded(message: Any = None, **options: Any) -> None:
        try:
            echo(coloured(message) if isinstance(message, str) else message, **options)
        except BrokenPipeError:
            _unread(sys.stderr if options.get("err") else sys.stdout)

    guarded.guarded = True  # type: ignore[attr-defined]
    return guarded
