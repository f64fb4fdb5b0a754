"""Makes text of nodes, pods and the API harmless for a terminal: it escapes what could control it, or look like other text. Pure.

It escapes, as Python does (`\\x1b`, `\\u202e`), and never drops: control characters of C0 and C1 (so ESC, CSI, OSC), marks that reverse
the direction of text (Unicode's Bidi_Control), characters without width (Default_Ignorable_Code_Point), line and paragraph separators,
spaces other than the plain one, private and unassigned characters, halves of surrogate pairs. Harmless text does not change, so the
functions are idempotent.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Printable for Python, but invisible: DerivedCoreProperties.txt, Default_Ignorable_Code_Point, without those of category Cf.
_DRAWN_AS_NOTHING = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)]
    + [*range(0xE0100, 0xE01F0)]
)
#: Of a value of others: an annotation may have 256 KiB.
MOST_CHARACTERS = 10_000
_ASCII = re.compile(r"[^ -~]")
# click.style's sequences for colours and bold, and their end; no colour that could hide text on its background.
_COLOUR = re.compile(r"(\x1b\[(?:0|1|3[1-6])m)")


def harmless(text: str) -> str:
    """Several lines: line feeds and tabs stay. For text that daytwo formats; values in it must go through `one_line` first."""
    return "\n".join("\t".join(_line(part) for part in line.split("\t")) for line in text.split("\n"))


def one_line(text: str) -> str:
    """One line, or a part of one: line feeds and tabs are escaped, too. No value can look like a separate line, or fill the screen: of
    more than MOST_CHARACTERS it has the first ones, and how many there are."""
    shown = _line(text[:MOST_CHARACTERS])
    if len(text) > MOST_CHARACTERS or len(shown) > MOST_CHARACTERS:
        shown = f"{shown[: MOST_CHARACTERS - 60]}... (cut: it has {len(text)} characters)"
    return shown


def _line(text: str) -> str:
    if text.isascii():
        return _ASCII.sub(lambda found: _escaped(found[0]), text)
    return "".join(_escaped(character) for character in text)


def coloured(text: str) -> str:
    """Like `harmless`, for text that pyinfra has coloured: its colours stay."""
    return "".join(part if _COLOUR.fullmatch(part) else harmless(part) for part in _COLOUR.split(text))


def in_list(text: str) -> str:
    """A value of several lines in a list: lines after the first begin with a bar, so none of them looks like another item."""
    return harmless(text).replace("\n", "\n    | ")


def as_json(value: Any) -> str:
    """A JSON document, made harmless by JSON's own escapes."""
    return json.dumps(value, indent=1).replace("\x7f", "\\u007f")


def _escaped(character: str) -> str:
    number = ord(character)
    if character.isprintable() and number not in _DRAWN_AS_NOTHING:
        return character
    if number in (9, 10, 13):
        return repr(character)[1:-1]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
