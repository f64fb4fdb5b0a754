"""Read what change.sh prints: its log as it grows, then its status."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from roles.engine.transaction.mask import mask_text

# What a component says before it ends for good: cobra's and klog's error lines, a Go panic, and `key="value"` errors.
_TELLING = re.compile(r"\b(Error:|panic:|fatal|failed to|unrecognized|unknown flag|invalid|err=|cannot )|^E\d{4} ", re.IGNORECASE)

# systemd says that it failed, never why.
_SYSTEMD = re.compile(r"journal: (Failed to start |Start(ing|ed) |Stopp(ing|ed) |.*\.service: )")
# With this the journal comes to the end of the process that ran before the change: what stands above it is that one's.
_STOPPING = "journal: Stopping "


@dataclass(frozen=True)
class Status:
    """How a change stands on its node. `identity` is (PID, start ticks); `steps` are (uptime seconds, text)."""

    state: str
    reason: str = ""
    identity: tuple[str, str] = ("0", "")
    old_identity: tuple[str, str] = ("0", "")
    argv: tuple[str, ...] = ()
    cgroup: str = ""
    health: str = ""
    files: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    steps: tuple[tuple[int, str], ...] = field(default=())

    @property
    def telling_line(self) -> str:
        """The line of the component's own output that says why, or "" where there is none. Where no line of the new process is of
        that kind (a unit's own ExecStartPre has its own words), its last one."""
        journal = [line for line in self.evidence if line.startswith("journal: ")]
        stopped = [number for number, line in enumerate(journal) if line.startswith(_STOPPING)]
        new = [line for line in journal[stopped[-1] if stopped else 0 :] if not _SYSTEMD.match(line)]
        from_container = [line for line in self.evidence if not line.startswith("journal: ") and _TELLING.search(line)]
        telling = from_container or [line for line in new if _TELLING.search(line)] or (new if stopped else [])
        return _bare((telling or [""])[-1])

    @property
    def last_words(self) -> list[str]:
        """What to show of the evidence: the container's own last lines, and the journal's; of that only what names the container where
        there is one."""
        lines = [line for line in self.evidence if line.strip()]
        own = [line for line in lines if not line.startswith("journal: ")]
        if not own:
            return lines[-8:]
        container = own[-1].partition(":")[0]
        return own[-8:] + [line for line in lines if line.startswith("journal: ") and container in line][-4:]


def _bare(line: str) -> str:
    """A line without the heads that kubelet, container runtime and klog put before what is said."""
    line = re.sub(r"^[\w-]+: ", "", line)
    line = re.sub(r"^\S+Z (stdout|stderr) [FP] ", "", line)
    return re.sub(r"^[IWEF]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ", "", line).strip()


def log_text(line: str) -> str | None:
    """The text of one log line for a person (`log UPTIME TEXT`), secrets masked; None for any other line."""
    found = re.match(r"log \d+ (.*)", line)
    return mask_text(found.group(1)) if found else None


def parse(lines: Iterable[str]) -> Status:
    """Build the status from all lines of `detached`, `watch`, `confirm` or `status`. Secrets are masked here, where they come in."""
    values: dict[str, str] = {}
    files: list[str] = []
    steps: list[tuple[int, str]] = []
    for line in lines:
        if found := re.match(r"log (\d+) (.*)", line):
            steps.append((int(found.group(1)), mask_text(found.group(2))))
            continue
        key, separator, value = line.partition("=")
        if separator and key.startswith("file."):
            files.append(value)
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
        # What a component said before it ended: its command line may be in it, or what it could not read.
        evidence=tuple(mask_text(_decoded(values.get("evidence", "")).decode("utf-8", "replace")).splitlines()),
        steps=tuple(steps),
    )


def _decoded(text: str) -> bytes:
    """A line that a lost connection cut short says nothing of itself; the others still count."""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _identity(text: str) -> tuple[str, str]:
    pid, _, start = text.partition(" ")
    return pid, start
