"""The labs of this machine: which checkout has which, under which number, and whether there is room for one more."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import machine
from tests.lab.machine import NAMESPACES, NUMBERS, PREFIX, Site, supervisors
from tests.lab.tools import CACHE, STATE, LabError, locked, remove_tree, replace_text

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
# Each systemd and kubelet holds inotify instances, and root's count is shared by the nodes of all labs.
INOTIFY_INSTANCES = 4096
# Measured with the pods of the tests running, GiB.
MEMORY_PLANE, MEMORY_WORKER = 0.9, 0.25
# Root file systems, layers and images once; then what each node writes. With nothing cached, building Kubernetes takes more.
DISK_ONCE, DISK_BUILDING, DISK_NODE = 2.0, 6.0, 0.5


@dataclass(frozen=True)
class Entry:
    """A lab as `lab.json` has it."""

    site: Site
    plan: dict[str, Any]

    @property
    def checkout(self) -> str:
        return str(self.plan.get("checkout", ""))

    @property
    def name(self) -> str:
        return str(self.plan.get("name", ""))


def entries() -> list[Entry]:
    """All labs that this state folder knows, by number."""
    found = []
    for path in machine.LABS.glob("*/lab.json"):
        try:
            found.append(Entry(Site(int(path.parent.name)), json.loads(path.read_text())))
        except (ValueError, FileNotFoundError):
            continue  # just removed, or no lab's
    return sorted(found, key=lambda entry: entry.site.number)


def find(checkout: Path, name: str) -> Entry | None:
    return next((entry for entry in entries() if (entry.checkout, entry.name) == (str(checkout), name)), None)


def save(entry: Entry) -> None:
    entry.site.folder.mkdir(parents=True, exist_ok=True)
    replace_text(entry.site.folder / "lab.json", json.dumps(entry.plan, indent=1) + "\n")


@contextmanager
def _whole() -> Iterator[None]:
    with locked(STATE / "lock", "another process works on this machine's labs; waiting for it"):
        yield


def take(plan: dict[str, Any]) -> Entry:
    """The first number that nothing on this machine uses, for this lab."""
    with _whole():
        for number in NUMBERS:
            if not Site(number).used:
                entry = Entry(Site(number), plan)
                save(entry)
                return entry
    raise LabError(f"all {len(NUMBERS)} numbers for labs are in use on this machine; `python -m tests.lab list` names them")


def release_or_warn(site: Site) -> None:
    """The lab of this number is gone; with the last one goes what all of them shared."""
    with _whole():
        remove_tree(site.folder)
        if entries():
            return
        kept = STATE / "inotify"
        if kept.exists():
            INOTIFY.write_text(kept.read_text())
        remove_tree(STATE)


def raise_limits() -> None:
    with _whole():
        if int(INOTIFY.read_text()) < INOTIFY_INSTANCES:
            if not (STATE / "inotify").exists():
                (STATE / "inotify").write_text(INOTIFY.read_text())
            INOTIFY.write_text(str(INOTIFY_INSTANCES))


def orphans(checkout: Path) -> list[Site]:
    """Labs without a state file that are nobody else's: their nodes run from this checkout, or nothing of them runs."""
    known = {entry.site.number for entry in entries()}
    named = {int(found.group(1)) for path in _listed(NAMESPACES) if (found := re.match(rf"{PREFIX}-(\d+)(?:-|$)", path.name))}
    running: dict[int, set[Path]] = {}
    for pid, folder in supervisors().items():
        if folder.parent.parent.parent == machine.LABS and folder.parent.parent.name.isdigit():
            running.setdefault(int(folder.parent.parent.name), set()).add(_folder_of(pid))
    return [Site(number) for number in sorted((named | set(running)) - known) if running.get(number, {checkout}) == {checkout}]


def _folder_of(pid: int) -> Path:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return Path("/")


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def check_room(control_planes: int, workers: int, cached: bool) -> None:
    """LabError where memory or disk do not suffice for one more lab of this shape."""
    nodes = f"{control_planes} control plane{'s' if control_planes > 1 else ''} and {workers} workers"
    needed = control_planes * MEMORY_PLANE + workers * MEMORY_WORKER + 0.5
    free = available_memory()
    if free < needed:
        raise LabError(f"this machine has {free:.1f} GiB of memory to spare, and a lab of {nodes} needs {needed:.1f}; {_more()}")
    for folder in (STATE, CACHE):
        folder.mkdir(parents=True, exist_ok=True)
        needed = DISK_ONCE + (control_planes + workers) * DISK_NODE + (0 if cached else DISK_BUILDING)
        free = shutil.disk_usage(folder).free / 2**30
        if free < needed:
            raise LabError(f"{folder} has {free:.1f} GiB free, and a lab of {nodes} needs {needed:.1f}; {_more()}")


def available_memory() -> float:
    """GiB that programs can still have (proc_meminfo(5), MemAvailable)."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found.group(1)) / 2**20 if found else 0.0


def _more() -> str:
    running = [f"{entry.name or 'lab'} of {entry.checkout}" for entry in entries()]
    return f"take a lab down first: {', '.join(running)}" if running else "free some first"
