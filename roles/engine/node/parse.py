"""Read the records that templates/observe.sh.j2 writes."""

from __future__ import annotations

import binascii
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from roles.engine.bounds import LATEST, digits
from roles.engine.framed import ADVICE
from roles.engine.harmless import one_line
from roles.engine.node.glance import SEVERAL, parse_glance
from roles.engine.node.logind import Inhibitor, parse_inhibitor, parse_logind
from roles.engine.node.model import File, FileKind, Observation, OtherProcess, Process, Unit
from roles.engine.scripts import decoded, words

# NAMESPACE_NAME, both as Kubernetes accepts them (RFC 1123).
_POD = re.compile(r"[a-z0-9.-]+_[a-z0-9.-]+")


_MOST_TICKS = 10**9


class ObservationError(Exception):
    """The answer of a node is incomplete or malformed. Names the host and the problem."""


def unreadable(host: str, number: int, line: str) -> ObservationError:
    """A line of a node's answer is no record. Its login shell prints before the answer; what that starts may still print."""
    return ObservationError(
        f"{host}: line {number} of the node's answer is malformed: {line[:120]!r}; if daytwo did not print it, {ADVICE}"
    )


def _text(field: str) -> str:
    return decoded(field).decode("utf-8", "surrogateescape")


def _argv(field: str) -> tuple[str, ...]:
    return words(decoded(field))


def _properties(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator:
            found.setdefault(key, []).append(value)
    return found


def parse(host: str, lines: Iterable[str]) -> Observation:
    """Build the observation of `host` from the lines of its answer.

    Raises ObservationError if the answer is cut short or malformed.
    """
    read = _Records()
    for number, line in enumerate(lines, 1):
        name, *fields = line.split(" ")
        try:
            read.add(name, fields)
        except (IndexError, KeyError, ValueError, binascii.Error) as error:
            raise unreadable(host, number, line) from error
    if "end" not in read.single or "daytwo" not in read.single or read.awaited:
        count = len(read.single.keys() - {"end"})
        raise ObservationError(f"{host}: the node's answer was cut short after {count} records; try again")
    try:
        return read.observation(host)
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise ObservationError(
            f"{host}: a record of the node's answer is missing or malformed ({one_line(str(error))[:120]}); try again"
        ) from None


class _Records:
    """The records that were read so far; `single` has the fields of those that occur once, by name."""

    def __init__(self) -> None:
        self.single: dict[str, list[str]] = {}
        self.tools: set[str] = set()
        self.markers: list[str] = []
        self.processes: list[Process] = []
        self.static: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.others: list[OtherProcess] = []
        self.programs: dict[str, str] = {}
        self.unit: Unit | None = None
        self.files: dict[str, File] = {}
        #: Files whose content comes later, and how long it is.
        self.awaited: list[tuple[str, int]] = []
        self.directories: dict[str, list[str]] = {}
        self.changes: dict[str, dict[str, str]] = {}
        self.inhibitors: list[Inhibitor] = []
        self.several: dict[str, list[list[str]]] = {}

    def add(self, name: str, fields: list[str]) -> None:
        match name:
            case "tool":
                self.tools.add(fields[0])
            case "marker":
                self.markers.append(_text(fields[0]))
            case "process":
                self.processes.append(_process(fields))
            case "static":
                self.static[fields[0]] = fields[1], tuple(filter(_POD.fullmatch, _text(fields[2]).split()))
            case "ignored":
                self.others.append(_other(fields))
            case "program":
                self.programs[_text(fields[0])] = _text(fields[1])
            case "unit":
                self.unit = Unit(_text(fields[0]), _properties(_text(fields[1])))
            case "directory":
                self.directories[posixpath.normpath(_text(fields[0]))] = []
            case "hidden":
                path = posixpath.normpath(_text(fields[0]))
                self.directories.setdefault(posixpath.dirname(path), []).append(posixpath.basename(path))
            case "file":
                seen = _file(fields)
                self.files[seen.path] = seen
                if fields[-1].startswith("@"):
                    self.awaited.append((seen.path, int(fields[-1][1:])))
                parent = posixpath.dirname(seen.path)
                if parent in self.directories and seen.kind != "none":
                    self.directories[parent].append(posixpath.basename(seen.path))
            case "contents":
                self._fill(decoded(fields[0]))
            case "inhibitor":
                self.inhibitors.append(parse_inhibitor(_text(fields[0])))
            case "change":
                self.changes[_text(fields[0])] = {key: values[-1] for key, values in _properties(_text(fields[1])).items()}
            case _ if name in SEVERAL:
                self.several.setdefault(name, []).append(fields)
            case _:
                self.single[name] = fields

    def _fill(self, data: bytes) -> None:
        """The contents of the files before it that had none yet, one after another. Raises ValueError if they are not as long as said."""
        if sum(size for _, size in self.awaited) != len(data):
            raise ValueError("the contents of files are not as long as these said")
        start = 0
        for path, size in self.awaited:
            self.files[path] = replace(self.files[path], data=data[start : start + size])
            start += size
        self.awaited.clear()

    def observation(self, host: str) -> Observation:
        uptime, epoch, ticks = _clock(self.single["clock"])
        cgroups = self.single.get("cgroups")
        logind = self.single.get("logind")
        return Observation(
            host=host,
            uid=int(self.single["uid"][0]),
            hostname=_text(self.single["hostname"][0]),
            boot_id=self.single["boot"][0],
            machine_id=_text(self.single["machine"][0]) if "machine" in self.single else "",
            uptime=uptime,
            epoch=epoch,
            ticks_per_second=ticks,
            os=_text(self.single["os"][0]).strip("\"'"),
            systemd=_release(self.single["systemd"][0]),
            tools=frozenset(self.tools),
            markers=tuple(self.markers),
            processes=tuple(_in_pod(process, self.static) for process in self.processes),
            unit=self.unit,
            files=self.files,
            directories={path: tuple(sorted(names)) for path, names in self.directories.items()},
            changes=self.changes,
            programs=self.programs,
            others=tuple(self.others),
            swap=int(self.single["swap"][0]) if "swap" in self.single else None,
            cgroup2=cgroups[0] == "v2" if cgroups else None,
            swap_limits=cgroups[1] == "yes" if cgroups else None,
            inhibitors=tuple(self.inhibitors),
            logind=parse_logind(logind[0], logind[1], _text(logind[2])) if logind else None,
            glance=parse_glance(self.single, self.several),
            others_total=int(self.single.get("others", [str(len(self.others))])[0]),
        )


def _in_pod(process: Process, static: Mapping[str, tuple[str, tuple[str, ...]]]) -> Process:
    uid, pods = static.get(str(process.pid), (None, ()))
    return replace(process, pod_uid=uid, pods=pods)


def _clock(fields: list[str]) -> tuple[float, int, int]:
    """Raises ValueError for what no clock says: after it everything is divided by the ticks, and compared with the epoch."""
    uptime, epoch, ticks = float(fields[0]), int(fields[1]), int(fields[2])
    if not (0 <= uptime <= LATEST.timestamp() and 0 <= epoch <= LATEST.timestamp() and 0 < ticks <= _MOST_TICKS):
        raise ValueError(f"the clock is {' '.join(fields)}")
    return uptime, epoch, ticks


def _release(text: str) -> str:
    """Of systemd, "" if it is not known. Raises ValueError."""
    if text and digits(text) is None:
        raise ValueError("systemd has no release of digits")
    return text


def _other(fields: list[str]) -> OtherProcess:
    name, pid, uid, why = fields
    found = OtherProcess(name, int(pid), int(uid), why)
    str(found)  # raises KeyError for an unknown reason
    return found


def _file(fields: list[str]) -> File:
    path, kind, mode, uid, gid, mtime, mountpoint, attributes, content = fields
    return File(
        path=posixpath.normpath(_text(path)),
        kind=cast(FileKind, kind),
        mode=int(mode, 8),
        uid=int(uid),
        gid=int(gid),
        mtime=int(mtime),
        mountpoint=_text(mountpoint),
        attributes=attributes,
        data=None if content[0] in "-@" else decoded(content),
    )


def _process(fields: list[str]) -> Process:
    name, pid, start, argv, cgroup, exe = fields
    return Process(name, int(pid), int(start), _argv(argv), _text(cgroup), _text(exe))
