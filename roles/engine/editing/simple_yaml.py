"""The content of YAML that is written as kubeadm writes manifests, in a twentieth of the time that all of YAML takes.

Only blocks of maps and lists, each entry on one line, without blanks in a value, comments, anchors, tags and multi-line texts. Whatever
else a text has, it is not read here, and the caller reads all of YAML (yaml_text.py): there is no error here, and no second meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# Plain text: it begins with no indicator, and has neither `: ` nor ` #`, as it has no blank (YAML 1.2.2, 7.3.3).
_PLAIN = r"(?:[A-Za-z0-9/_.+]|-(?=[^\s:]))(?:[A-Za-z0-9_./=,+*@%~$()-]|:(?=[^\s]))*"
_QUOTED = r'"[A-Za-z0-9_./=,:+*@%~$() -]*"'
_ENTRY = re.compile(rf"( *)(?:(-) )?(?:([A-Za-z][A-Za-z0-9_./-]*):(?: |$))?({_PLAIN}|{_QUOTED}|{{}})?")
# A key that is no string: the words of YAML 1.1.
_NO_KEYS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
# A longer line may have a key that is too long for YAML.
_LONGEST = 1000
_MOST_LINES = 10_000
_DEEPEST = 50

#: Indent, whether a list's item begins, key, value; the value is "" if there is none.
_Line = tuple[int, bool, str, str]


class _NotSimpleError(Exception):
    """The text has more than this module reads."""


def content(text: str, scalar: Callable[[str], Any]) -> dict[str, Any] | None:
    """The map of a text; None if the text is not simple. `scalar` returns the value of a plain text that is not in quotes."""
    if not text.isascii() or not text.endswith("\n") or text.count("\n") > _MOST_LINES:
        return None
    try:
        lines = [_line(line) for line in text[:-1].split("\n")]
        reader = _Reader(lines, scalar)
        found = reader.block(0)
    except _NotSimpleError:
        return None
    return found if reader.at == len(lines) and isinstance(found, dict) else None


def _line(line: str) -> _Line:
    found = _ENTRY.fullmatch(line)
    if found is None or len(line) > _LONGEST:
        raise _NotSimpleError
    spaces, dash, key, value = found.groups(default="")
    if key.lower() in _NO_KEYS or not (key or dash) or not (key or value) or line.endswith(" "):
        raise _NotSimpleError
    return len(spaces), bool(dash), key, value


class _Reader:
    """Reads blocks by their indents; `at` is the next line."""

    def __init__(self, lines: list[_Line], scalar: Callable[[str], Any]) -> None:
        self.lines, self.scalar, self.at, self.depth = lines, scalar, 0, 0

    def block(self, indent: int) -> Any:
        """The map or list whose entries begin at this indent."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _NotSimpleError
        found = self._list(indent) if self.lines[self.at][1] else self._map(indent)
        self.depth -= 1
        return found

    def _map(self, indent: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while self.at < len(self.lines):
            column, dash, key, value = self.lines[self.at]
            if column < indent or (dash and column == indent):
                break
            if column > indent or dash or key in made:
                raise _NotSimpleError
            self.at += 1
            made[key] = self._scalar(value) if value else self._below(indent)
        return made

    def _below(self, indent: int) -> Any:
        """The value of a key without one on its line."""
        if self.at == len(self.lines):
            return None
        column, dash, _, _ = self.lines[self.at]
        return self.block(column) if column > indent or (dash and column == indent) else None

    def _list(self, indent: int) -> list[Any]:
        made: list[Any] = []
        while self.at < len(self.lines):
            column, dash, key, value = self.lines[self.at]
            if column < indent or (column == indent and not dash):
                break
            if column > indent:
                raise _NotSimpleError
            if key:
                # The item is a map; its first key is two columns behind the dash.
                self.lines[self.at] = (indent + 2, False, key, value)
                made.append(self.block(indent + 2))
            else:
                self.at += 1
                made.append(self._scalar(value))
        return made

    def _scalar(self, value: str) -> Any:
        if value == "{}":
            return {}
        return value[1:-1] if value[0] == '"' else self.scalar(value)
