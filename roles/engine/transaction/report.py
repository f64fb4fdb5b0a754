"""Read what change.sh prints: its log as it grows, then its status."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from roles.engine.transaction.mask import mask_text

# What a component prints before it fails: cobra's and klog's error lines, a Go panic, and `key="value"` errors.
_ERROR_LINE = re.compile(r"\b(Error:|panic:|fatal|failed to|unrecognized|unknown flag|invalid|err=|cannot )|^E\d{4} ", re.IGNORECASE)

# These lines of systemd say that it failed, but not why.
_SYSTEMD = re.compile(r"journal: (Failed to start |Start(ing|ed) |Stopp(ing|ed) |.*\.service: )")
# This journal line ends the old process: the lines above it are from that process.
_STOPPING = "journal: Stopping "


@dataclass(frozen=True)
class Status:
    """The status of a change on its node. `identity` is (PID, start ticks); `steps` are (uptime seconds, text). `files` are the sha256 of
    the change's files on the node, `inside` of those that a static pod's container has at the same paths; `checkpoints` are the present
    bytes of the change's checkpoints, in their order (empty: no such file)."""

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
    steps: tuple[tuple[int, str], ...] = field(default=())

    @property
    def error_line(self) -> str:
        """The line of the component's own output that shows the cause, or "" if there is none. If no line of the new process looks like an
        error (a unit's own ExecStartPre has its own words), its last line."""
        journal = [line for line in self.evidence if line.startswith("journal: ")]
        stopped = [number for number, line in enumerate(journal) if line.startswith(_STOPPING)]
        new = [line for line in journal[stopped[-1] if stopped else 0 :] if not _SYSTEMD.match(line)]
        from_container = [line for line in self.evidence if not line.startswith("journal: ") and _ERROR_LINE.search(line)]
        found = from_container or [line for line in new if _ERROR_LINE.search(line)] or (new if stopped else [])
        return _bare((found or [""])[-1])

    @property
    def evidence_lines(self) -> list[str]:
        """The evidence to show: the container's last lines, and those of the journal that name it; without a container, the journal's last
        lines."""
        lines = [line for line in self.evidence if line.strip()]
        own = [line for line in lines if not line.startswith("journal: ")]
        if not own:
            return lines[-8:]
        container = own[-1].partition(":")[0]
        return own[-8:] + [line for line in lines if line.startswith("journal: ") and container in line][-4:]


def _bare(line: str) -> str:
    """A line without the prefixes of kubelet, container runtime and klog."""
    line = re.sub(r"^[\w-]+: ", "", line)
    line = re.sub(r"^\S+Z (stdout|stderr) [FP] ", "", line)
    return re.sub(r"^[IWEF]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ", "", line).strip()


def log_text(line: str) -> str | None:
    """The text of one log line for a person (`log UPTIME TEXT`), secrets masked; None for any other line."""
    found = re.match(r"log \d+ (.*)", line)
    return mask_text(found.group(1)) if found else None


def parse(lines: Iterable[str]) -> Status:
    """Build the status from all lines of `detached`, `watch`, `confirm` or `status`. Masks secrets."""
    values: dict[str, str] = {}
    files: list[str] = []
    checkpoints: list[bytes] = []
    inside: list[str] = []
    steps: list[tuple[int, str]] = []
    for line in lines:
        if found := re.match(r"log (\d+) (.*)", line):
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
    cmdline = _decoded(values.get("cmdline", ""))
    return Status(
        state=values.get("state", "unknown"),
        reason=mask_text(values.get("reason", "")),
        identity=_identity(values.get("identity", "0 ")),
        old_identity=_identity(values.get("old_identity", "0 ")),
        argv=tuple(word.decode("utf-8", "surrogateescape") for word in cmdline.removesuffix(b"\0").split(b"\0")) if cmdline else (),
        cgroup=_decoded(values.get("cgroup", "")).decode("utf-8", "replace"),
        health=values.get("health", ""),
        files=tuple(files),
        checkpoints=tuple(checkpoints),
        inside=tuple(inside),
        # It may contain a component's command line, or a value that it could not parse.
        evidence=tuple(mask_text(_decoded(values.get("evidence", "")).decode("utf-8", "replace")).splitlines()),
        steps=tuple(steps),
    )


def _decoded(text: str) -> bytes:
    """A line that a lost connection cut is ignored; the others still count."""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _identity(text: str) -> tuple[str, str]:
    pid, _, start = text.partition(" ")
    return pid, start
