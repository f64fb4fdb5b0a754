"""JSON of an operator that is none: what is wrong with it, where, and the same as JSON. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from roles.engine.bounds import once, read_json

_CLOSES = {"{": "}", "[": "]"}
_TOKEN = re.compile(
    r"""(?P<mark>[{}\[\]:,=])|(?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')"""
    r"""|(?P<open>["'][^"':,={}\[\]]*+)|(?P<bare>[^\s{}\[\]:,="']+)"""
)
_PLAIN = re.compile(r"true|false|null|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_SHELL = "the shell takes them away, unless single quotes are around the whole"
# Longer values come from no command line that somebody reads.
_LONGEST = 10_000


class _Unclear(Exception):
    """What was meant cannot be said."""


@dataclass
class _Reader:
    """Writes what it reads, with what is missing. `last`: what was written last, in terms of JSON's grammar; `opened`: the brackets that
    are open, with their places."""

    problems: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    opened: list[tuple[str, int]] = field(default_factory=list)
    last: str = "begin"

    def mark(self, mark: str, place: int) -> None:
        if mark in _CLOSES:
            self._before(place, is_key=False)
            self.written.append(mark)
            self.opened.append((mark, place))
            self.last = "open"
        elif mark in _CLOSES.values():
            self._close(mark, place)
        elif mark in (":", "=") and self.last == "key":
            self.problems += [f"the = at character {place} is a colon in JSON"] if mark == "=" else []
            self.written.append(":")
            self.last = "colon"
        elif mark == "," and self.last in ("value", "comma", "open") and self.opened:
            if self.last == "value":
                self.last, self.written = "comma", [*self.written, mark]
            else:
                self.problems.append(f"the comma at character {place} is one too many")
        else:
            raise _Unclear

    def value(self, text: str, place: int) -> None:
        is_key = bool(self.opened) and self.opened[-1][0] == "{" and self.last in ("open", "comma", "value")
        self._before(place, is_key=is_key)
        self.written.append(text)
        self.last = "key" if is_key else "value"

    def end(self, place: int) -> None:
        if missing := "".join(_CLOSES[mark] for mark, _ in reversed(self.opened)):
            first = self.opened[-1]
            while self.opened:
                self._shut(place)
            self.problems.append(f"{missing} is missing at the end, character {place} (for the {first[0]} at character {first[1]})")
        if self.last != "value":
            raise _Unclear

    def _before(self, place: int, *, is_key: bool) -> None:
        """Whatever must stand before the next key or value."""
        if self.last == "value" and self.opened:
            self.problems.append(f"a comma is missing before character {place}")
            self.written.append(",")
        elif self.last == "key":
            self.problems.append(f"a colon is missing before character {place}")
            self.written.append(":")
        elif self.last == "value" or (not is_key and self.last in ("open", "comma") and self.opened[-1][0] == "{"):
            raise _Unclear

    def _close(self, mark: str, place: int) -> None:
        if mark not in [_CLOSES[one] for one, _ in self.opened]:
            self.problems.append(f"the {mark} at character {place} is one too many")
            return
        while _CLOSES[self.opened[-1][0]] != mark:
            self.problems.append(f"{_CLOSES[self.opened[-1][0]]} is missing before character {place}")
            self._shut(place)
        self._shut(place)

    def _shut(self, place: int) -> None:
        if self.last == "comma":
            self.problems.append(f"nothing follows the comma before character {place}")
            self.written.pop()
        elif self.last in ("key", "colon"):
            raise _Unclear
        self.written.append(_CLOSES[self.opened.pop()[0]])
        self.last = "value"


def corrected(text: str) -> tuple[list[str], str]:
    """What is wrong, with its places (characters, from 1), and the text as JSON; both empty if it is not clear what was meant."""
    if len(text) > _LONGEST:
        return [], ""
    reader = _Reader()
    try:
        for found in _TOKEN.finditer(text):
            place, kind = found.start() + 1, found.lastgroup or ""
            if kind == "mark":
                reader.mark(found.group(), place)
            else:
                problems, word = _string(found.group(), kind, place)
                reader.problems += problems
                reader.value(word, place)
        reader.end(len(text) + 1)
        whole = "".join(reader.written)
        if not read_json(whole, pairs=once):
            raise _Unclear
    except (_Unclear, ValueError):
        return [], ""
    return _few(reader.problems), whole


def _string(text: str, kind: str, place: int) -> tuple[list[str], str]:
    """The problems of a word, and the word as JSON."""
    if kind == "bare":
        if _PLAIN.fullmatch(text):
            return [], text
        if text in _PYTHON:
            return [f"{text} at character {place} is {_PYTHON[text]} in JSON"], _PYTHON[text]
        return [f"double quotes are missing around the word at character {place} ({_SHELL})"], json.dumps(text)
    inner = text[1:] if kind == "open" else text[1:-1]
    problems = [f"the quote at character {place} is not closed"] if kind == "open" else []
    if text[0] == "'":
        problems.append(f"single quotes at character {place}: JSON has double quotes")
        return problems, json.dumps(inner)
    return problems, f'"{inner.rstrip() if problems else inner}"'


def _few(problems: list[str]) -> list[str]:
    """Each kind of problem once, at its first place."""
    found: dict[str, str] = {}
    for one in problems:
        found.setdefault(re.sub("[0-9]+", "", one), one)
    return list(found.values())


def without_beginning(text: str) -> tuple[list[str], str]:
    """As `corrected`, of a text whose first bracket is missing; both empty if it is not meant to be JSON."""
    plain = text.strip()
    if not (plain[:1] in ("'", '"') and ":" in plain) and not (plain[-1:] in ("}", "]") and not re.search(r"[{\[]", plain)):
        return [], ""
    for bracket in _CLOSES:
        problems, whole = corrected(bracket + plain)
        if whole:
            return [f"{bracket} is missing at its beginning", *(one for one in problems if "at the end" in one)], whole
    return [], ""
