"""The typed result of looking at one node. Pure data: nothing here knows how it was read."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

FileKind = Literal["file", "link", "directory", "other", "none"]

# /proc/PID/comm holds at most 15 characters (TASK_COMM_LEN, include/linux/sched.h).
COMM_LENGTH = 15
_DELETED = " (deleted)"
# Why a process is not the node's own (templates/own.sh.j2).
_STRANGERS = {
    "pod": "it runs in a pod",
    "user": "root does not run it",
    "container": "it has a file system of its own, as in a container",
    "file": "its program is a file that others than root can write",
    "unit": "it is not the main process of a systemd service",
    "static": "it runs in no static pod",
}


def minor_of(version: str) -> int | None:
    """The minor release in a version of Kubernetes: 36 of v1.36.3 and of 1.36; None where it is none."""
    found = re.match(r"v?1\.(\d+)", version)
    return int(found.group(1)) if found else None


@dataclass(frozen=True)
class File:
    """One path on a node. `data` is None where there is no regular file (or link to one), or where it is over 1 MiB."""

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
        """Why a rename onto this path would not do what an operator expects; None where it would."""
        if self.kind == "link":
            return "is a symbolic link, which a new file would replace; name the file it points to instead"
        if self.kind in ("directory", "other"):
            return "is not a regular file"
        if self.kind == "file" and self.mountpoint == self.path:
            return "is a mount of its own (bind mount); it can only be changed where it is mounted from"
        if "i" in self.attributes:
            return "is immutable; lift it with `chattr -i` first"
        return None


@dataclass(frozen=True)
class Process:
    """One of the node's own processes: the kubelet, a component in a static pod, or what makes the node another kind of node.

    `start_ticks` are clock ticks since boot (proc(5), field 22 of stat). `pod_uid` is the UID of the static pod that it runs in: 32 hex
    digits without dashes, as the kubelet hashes them; `pods` what the kubelet's directories call that pod, NAMESPACE_NAME.
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

    @property
    def minor(self) -> int | None:
        """36 of v1.36.3; None where it did not tell its version."""
        return minor_of(self.version or "")

    @property
    def container_id(self) -> str | None:
        found = re.search(r"([0-9a-f]{64})", self.cgroup)
        return found.group(1) if found else None

    @property
    def binary_replaced(self) -> bool:
        """The binary on disk is no longer the one that runs: a restart brings another version."""
        return self.exe.endswith(_DELETED)

    @property
    def binary(self) -> str:
        """The path of the binary that runs, whether or not it is still the same file (proc_pid_exe(5))."""
        return self.exe.removesuffix(_DELETED)


@dataclass(frozen=True)
class OtherProcess:
    """A process that has a component's name and is not the node's own. It is left alone: nothing of it is read, run or believed.
    `why` is a key of `_STRANGERS`."""

    name: str
    pid: int
    uid: int
    why: str

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid} is named {self.name} and is not the node's own ({_STRANGERS[self.why]}): ignored"


@dataclass(frozen=True)
class Unit:
    """The systemd unit the kubelet is the main process of, as `systemctl show` tells it."""

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
    def needs_daemon_reload(self) -> bool:
        return self.first("NeedDaemonReload") == "yes"


@dataclass(frozen=True)
class Observation:
    """Everything one look at a node found. `uptime` in seconds since boot, `epoch` in seconds (the node's own clock). `programs`: what
    the kubelet's unit starts, and the file that this is through all links."""

    host: str
    uid: int
    hostname: str = ""
    boot_id: str = ""
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
    strangers: tuple[OtherProcess, ...] = ()
    strangers_in_all: int = 0

    @property
    def ignored(self) -> list[str]:
        """What has a component's name and is not the node's own, in sentences; the node tells of a few, and how many there are."""
        told = [str(stranger) for stranger in self.strangers]
        if (more := self.strangers_in_all - len(told)) > 0:
            told.append(f"{more} more processes have such names and are not the node's own: ignored")
        return told

    def file(self, path: str) -> File | None:
        """What was seen at a path; None where nobody looked (which is not the same as `kind == "none"`)."""
        return self.files.get(posixpath.normpath(path))

    def data(self, path: str) -> bytes | None:
        seen = self.file(path)
        return seen.data if seen else None

    def named(self, name: str) -> list[Process]:
        return [process for process in self.processes if process.name == name[:COMM_LENGTH]]

    def static_pod_process(self, component: str, pod: str | None = None) -> Process | None:
        """The process of a control-plane component that runs as a static pod of this node; with `pod` (NAMESPACE_NAME on the node) as
        that one. Where the kubelet has no directory for a UID, its pod may be any."""
        found = [process for process in self.named(component) if process.pod_uid]
        if pod is not None:
            found = [process for process in found if pod in process.pods] or [process for process in found if not process.pods]
        return next(iter(found), None)

    def with_versions(self, versions: Mapping[int, str]) -> Observation:
        """As it is, with the versions of processes, by PID."""
        return replace(self, processes=tuple(replace(one, version=versions.get(one.pid)) for one in self.processes))

    @property
    def kubelet(self) -> Process | None:
        running = self.named("kubelet")
        if self.unit is not None:
            return next((process for process in running if process.pid == self.unit.main_pid), None)
        return running[0] if running else None

    def started_at(self, process: Process) -> float:
        """Start of a process in seconds of the node's own clock."""
        return self.epoch - (self.uptime - process.start_ticks / self.ticks_per_second)
