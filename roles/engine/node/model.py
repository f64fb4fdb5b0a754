"""The typed result of observing one node. Pure data: nothing here knows how it was read."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from roles.engine.node.glance import Glance
from roles.engine.node.logind import Inhibitor, Logind
from roles.engine.node.virtual import version_mark

FileKind = Literal["file", "link", "directory", "other", "none"]

# /proc/PID/comm holds at most 15 characters (TASK_COMM_LEN, include/linux/sched.h).
COMM_LENGTH = 15
#: Behind the path of a process's file that is no longer there, or was replaced (proc_pid_exe(5)).
DELETED = " (deleted)"
# Why a process is not the node's own (templates/own.sh.j2).
_REASONS = {
    "pod": "it runs in a pod",
    "user": "root does not run it",
    "container": "it has its own file system, as in a container",
    "file": "its program is a file that not only root can write",
    "unit": "it is not the main process of a systemd service",
    "static": "it does not run in a static pod",
}


def minor_of(version: str) -> int | None:
    """The minor release in a version of Kubernetes: 36 of v1.36.3 and of 1.36; None if the text is not a version, or not a kubelet's own
    (virtual.py)."""
    if version_mark(version) is not None:
        return None
    found = re.match(r"v?1\.([0-9]+)", version)
    return int(found.group(1)) if found else None


def start_time(epoch: int, uptime: float, ticks: int, per_second: int) -> float:
    """When a process started, in seconds of its node's clock (`epoch`, in whole seconds), from its clock ticks since boot: by that clock's
    time now, however wrong it was at boot. Up to a second early."""
    return epoch - (uptime - ticks / per_second)


def is_younger(written: float, started: float) -> bool:
    """True for what was certainly written after a process had started. `written`: in whole seconds, rounded down; `started`: a
    `start_time`."""
    return written >= started + 1


@dataclass(frozen=True)
class File:
    """One path on a node. `data` is None if it is not a regular file (or a link to one), or is over 1 MiB."""

    path: str
    kind: FileKind
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    mountpoint: str = ""
    attributes: str = ""
    data: bytes | None = None

    @property
    def sha256(self) -> str | None:
        return None if self.data is None else hashlib.sha256(self.data).hexdigest()

    def why_not_replaceable(self) -> str | None:
        """Why a rename onto this path would not do what an operator expects; None if it would."""
        if self.kind == "link":
            return "is a symbolic link, which a new file would replace; name the file it points to instead"
        if self.kind in ("directory", "other"):
            return "is not a regular file"
        if self.kind == "file" and self.mountpoint == self.path:
            return "is a mount point (bind mount); change it where it is mounted from"
        if "i" in self.attributes:
            return "is immutable; make it mutable with `chattr -i` first"
        return None


@dataclass(frozen=True)
class Replacement:
    """The file that replaced the one which a process was started from: its version, None if it did not say one; `same`: it has the same
    bytes, as after a package was installed once more."""

    version: str | None = None
    same: bool = False


@dataclass(frozen=True)
class Process:
    """One of the node's own processes: the kubelet, a component in a static pod, or a process of another kind of node (k3s and others).

    `start_ticks` are clock ticks since boot (proc(5), field 22 of stat). `pod_uid` is the UID of the static pod that it runs in: 32 hex
    digits without dashes, as the kubelet hashes them; `pods` are the names of that pod in the kubelet's directories, NAMESPACE_NAME.
    `replacement`: what a restart would start, if its file was replaced and that could be asked.
    """

    name: str
    pid: int
    start_ticks: int
    argv: tuple[str, ...]
    cgroup: str
    exe: str
    version: str | None = None
    pod_uid: str | None = None
    pods: tuple[str, ...] = ()
    replacement: Replacement | None = None

    @property
    def minor(self) -> int | None:
        """36 of v1.36.3; None if it did not report its version."""
        return minor_of(self.version or "")

    @property
    def binary_replaced(self) -> bool:
        """True if the binary on disk is no longer the running one: a restart may start another version."""
        return self.exe.endswith(DELETED)

    @property
    def starts_another(self) -> bool:
        """True if a restart starts other bytes than those that run."""
        return self.binary_replaced and not (self.replacement is not None and self.replacement.same)

    @property
    def next_version(self) -> str | None:
        """The version that a restart starts; None if it is not known."""
        return self.version if not self.starts_another else self.replacement.version if self.replacement else None

    @property
    def binary(self) -> str:
        """The path of the running binary, whether or not the file there is still the same (proc_pid_exe(5))."""
        return self.exe.removesuffix(DELETED)


def in_pod(pod: str, processes: Sequence[Process]) -> list[Process]:
    """The processes of a pod (NAMESPACE_NAME on the node); if the kubelet's directories do not name it, those whose pod is unknown."""
    return [one for one in processes if pod in one.pods] or [one for one in processes if not one.pods]


@dataclass(frozen=True)
class OtherProcess:
    """A process that has a component's name but is not the node's own. It is ignored: daytwo reads, runs and believes nothing of it. `why`
    is a key of `_REASONS`."""

    name: str
    pid: int
    uid: int
    why: str

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid} is named {self.name}, but is not the node's own ({_REASONS[self.why]}): ignored"


@dataclass(frozen=True)
class Unit:
    """The systemd unit whose main process the kubelet is, as `systemctl show` prints it."""

    name: str
    properties: dict[str, list[str]]

    def first(self, key: str) -> str:
        values = self.properties.get(key, [])
        return values[0] if values else ""

    @property
    def fragment(self) -> str:
        return self.first("FragmentPath")

    @property
    def dropins(self) -> list[str]:
        return self.first("DropInPaths").split()

    @property
    def main_pid(self) -> int:
        return int(self.first("MainPID") or 0)

    @property
    def unread(self) -> str:
        """That systemd needs a daemon-reload, as a clause; "" if it has read the unit as it is on disk."""
        return f"{self.name} was edited on disk and systemd has not read it" if self.first("NeedDaemonReload") == "yes" else ""


@dataclass(frozen=True)
class Observation:
    """Everything that one observation of a node found. `machine_id`: /etc/machine-id ("": it has none). `uptime` in seconds since boot,
    `epoch` in seconds (the node's own clock).
    `programs`: the program that the kubelet's unit starts, and its file behind all links. `others`: processes that only have a component's
    name; there are `others_total` of them. `swap`: how many areas /proc/swaps lists; `cgroup2`: the node has cgroup v2 alone;
    `swap_limits`: its cgroups have a limit of swap (memory.swap.max). `logind`: what delays a shutdown; `glance`: what only
    deploys/status.py asks for. Each is None if it was not read. `inhibitors`: the locks that logind holds now."""

    host: str
    uid: int
    hostname: str = ""
    boot_id: str = ""
    machine_id: str = ""
    uptime: float = 0.0
    epoch: int = 0
    ticks_per_second: int = 100
    os: str = ""
    systemd: str = ""
    tools: frozenset[str] = frozenset()
    markers: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    unit: Unit | None = None
    files: dict[str, File] = field(default_factory=dict)
    directories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changes: dict[str, dict[str, str]] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    others: tuple[OtherProcess, ...] = ()
    others_total: int = 0
    swap: int | None = None
    cgroup2: bool | None = None
    swap_limits: bool | None = None
    inhibitors: tuple[Inhibitor, ...] = ()
    logind: Logind | None = None
    glance: Glance | None = None

    @property
    def ignored(self) -> list[str]:
        """The processes that have a component's name but are not the node's own, as sentences: the first few, and the number of others."""
        sentences = [str(other) for other in self.others]
        if (more := self.others_total - len(sentences)) > 0:
            sentences.append(f"{more} more processes have such names, but are not the node's own: ignored")
        return sentences

    def file(self, path: str) -> File | None:
        """What was observed at a path; None if it was not observed (`kind == "none"` means that nothing is there)."""
        return self.files.get(posixpath.normpath(path))

    def data(self, path: str) -> bytes | None:
        seen = self.file(path)
        return seen.data if seen else None

    def named(self, name: str) -> list[Process]:
        return [process for process in self.processes if process.name == name[:COMM_LENGTH]]

    def static_pod_process(self, component: str, pod: str | None = None) -> Process | None:
        """The process of a control-plane component that runs as a static pod of this node; with `pod` (NAMESPACE_NAME on the node), as
        that pod. If the kubelet has no directory for a UID, its pod may be any."""
        found = [process for process in self.named(component) if process.pod_uid]
        if pod is not None:
            found = in_pod(pod, found)
        return next(iter(found), None)

    def with_versions(self, versions: Mapping[int, str], replacements: Mapping[int, Replacement] | None = None) -> Observation:
        """A copy with the versions of processes, and with what replaced their files, by PID."""
        new = replacements or {}
        known = (replace(one, version=versions.get(one.pid), replacement=new.get(one.pid)) for one in self.processes)
        return replace(self, processes=tuple(known))

    @property
    def kubelet(self) -> Process | None:
        running = self.named("kubelet")
        if self.unit is not None:
            return next((process for process in running if process.pid == self.unit.main_pid), None)
        return running[0] if running else None

    def started_at(self, process: Process) -> float:
        """When a process started, in seconds of the node's own clock."""
        return start_time(self.epoch, self.uptime, process.start_ticks, self.ticks_per_second)

    def is_younger(self, path: str, process: Process) -> bool:
        """True for a file that was written after a process had started (`is_younger`)."""
        file = self.file(path)
        return file is not None and is_younger(file.mtime, self.started_at(process))
