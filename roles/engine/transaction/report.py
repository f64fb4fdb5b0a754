"""Read what change.sh prints: its log as it grows, then its status."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from roles.engine.scripts import words
from roles.engine.transaction import cause
from roles.engine.transaction.mask import mask_text

# Characters of a line in a sentence; the end of a Go error has its root.
_LONGEST = 700
_SHOWN = 8


@dataclass(frozen=True)
class Status:
    """The status of a change on its node. `identity` is (PID, start ticks); `steps` are (uptime seconds, text). `files` are the sha256 of
    the change's files on the node, `inside` of those that a static pod's container has at the same paths; `checkpoints` are the present
    bytes of the change's checkpoints, in their order (empty: no such file). `evidence` are the words of the new process and about it;
    after a revert that failed, `blocking` are those since the restore, and `unit` the state of the kubelet's unit (systemctl(1), show)."""

    state: str
    reason: str = ""
    identity: tuple[str, str] = ("0", "")
    old_identity: tuple[str, str] = ("0", "")
    argv: tuple[str, ...] = ()
    cgroup: str = ""
    health: str = ""
    files: tuple[str, ...] = ()
    checkpoints: tuple[bytes, ...] = ()
    inside: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    blocking: tuple[str, ...] = ()
    unit: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[tuple[int, str], ...] = field(default=())

    @property
    def error_line(self) -> str:
        """The words of whoever failed that show the cause, or "" if there are none (cause.py)."""
        found = cause.cause(self.evidence)
        return _short(found.bare) if found else ""

    @property
    def blocked_by(self) -> str:
        """The line that shows why the old process does not start after a revert, or ""."""
        found = cause.cause(self.blocking)
        return _short(found.bare) if found else ""

    @property
    def evidence_lines(self) -> list[str]:
        """The evidence to show: the last lines of the process that shows the cause, up to its end, and what systemd or the kubelet says of
        that; without a cause the last lines."""
        found = cause.cause(self.evidence)
        shown = [line for line in self.evidence if line.strip() and not line.startswith("before: ")]
        if found is None:
            return shown[-_SHOWN:]
        spoken = cause.read(self.evidence)
        own = next((lines for lines in (*spoken.processes.values(), *spoken.logs.values()) if found in lines), [found])
        before = [line.number for line in own if line.number <= found.number][-_SHOWN:]
        others = [line.number for line in spoken.systemd if line.number > found.number][:2]
        if spoken.logs and found.pid in spoken.logs:
            container = found.pid.partition("[")[0]
            others = [line.number for lines in spoken.processes.values() for line in lines if container in line.text][-4:]
        return [self.evidence[number] for number in [*before, *others]]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 3]} ... {text[-_LONGEST * 2 // 3 :]}"


def log_text(line: str) -> str | None:
    """The text of one log line for a person (`log UPTIME TEXT`), secrets masked; None for any other line."""
    found = re.match(r"log [0-9]+ (.*)", line)
    return mask_text(found.group(1)) if found else None


def parse(lines: Iterable[str]) -> Status:
    """Build the status from all lines of `detached`, `watch`, `confirm` or `status`. Masks secrets."""
    values: dict[str, str] = {}
    files: list[str] = []
    checkpoints: list[bytes] = []
    inside: list[str] = []
    steps: list[tuple[int, str]] = []
    for line in lines:
        if found := re.match(r"log ([0-9]+) (.*)", line):
            steps.append((int(found.group(1)), mask_text(found.group(2))))
            continue
        key, separator, value = line.partition("=")
        if separator and key.startswith("file."):
            files.append(value)
        elif separator and key.startswith("checkpoint."):
            checkpoints.append(_decoded(value))
        elif separator and key.startswith("inside."):
            inside.append(value)
        elif separator:
            values[key] = value
    return Status(
        state=values.get("state", "unknown"),
        reason=mask_text(values.get("reason", "")),
        identity=_identity(values.get("identity", "0 ")),
        old_identity=_identity(values.get("old_identity", "0 ")),
        argv=words(_decoded(values.get("cmdline", ""))),
        cgroup=_decoded(values.get("cgroup", "")).decode("utf-8", "replace"),
        health=values.get("health", ""),
        files=tuple(files),
        checkpoints=tuple(checkpoints),
        inside=tuple(inside),
        # It may contain a component's command line, or a value that it could not parse.
        evidence=_lines(values.get("evidence", "")),
        blocking=_lines(values.get("blocking", "")),
        unit=dict(word.partition("=")[::2] for word in values.get("unit", "").split()),
        steps=tuple(steps),
    )


def _lines(text: str) -> tuple[str, ...]:
    return tuple(mask_text(_decoded(text).decode("utf-8", "replace")).splitlines())


def _decoded(text: str) -> bytes:
    """A line that a lost connection cut is ignored; the others still count."""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _identity(text: str) -> tuple[str, str]:
    pid, _, start = text.partition(" ")
    return pid, start
