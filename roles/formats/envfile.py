"""Environment files as systemd reads them (systemd.exec(5) EnvironmentFile=; src/basic/env-file.c, releases 252 to 257)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from roles.formats import flags, words
from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges
from roles.formats.mapped import Builder, Mapped, Splice, apply, line_of

ADDED = b"# Added by daytwo"
MADE = b"# This file was made by daytwo"
# From this release on a comment ends at its line's end, also behind a backslash (systemd NEWS, 254).
COMMENTS_END = 254

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
class EnvFile:
    """The assignments that count, in order (of a name set twice the last wins)."""

    assignments: tuple[Assignment, ...]

    def values(self) -> dict[str, str]:
        return {assignment.name: assignment.value.string for assignment in self.assignments}

    def last(self, name: str) -> Assignment | None:
        return next((found for found in reversed(self.assignments) if found.name == name), None)


def parse(data: bytes, systemd: int = 257, source: str = "") -> EnvFile:
    """Read an environment file. Raises FormatError where systemd itself would stop, or stop short without a word."""
    if b"\0" in data:
        raise FormatError("holds a NUL byte, behind which systemd reads nothing", line=line_of(data, data.index(b"\0")))
    found: list[Assignment] = []
    state = "pre_key"
    key = bytearray()
    value = Builder(source)
    begin = 0
    blank_from: int | None = None

    def finish(end: int, chomp: bool) -> None:
        nonlocal state
        if chomp and blank_from is not None:
            value.truncate(blank_from)
        name = bytes(key).rstrip(words.WHITESPACE)
        mapped = value.done((begin, end))
        for part in (name, mapped.text):
            try:
                part.decode()
            except UnicodeDecodeError:
                raise FormatError("an assignment is not UTF-8, and systemd reads none of the file", line=line_of(data, begin)) from None
        # Others, such as `export NAME`, and values with control characters are dropped by systemd with a line in the journal.
        if _NAME.match(name) and not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", mapped.text):
            found.append(Assignment(name.decode(), mapped, line_of(data, begin), (begin, end)))
        state = "pre_key"

    for index, byte in enumerate(data):
        span = (index, index + 1)
        newline = byte in _NEWLINE
        if state == "pre_key":
            if byte in b"#;":
                state = "comment"
            elif byte not in words.WHITESPACE:
                state, begin, key, value, blank_from = "key", index, bytearray([byte]), Builder(source), None
        elif state == "key":
            if newline:
                state = "pre_key"
            elif byte == ord("="):
                state = "pre_value"
            else:
                key.append(byte)
        elif state == "pre_value":
            if newline:
                finish(index, chomp=False)
            elif byte == ord("'"):
                state = "single"
            elif byte == ord('"'):
                state = "double"
            elif byte == ord("\\"):
                state = "escape"
            elif byte not in words.WHITESPACE:
                state, blank_from = "value", None
                value.add(byte, span)
        elif state == "value":
            if newline:
                finish(index, chomp=True)
            elif byte == ord("\\"):
                state, blank_from = "escape", None
            else:
                if byte not in words.WHITESPACE:
                    blank_from = None
                elif blank_from is None:
                    blank_from = len(value)
                value.add(byte, span)
        elif state == "escape":
            state = "value"
            if not newline:
                value.add(byte, (index - 1, index + 1))
        elif state == "single":
            if byte == ord("'"):
                state = "pre_value"
            else:
                value.add(byte, span)
        elif state == "double":
            if byte == ord('"'):
                state = "pre_value"
            elif byte == ord("\\"):
                state = "double_escape"
            else:
                value.add(byte, span)
        elif state == "double_escape":
            state = "double"
            if byte in b'"\\`$':
                value.add(byte, (index - 1, index + 1))
            elif byte != ord("\n"):
                value.add_all((ord("\\"), byte), (index - 1, index + 1))
        elif state == "comment":
            if byte == ord("\\"):
                state = "comment_escape"
            elif newline:
                state = "pre_key"
        elif state == "comment_escape":
            state = "pre_key" if newline and systemd >= COMMENTS_END else "comment"
    if state in ("pre_value", "value", "escape", "single", "double", "double_escape"):
        finish(len(data), chomp=state == "value")
    return EnvFile(tuple(found))


def add_assignment(data: bytes | None, variable: str, value: str) -> bytes:
    """The file with one more assignment at its end, marked as daytwo's so that it can be taken out with its line again.

    `value` must be free of quotes, backslashes, dollars and backticks (a gate list is).
    """
    line = ADDED + f'\n{variable}="{value}"'.encode()
    if data is None:
        return MADE + b"\n" + line.removeprefix(ADDED + b"\n") + b"\n"
    end = b"\r\n" if b"\r\n" in data else b"\n"
    line = line.replace(b"\n", end)
    return data + line + end if data.endswith(b"\n") or not data else data + end + line


def drop_empty(data: bytes, variable: str, systemd: int) -> bytes | None:
    """The file without an assignment that daytwo had added and that holds nothing any more; None where nothing is left."""
    assignment = parse(data, systemd).last(variable)
    if assignment is None or assignment.value.text:
        return data
    start, end = assignment.extent
    for marker in (ADDED, MADE):
        lead = re.search(re.escape(marker) + rb"\r?\n\Z", data[:start])
        if not lead:
            continue
        following = re.match(rb"\r?\n", data[end:])
        if following:
            rest = data[: lead.start()] + data[end + following.end() :]
        else:
            rest = re.sub(rb"\r?\n\Z", b"", data[: lead.start()]) + data[end:]
        return None if marker == MADE and not rest else rest
    return data


def edit_gates(data: bytes | None, variable: str, changes: GateChanges, systemd: int = 257) -> bytes | None:
    """The file with `variable`'s --feature-gates as wanted (`variable` being split into words, as `$VARIABLE` is).

    None in and out stands for no such file. Raises FormatError where the file cannot be read or the edit needs guessing.
    """
    assignment = parse(data, systemd).last(variable) if data is not None else None
    if data is None or assignment is None:
        new = {name: value for name, value in changes.items() if value is not None}
        return add_assignment(data, variable, f"--{flags.FEATURE_GATES}={flags.written(new)}") if new else data
    value = assignment.value
    splices = flags.edit(split_variable(value), changes, remover(value), inserter(value, data, assignment))
    if not splices:
        return data
    return drop_empty(apply(data, splices), variable, systemd)


def split_variable(value: Mapped) -> list[Mapped]:
    """The words a `$VARIABLE` of its own becomes (systemd.service(5), COMMAND LINES)."""
    return words.split(value, c_escapes=False, relaxed=True)


def remover(value: Mapped) -> Callable[[tuple[Mapped, ...]], list[Splice]]:
    """How to take words out of a value: each with one blank, the one before it or else the one behind it."""

    def remove(gone: tuple[Mapped, ...]) -> list[Splice]:
        splices = []
        for word in gone:
            start, end = word.extent
            before = next((span for span, byte in zip(value.spans, value.text, strict=True) if span[1] == start and byte in b" \t"), None)
            behind = next((span for span, byte in zip(value.spans, value.text, strict=True) if span[0] == end and byte in b" \t"), None)
            if before:
                start = before[0]
            elif behind:
                end = behind[1]
            splices.append(Splice(start, end, b"", value.source))
        return splices

    return remove


def inserter(value: Mapped, data: bytes, assignment: Assignment) -> Callable[[str], list[Splice]]:
    """How to add a flag at the end of a value, inside its quotes."""

    def insert(flag: str) -> list[Splice]:
        check_end(split_variable(value), assignment.line)
        if value.spans:
            end = value.spans[-1][1]
            return [Splice(end, end, b" " + flag.encode(), value.source)]
        opened = data[slice(*assignment.extent)].partition(b"=")[2]
        if opened.strip() in (b'""', b"''"):
            end = assignment.extent[0] + data[slice(*assignment.extent)].index(opened.strip()[:1]) + 1
            return [Splice(end, end, flag.encode(), value.source)]
        if opened.strip():
            raise FormatError("an empty value is written in a way that leaves no place to add to", value=opened.decode(errors="replace"))
        end = assignment.extent[0] + data[slice(*assignment.extent)].index(b"=") + 1
        return [Splice(end, end, flag.encode(), value.source)]

    return insert


def check_end(split: list[Mapped], line: int | None = None) -> None:
    """Refuse where a new flag at the end would not be read as one. Raises FormatError."""
    texts = [word.string for word in split]
    if "--" in texts:
        raise FormatError("a bare `--` stands before the place a new flag would go to, and ends the flags", line=line)
