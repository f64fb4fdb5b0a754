"""Environment files as systemd reads them (systemd.exec(5) EnvironmentFile=; src/basic/env-file.c, releases 252 to 257)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from roles.engine.editing import words
from roles.engine.editing.errors import FormatError
from roles.engine.editing.mapped import Builder, Mapped, Splice, line_of

# Markers in files on nodes. Their text must not change: files that an earlier daytwo wrote have them.
ADDED = b"# Added by daytwo"
MADE = b"# This file was made by daytwo"
# From this release on a comment ends at the end of its line, also after a backslash (systemd NEWS, 254).
COMMENTS_END = 254

_BOM = b"\xef\xbb\xbf"
_NEWLINE = b"\n\r"
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Assignment:
    """One NAME=VALUE. `value.spans` are positions in the file; `extent` is the whole assignment without its line end."""

    name: str
    value: Mapped
    line: int
    extent: tuple[int, int]


@dataclass(frozen=True)
class Dropped:
    """A text that systemd does not accept as an assignment: `key` is everything before its `=`, or all of it (`equals` False)."""

    key: bytes
    equals: bool
    line: int
    extent: tuple[int, int]


@dataclass(frozen=True)
class IgnoredLine:
    """A line that names a variable but does not set it."""

    line: int
    why: str


@dataclass(frozen=True)
class EnvFile:
    """The effective assignments, in order (if a name is set twice, the last one counts), and what systemd ignores."""

    assignments: tuple[Assignment, ...]
    dropped: tuple[Dropped, ...] = ()

    def last(self, name: str) -> Assignment | None:
        return next((found for found in reversed(self.assignments) if found.name == name), None)


def parse(data: bytes, systemd: int = 257, source: str = "") -> EnvFile:
    """Read an environment file. Raises FormatError if systemd itself would stop, or would silently read only a part."""
    if b"\0" in data:
        raise FormatError("has a NUL byte, so systemd reads none of the file", line=line_of(data, data.index(b"\0")), way_out="remove it")
    return _Reader(data, systemd, source).read()


class _Reader:
    """systemd's state machine (src/basic/env-file.c, parse_env_file_internal). Each state is a method that takes the next byte."""

    def __init__(self, data: bytes, systemd: int, source: str) -> None:
        self.data, self.systemd, self.source = data, systemd, source
        self.found: list[Assignment] = []
        self.dropped: list[Dropped] = []
        self.state: Callable[[int, int], None] = self._pre_key
        # The assignment that is being read: its start, the text before and after its `=`, and the start of blanks at its end.
        self.begin, self.key, self.value = 0, bytearray(), Builder(source)
        self.blank_from: int | None = None

    def read(self) -> EnvFile:
        for index, byte in enumerate(self.data):
            self.state(index, byte)
        if self.state == self._key:
            self._drop(len(self.data))
        elif self.state not in (self._pre_key, self._comment, self._comment_escape):
            self._finish(len(self.data), chomp=self.state == self._value)
        return EnvFile(tuple(self.found), tuple(self.dropped))

    def _finish(self, end: int, chomp: bool) -> None:
        if chomp and self.blank_from is not None:
            self.value.truncate(self.blank_from)
        name = bytes(self.key).rstrip(words.WHITESPACE)
        mapped = self.value.done((self.begin, end))
        line = line_of(self.data, self.begin)
        if not (words.valid_utf8(name) and words.valid_utf8(mapped.text)):
            raise FormatError("an assignment is not UTF-8, so systemd reads none of the file", line=line, way_out="write it in UTF-8")
        # systemd drops others, such as `export NAME`, with a line in the journal.
        if _NAME.match(name):
            self.found.append(Assignment(name.decode(), mapped, line, (self.begin, end)))
        else:
            self.dropped.append(Dropped(name, True, line, (self.begin, end)))
        self.state = self._pre_key

    def _drop(self, end: int) -> None:
        self.dropped.append(Dropped(bytes(self.key), False, line_of(self.data, self.begin), (self.begin, end)))
        self.state = self._pre_key

    def _pre_key(self, index: int, byte: int) -> None:
        if byte in b"#;":
            self.state = self._comment
        elif byte not in words.WHITESPACE:
            self.state, self.begin, self.key = self._key, index, bytearray([byte])
            self.value, self.blank_from = Builder(self.source), None

    def _key(self, index: int, byte: int) -> None:
        if byte in _NEWLINE:
            self._drop(index)
        elif byte == ord("="):
            self.state = self._pre_value
        else:
            self.key.append(byte)

    def _pre_value(self, index: int, byte: int) -> None:
        opened = {ord("'"): self._single, ord('"'): self._double, ord("\\"): self._escape}
        if byte in _NEWLINE:
            self._finish(index, chomp=False)
        elif byte in opened:
            self.state = opened[byte]
        elif byte not in words.WHITESPACE:
            self.state, self.blank_from = self._value, None
            self.value.add(byte, (index, index + 1))

    def _value(self, index: int, byte: int) -> None:
        if byte in _NEWLINE:
            self._finish(index, chomp=True)
        elif byte == ord("\\"):
            self.state, self.blank_from = self._escape, None
        else:
            if byte not in words.WHITESPACE:
                self.blank_from = None
            elif self.blank_from is None:
                self.blank_from = len(self.value)
            self.value.add(byte, (index, index + 1))

    def _escape(self, index: int, byte: int) -> None:
        self.state = self._value
        if byte not in _NEWLINE:
            self.value.add(byte, (index - 1, index + 1))

    def _single(self, index: int, byte: int) -> None:
        if byte == ord("'"):
            self.state = self._pre_value
        else:
            self.value.add(byte, (index, index + 1))

    def _double(self, index: int, byte: int) -> None:
        if byte == ord('"'):
            self.state = self._pre_value
        elif byte == ord("\\"):
            self.state = self._double_escape
        else:
            self.value.add(byte, (index, index + 1))

    def _double_escape(self, index: int, byte: int) -> None:
        self.state = self._double
        if byte in b'"\\`$':
            self.value.add(byte, (index - 1, index + 1))
        elif byte != ord("\n"):
            self.value.add_all((ord("\\"), byte), (index - 1, index + 1))

    def _comment(self, _: int, byte: int) -> None:
        if byte == ord("\\"):
            self.state = self._comment_escape
        elif byte in _NEWLINE:
            self.state = self._pre_key

    def _comment_escape(self, _: int, byte: int) -> None:
        self.state = self._pre_key if byte in _NEWLINE and self.systemd >= COMMENTS_END else self._comment


def ignored(data: bytes, variable: str, systemd: int = 257) -> list[IgnoredLine]:
    """The lines that name `variable`, but that systemd does not read as an assignment of it. Raises FormatError as `parse` does."""
    read = parse(data, systemd)
    found = [IgnoredLine(item.line, why_ignored(item.key, item.equals)) for item in read.dropped if names(item.key, variable)]
    begun = {item.line for item in read.assignments} | {item.line for item in read.dropped}
    for start in _looks_set(data, variable):
        number = line_of(data, start)
        if number not in begun:
            found.append(IgnoredLine(number, _part_of(read, start)))
    return sorted(found, key=lambda one: one.line)


def names(key: bytes, variable: str) -> bool:
    """True if `key` may be meant as a variable: among other words, in another letter case, with dashes, or after a digit."""
    words = re.findall(r"[A-Za-z0-9_.-]+", key.decode("utf-8", "replace"))
    return any(re.sub(r"[.-]", "_", word).lstrip("0123456789").lower() == variable.lower() for word in words)


def why_ignored(key: bytes, equals: bool) -> str:
    """Why systemd does not accept `key` as the name of a variable (src/basic/env-util.c, env_name_is_valid)."""
    text = key.decode("utf-8", "backslashreplace").strip()
    if not equals:
        return "it has no `=`"
    if key.startswith(_BOM):
        return "a byte order mark precedes the name"
    if re.match(r"export\s", text):
        return "`export` is shell syntax; systemd reads everything before the `=` as the name"
    if re.search(r"\s", text):
        return f"there is a blank in the name {text!r}"
    return f"{text!r} is not a variable name (letters, digits and _, and no digit first)"


def _looks_set(data: bytes, variable: str) -> list[int]:
    """Positions of the lines that a person would read as an assignment of the variable."""
    pattern = rb"(?:\A|(?<=[\n\r]))[ \t]*(?:export[ \t]+)?" + re.escape(variable.encode()) + rb"[ \t]*="
    return [found.end() - 1 for found in re.finditer(pattern, data)]


def _part_of(read: EnvFile, position: int) -> str:
    for assignment in read.assignments:
        if assignment.extent[0] < position < assignment.extent[1]:
            return f"it is a part of the value of {assignment.name} in line {assignment.line}, which ends in a backslash or an open quote"
    for item in read.dropped:
        if item.extent[0] < position < item.extent[1]:
            return f"it continues line {item.line}, which ends in a backslash or an open quote"
    return f"it continues the comment before it, which ends in a backslash (systemd before {COMMENTS_END})"


def add_assignment(data: bytes | None, variable: str, value: str, systemd: int = 257) -> bytes:
    """The file with another assignment at its end, marked as daytwo's, so that it can be removed with its line later.

    `value` must be free of quotes, backslashes, dollars and backticks (a gate list is). Raises FormatError if the file ends in an open
    quote or a backslash.
    """
    assignment = f'{variable}="{value}"'.encode()
    if data is None:
        return MADE + b"\n" + assignment + b"\n"
    end = b"\r\n" if b"\r\n" in data else b"\n"
    line = ADDED + end + assignment
    after = data + line + end if data.endswith(b"\n") or not data else data + end + line
    before = [(found.name, found.value.text) for found in parse(data, systemd).assignments]
    if [(found.name, found.value.text) for found in parse(after, systemd).assignments] != [*before, (variable, value.encode())]:
        raise FormatError("ends in an open quote or a backslash", line=line_of(data, len(data)), way_out="complete its last line")
    return after


def drop_empty(data: bytes, variable: str, systemd: int) -> bytes | None:
    """The file without an assignment that daytwo had added and that is now empty; None if nothing is left."""
    assignment = parse(data, systemd).last(variable)
    if assignment is None or assignment.value.text:
        return data
    start, end = assignment.extent
    for marker in (ADDED, MADE):
        lead = re.search(re.escape(marker) + rb"(\r?\n)\Z", data[:start])
        if not lead:
            continue
        before, behind = data[: lead.start()], data[end:]
        following = re.match(rb"\r?\n", behind)
        # If the last line has no line end, the line end before it is removed.
        rest = before + behind[following.end() :] if following else before.removesuffix(lead[1]) + behind
        return None if marker == MADE and not rest else rest
    return data


def split_variable(value: Mapped) -> list[Mapped]:
    """The words that a separate `$VARIABLE` becomes (systemd.service(5), COMMAND LINES)."""
    return words.split(value, c_escapes=False, relaxed=True)


def remover(value: Mapped) -> Callable[[tuple[Mapped, ...]], list[Splice]]:
    """A function that removes neighbouring words from a value, with one blank: the one before them or else the one after them."""
    blanks = [span for span, byte in zip(value.spans, value.text, strict=True) if byte in words.WHITESPACE]

    def remove(gone: tuple[Mapped, ...]) -> list[Splice]:
        start, end = gone[0].extent[0], gone[-1].extent[1]
        adjacent = [span for span in blanks if span[1] == start] or [span for span in blanks if span[0] == end]
        for span in adjacent:
            blanks.remove(span)
            start, end = min(start, span[0]), max(end, span[1])
        return [Splice(start, end, b"", value.source)]

    return remove


def insertion(data: bytes, assignment: Assignment, flag: str) -> Splice:
    """Where a new flag goes: to the end of the value, inside its quotes. Raises FormatError if there is no such place."""
    value = assignment.value
    if value.spans:
        end = value.spans[-1][1]
        return Splice(end, end, b" " + flag.encode(), value.source)
    start, stop = assignment.extent
    start = data.index(b"=", start) + 1
    opened = data[start:stop].strip()
    if opened in (b'""', b"''"):
        start = data.index(opened, start) + 1
    elif opened:
        raise FormatError(
            "an empty value is written in a form that daytwo cannot add to", value=opened.decode(errors="replace"), way_out='write it as ""'
        )
    return Splice(start, start, flag.encode(), value.source)
