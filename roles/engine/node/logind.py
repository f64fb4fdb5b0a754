"""What delays a shutdown of a node: the locks that systemd-logind holds for programs, and how long it waits for them. Pure.

Sources: systemd-inhibit(1), logind.conf(5) (InhibitDelayMaxSec, 5 s by default), systemd.time(7); systemd's src/login/inhibitor.c writes
one file for each lock to /run/systemd/inhibit.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from roles.engine.scripts import properties

DEFAULT_SECONDS: Final = 5.0
#: The first of them: a node may have written any number.
MOST_LOCKS: Final = 100
# The directories of drop-ins; of files with one name the first one counts.
_PLACES = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
_MAIN = tuple(f"{place}/systemd/logind.conf" for place in _PLACES)
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)")
_UNITS = {
    **dict.fromkeys(("usec", "us", "µs"), 1e-6),
    **dict.fromkeys(("msec", "ms"), 1e-3),
    **dict.fromkeys(("", "seconds", "second", "sec", "s"), 1.0),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60.0),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3600.0),
    **dict.fromkeys(("days", "day", "d"), 86400.0),
    **dict.fromkeys(("weeks", "week", "w"), 604800.0),
}


@dataclass(frozen=True)
class Inhibitor:
    """One lock: `who` holds it and `why`, by which process; `what` it is about, and whether it blocks (`mode`: block, delay)."""

    who: str
    why: str
    pid: str
    what: frozenset[str]
    mode: str

    @property
    def delays_shutdown(self) -> bool:
        return self.mode == "delay" and "shutdown" in self.what

    @property
    def blocks_shutdown(self) -> bool:
        return self.mode.startswith("block") and "shutdown" in self.what

    @property
    def is_kubelets(self) -> bool:
        """The lock of a kubelet with shutdownGracePeriod (pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go)."""
        return self.delays_shutdown and self.who == "kubelet"


def parse_inhibitor(text: str) -> Inhibitor:
    found = properties(text)
    what = frozenset(found.get("WHAT", "").split(":"))
    return Inhibitor(found.get("WHO", "?"), found.get("WHY", "?"), found.get("PID", "?"), what, found.get("MODE", ""))


@dataclass(frozen=True)
class Delay:
    """How long logind waits for locks, and the file that says so ("": its default)."""

    seconds: float
    file: str = ""


@dataclass(frozen=True)
class Logind:
    """`bus`: there is a system bus; `unit`: there is a systemd-logind.service (`yes`, `no`, `masked`); `files`: by path, their lines that
    are sections or about InhibitDelayMaxSec."""

    bus: bool
    unit: str
    files: Mapping[str, tuple[str, ...]]

    @property
    def problem(self) -> str:
        """Why no program can have a lock; "" if it can."""
        if self.unit != "yes":
            return "systemd-logind.service is masked" if self.unit == "masked" else "there is no systemd-logind.service"
        return "" if self.bus else "there is no D-Bus (/run/dbus/system_bus_socket)"

    def delay(self, more: Mapping[str, float] | None = None) -> Delay:
        """The delay by the files, as a logind that reads them now has it; `more`: further drop-ins, by path, with their seconds."""
        written = {path: _seconds(lines) for path, lines in self.files.items()} | dict(more or {})
        found = Delay(DEFAULT_SECONDS)
        for path in _in_order(written):
            if (seconds := written[path]) is not None:
                found = Delay(seconds, path)
        return found


def parse_logind(bus: str, unit: str, text: str) -> Logind:
    files: dict[str, list[str]] = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("= "):
            path = line[2:]
            files[path] = []
        elif path:
            files[path].append(line)
    return Logind(bus == "yes", unit, {path: tuple(lines) for path, lines in files.items()})


def _in_order(paths: Mapping[str, object]) -> list[str]:
    """The files that count, the last one wins: the main file, then the drop-ins by their names."""
    main = [path for path in _MAIN if path in paths][:1]
    folders = [f"{place}/systemd/logind.conf.d" for place in _PLACES]
    dropins: dict[str, str] = {}
    for folder in reversed(folders):
        dropins |= {posixpath.basename(path): path for path in paths if posixpath.dirname(path) == folder}
    return main + [dropins[name] for name in sorted(dropins)]


def _seconds(lines: tuple[str, ...]) -> float | None:
    """What a file sets; None if it does not, or not in a form that systemd reads."""
    section, found = "", None
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
            continue
        key, equals, value = line.partition("=")
        if section == "[Login]" and equals and key.strip() == "InhibitDelayMaxSec":
            found = seconds_of(value.strip()) if seconds_of(value.strip()) is not None else found
    return found


def seconds_of(text: str) -> float | None:
    """A time span as systemd reads it (`30`, `2min 30s`, `infinity`); None if it is none."""
    if text == "infinity":
        return math.inf
    parts = _NUMBER.findall(text)
    if not text or _NUMBER.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
