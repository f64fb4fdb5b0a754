"""One change: one node, one phase (its kubelet, or one of its control-plane components). Pure data."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roles.engine.harmless import one_line
from roles.engine.transaction.mask_files import mask_lines, masker

ABSENT = "absent"

# Seconds. A kubelet is healthy within a second of its start. An API server first waits for the old one's grace period of 30 s, and
# may be slow to start. The process must then stay healthy for STABLE_SECONDS, so that one that dies a little later is noticed.
KUBELET_TIMEOUT = 90
STATIC_POD_TIMEOUT = 240
REVERT_TIMEOUT = 120
STABLE_SECONDS = 12
# A static pod's grace period is 30 s (kubeadm's manifests, and the default of terminationGracePeriodSeconds): an old process
# that is still healthy a moment after that stays.
GRACE_SECONDS = 30
MOMENT_SECONDS = 10
# A revert that was killed, or failed, is retried after this long.
RETRY_SECONDS = 30
# A file system that has not answered after this long counts as dead: it must not block the revert of other files.
IO_SECONDS = 15
# The longest wait for a start that systemd has queued at boot. What hangs in the unit (an ExecStartPre, a process that ignores signals)
# is killed after STOP_SECONDS. systemd's own limits, 90 s by default, may be switched off.
TURN_SECONDS = 60
STOP_SECONDS = 15
# The journal may be slow, or large.
EVIDENCE_SECONDS = 10
# At boot the kubelet waits this long if a file cannot be restored yet; after that the node retries at this interval.
BOOT_SECONDS = 90
BOOT_RETRY_SECONDS = 10
# The part of confirm_timeout that remains for the proof if the new process uses all of its time.
PROOF_SECONDS = 120
# The shortest confirm_timeout: a kubelet's start, STABLE_SECONDS, and a moment for the proof.
LEAST_CONFIRM_SECONDS = 45
# What is left of a pod this long after it was asked to end is killed, as the kubelet does by default (terminationGracePeriodSeconds). The
# runtime then restarts: a change with it has more time until its deadline.
POD_SECONDS = 30
RUNTIME_SECONDS = 60
# How many ended changes a node keeps.
KEEP = 50


@dataclass(frozen=True)
class FileEdit:
    """A file's whole content before and after; None if there is no such file. `mode` and `owner` (UID:GID; "": root) count only for new
    files: others keep theirs. `hidden`: the whole content is secret, and a diff only shows which lines differ."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    owner: str = ""
    hidden: bool = False

    @property
    def before_sha256(self) -> str:
        return _sha256(self.before)

    @property
    def after_sha256(self) -> str:
        return _sha256(self.after)

    def diff(self, context: int = 3) -> str:
        """Unified diff for people, with `context` lines around each change, secrets masked. Bytes that are not UTF-8, and control
        characters, are escaped."""
        diff = "".join(
            difflib.unified_diff(
                _lines(self._shown(self.before)),
                _lines(self._shown(self.after)),
                fromfile=one_line(self.path) if self.before is not None else "/dev/null",
                tofile=one_line(self.path) if self.after is not None else "/dev/null",
                n=context,
            )
        )
        return diff or (f"{self.path}: differs in a way that a diff does not show\n" if self.before != self.after else "")

    def _shown(self, data: bytes | None) -> bytes | None:
        show = mask_lines if self.hidden else masker(self.path)
        return data and show(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _sha256(data: bytes | None) -> str:
    return ABSENT if data is None else hashlib.sha256(data).hexdigest()


def _lines(data: bytes | None) -> list[str]:
    shown = []
    for line in (data or b"").split(b"\n"):
        text = line.decode("utf-8", "backslashreplace")
        shown.append("".join(c if c == "\t" or c.isprintable() else repr(c)[1:-1] for c in text) + "\n")
    if shown and data is not None and data.endswith(b"\n"):
        shown.pop()
    elif data:
        shown[-1] += "\\ No newline at end of file\n"
    else:
        shown.clear()
    return shown


def cmdline_sha256(argv: Sequence[str] | None) -> str:
    """sha256 of /proc/PID/cmdline of a process started with `argv`; "" if the arguments are not known (None)."""
    if argv is None:
        return ""
    return hashlib.sha256(b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in argv)).hexdigest()


def change_id(run_id: str, host: str, component: str) -> str:
    """The name of a change. Part of a unit's name and of a path: only letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"{run_id}-{host}-{component}")


@dataclass(frozen=True)
class RuntimeRestart:
    """The container runtime that restarts in the same change: its `unit`, and the `path` of its own file, which is one of the change's."""

    unit: str
    path: str


@dataclass(frozen=True)
class Change:
    """The change of one node in one phase, and how to recognize that it worked.

    `old_argv` and `new_argv` are the arguments of the process before and after, None if they are not known in advance;
    `arguments_sha256` are the checksums of both if only those are known ("": unknown). `patience` multiplies the waits.
    `pod` is NAMESPACE_NAME of a static pod as the kubelet names its log directory, and `container` its container. `checkpoints` are the
    paths of files that the kubelet itself writes, and that must not exist when it starts with another policy: it is stopped, they are
    moved away as they are then, and a revert puts them back while no kubelet runs. With a `runtime` no pod runs either when the files are
    placed: all are ended, the runtime restarts with its new file, and then the kubelet starts; a revert does the same with the old ones.
    """

    id: str
    node: str
    component: str
    kind: Literal["kubelet", "static-pod"]
    unit: str
    summary: str
    files: tuple[FileEdit, ...]
    health_url: str
    old_argv: tuple[str, ...] | None
    new_argv: tuple[str, ...] | None
    daemon_reload: bool = False
    pod: str = ""
    container: str = ""
    wanted_confirm_timeout: int | None = None
    soak: int = 0
    arguments_sha256: tuple[str, str] | None = None
    patience: float = 1.0
    checkpoints: tuple[str, ...] = ()
    runtime: RuntimeRestart | None = None

    @property
    def old_arguments(self) -> str:
        return self.arguments_sha256[0] if self.arguments_sha256 else cmdline_sha256(self.old_argv)

    @property
    def new_arguments(self) -> str:
        return self.arguments_sha256[1] if self.arguments_sha256 else cmdline_sha256(self.new_argv)

    @property
    def confirm_timeout(self) -> int:
        """Seconds from the first touch until the node reverts what is not confirmed; includes the soak."""
        default = self._start_timeout + self._patient(PROOF_SECONDS + (RUNTIME_SECONDS if self.runtime else 0))
        return (default if self.wanted_confirm_timeout is None else self.wanted_confirm_timeout) + self.soak

    @property
    def apply_timeout(self) -> int:
        """Seconds for the new process to become healthy and stay so; always less than the time until the deadline."""
        return min(self._start_timeout, self.confirm_timeout - self.soak - 10)

    @property
    def revert_timeout(self) -> int:
        """Seconds for each step of a revert."""
        return self._patient(REVERT_TIMEOUT)

    @property
    def io_seconds(self) -> int:
        """Seconds to read or write one file in a revert."""
        return self._patient(IO_SECONDS)

    @property
    def settle_seconds(self) -> int:
        """Seconds that an old process, found in a revert, must stay healthy: it may be in its grace period."""
        return GRACE_SECONDS + self._patient(MOMENT_SECONDS)

    @property
    def _start_timeout(self) -> int:
        return self._patient(KUBELET_TIMEOUT if self.kind == "kubelet" else STATIC_POD_TIMEOUT)

    def _patient(self, seconds: int) -> int:
        return math.ceil(seconds * self.patience)
