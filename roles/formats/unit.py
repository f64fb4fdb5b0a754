"""systemd units: what command line a service really gets, and where each word of it comes from.

Sources: systemd.syntax(7), systemd.service(5) COMMAND LINES, systemd.exec(5) Environment=, EnvironmentFile=;
src/shared/conf-parser.c, src/core/load-fragment.c, src/basic/env-util.c (releases 252 to 257).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from roles.formats import envfile, flags, words
from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges
from roles.formats.mapped import Builder, Mapped, Splice, apply, line_of

MADE = b"# This drop-in was made by daytwo"
_BOM = b"\xef\xbb\xbf"


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
    """One word of the command line. `known` is False where it holds a specifier such as %H that only the node can resolve;
    `editable` is False where it is put together from several places (`--flag=${VARIABLE}`)."""

    mapped: Mapped
    origin: Origin
    known: bool = True
    editable: bool = True

    @property
    def text(self) -> str:
        return self.mapped.string


@dataclass(frozen=True)
class Setting:
    """A variable of the service: the value that counts, where it is written, and the places it beats."""

    value: Mapped
    origin: Origin
    masked: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class EnvironmentFile:
    path: str
    optional: bool
    present: bool


@dataclass(frozen=True)
class Service:
    """What systemd runs: the command line word by word, and what it was made from."""

    argv: tuple[Word, ...]
    command: Entry
    command_path: str
    environment: dict[str, Setting]
    environment_files: tuple[EnvironmentFile, ...]
    split_variables: tuple[str, ...]
    whole_variables: tuple[str, ...] = field(default=())

    @property
    def known_argv(self) -> tuple[str, ...] | None:
        """The command line, or None where a part of it is known to the node only."""
        return tuple(word.text for word in self.argv) if all(word.known for word in self.argv) else None


def entries(unit: UnitFile) -> list[Entry]:
    """The assignments of a unit or drop-in in order. Raises FormatError where systemd would stop reading the file."""
    data = unit.data
    if b"\0" in data:
        raise FormatError("holds a NUL byte", line=line_of(data, data.index(b"\0")), file=unit.path)
    found: list[Entry] = []
    section = ""
    joined: Builder | None = None
    position = len(_BOM) if data.startswith(_BOM) else 0
    while position < len(data):
        end = re.compile(rb"\r\n|\n|\r|\Z").search(data, position)
        assert end is not None  # \Z always matches
        start, stop, position = position, end.start(), end.end()
        if data[start:stop].lstrip(words.WHITESPACE)[:1] in (b"#", b";"):
            continue
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
    return found


def _entry(joined: Builder, section: str, unit: UnitFile, found: list[Entry]) -> str:
    line = _strip(joined.done((0, 0)))
    if not line.text:
        return section
    number = line_of(unit.data, line.spans[0][0])
    if line.text.startswith(b"["):
        if not line.text.endswith(b"]"):
            raise FormatError("a section has no closing bracket", value=line.string, line=number, file=unit.path)
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
    """The word with its % specifiers resolved, and whether all were."""
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
        else:
            complete = False
            built.add_all(pair, span)
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

    `environment_files` gives the content of each EnvironmentFile= by path, None for one that is not there. Raises FormatError
    where the unit cannot be read, has not exactly one ExecStart=, or names an environment file that was not given.
    """
    known = specifiers or {}
    commands: list[tuple[UnitFile, Entry]] = []
    variables: list[tuple[str, Mapped, Origin]] = []
    listed: list[tuple[str, bool]] = []
    for unit in (fragment, *dropins):
        for entry in entries(unit):
            if entry.section != "Service":
                continue
            if entry.key == "ExecStart":
                commands = [*commands, (unit, entry)] if entry.value.text else []
            elif entry.key == "Environment":
                variables = [*variables, *_environment(unit, entry, known)] if entry.value.text else []
            elif entry.key == "EnvironmentFile":
                listed = [*listed, _listed(unit, entry, known)] if entry.value.text else []
            elif entry.key == "UnsetEnvironment" and entry.value.text:
                raise FormatError("UnsetEnvironment= takes variables away again", line=entry.line, file=unit.path, value=entry.value.string)
    if len(commands) != 1:
        raise FormatError(f"the unit has {len(commands)} ExecStart= that count; one is needed", file=fragment.path)
    present = []
    for path, optional in listed:
        if path not in environment_files:
            raise FormatError("an EnvironmentFile= was not looked at", value=path, file=fragment.path)
        data = environment_files[path]
        present.append(EnvironmentFile(path, optional, data is not None))
        if data is None and not optional:
            raise FormatError("an EnvironmentFile= without `-` is missing: the unit would not start", value=path, file=fragment.path)
        try:
            for assignment in envfile.parse(data or b"", systemd, source=path).assignments:
                origin = Origin("environment_file", path, assignment.line, assignment.name)
                variables.append((assignment.name, assignment.value, origin))
        except FormatError as error:
            raise error.in_file(path) from None
    environment: dict[str, Setting] = {}
    for name, value, origin in variables:
        beaten = environment.get(name)
        masked = (*beaten.masked, beaten.origin) if beaten else ()
        environment[name] = Setting(value, origin, masked)
    unit, command = commands[0]
    argv, split, whole = _command_line(unit, command, environment, known)
    return Service(argv, command, unit.path, environment, tuple(present), split, whole)


def _environment(unit: UnitFile, entry: Entry, known: Mapping[str, str]) -> list[tuple[str, Mapped, Origin]]:
    found = []
    for word in words.split(entry.value, c_escapes=True, relaxed=False):
        resolved, complete = _specifiers(word, known)
        name, equals, _ = resolved.text.partition(b"=")
        if not equals or not re.fullmatch(rb"[A-Za-z_][A-Za-z0-9_]*", name):
            continue
        if not complete and b"feature" in resolved.text:
            raise FormatError("a variable with gates holds a specifier", value=resolved.string, line=entry.line, file=unit.path)
        value = resolved.slice(len(name) + 1, len(resolved.text))
        # The quotes of the whole word belong to the value's place too: a flag is added inside them.
        found.append((name.decode(), value, Origin("environment", unit.path, entry.line, name.decode())))
    return found


def _listed(unit: UnitFile, entry: Entry, known: Mapping[str, str]) -> tuple[str, bool]:
    path, complete = _specifiers(entry.value, known)
    text = path.string
    if not complete or "*" in text or "?" in text:
        raise FormatError("an EnvironmentFile= with a specifier or a pattern", value=text, line=entry.line, file=unit.path)
    return posixpath.normpath(text.removeprefix("-")), text.startswith("-")


def _command_line(
    unit: UnitFile, command: Entry, environment: Mapping[str, Setting], known: Mapping[str, str]
) -> tuple[tuple[Word, ...], tuple[str, ...], tuple[str, ...]]:
    origin = Origin("exec", unit.path, command.line)
    raw = words.split(command.value, c_escapes=True, relaxed=False)
    first = raw[0]
    prefixes = len(first.text) - len(first.text.lstrip(b"@-:+!|"))
    chosen = first.text[:prefixes]
    raw[0] = first.slice(prefixes, len(first.text))
    if b"@" in chosen:
        raw = raw[1:]
    argv: list[Word] = []
    split: list[str] = []
    whole: list[str] = []
    for number, bare in enumerate(raw):
        if bare.text == b";" and bare.extent == bare.spans[0]:
            raise FormatError("several commands in one ExecStart=", line=command.line, file=unit.path)
        word, complete = _specifiers(bare, known)
        text = word.string
        if number == 0 or b":" in chosen or "$" not in text:
            argv.append(Word(word, origin, complete))
        elif text.startswith("$") and len(text) > 1 and text[1] not in "{$":
            split.append(text[1:])
            setting = environment.get(text[1:])
            for part in envfile.split_variable(setting.value) if setting else ():
                argv.append(Word(part, setting.origin))  # type: ignore[union-attr]  # the loop is empty without a setting
        else:
            expanded, used = _braces(text, environment)
            whole += used
            if expanded == text:
                argv.append(Word(word, origin, complete))
            else:
                content = Mapped(expanded.encode("utf-8", "surrogateescape"), (), word.extent, word.source)
                argv.append(Word(content, origin, complete, editable=False))
    return tuple(argv), tuple(split), tuple(whole)


def _braces(text: str, environment: Mapping[str, Setting]) -> tuple[str, list[str]]:
    used: list[str] = []

    def put(found: re.Match[str]) -> str:
        if found.group(0) == "$$":
            return "$"
        used.append(found.group(1))
        setting = environment.get(found.group(1))
        return setting.value.string if setting else ""

    return re.sub(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}", put, text), used


# ---- editing


@dataclass(frozen=True)
class Sources:
    """All files a service's command line is made of, as they are or as they would be."""

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
        """The same with one file changed, made or gone. A path that is neither of them is a new drop-in, which comes last."""
        if path == self.fragment.path:
            if data is None:
                raise FormatError("the unit itself cannot be taken away", file=path)
            return Sources(UnitFile(path, data), self.dropins, self.environment_files, self.systemd, self.specifiers)
        if path in self.environment_files:
            files = {**self.environment_files, path: data}
            return Sources(self.fragment, self.dropins, files, self.systemd, self.specifiers)
        units = [unit for unit in self.dropins if unit.path != path]
        if data is not None:
            units.append(UnitFile(path, data))
        # Drop-ins are read in the order of their file names, whatever folder they lie in (systemd.unit(5)).
        units.sort(key=lambda unit: posixpath.basename(unit.path))
        return Sources(self.fragment, tuple(units), self.environment_files, self.systemd, self.specifiers)


def edit_gates(sources: Sources, changes: GateChanges, *, variable: str, new_dropin: str) -> dict[str, bytes | None]:
    """The files that must change so that the service's command line sets the gates as wanted, with their new content.

    A new flag goes into `variable` where the unit splits it into words (else into the last variable it so splits), in the place
    that counts: the assignment that wins, or the last environment file. A unit that reads no variable is given the drop-in
    `new_dropin`. Raises FormatError where the edit could not take effect or needs guessing.
    """
    service = sources.resolve()
    for word in service.argv:
        if not word.editable and "feature" in word.text and "gates" in word.text:
            raise FormatError(
                "the gates are put together from a variable inside a word",
                value=word.text,
                line=word.origin.line,
                file=word.origin.path,
                way_out="write them into one place",
            )
    origins = {id(word.mapped): word.origin for word in service.argv}
    settings = service.environment
    added: dict[str, bytes | None] = {}

    def remove(gone: tuple[Mapped, ...]) -> list[Splice]:
        splices: list[Splice] = []
        for word in gone:
            origin = origins[id(word)]
            if origin.kind == "exec":
                splices.append(_cut_from_line(sources.data(origin.path) or b"", word))
            else:
                splices += envfile.remover(settings[origin.variable or ""].value)((word,))
        return splices

    def insert(flag: str) -> list[Splice]:
        envfile.check_end([word.mapped for word in service.argv])
        name = variable if variable in service.split_variables else next(iter(reversed(service.split_variables)), None)
        if name is None:
            added[new_dropin] = _dropin_command(sources, service, flag)
            return []
        setting = service.environment.get(name)
        if setting is None:
            if service.environment_files:
                path = service.environment_files[-1].path
                added[path] = envfile.add_assignment(sources.environment_files[path], name, flag)
            else:
                added[new_dropin] = MADE + f'\n[Service]\nEnvironment="{name}={flag}"\n'.encode()
            return []
        data = sources.data(setting.origin.path) or b""
        if setting.origin.kind == "environment_file":
            assignment = envfile.parse(data, sources.systemd, setting.origin.path).last(name)
            assert assignment is not None  # it is where the setting comes from
            return envfile.inserter(assignment.value, data, assignment)(flag)
        if not setting.value.spans:
            raise FormatError(f"{name} is set to nothing", file=setting.origin.path, line=setting.origin.line, way_out="take that line out")
        end = setting.value.spans[-1][1]
        return [Splice(end, end, b" " + flag.encode(), setting.origin.path)]

    splices = flags.edit([word.mapped for word in service.argv], changes, remove, insert)
    result: dict[str, bytes | None] = dict(added)
    for path in {splice.source for splice in splices}:
        before = sources.data(path) or b""
        after: bytes | None = apply(before, [splice for splice in splices if splice.source == path])
        if path in sources.environment_files:
            for name in {setting.origin.variable for setting in settings.values() if setting.origin.path == path}:
                after = envfile.drop_empty(after, name or "", sources.systemd) if after is not None else None
        elif before.startswith(MADE) and flags.FEATURE_GATES.encode() not in (after or b""):
            after = None
        result[path] = after
    _verify(sources, service, changes, result)
    return result


def _verify(sources: Sources, service: Service, changes: GateChanges, result: Mapping[str, bytes | None]) -> None:
    """Read the outcome again as systemd would: the gates are as wanted, and no other word has changed."""
    after = sources
    for path, data in result.items():
        after = after.with_file(path, data)
    resolved = after.resolve()
    old = [word.text for word in service.argv]
    new = [word.text for word in resolved.argv]
    wanted = {name: value for name, value in flags.effective_gates(old).items() if changes.get(name, value) is not None}
    wanted |= {name: value for name, value in changes.items() if value is not None}
    if flags.effective_gates(new) != wanted or without_gates(old) != without_gates(new):
        raise FormatError("the edit would not give the command line that is wanted", value=" ".join(new), way_out="edit this unit by hand")


def without_gates(argv: Sequence[str]) -> list[str]:
    """A command line without its --feature-gates."""
    mapped = [Mapped.of(word.encode("utf-8", "surrogateescape")) for word in argv]
    gates = {id(word) for flag in flags.gate_flags(mapped) for word in flag.words}
    return [word.string for word in mapped if id(word) not in gates]


def _cut_from_line(data: bytes, word: Mapped) -> Splice:
    """A word of ExecStart= with one blank; alone on its line, the whole line."""
    start, end = word.extent
    line_start = data.rfind(b"\n", 0, start) + 1
    line_end = data.find(b"\n", end)
    line_end = len(data) if line_end < 0 else line_end
    alone = not data[line_start:start].strip()
    rest = data[end:line_end].strip()
    if alone and rest == b"\\":
        return Splice(line_start, line_end + 1, b"", word.source)
    if alone and not rest:
        # The last line of a continued command: the backslash before it goes as well.
        before = data[:line_start].rstrip()
        before = before.removesuffix(b"\\").rstrip()
        return Splice(len(before), end, b"", word.source)
    while start > line_start and data[start - 1 : start] in (b" ", b"\t"):
        start -= 1
        break
    return Splice(start, end, b"", word.source)


def _dropin_command(sources: Sources, service: Service, flag: str) -> bytes:
    """A drop-in that repeats the command line as it is written, with one flag more. ExecStart= is reset first, since a second
    one would be refused by systemd for a service of this type."""
    data = sources.data(service.command_path) or b""
    spans = service.command.value.spans
    written = data[spans[0][0] : spans[-1][1]]
    return MADE + b"\n[Service]\nExecStart=\nExecStart=" + written + b" " + flag.encode() + b"\n"
