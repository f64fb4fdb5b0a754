"""Text for an operator's terminal. Nothing that comes from a node or a cluster may steer it: pods, files and logs say what they like.

What a terminal obeys or hides is shown escaped: C0 and C1 controls (ECMA-48: cursor, colours, OSC 52 for the clipboard), format
characters (Unicode Cf: bidirectional overrides, zero widths, tags), line and paragraph separators, spaces that are not a space, and bytes
that are no text. All of it is what `str.isprintable` says no to. Pure.
"""

from __future__ import annotations

import logging
import re

# The colours of pyinfra's own messages (click.style). None of them hides anything.
_COLOUR = re.compile(r"(\x1b\[(?:[014]|3[1-7]|9[1-7])m)")


def harmless(text: str) -> str:
    """Text of several lines: newlines and tabs are kept, whatever else is no plain character is escaped."""
    return "".join(character if character.isprintable() or character in "\n\t" else _escaped(character) for character in text)


def one_line(text: str) -> str:
    """What belongs in one line or one cell: newlines and tabs are escaped too, so that nobody's text looks like a line of daytwo's."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def set_off(text: str) -> str:
    """What others say, in a line of daytwo's: further lines of it are marked, so that none looks like one of daytwo's."""
    return text.replace("\n", "\n    | ")


def _escaped(character: str) -> str:
    return repr(character)[1:-1]


class Harmless(logging.Filter):
    """For pyinfra's own messages: they quote what a host said. Its colours stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; the message is made harmless."""
        parts = _COLOUR.split(record.getMessage())
        record.msg = "".join(part if number % 2 else harmless(part) for number, part in enumerate(parts))
        record.args = ()
        return True
