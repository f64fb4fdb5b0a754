"""systemd units: a service's actual command line, and the source of each of its words.

Sources: systemd.syntax(7), systemd.service(5) COMMAND LINES, systemd.exec(5) Environment=, EnvironmentFile=;
src/shared/conf-parser.c, src/core/load-fragment.c, src/basic/env-util.c (releases 252 to 257).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from roles.engine.editing import envfile, flags, words
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import FlagValues, GateChanges
from roles.engine.editing.mapped import Builder, Mapped, Splice, apply, line_of

# Markers in files on nodes, like _COPIED. Their text must not change: files that an earlier daytwo wrote have them.
MADE = b"# This drop-in was made by daytwo"
_BOM = b"\xef\xbb\xbf"
# How many files, and services, are cached.
_REMEMBERED = 256
_LINE_END = re.compile(rb"\r\n|\n\r|\n|\r|\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# systemd.unit(5) SPECIFIERS, release 257. Others that are a letter or a digit make systemd refuse the assignment.
_SPECIFIERS = frozenset("abcdfghijlmnopqrstuvwyABCDEGHIJLMNPRSTUVWY")
# systemd.exec(5) ENVIRONMENT VARIABLES IN SPAWNED PROCESSES: set by the service manager if the unit does not set them.
_MANAGERS = (
    "PATH LANG USER LOGNAME HOME SHELL INVOCATION_ID XDG_RUNTIME_DIR RUNTIME_DIRECTORY STATE_DIRECTORY CACHE_DIRECTORY "
    "LOGS_DIRECTORY CONFIGURATION_DIRECTORY CREDENTIALS_DIRECTORY MAINPID MANAGERPID LISTEN_FDS LISTEN_PID LISTEN_FDNAMES "
    "NOTIFY_SOCKET WATCHDOG_PID WATCHDOG_USEC SYSTEMD_EXEC_PID TERM JOURNAL_STREAM MEMORY_PRESSURE_WATCH "
    "MEMORY_PRESSURE_WRITE FDSTORE LC_ALL LC_CTYPE LC_MESSAGES"
)


@dataclass(frozen=True)
class UnitFile:
    path: str
    data: bytes


@dataclass(frozen=True)
class Entry:
    """One KEY=VALUE of a unit; `value` has continuation lines joined."""

    section: str
    key: str
    value: Mapped
    line: int


@dataclass(frozen=True)
class Origin:
    """Where a word of the command line, or a variable, is written."""

    kind: Literal["exec", "environment", "environment_file"]
    path: str
    line: int
    variable: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" + (f" ({self.variable})" if self.variable else "")


@dataclass(frozen=True)
class Word:
    """One word of the command line. `known` is False if it has a specifier such as %H that only the node can resolve; `editable` is False
    if it is composed from several places (`--flag=${VARIABLE}`)."""

    mapped: Mapped
    origin: Origin
    known: bool = True
    editable: bool = True

    @property
    def text(self) -> str:
        return self.mapped.string


@dataclass(frozen=True)
class UnitVariable:
    """A variable of the service: its effective value, and where it is written."""

    value: Mapped
    origin: Origin
    known: bool = True


@dataclass(frozen=True)
class EnvironmentFile:
    path: str
    optional: bool
    present: bool


@dataclass(frozen=True)
class IgnoredVariable:
    """A line about a variable of the command line (or a whole file: `line` None) that systemd ignores."""

    path: str
    line: int | None
    variable: str
    why: str

    def __str__(self) -> str:
        place = f"{self.path}, line {self.line}" if self.line else self.path
        effect = f", and does not set {self.variable}" if self.variable else ""
        return f"{place}: systemd ignores this{effect}: {self.why}"


@dataclass(frozen=True)
class Service:
    """What systemd runs: the command line word by word, and its sources. `unset`: variables that UnsetEnvironment= removes, whatever sets
    them."""

    argv: tuple[Word, ...]
    command: Entry
    command_path: str
    environment: Mapping[str, UnitVariable]
    environment_files: tuple[EnvironmentFile, ...]
    split_variables: tuple[str, ...]
    unset: frozenset[str] = frozenset()
    ignored: tuple[IgnoredVariable, ...] = ()

    @property
    def known_argv(self) -> tuple[str, ...] | None:
        """The command line, or None if only the node knows a part of it."""
        return tuple(word.text for word in self.argv) if all(word.known for word in self.argv) else None

    @property
    def gates(self) -> dict[str, bool]:
        """The gates that the command line sets. Raises FormatError, with file and line, if the component would refuse them."""
        origins = {id(word.mapped): word.origin for word in self.argv}
        mapped = [word.mapped for word in self.argv]
        for flag in flags.find(mapped, flags.FEATURE_GATES):
            origin = origins[id(flag.words[-1])]
            try:
                flags.gate_flags(flag.words)
            except FormatError as error:
                raise error.in_file(origin.path, origin.line) from None
        return {item.name: item.value for flag in flags.gate_flags(mapped) for item in flag.items}

    def with_gates(self, changes: GateChanges) -> FlagValues:
        """The values of its --feature-gates after which it has the desired gates. Raises FormatError as `gates`."""
        _ = self.gates
        found = flags.places(flags.find([word.mapped for word in self.argv], flags.FEATURE_GATES))
        return flags.with_gates([flag.value.string for flag in found if flag.value], changes) or None

    @property
    def program(self) -> str:
        """The program that systemd executes, as it is written: an absolute path, or a name that systemd looks up."""
        first = words.split(self.command.value, c_escapes=True, unknown_escapes=True)[0]
        return _prefixes(first)[1].string


@lru_cache(_REMEMBERED)
def entries(unit: UnitFile) -> tuple[Entry, ...]:
    """The assignments of a unit or drop-in in order. Raises FormatError if systemd would stop reading the file."""
    data = unit.data
    if b"\0" in data:
        raise FormatError("has a NUL byte", line=line_of(data, data.index(b"\0")), file=unit.path, way_out="remove it")
    found: list[Entry] = []
    section = ""
    joined: Builder | None = None
    marked = False
    position = 0
    while position < len(data):
        end = _LINE_END.search(data, position)
        assert end is not None  # \Z always matches
        start, stop, position = position, end.start(), end.end()
        if data[start:stop].lstrip(words.WHITESPACE)[:1] in (b"#", b";"):
            continue
        # systemd skips the first byte order mark, on whatever line.
        if not marked and data.startswith(_BOM, start):
            start, marked = start + len(_BOM), True
        joined = joined or Builder(unit.path)
        for index in range(start, stop):
            joined.add(data[index], (index, index + 1))
        if (len(joined.text) - len(joined.text.rstrip(b"\\"))) % 2:
            joined.text[-1] = ord(" ")
            if position < len(data):
                continue
        section = _entry(joined, section, unit, found)
        joined = None
    if joined is not None:
        _entry(joined, section, unit, found)
    return tuple(found)


def _entry(joined: Builder, section: str, unit: UnitFile, found: list[Entry]) -> str:
    line = _strip(joined.done((0, 0)))
    if not line.text:
        return section
    number = line_of(unit.data, line.spans[0][0])
    if not words.valid_utf8(line.text):
        raise FormatError(
            "a line is not UTF-8, so systemd reads no further",
            value=line.string,
            line=number,
            file=unit.path,
            way_out="write it in UTF-8",
        )
    if line.text.startswith(b"["):
        if not line.text.endswith(b"]"):
            raise FormatError("a section has no closing bracket", value=line.string, line=number, file=unit.path, way_out="add it")
        return line.string[1:-1]
    if b"=" in line.text and section:
        equals = line.text.index(b"=")
        key = line.text[:equals].strip(words.WHITESPACE).decode("utf-8", "replace")
        found.append(Entry(section, key, _strip(line.slice(equals + 1, len(line.text))), number))
    return section


def _strip(value: Mapped) -> Mapped:
    start = len(value.text) - len(value.text.lstrip(words.WHITESPACE))
    return value.slice(start, max(start, len(value.text.rstrip(words.WHITESPACE))))


def _specifiers(word: Mapped, known: Mapping[str, str]) -> tuple[Mapped, bool]:
    """The word with its % specifiers resolved, and whether all of them were resolved."""
    if b"%" not in word.text:
        return word, True
    built = Builder(word.source)
    complete = True
    index = 0
    while index < len(word.text):
        pair = word.text[index : index + 2]
        if pair[:1] != b"%" or len(pair) == 1:
            built.add(word.text[index], word.spans[index])
            index += 1
            continue
        span = (word.spans[index][0], word.spans[index + 1][1])
        letter = chr(pair[1])
        if letter == "%":
            built.add(ord("%"), span)
        elif letter in known:
            built.add_all(known[letter].encode(), span)
        elif letter in _SPECIFIERS:
            complete = False
            built.add_all(pair, span)
        elif pair.isalnum() or pair[1:].isalnum():
            raise FormatError("has a specifier that systemd does not know", value=word.string, way_out="double its percent sign")
        else:
            built.add(pair[0], word.spans[index])
            index -= 1
        index += 2
    return built.done(word.extent), complete


def resolve(
    fragment: UnitFile,
    dropins: Sequence[UnitFile],
    environment_files: Mapping[str, bytes | None],
    *,
    systemd: int = 257,
    specifiers: Mapping[str, str] | None = None,
) -> Service:
    """The command line of a service unit.

    `environment_files` has the content of each EnvironmentFile= by path, None for a missing one. Raises FormatError if the unit cannot be
    read, does not have exactly one ExecStart=, or names an environment file that is not in `environment_files`.
    """
    units = fragment, *dropins
    # Nodes differ in what specifiers stand for, such as their names. Most units have none.
    known = tuple((specifiers or {}).items()) if any(b"%" in unit.data for unit in units) else ()
    files = tuple((path, environment_files[path]) for path in _environment_files(units, known) if path in environment_files)
    return _resolve(units, files, systemd, known)


@lru_cache(_REMEMBERED)
def _environment_files(units: tuple[UnitFile, ...], specifiers: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(path for path, _ in _assigned(units, dict(specifiers)).listed)


def _assigned(units: tuple[UnitFile, ...], known: Mapping[str, str]) -> _Assigned:
    read = _Assigned(known)
    for unit in units:
        for entry in entries(unit):
            if entry.section == "Service":
                try:
                    read.add(unit, entry)
                except FormatError as error:
                    raise error.in_file(unit.path, entry.line) from None
    return read


# Most nodes of a group have the same files.
@lru_cache(_REMEMBERED)
def _resolve(
    units: tuple[UnitFile, ...], files: tuple[tuple[str, bytes | None], ...], systemd: int, specifiers: tuple[tuple[str, str], ...]
) -> Service:
    environment_files, known, fragment = dict(files), dict(specifiers), units[0]
    read = _assigned(units, known)
    if len(read.commands) != 1:
        raise FormatError(
            f"the unit has {len(read.commands)} effective ExecStart=; it needs one",
            file=fragment.path,
            way_out="keep one; in a drop-in, an empty ExecStart= removes those before it",
        )
    present = []
    for path, optional in read.listed:
        if path not in environment_files:
            raise FormatError("an EnvironmentFile= was not read", value=path, file=fragment.path, way_out="run this again")
        data = environment_files[path]
        present.append(EnvironmentFile(path, optional, data is not None))
        if data is None and not optional:
            raise FormatError(
                "an EnvironmentFile= without `-` is missing: the unit would not start",
                value=path,
                file=fragment.path,
                way_out="restore it, or write `-` before its path",
            )
        read.add_file(path, data or b"", optional, systemd)
    environment, removed = read.environment()
    gone = frozenset(name for name, _, _ in read.unset if "=" not in name)
    unit, command = read.commands[0]
    foreign = {*_MANAGERS.split(), *read.passed} - gone
    try:
        argv, split, whole = _command_line(unit, command, environment, foreign, known)
    except FormatError as error:
        raise error.in_file(unit.path, command.line) from None
    used = tuple(dict.fromkeys((*split, *whole)))
    ignored = read.ignored.of(used, environment, removed, {path: environment_files[path] or b"" for path, _ in read.listed}, systemd)
    return Service(argv, command, unit.path, MappingProxyType(environment), tuple(present), split, gone, tuple(ignored))


class _Assigned:
    """The result of a service's assignments, in the order in which systemd reads them. An empty one drops those before it."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known = known
        self.commands: list[tuple[UnitFile, Entry]] = []
        self.variables: list[tuple[str, UnitVariable]] = []
        self.listed: list[tuple[str, bool]] = []
        self.passed: list[str] = []
        self.unset: list[tuple[str, UnitFile, Entry]] = []
        self.ignored = _Ignored()

    def add(self, unit: UnitFile, entry: Entry) -> None:
        kept = bool(entry.value.text)
        match entry.key:
            case "ExecStart":
                self.commands = [*self.commands, (unit, entry)] if kept else []
            case "Environment":
                if not kept:
                    self.ignored.reset(self.variables, unit, entry)
                self.variables = [*self.variables, *_environment(unit, entry, self.known, self.ignored)] if kept else []
            case "EnvironmentFile":
                self.listed = [*self.listed, *_listed(unit, entry, self.known, self.ignored)] if kept else []
            case "PassEnvironment":
                self.passed = [*self.passed, *_names(entry)] if kept else []
            case "UnsetEnvironment":
                self.unset = [*self.unset, *((name, unit, entry) for name in _unset(entry, self.known))] if kept else []

    def add_file(self, path: str, data: bytes, optional: bool, systemd: int) -> None:
        try:
            for assignment in envfile.parse(data, systemd, source=path).assignments:
                origin = Origin("environment_file", path, assignment.line, assignment.name)
                self.variables.append((assignment.name, UnitVariable(assignment.value, origin)))
        except FormatError as error:
            if not optional:
                raise error.in_file(path) from None
            # With a `-` systemd continues without a file that it cannot read (src/core/exec-invoke.c, exec_context_load_environment).
            self.ignored.file(path, error)

    def environment(self) -> tuple[dict[str, UnitVariable], dict[str, tuple[UnitVariable, UnitFile, Entry]]]:
        """The variables that are set, and those that an UnsetEnvironment= removes again."""
        environment = dict(self.variables)  # the last one counts
        removed: dict[str, tuple[UnitVariable, UnitFile, Entry]] = {}
        for name, where, entry in self.unset:
            bare, equals, value = name.partition("=")
            setting = environment.get(bare)
            if setting is not None and (not equals or setting.value.string == value):
                removed[bare] = (setting, where, entry)
                del environment[bare]
        return environment, removed


class _Ignored:
    """Collects, while the files are read, what systemd does not accept as an assignment."""

    def __init__(self) -> None:
        self._words: list[tuple[UnitFile, Entry, bytes, str, frozenset[str]]] = []
        self._reset: dict[str, tuple[UnitVariable, UnitFile, Entry]] = {}
        self._whole: list[IgnoredVariable] = []

    def word(self, unit: UnitFile, entry: Entry, text: bytes, why: str, also_set: frozenset[str]) -> None:
        """One word of an Environment=; `also_set`: the variables that the same line does set."""
        self._words.append((unit, entry, text, why, also_set))

    def reset(self, variables: Sequence[tuple[str, UnitVariable]], unit: UnitFile, entry: Entry) -> None:
        self._reset |= {name: (setting, unit, entry) for name, setting in variables}

    def file(self, path: str, error: FormatError) -> None:
        self._whole.append(IgnoredVariable(path, error.line, "", f"{error.rule}"))

    def path(self, unit: UnitFile, entry: Entry) -> None:
        why = f"EnvironmentFile={entry.value.string} is not an absolute path without quotes, so systemd does not read that file"
        self._whole.append(IgnoredVariable(unit.path, entry.line, "", why))

    def of(
        self,
        used: Sequence[str],
        environment: Mapping[str, UnitVariable],
        removed: Mapping[str, tuple[UnitVariable, UnitFile, Entry]],
        files: Mapping[str, bytes],
        systemd: int,
    ) -> list[IgnoredVariable]:
        """Those about variables that the command line uses."""
        found = list(self._whole)
        unread = {one.path for one in self._whole}
        for variable in used:
            for unit, entry, text, why, also_set in self._words:
                if variable in also_set:
                    found.append(
                        IgnoredVariable(unit.path, entry.line, f"all of {variable}", f"{why}; quotes are missing around the assignment")
                    )
                elif envfile.names(text.partition(b"=")[0], variable):
                    found.append(IgnoredVariable(unit.path, entry.line, variable, why))
            for path, data in files.items():
                if path not in unread:
                    found += [IgnoredVariable(path, one.line, variable, one.why) for one in envfile.ignored(data, variable, systemd)]
            if variable in removed:
                setting, unit, entry = removed[variable]
                why = f"UnsetEnvironment= removes it again ({unit.path}, line {entry.line})"
                found.append(IgnoredVariable(setting.origin.path, setting.origin.line, variable, why))
            elif variable in self._reset and variable not in environment:
                setting, unit, entry = self._reset[variable]
                why = f"an empty Environment= resets it ({unit.path}, line {entry.line})"
                found.append(IgnoredVariable(setting.origin.path, setting.origin.line, variable, why))
        return list(dict.fromkeys(found))


def _unset(entry: Entry, known: Mapping[str, str]) -> list[str]:
    """NAME or NAME=VALUE of an UnsetEnvironment=."""
    found = []
    for word in words.split(entry.value, c_escapes=True):
        resolved, complete = _specifiers(word, known)
        if not complete:
            raise FormatError(
                "an UnsetEnvironment= has a specifier that only the node can resolve",
                value=resolved.string,
                way_out="write the name without it",
            )
        found.append(resolved.string)
    return found


def _names(entry: Entry) -> list[str]:
    return [word.string for word in words.split(entry.value, c_escapes=True)]


def _environment(unit: UnitFile, entry: Entry, known: Mapping[str, str], ignored: _Ignored) -> list[tuple[str, UnitVariable]]:
    found = []
    dropped: list[tuple[bytes, str]] = []
    for word in words.split(entry.value, c_escapes=True):
        resolved, complete = _specifiers(word, known)
        name, equals, written = resolved.string.partition("=")
        if not equals or not _NAME.fullmatch(name) or not words.valid_utf8(resolved.text):
            # systemd drops it too, with a line in its journal.
            utf8 = words.valid_utf8(resolved.text)
            dropped.append(
                (resolved.text, envfile.why_ignored(name.encode("utf-8", "surrogateescape"), bool(equals)) if utf8 else "it is not UTF-8")
            )
            continue
        if not complete and "feature" in written:
            raise FormatError("a variable with gates has a specifier", value=resolved.string, way_out="write its value without it")
        begin = len(name) + 1
        # The value's extent includes the quotes of the whole word: a flag is added inside them.
        extent = (resolved.spans[begin - 1][1], word.extent[1])
        value = Mapped(resolved.text[begin:], resolved.spans[begin:], extent, resolved.source)
        found.append((name, UnitVariable(value, Origin("environment", unit.path, entry.line, name), known=complete)))
    for text, why in dropped:
        ignored.word(unit, entry, text, why, frozenset(name for name, _ in found))
    return found


def _listed(unit: UnitFile, entry: Entry, known: Mapping[str, str], ignored: _Ignored) -> list[tuple[str, bool]]:
    path, complete = _specifiers(entry.value, known)
    optional, text = path.string.startswith("-"), path.string.removeprefix("-")
    if not complete or re.search(r"[*?\[\\]", text):
        raise FormatError("an EnvironmentFile= has a specifier or a pattern", value=text, way_out="name each file by its path")
    if not text.startswith("/") or ".." in text.split("/"):
        ignored.path(unit, entry)
        return []  # systemd ignores it too, with a line in its journal
    return [("/" + posixpath.normpath(text).lstrip("/"), optional)]


def _command_line(
    unit: UnitFile, command: Entry, environment: Mapping[str, UnitVariable], foreign: Set[str], known: Mapping[str, str]
) -> tuple[tuple[Word, ...], tuple[str, ...], tuple[str, ...]]:
    """The words, the variables that are split into words, and those that are inserted whole. `foreign`: those that may come from outside
    the unit."""
    origin = Origin("exec", unit.path, command.line)
    raw = words.split(command.value, c_escapes=True, unknown_escapes=True)
    chosen, raw[0] = _prefixes(raw[0])
    if "@" in chosen:
        raw = raw[1:]
        if not raw:
            raise FormatError("ExecStart=@ has no name to run under", value=command.value.string, way_out="add it, or remove the @")
    argv: list[Word] = []
    split: list[str] = []
    whole: list[str] = []
    for bare in raw:
        bare_pair = bool(bare.spans) and bare.extent == bare.spans[0]  # one byte or one escape, and no quotes
        if bare.text == b";" and bare_pair and bare.extent[1] - bare.extent[0] == 1:
            raise FormatError("one ExecStart= has several commands", value=command.value.string, way_out="keep one")
        if bare.text == b"\\;" and bare_pair:
            bare = Mapped(b";", bare.spans[:1], bare.extent, bare.source)
        word, complete = _specifiers(bare, known)
        text = word.string
        if ":" in chosen or "$" not in text:
            argv.append(Word(word, origin, complete))
        elif text.startswith("$") and text[1:2] not in ("{", "$"):
            name = text[1:]
            setting = environment.get(name)
            if _NAME.fullmatch(name):
                split.append(name)
            if setting is not None:
                argv += [Word(part, setting.origin, setting.known) for part in envfile.split_variable(setting.value)]
            elif name in foreign:
                argv.append(Word(word, origin, known=False, editable=False))
        else:
            expanded, used = _braces(text, environment)
            whole += used
            complete = complete and all(environment[name].known if name in environment else name not in foreign for name in used)
            if expanded == text:
                argv.append(Word(word, origin, complete))
            else:
                content = Mapped(expanded.encode("utf-8", "surrogateescape"), (), word.extent, word.source)
                argv.append(Word(content, origin, complete, editable=False))
    return tuple(argv), tuple(split), tuple(whole)


def _prefixes(first: Mapped) -> tuple[str, Mapped]:
    """The special prefixes of the executable (systemd.service(5)), and the rest. Raises FormatError for what systemd would not run."""
    count = 0
    while count < len(first.text) and first.text[count] in b"@-:+!":
        byte = first.text[count : count + 1]
        if byte in first.text[:count] and not (byte == b"!" and first.text[:count].count(b"!") == 1):
            break
        count += 1
    path = first.text[count:]
    if not path or path.endswith(b"/") or (b"/" in path and not path.startswith(b"/")):
        raise FormatError("ExecStart= names no program that systemd would run", value=first.string, way_out="write its absolute path")
    return first.string[:count], first.slice(count, len(first.text))


def _braces(text: str, environment: Mapping[str, UnitVariable]) -> tuple[str, list[str]]:
    used: list[str] = []

    def put(found: re.Match[str]) -> str:
        if found.group(0) == "$$":
            return "$"
        used.append(found.group(1))
        setting = environment.get(found.group(1))
        return setting.value.string if setting else ""

    # With a colon, `${NAME:-default}` is not a variable for systemd and stays as it is.
    return re.sub(r"\$\$|\$\{([^}:]*)\}", put, text), used


# ---- editing


@dataclass(frozen=True)
class Sources:
    """All files that define a service's command line, current or planned."""

    fragment: UnitFile
    dropins: tuple[UnitFile, ...]
    environment_files: dict[str, bytes | None]
    systemd: int = 257
    specifiers: Mapping[str, str] = field(default_factory=dict)

    def resolve(self) -> Service:
        return resolve(self.fragment, self.dropins, self.environment_files, systemd=self.systemd, specifiers=self.specifiers)

    def data(self, path: str) -> bytes | None:
        for unit in (self.fragment, *self.dropins):
            if unit.path == path:
                return unit.data
        return self.environment_files.get(path)

    def with_file(self, path: str, data: bytes | None) -> Sources:
        """A copy with one file changed, created or (None) removed. A path that is not one of them is a new drop-in."""
        if path == self.fragment.path:
            if data is None:
                raise FormatError("the unit itself cannot be removed", file=path, way_out="change it instead")
            return Sources(UnitFile(path, data), self.dropins, self.environment_files, self.systemd, self.specifiers)
        if path in self.environment_files:
            files = {**self.environment_files, path: data}
            return Sources(self.fragment, self.dropins, files, self.systemd, self.specifiers)
        units = [unit for unit in self.dropins if unit.path != path]
        if data is not None:
            units.append(UnitFile(path, data))
        # Drop-ins are read in the order of their file names, whatever their folder (systemd.unit(5)).
        units.sort(key=lambda unit: posixpath.basename(unit.path))
        return Sources(self.fragment, tuple(units), self.environment_files, self.systemd, self.specifiers)

    def with_files(self, changed: Mapping[str, bytes | None]) -> Sources:
        found = self
        for path, data in changed.items():
            found = found.with_file(path, data)
        return found


def of_operator(path: str) -> bool:
    """True for a unit or drop-in that belongs to the operator: not to a package, and not to a folder that is lost at the next boot
    (systemd.unit(5), UNIT FILE LOAD PATH)."""
    return path.startswith("/etc/")


def edit_flag(
    sources: Sources,
    name: str,
    values: FlagValues,
    *,
    variable: str,
    new_dropin: str,
    switch: bool = False,
    in_place: Callable[[str], bool] = of_operator,
) -> dict[str, bytes | None]:
    """The files that must change so that the service's command line gives a flag `values`, or (None) does not have it; with their new
    content, None for a file that is removed.

    `name` is without dashes. `switch`: a boolean flag, which needs no value. An existing flag is changed at its last places, and removed
    from all others (`flags.edit`). A new one goes into `variable` if the unit splits it into words (else into the last variable that it
    splits), in its effective assignment or, if it has none, in the last environment file. If the unit reads no variable, the flag goes to
    the end of the command: in the file with the effective ExecStart=, if that may be edited (`in_place`) or was created by daytwo; else in
    the drop-in `new_dropin`, which copies the command (see `copies`). Raises FormatError if the edit could not take effect or is
    ambiguous.
    """
    service = sources.resolve()
    _check_editable(service, name, switch)
    places = _Places(sources, service, name, variable, new_dropin, in_place)
    edited = flags.edit([word.mapped for word in service.argv], name, values, places.remove, places.insert, switch=switch)
    splices = [_for_units(splice, sources) for splice in edited]
    result: dict[str, bytes | None] = dict(places.added)
    for path in {splice.source for splice in splices}:
        before = sources.data(path) or b""
        after: bytes | None = apply(before, [splice for splice in splices if splice.source == path])
        if path in sources.environment_files:
            for holder in {setting.origin.variable for setting in service.environment.values() if setting.origin.path == path}:
                after = envfile.drop_empty(after, holder or "", sources.systemd) if after is not None else None
        elif after is not None and _has_no_effect(after, sources, path):
            after = None
        result[path] = after
    # Read the result again as systemd would.
    then = sources.with_files(result).resolve()
    words = [word.text for word in then.argv]
    if not flags.set_to([word.text for word in service.argv], words, name, values, switch=switch):
        raise FormatError(
            f"the edit could not take effect: the command line of line {then.command.line} would be `{' '.join(words)}`",
            file=then.command_path,
            way_out="edit this unit by hand",
        )
    return result


class _Places:
    """Where words of the command line are removed, and where new ones go; `added`: files that are created or extended."""

    def __init__(
        self, sources: Sources, service: Service, flag_name: str, variable: str, new_dropin: str, in_place: Callable[[str], bool]
    ) -> None:
        self.sources, self.service = sources, service
        self.flag_name, self.variable, self.new_dropin, self.in_place = flag_name, variable, new_dropin, in_place
        self.origins = {id(word.mapped): word.origin for word in service.argv}
        self.removers = {name: envfile.remover(setting.value) for name, setting in service.environment.items()}
        self.cuts: list[Splice] = []
        self.added: dict[str, bytes | None] = {}

    def remove(self, gone: tuple[Mapped, ...]) -> list[Splice]:
        first, last = self.origins[id(gone[0])], self.origins[id(gone[-1])]
        if first != last:
            return [splice for word in gone for splice in self.remove((word,))]
        if first.kind == "exec":
            found = _cut_from_command(self.sources.data(first.path) or b"", gone, self.cuts)
            self.cuts.extend(found)
            return found
        return self.removers[first.variable or ""](gone)

    def insert(self, flag: str) -> list[Splice]:
        sources, service = self.sources, self.service
        flags.check_end([word.text for word in service.argv])
        usable = [name for name in service.split_variables if name not in service.unset]
        name = self.variable if self.variable in usable else next(iter(reversed(usable)), None)
        if name is None and (self.in_place(service.command_path) or (sources.data(service.command_path) or b"").startswith(MADE)):
            end = service.command.value.spans[-1][1]
            return [Splice(end, end, b" " + flag.encode(), service.command_path)]
        setting = service.environment.get(name) if name else None
        if name is not None and setting is not None:
            return [self._into(name, setting, flag)]
        if name is None or not service.environment_files:
            self.added[self.new_dropin] = self._dropin(name, flag)
            return []
        path = service.environment_files[-1].path
        try:
            self.added[path] = envfile.add_assignment(sources.environment_files[path], name, flag, sources.systemd)
        except FormatError as error:
            raise error.in_file(path) from None
        return []

    def _dropin(self, variable: str | None, flag: str) -> bytes:
        if self.sources.data(self.new_dropin) is not None:
            raise FormatError(
                f"the drop-in to create exists already, and does not set --{self.flag_name}", file=self.new_dropin, way_out="remove it"
            )
        written = flag.replace("%", "%%")
        if variable:
            return MADE + f'\n[Service]\nEnvironment="{variable}={written}"\n'.encode()
        copied = _copied_from(self.sources, self.service)
        return MADE + b"\n" + copied + b"[Service]\n" + _command_again(self.sources, self.service, written) + b"\n"

    def _into(self, variable: str, setting: UnitVariable, flag: str) -> Splice:
        """Add a flag at the end of a variable that is set."""
        path = setting.origin.path
        if setting.origin.kind == "environment_file":
            data = self.sources.data(path) or b""
            assignment = envfile.parse(data, self.sources.systemd, path).last(variable)
            assert assignment is not None  # the setting comes from it
            return envfile.insertion(data, assignment, flag)
        start, end = setting.value.extent
        if not setting.value.spans:
            return Splice(start, start, flag.encode(), path)
        start = setting.value.spans[-1][1]
        # Without quotes a blank would end the assignment; systemd reads `\s` as a blank there.
        return Splice(start, start, (b" " if end > start else rb"\s") + flag.encode(), path)


def _check_editable(service: Service, name: str, switch: bool) -> None:
    """Refuse a flag that is composed from several places. Raises FormatError."""
    found = {id(word) for flag in flags.find([word.mapped for word in service.argv], name, switch=switch) for word in flag.words}
    for word in service.argv:
        if not word.editable and (id(word.mapped) in found or f"--{name}" in word.text.replace("_", "-")):
            raise FormatError(
                f"--{name} is composed with a variable inside a word",
                value=word.text,
                line=word.origin.line,
                file=word.origin.path,
                way_out="write it in one place",
            )


def _for_units(splice: Splice, sources: Sources) -> Splice:
    """In a unit a percent sign begins a specifier; a doubled one is literal (systemd.unit(5))."""
    return splice if splice.source in sources.environment_files else replace(splice, text=splice.text.replace(b"%", b"%%"))


def _has_no_effect(dropin: bytes, sources: Sources, path: str) -> bool:
    """True for a drop-in created by daytwo whose new content changes nothing."""
    head = re.escape(MADE) + rb"\n(?:# Copied [^\n]*\n)?\[Service\]\n"
    if not re.fullmatch(head + rb'(Environment="[A-Za-z0-9_]+="|ExecStart=\nExecStart=.*)\n', dropin, re.DOTALL):
        return False
    keys = [(entry.section, entry.key) for entry in entries(UnitFile(path, dropin))]
    if keys not in ([("Service", "Environment")], [("Service", "ExecStart")] * 2):
        return False
    bare, without = sources.with_file(path, dropin).resolve(), sources.with_file(path, None).resolve()
    return [word.text for word in bare.argv] == [word.text for word in without.argv]


def _cut_from_command(data: bytes, gone: tuple[Mapped, ...], cuts: Sequence[Splice]) -> list[Splice]:
    """Remove neighbouring words of ExecStart= with one blank or, if they are alone on their lines, with the lines. `cuts`: the removals so
    far."""
    start, end, source = gone[0].extent[0], gone[-1].extent[1], gone[0].source
    line_start = data.rfind(b"\n", 0, start) + 1
    line_end = data.find(b"\n", end)
    line_end = len(data) if line_end < 0 else line_end
    rest = data[end:line_end].strip()
    if data[line_start:start].strip() or rest not in (b"", b"\\"):
        return [Splice(start - (data[start - 1 : start] in (b" ", b"\t")), end, b"", source)]
    if rest:
        return [Splice(line_start, line_end + 1, b"", source)]
    # The last line of the command: the backslash that continues to it is removed too, from the last line that stays.
    before = line_start
    while above := next((cut.start for cut in cuts if cut.end == before), None):
        before = above
    found = [Splice(before - 1 - data[:before].endswith(b"\r\n"), line_end - data[end:line_end].endswith(b"\r"), b"", source)]
    while before:
        stop = before - 1
        before = data.rfind(b"\n", 0, stop) + 1
        line = data[before:stop].rstrip()
        if line.lstrip()[:1] in (b"#", b";") or any(cut.start <= before < cut.end for cut in cuts):
            continue
        kept = line.removesuffix(b"\\").rstrip()
        found.append(Splice(before + len(kept), before + len(line), b"", source))
        break
    return found


def _command_again(sources: Sources, service: Service, flag: str) -> bytes:
    """The command line as it is written, with one more flag. ExecStart= is reset first, since systemd would refuse a second one for a
    service of this type."""
    return b"ExecStart=\nExecStart=" + _written(sources, service) + b" " + flag.encode()


def _written(sources: Sources, service: Service) -> bytes:
    """The command as it is written in its file."""
    spans = service.command.value.spans
    return (sources.data(service.command_path) or b"")[spans[0][0] : spans[-1][1]]


_COPIED = re.compile(rb"# Copied from ExecStart= of (.+) \(sha256 ([0-9a-f]{64})\); later edits there do not count\Z")


def _copied_from(sources: Sources, service: Service) -> bytes:
    total = hashlib.sha256(_written(sources, service)).hexdigest()
    return f"# Copied from ExecStart= of {service.command_path} (sha256 {total}); later edits there do not count\n".encode()


@dataclass(frozen=True)
class Copy:
    """A drop-in of daytwo's that copies the command of `origin`, which it masks. `changed`: whether that command has changed since; None if
    unknown."""

    path: str
    origin: str
    changed: bool | None


def copies(sources: Sources) -> list[Copy]:
    """The drop-in of daytwo's with the effective command, a copy of another file's; [] if there is none."""
    path = sources.resolve().command_path
    lines = (sources.data(path) or b"").split(b"\n")
    if path == sources.fragment.path or lines[0] != MADE:
        return []
    noted = next((found for line in lines if (found := _COPIED.match(line))), None)
    try:
        without = sources.with_file(path, None)
        service = without.resolve()
    except FormatError:
        return [Copy(path, noted[1].decode() if noted else sources.fragment.path, None)]
    now = _written(without, service)
    if noted is None:
        # An earlier daytwo wrote it: the old command, followed by flags.
        return [Copy(path, service.command_path, None if now not in (sources.data(path) or b"") else False)]
    same = noted[1].decode() == service.command_path and noted[2].decode() == hashlib.sha256(now).hexdigest()
    return [Copy(path, service.command_path, not same)]
