"""How text fits the terminal: its width, lines that wrap at words, colours. Only text that is harmless already (harmless.py) is wrapped or
coloured: it cannot hold an escape sequence of others.

Without a terminal a line stays one line, whatever its length: a log is searched line by line, and a message that is found must be whole.
Colours only repeat what a word says. They are click.style's, as pyinfra has them.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from roles.engine.harmless import one_line

#: A terminal that does not say how wide it is.
USUAL = 100
LEAST, MOST = 40, 200
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_on_screen = True

# ---- width


@contextmanager
def for_file() -> Iterator[None]:
    """What is formatted within it does not wrap: it is for a file."""
    global _on_screen  # noqa: PLW0603  # one process has one screen
    _on_screen = False
    try:
        yield
    finally:
        _on_screen = True


def width(stream: TextIO | None = None) -> int | None:
    """The columns for a line on the stream (by default standard output): COLUMNS, else those of its terminal. None, without a terminal:
    lines do not wrap. COLUMNS alone is no terminal: GNU readline sets it in the environment of any child."""
    stream = sys.stdout if stream is None else stream
    if not _on_screen or not stream.isatty():
        return None
    asked = os.environ.get("COLUMNS", "")
    columns = int(asked) if re.fullmatch("[0-9]{1,4}", asked) else 0
    with suppress(OSError, ValueError):
        columns = columns or os.get_terminal_size(stream.fileno()).columns
    return min(max(columns or USUAL, LEAST), MOST)


def columns(text: str) -> int:
    """How many columns a terminal takes for a text: two for a wide character (Unicode's East_Asian_Width), none for a mark on another one,
    none for a colour."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(map(_columns, _COLOUR.sub("", text)))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# ---- words

_OPTION = r"--(?:data|limit|chdir) (?:'[^']*'|\S+)|--?[a-z][\w-]*"
_OPTIONS = rf"(?: (?:{_OPTION}))*"
# What stays in one line: an amount and its unit; and what is pasted into a shell: text in backticks; a command of daytwo with its options;
# another one after a colon or `see`, to the end of its clause.
_WHOLE = re.compile(
    r"NOT (?:PROVEN|KNOWN|NOW)|(?<![\w.])[0-9.]+ s\b|`[^`]+`"
    rf"|(?:(?<!\S)\S*pyinfra \S+ )?\bdeploys/\w+\.py{_OPTIONS}"
    r"|(?<!\S)daytwo(?: -i \S+)? [a-z_]+(?: (?:'[a-z_]+=[^']*'|[a-z_]+=\S+))*"
    rf"|(?<!\S)(?:{_OPTION}){_OPTIONS}"
    r"|(?:(?<=: )|(?<=see ))(?:kubectl|kubeadm|systemctl|journalctl|etcdctl|crictl) (?:(?![;,.] |[()]).)+"
)
# The indentation of a line, and the mark of a list item.
_MARGIN = re.compile(r" *(?:- |-> |\| )?")


def words(text: str) -> Iterator[str]:
    """The parts between which a text may be broken: its words, with a whole command as one of them."""
    whole = _WHOLE.sub(lambda found: found[0].replace(" ", "\0"), text)
    return (word.replace("\0", " ") for word in whole.split(" ") if word)


def fill(text: str, most: int, first: int | None = None, more: Sequence[str] = ()) -> list[str]:
    """The words of a text, and of `more` texts behind it, in lines of `most` columns, `first` in the first line. Only a word that is longer
    than a line is wider."""
    lines, room = [""], most if first is None else first
    for word in (word for part in (text, *more) for word in words(part)):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if columns(longer) <= room or not (lines[-1] or (len(lines) == 1 and room < most)):
            lines[-1] = longer
        else:
            lines.append(word)
            room = most
    return lines


def wrapped(line: str) -> str:
    """`one_line`, wrapped if standard output is a terminal that is narrower."""
    return wrap(one_line(line), width())


def wrap(line: str, most: int | None, more: Sequence[str] = ()) -> str:
    """One line, and `more` texts behind it (no command begins in one and ends in the next), in lines of `most` columns (None: as it is),
    with a hanging indent: below the first word of a list item, else two columns more than its own. A quoted line, which begins with a bar,
    keeps it in each line."""
    whole = " ".join([line, *more])
    if most is None or columns(whole) <= most:
        return whole
    margin = _MARGIN.match(line)[0]  # type: ignore[index]  # it matches nothing, too
    rest = margin if margin.endswith("| ") else " " * (len(margin) if margin.strip() else len(margin) + 2)
    first, *more = fill(line[len(margin) :], most - len(rest), most - len(margin), more)
    return "\n".join([margin + first, *(rest + text for text in more)])


# ---- colours


def has_colours(stream: TextIO | None = None) -> bool:
    """NO_COLOR (https://no-color.org) has the first word, then FORCE_COLOR, then whether the stream (by default standard output) is a
    terminal. An empty value counts as none."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout if stream is None else stream).isatty()


_RED, _GREEN, _YELLOW, _CYAN = 31, 32, 33, 36
_WORDS = {
    _RED: r"HALTED|REFUSED|FAILED|CRITICAL|STILL CORDONED|STILL THERE|REPAIR BY HAND|STATE UNKNOWN",
    _YELLOW: r"WARNING|NOT STARTED|NOT ALL DONE|NOT ALL PROVEN|NOT PROVEN|NOT KNOWN|NOT NOW|LEFT OUT|NOT READ|NOT ALL READ|DIFFERS",
    _CYAN: r"NOTE(?=$)",
    _GREEN: r"DONE|NOTHING TO DO",
}
_OUTCOMES = {
    _RED: "reverted|revert-failed|halted|failed|fail|refused",
    _YELLOW: "unknown|not known|interrupted",
    _GREEN: "confirmed|pass|done",
}
_WORD = re.compile(rf"\b(?:({_WORDS[_RED]})|({_WORDS[_YELLOW]})|({_WORDS[_CYAN]})|({_WORDS[_GREEN]}))\b")
# The outcome of a step (`  w1 kubelet: confirmed (12 s)`), and a whole cell of a table.
_OUTCOME = re.compile(
    rf"(^(?:HALTED: |  (?! ))[^:]+: |(?<=  ))(?:({_OUTCOMES[_RED]})|({_OUTCOMES[_YELLOW]})|({_OUTCOMES[_GREEN]}))(?=  |$|(?: \(|: ))"
)


def painted(text: str) -> str:
    """Outcomes, warnings and what keeps a run from its end, in lines, in their colours."""
    return "\n".join(_WORD.sub(_word, _OUTCOME.sub(_outcome, line)) for line in text.split("\n"))


def _word(found: re.Match[str]) -> str:
    return _in_colour(found[0], [*_WORDS][(found.lastindex or 1) - 1])


def _outcome(found: re.Match[str]) -> str:
    return found[1] + _in_colour(found[0][len(found[1]) :], [*_OUTCOMES][(found.lastindex or 2) - 2])


def _in_colour(text: str, number: int) -> str:
    return f"\x1b[{number}m{text}\x1b[0m"


def painted_diff(line: str) -> str:
    """A line of a unified diff: what goes away in red, what comes in green."""
    number = {"-": _RED, "+": _GREEN, "@": _CYAN}.get(line[:1])
    return _in_colour(line, number) if number else line
