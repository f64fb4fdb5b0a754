"""How systemd splits a line into words: quotes, backslashes, C escapes (src/basic/extract-word.c, src/basic/escape.c)."""

from __future__ import annotations

from roles.engine.editing.errors import FormatError
from roles.engine.editing.mapped import Builder, Mapped

WHITESPACE = b" \t\n\r"
_SIMPLE_ESCAPES = {
    ord("a"): 7,
    ord("b"): 8,
    ord("f"): 12,
    ord("n"): 10,
    ord("r"): 13,
    ord("t"): 9,
    ord("v"): 11,
    ord("\\"): 92,
    ord('"'): 34,
    ord("'"): 39,
    ord("s"): 32,
}


def valid_utf8(data: bytes) -> bool:
    """UTF-8 as systemd accepts it: without noncharacters (src/basic/utf8.c, unichar_is_valid)."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(_valid_character(ord(character)) for character in text)


def _valid_character(number: int) -> bool:
    surrogate = 0xD800 <= number <= 0xDFFF
    noncharacter = 0xFDD0 <= number <= 0xFDEF or number & 0xFFFE == 0xFFFE
    return number < 0x110000 and not surrogate and not noncharacter


def split(line: Mapped, *, c_escapes: bool, relaxed: bool = False, unknown_escapes: bool = False) -> list[Mapped]:
    """The words of a line.

    `c_escapes`: as in unit files (EXTRACT_CUNESCAPE); without it, a backslash makes the next byte literal. `relaxed`: an open quote
    or a last backslash ends the word (EXTRACT_RELAX, as for a split variable); else FormatError. `unknown_escapes`: unknown escapes are
    literal (as in ExecStart=); else FormatError.
    """
    words: list[Mapped] = []
    text = line.text
    index = 0
    while True:
        while index < len(text) and text[index] in WHITESPACE:
            index += 1
        if index == len(text):
            return words
        word, index = _one(line, index, c_escapes, relaxed, unknown_escapes)
        words.append(word)


def _one(line: Mapped, begin: int, c_escapes: bool, relaxed: bool, unknown_escapes: bool) -> tuple[Mapped, int]:
    text, spans = line.text, line.spans
    built = Builder(line.source)
    quote = 0
    index = begin
    while index < len(text):
        byte = text[index]
        if byte == 0x5C:
            if index + 1 == len(text):
                if not relaxed:
                    raise FormatError("a line ends in the middle of an escape", value=line.string, way_out="complete it")
                index += 1
                break
            if c_escapes:
                known = _unescape(text, index)
                if known is None and not unknown_escapes:
                    raise FormatError("has an escape that systemd does not know", value=line.string, way_out="double its backslash")
                values, used = known or ((byte, text[index + 1]), 2)
            else:
                values, used = (text[index + 1],), 2
            built.add_all(values, (spans[index][0], spans[index + used - 1][1]))
            index += used
        elif quote:
            if byte == quote:
                quote = 0
            else:
                built.add(byte, spans[index])
            index += 1
        elif byte in b"'\"":
            quote = byte
            index += 1
        elif byte in WHITESPACE:
            break
        else:
            built.add(byte, spans[index])
            index += 1
    if quote and not relaxed:
        raise FormatError("a quote is not closed", value=line.string, way_out="close it")
    return built.done((spans[begin][0], spans[index - 1][1])), index


def _unescape(text: bytes, index: int) -> tuple[tuple[int, ...], int] | None:
    """The bytes that the escape at `index` means, and its length in bytes; None for an unknown one."""
    kind = text[index + 1]
    if kind in _SIMPLE_ESCAPES:
        return (_SIMPLE_ESCAPES[kind],), 2
    for letter, digits, base in ((ord("x"), 2, 16), (ord("u"), 4, 16), (ord("U"), 8, 16)):
        if kind == letter:
            written = text[index + 2 : index + 2 + digits]
            if len(written) == digits and all(byte in b"0123456789abcdefABCDEF" for byte in written):
                number = int(written, base)
                if number == 0 or (letter == ord("U") and not _valid_character(number)):
                    return None
                return tuple(bytes([number]) if letter == ord("x") else chr(number).encode("utf-8", "surrogatepass")), 2 + digits
    octal = text[index + 1 : index + 4]
    if len(octal) == 3 and all(byte in b"01234567" for byte in octal) and 0 < int(octal, 8) < 256:
        return (int(octal, 8),), 4
    return None
