"""What could steer a terminal, or look like other text, is shown and does nothing."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from roles.engine.harmless import MOST_CHARACTERS, as_json, coloured, harmless, in_list, one_line

CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CLIPBOARD, "\\x1b]52;c;cm0gLXJmIC8=\\x07"),
        ("\x1b[2J\x1b[1;1H", "\\x1b[2J\\x1b[1;1H"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("a\x08b\x7f", "a\\x08b\\x7f"),
        ("w1\u202e1pc", "w1\\u202e1pc"),
        ("\u2066\u2069\u200e\u200f\u061c", "\\u2066\\u2069\\u200e\\u200f\\u061c"),
        ("ap\u200bi\ufeff\u2060\u00ad", "ap\\u200bi\\ufeff\\u2060\\xad"),
        ("a\u3164\ufe0f\U000e0101", "a\\u3164\\ufe0f\\U000e0101"),
        ("a\u2028b\u2029c\x85d\x0be", "a\\u2028b\\u2029c\\x85d\\x0be"),
        ("a\u00a0b\U000e0041", "a\\xa0b\\U000e0041"),
        ("half \udc80", "half \\udc80"),
        ("Käse, 東京, naïve", "Käse, 東京, naïve"),
    ],
)
def test_what_is_not_plain_text_is_shown_escaped(text: str, shown: str) -> None:
    assert harmless(text) == one_line(text) == coloured(text) == shown
    assert harmless(shown) == shown


def test_no_character_at_all_that_controls_or_hides_comes_through() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            shown = one_line(f"x{character}y")
            assert shown.isascii() and shown.isprintable() and character not in shown, hex(number)


@pytest.mark.parametrize("text", ["x" * 300_000, "\x1b" * 9000, "\U000e0041" * 10_001])
def test_no_value_fills_the_screen(text: str) -> None:
    shown = one_line(text)
    assert len(shown) <= MOST_CHARACTERS and shown.endswith(f"... (cut: it has {len(text)} characters)") and one_line(shown) == shown
    assert one_line("x" * MOST_CHARACTERS) == "x" * MOST_CHARACTERS


def test_a_value_has_no_line_of_its_own() -> None:
    assert one_line("pod\nHALTED: w1\tdone") == "pod\\nHALTED: w1\\tdone"
    assert harmless("one\n\ttwo") == "one\n\ttwo"
    assert in_list("first\nrefused\x1b") == "first\n    | refused\\x1b"


def test_colours_of_pyinfra_stay_and_no_other_sequence() -> None:
    assert coloured("\x1b[31mno\x1b[0m \x1b[8mhidden\x1b[30mdark\x1b[2J") == "\x1b[31mno\x1b[0m \\x1b[8mhidden\\x1b[30mdark\\x1b[2J"


def test_a_document_in_json_stays_one() -> None:
    value = {"why": f"{CLIPBOARD}\u202e\x7f\x9b\U000e0041 ü"}
    text = as_json(value)
    assert json.loads(text) == value and harmless(text) == text
