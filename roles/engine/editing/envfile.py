"""Environment files as systemd reads them (systemd.exec(5) EnvironmentFile=; src/basic/env-file.c, releases 252 to 257)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from roles.engine.editing import flags, words
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import GateChanges
from roles.engine.editing.mapped import Builder, Mapped, Splice, apply, line_of

ADDED = b"# Added by daytwo"
MADE = b"# This file was made by daytwo"
# From this release on a comment ends at its line's end, also behind a backslash (systemd NEWS, 254).
COMMENTS_END = 254

_BOM = b"\xef\xbb\xbf"
_NEWLINE = b"\n\r"
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Assignment:
    """One NAME=VALUE. `value.spans` lead back to the file; `extent` is the whole assignment without its line end."""

    name: str
    value: Mapped
    line: int
    extent: tuple[int, int]


@dataclass(frozen=True)
class Dropped:
    """What stands in the place of an assignment, and is none to systemd: `key` is all before its `=`, or all of it (`equals` False)."""

    key: bytes
    equals: bool
    line: int
    extent: tuple[int, int]


@dataclass(frozen=True)
class IgnoredLine:
    """A line that names a variable and does not set it."""

    line: int
    why: str


@dataclass(frozen=True)
class EnvFile:
    """The assignments that count, in order (of a name set twice the last wins), and what systemd passes over."""

    assignments: tuple[Assignment, ...]
    dropped: tuple[Dropped, ...] = ()

    def values(self) -> dict[str, str]:
        return {assignment.name: assignment.value.string for assignment in self.assignments}

    def last(self, name: str) -> Assignment | None:
        return next((found for found in reversed(self.assignments) if found.name == name), None)


def parse(data: bytes, systemd: int = 257, source: str = "") -> EnvFile:
    """Read an environment file. Raises FormatError where systemd itself would stop, or stop short without a word."""
    if b"\0" in data:
        raise FormatError("holds a NUL byte, and systemd reads none of the file", line=line_of(data, data.index(b"\0")))
    return _Reader(data, systemd, source).read()


class _Reader:
    """systemd's state machine (src/basic/env-file.c, parse_env_file_internal). Each state is a method that takes the next byte."""

    def __init__(self, data: bytes, systemd: int, source: str) -> None:
        self.data, self.systemd, self.source = data, systemd, source
        self.found: list[Assignment] = []
        self.dropped: list[Dropped] = []
        self.state: Callable[[int, int], None] = self._pre_key
        # Of the assignment that is being read: where it begins, what is before its `=` and behind it, and where blanks begin at its end.
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
            raise FormatError("an assignment is not UTF-8, and systemd reads none of the file", line=line)
        # Others, such as `export NAME`, are dropped by systemd with a line in the journal.
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
    """The lines that name `variable` and that systemd does not take for an assignment of it. Raises FormatError as `parse` does."""
    read = parse(data, systemd)
    found = [IgnoredLine(item.line, why_ignored(item.key, item.equals)) for item in read.dropped if names(item.key, variable)]
    begun = {item.line for item in read.assignments} | {item.line for item in read.dropped}
    for start in _looks_set(data, variable):
        number = line_of(data, start)
        if number not in begun:
            found.append(IgnoredLine(number, _part_of(read, start)))
    return sorted(found, key=lambda one: one.line)


def names(key: bytes, variable: str) -> bool:
    """True where somebody may have meant a variable by `key`: beside other words, in other letters, with dashes, behind a digit."""
    words = re.findall(r"[A-Za-z0-9_.-]+", key.decode("utf-8", "replace"))
    return any(re.sub(r"[.-]", "_", word).lstrip("0123456789").lower() == variable.lower() for word in words)


def why_ignored(key: bytes, equals: bool) -> str:
    """Why systemd does not take `key` for the name of a variable (src/basic/env-util.c, env_name_is_valid)."""
    text = key.decode("utf-8", "backslashreplace").strip()
    if not equals:
        return "it has no `=`"
    if key.startswith(_BOM):
        return "a byte order mark stands before the name"
    if re.match(r"export\s", text):
        return "`export` belongs to a shell, and systemd takes all before the `=` for the name"
    if re.search(r"\s", text):
        return f"there is a blank in the name {text!r}"
    return f"{text!r} is no name of a variable (letters, digits and _, and no digit first)"


def _looks_set(data: bytes, variable: str) -> list[int]:
    """Where a line begins that a person would take for an assignment of the variable."""
    pattern = rb"(?:\A|(?<=[\n\r]))[ \t]*(?:export[ \t]+)?" + re.escape(variable.encode()) + rb"[ \t]*="
    return [found.end() - 1 for found in re.finditer(pattern, data)]


def _part_of(read: EnvFile, position: int) -> str:
    for assignment in read.assignments:
        if assignment.extent[0] < position < assignment.extent[1]:
            return f"it is a part of the value of {assignment.name} of line {assignment.line}, which ends in a backslash or an open quote"
    for item in read.dropped:
        if item.extent[0] < position < item.extent[1]:
            return f"it goes on with line {item.line}, which ends in a backslash or an open quote"
    return f"it goes on with the comment before it, which ends in a backslash (systemd before {COMMENTS_END})"


def add_assignment(data: bytes | None, variable: str, value: str, systemd: int = 257) -> bytes:
    """The file with one more assignment at its end, marked as daytwo's so that it can be taken out with its line again.

    `value` must be free of quotes, backslashes, dollars and backticks (a gate list is). Raises FormatError where the file ends in
    the middle of something.
    """
    assignment = f'{variable}="{value}"'.encode()
    if data is None:
        return MADE + b"\n" + assignment + b"\n"
    end = b"\r\n" if b"\r\n" in data else b"\n"
    line = ADDED + end + assignment
    after = data + line + end if data.endswith(b"\n") or not data else data + end + line
    before = [(found.name, found.value.text) for found in parse(data, systemd).assignments]
    if [(found.name, found.value.text) for found in parse(after, systemd).assignments] != [*before, (variable, value.encode())]:
        raise FormatError("ends in an open quote or behind a backslash", line=line_of(data, len(data)), way_out="end its last line")
    return after


def drop_empty(data: bytes, variable: str, systemd: int) -> bytes | None:
    """The file without an assignment that daytwo had added and that holds nothing any more; None where nothing is left."""
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
        # A last line without a line end takes the one before it along.
        rest = before + behind[following.end() :] if following else before.removesuffix(lead[1]) + behind
        return None if marker == MADE and not rest else rest
    return data


def edit_gates(data: bytes | None, variable: str, changes: GateChanges, systemd: int = 257) -> bytes | None:
    """The file with `variable`'s --feature-gates as wanted (`variable` being split into words, as `$VARIABLE` is).

    None in and out stands for no such file. Raises FormatError where the file cannot be read or the edit needs guessing.
    """
    assignment = parse(data, systemd).last(variable) if data is not None else None
    if data is None or assignment is None:
        new = {name: value for name, value in changes.items() if value is not None}
        return add_assignment(data, variable, f"--{flags.FEATURE_GATES}={flags.written(new)}", systemd) if new else data
    before = split_variable(assignment.value)

    def insert(flag: str) -> list[Splice]:
        flags.check_end([word.string for word in before])
        return [insertion(data, assignment, flag)]

    splices = flags.edit(before, changes, remover(assignment.value), insert)
    if not splices:
        return data
    edited = apply(data, splices)
    found = parse(edited, systemd).last(variable)
    after = split_variable(found.value) if found else []
    if not flags.reached([word.string for word in before], [word.string for word in after], changes):
        raise FormatError("the edit would not give the value that is wanted", value=variable, line=assignment.line)
    return drop_empty(edited, variable, systemd)


def split_variable(value: Mapped) -> list[Mapped]:
    """The words a `$VARIABLE` of its own becomes (systemd.service(5), COMMAND LINES)."""
    return words.split(value, c_escapes=False, relaxed=True)


def remover(value: Mapped) -> Callable[[tuple[Mapped, ...]], list[Splice]]:
    """How to take neighbouring words out of a value: with one blank, the one before them or else the one behind them."""
    blanks = [span for span, byte in zip(value.spans, value.text, strict=True) if byte in words.WHITESPACE]

    def remove(gone: tuple[Mapped, ...]) -> list[Splice]:
        start, end = gone[0].extent[0], gone[-1].extent[1]
        beside = [span for span in blanks if span[1] == start] or [span for span in blanks if span[0] == end]
        for span in beside:
            blanks.remove(span)
            start, end = min(start, span[0]), max(end, span[1])
        return [Splice(start, end, b"", value.source)]

    return remove


def insertion(data: bytes, assignment: Assignment, flag: str) -> Splice:
    """Where a new flag goes: to the end of the value, inside its quotes. Raises FormatError where there is no such place."""
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
        raise FormatError("an empty value is written in a way that leaves no place to add to", value=opened.decode(errors="replace"))
    return Splice(start, start, flag.encode(), value.source)
