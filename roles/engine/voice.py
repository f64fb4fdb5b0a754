"""The voice of a run: its lines for people. Where they go is a port; on the operator's machine the bridge gives it the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from roles.engine.commands import as_typed, whole
from roles.engine.harmless import harmless
from roles.engine.screen import has_colours, painted, painted_diff, wrapped

_out: Callable[[str], object] = print
_halted = False


def speak_by(out: Callable[[str], object]) -> None:
    """From now on `out` gets each text."""
    global _out  # noqa: PLW0603 - a process has one voice
    _out = out


def show(text: str = "") -> None:
    """Print one sentence on standard output, which wraps at words on a terminal; line feeds at the beginning of `text` become empty lines
    before it. Any other line feed is part of a value, and shown as `\\n`. A deploy that it names becomes a whole command."""
    line = text.lstrip("\n")
    _print("\n" * (len(text) - len(line)) + wrapped(whole(line)))


def conclude(line: str, *, halted: bool = False) -> None:
    """Print the last line of a deploy: what came of it, and the next command. `halted`: not all of it is done."""
    global _halted  # noqa: PLW0603 - a process has one voice
    _halted = _halted or halted
    show(f"\n{line}")


def has_halted() -> bool:
    """A deploy has said in its last line that not all of it is done."""
    return _halted


def show_lines(text: str) -> None:
    """Print text of several lines that daytwo formats, such as a table. It does not wrap here. The caller has removed line feeds from
    values in it, or prefixed their lines with a mark that no line of daytwo has."""
    _print(harmless(as_typed(text)))


def show_document(text: str) -> None:
    """Print what another program reads: it never has a colour, and its lines are as they are."""
    _out(harmless(text))


def show_diff(lines: Iterable[str], indent: str = "    ") -> None:
    """Print the lines of a unified diff as they are."""
    text = "\n".join(indent + (painted_diff(line) if has_colours() else line) for line in map(harmless, lines))
    if text:
        _out(text)


def _print(text: str) -> None:
    _out(painted(text) if has_colours() else text)
