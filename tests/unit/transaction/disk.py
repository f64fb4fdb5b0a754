"""What a power loss would leave, told from a trace of system calls: the worst that POSIX allows.

A file's content is on disk once the file was synced, a name once its directory was. What was not synced counts as lost.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.transaction.scratch import Scratch

_CALLS = (
    "fsync,fdatasync,sync,syncfs,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,"
    "openat,open,creat,write,pwrite64,copy_file_range,sendfile,ftruncate,chdir,fchdir"
)
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)")
_WORD = re.compile(r'(?:AT_FDCWD|\d+)<(?P<fd>(?:[^>\\]|\\.)*)>|"(?P<text>(?:[^"\\]|\\.)*)"')


@dataclass
class Call:
    """One system call that succeeded: its name, the files it is about (absolute), its raw arguments, the text it writes and the process."""

    name: str
    paths: list[str]
    raw: str
    text: str = ""
    pid: str = ""


@dataclass(eq=False)
class Inode:
    """A file or a directory. `live` is what the node sees, `durable` what a power loss leaves."""

    folder: bool = False
    text: str = ""
    synced: bool = False
    live: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)


def traced(node: Scratch, script: str, trace: Path) -> None:
    """Run `script` ($1 is the change's directory) under strace. It is over when the shell is: the kubelet's process goes on."""
    words = ("strace", "-f", "--seccomp-bpf", "-y", "-I", "2", "-s", "256", "-e", f"trace={_CALLS}", "-o", str(trace))
    process = node.popen(*words, "sh", "-c", script, "sh", str(node.here))
    over = re.compile(rb"\A(\d+) .*^\1 +\+\+\+ exited with", re.DOTALL | re.MULTILINE)
    until = time.monotonic() + 600
    while process.poll() is None and not (trace.exists() and over.search(trace.read_bytes())):
        assert time.monotonic() < until, f"not over: {node.log}\n{node.output()}"
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.wait()


def calls(trace: Path) -> Iterator[Call]:
    """Every call of the trace that succeeded, in the order they returned in."""
    begun: dict[str, str] = {}
    where: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        pid, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", rest):
            rest = begun.pop(pid, "") + resumed[1]
        found = _CALL.match(rest)
        if not found or int(found[3]) < 0:
            continue
        name, raw = found[1], found[2]
        words = [(match["fd"], match["text"]) for match in _WORD.finditer(raw)]
        if name in ("write", "pwrite64", "fsync", "fdatasync", "ftruncate"):
            text = bytes(words[1][1], "latin-1").decode("unicode_escape") if len(words) > 1 and words[1][1] else ""
            yield Call(name, [words[0][0] or ""] if words else [], raw, text, pid)
            continue
        if name in ("copy_file_range", "sendfile"):
            if int(found[3]) > 0:
                ends = [fd or "" for fd, _ in words]
                yield Call("copy", ends if name == "copy_file_range" else ends[::-1], raw, pid=pid)
            continue
        paths: list[str] = []
        base = where.get(pid, "/")
        for fd, text in words:
            if text is None:
                base = fd
            else:
                paths.append(os.path.normpath(os.path.join(base, text)))
                base = where.get(pid, "/")
        if name == "chdir":
            where[pid] = paths[0]
        elif name == "fchdir":
            where[pid] = words[0][0] or "/"
        else:
            yield Call(name, paths[1:] if name.startswith("symlink") else paths, raw, pid=pid)


class Disk:
    """The tree below `root`, all of it on disk to begin with; `apply` lets a call happen to it."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.top = self._load(root, {})

    def _load(self, path: Path, known: dict[int, Inode]) -> Inode:
        if path.is_symlink() or not path.is_dir():
            number = path.lstat().st_ino
            if number not in known:
                known[number] = Inode(text=path.read_text(errors="replace") if path.is_file() else "", synced=True)
            return known[number]
        live = {child.name: self._load(child, known) for child in path.iterdir()}
        return Inode(folder=True, synced=True, live=live, durable=dict(live))

    def names(self, path: str) -> list[str] | None:
        """The steps from the root; None for what is not ours."""
        if path == self.root:
            return []
        return path[len(self.root) + 1 :].split("/") if path.startswith(self.root + "/") else None

    def find(self, path: str, durable: bool = False) -> Inode | None:
        inode: Inode | None = self.top
        for name in self.names(path) or []:
            inode = (inode.durable if durable else inode.live).get(name) if inode else None
        return inode

    def lasts(self, path: str) -> bool:
        """What is at this path, or that nothing is, outlasts a power loss: content, name, and every directory above."""
        live, durable = self.find(path), self.find(path, durable=True)
        return live is durable and (live is None or live.folder or live.synced)

    def lost(self, path: str) -> list[str]:
        """What of the tree at this path a power loss would take away."""
        inode = self.find(path)
        if inode is None:
            return []
        return [*([] if self.lasts(path) else [path]), *(lost for name in sorted(inode.live) for lost in self.lost(f"{path}/{name}"))]

    def back(self, path: str) -> list[str]:
        """What was removed from the tree at this path and would be there again after a power loss."""
        inode = self.find(path)
        names = sorted({*inode.live, *inode.durable}) if inode else []
        return [f"{path}/{name}" for name in names if inode and name not in inode.live] + [
            back for name in names for back in self.back(f"{path}/{name}")
        ]

    def apply(self, call: Call) -> None:
        if call.name in ("sync", "syncfs"):
            raise AssertionError("a sync of everything hides what each sync is for")
        if not call.paths or any(self.names(path) is None for path in call.paths[-1:]):
            return
        path = call.paths[-1]
        parent, name = self.find(os.path.dirname(path)), os.path.basename(path)
        inode = self.find(path)
        if call.name in ("fsync", "fdatasync"):
            if inode:
                inode.synced, inode.durable = True, dict(inode.live)
        elif call.name in ("write", "pwrite64", "ftruncate"):
            if inode:
                inode.text, inode.synced = inode.text + call.text, False
        elif call.name == "copy":
            source = self.find(call.paths[0]) if self.names(call.paths[0]) is not None else None
            if inode:
                inode.text, inode.synced = inode.text + (source.text if source else ""), False
        elif parent is None:
            raise AssertionError(f"{call} in a directory that the trace did not show")
        elif call.name.startswith("open") or call.name == "creat":
            if inode is None and "O_CREAT" in call.raw:
                parent.live[name] = Inode(synced=True)  # there is nothing in it that could be lost
            elif inode and "O_TRUNC" in call.raw:
                inode.text, inode.synced = "", False
        elif call.name.startswith("mkdir"):
            parent.live[name] = Inode(folder=True)
        elif call.name.startswith("symlink"):
            parent.live[name] = Inode(synced=True)
        elif call.name.startswith("link"):
            parent.live[name] = self.find(call.paths[0]) or Inode()
        elif call.name.startswith("rename"):
            source = self.find(os.path.dirname(call.paths[0]))
            parent.live[name] = source.live.pop(os.path.basename(call.paths[0])) if source else Inode()
        else:
            parent.live.pop(name, None)


def trace_of(node: Scratch, *verbs: str, trace: Path) -> tuple[Disk, list[Call]]:
    """The disk as it was before, and what the verbs then did to it, one after the other."""
    disk = Disk(node.root)
    traced(node, "; ".join(f'sh "$1/change.sh" {verb}' for verb in verbs), trace)
    return disk, list(calls(trace))


def strace_works() -> bool:
    """Installed, and allowed to trace."""
    try:
        return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
