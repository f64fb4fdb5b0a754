"""The voice of a run: its lines for people. Where they go is a port; on the operator's machine the bridge gives it the terminal."""

from __future__ import annotations

from collections.abc import Callable

from roles.engine.harmless import harmless, one_line

_out: Callable[[str], object] = print


def speak_by(out: Callable[[str], object]) -> None:
    """From now on `out` gets each text."""
    global _out  # noqa: PLW0603 - a process has one voice
    _out = out


def show(text: str = "") -> None:
    """Print one line on standard output; line feeds at the beginning of `text` become empty lines before it. Any other line feed is part
    of a value, and shown as `\\n`."""
    line = text.lstrip("\n")
    _out("\n" * (len(text) - len(line)) + one_line(line))


def show_lines(text: str) -> None:
    """Print text of several lines that daytwo formats: a table, a diff, a document. The caller has removed line feeds from values in it,
    or prefixed their lines with a mark that no line of daytwo has."""
    _out(harmless(text))
