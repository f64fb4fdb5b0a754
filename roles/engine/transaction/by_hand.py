"""What repairs a change whose revert has failed: commands for the state that its node is in, by what blocks the revert. Pure.

`sh change.sh revert` comes last: it restores what is left, restarts, and waits for the old process, and only that ends the change.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from roles.engine.transaction.change_script import HOME, directory
from roles.engine.transaction.model import ABSENT, Change, FileEdit
from roles.engine.transaction.report import Status

#: Where a node usually has its own DNS configuration.
RESOLVERS: Final = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
# Container runtimes, by the name of their socket -> their unit.
_RUNTIMES: Final = {"containerd": "containerd", "crio": "crio", "cri-dockerd": "cri-docker"}
# As change.sh says it: NOT_RESTORED.
_NOT_RESTORED = re.compile(r"; and a file could not be restored: (/.*?): (.*)$")


@dataclass(frozen=True)
class Repair:
    """What blocks a revert, and the commands that repair it, in their order; the last one is the revert."""

    why: str
    commands: tuple[str, ...]


# What keeps a file from being restored (errno(3), change.sh) -> what is the matter, and the commands; {0} is the file, {1} its directory,
# {2} what the pattern has found, {3} the directory of the change.
_FILES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"Operation not permitted", "it or its directory is immutable", ("chattr -ia {1}", "[ ! -e {0} ] || chattr -ia {0}")),
    (r"Read-only file system", "its file system is read-only", ('mount -o remount,rw "$(stat -L -c %m {1})"',)),
    (r"is not mounted on (.+)", "its file system is not mounted", ("mount {2}",)),
    (r"has not answered", "its file system does not answer: bring its disk or its server back", ()),
    (r"version cannot be kept|[Nn]o space", "there is no space to keep what somebody else wrote there", ("mv {0} {3}/foreign.by-hand",)),
    (r"[Ii]s a directory|non-directory|not empty", "there is a directory in its place", ("mv {0} {3}/foreign.by-hand",)),
    (r"neither beside it nor undamaged", "its old bytes are lost on this node: write them there from a backup", ()),
)

# What keeps the old process from starting -> what is the matter, and the commands; {0}, {1}: what the pattern has found.
_STARTS: tuple[tuple[str, str, Callable[[re.Match[str]], tuple[str, ...]]], ...] = (
    (
        r"invalid kernel flag: (\S+?), expected value: (-?[0-9]+)",
        "a kernel tunable is not as the kubelet requires it (protectKernelDefaults)",
        lambda found: (f"sysctl -w {found[1].replace('/', '.')}={found[2]}",),
    ),
    (r"running with swap on is not supported", "swap is on, which failSwapOn forbids", lambda found: ("swapoff -a",)),
    (
        # By that name only: a log has words of pods, too, and these choose no path for a command.
        r"open (/\S*resolv\S*?\.conf): no such file",
        "the file with the DNS servers that resolvConf names is gone: no pod starts without it",
        lambda found: bring_resolver(found[1]),
    ),
    (
        r"(containerd|crio|cri-dockerd)\.sock\S* ?.*(connection refused|no such file|Unavailable|not running)",
        "the container runtime does not answer",
        lambda found: restart_runtime(found[1]),
    ),
    (r"(?:open|stat|lstat) (/[^:\s]+): no such file", "a file that the old configuration names is gone: bring it back", lambda found: ()),
    (r"no space left on device", "a disk is full: make space", lambda found: ()),
    (r"address already in use", "another process has its port: end that process", lambda found: ()),
    (r"private key does not match public key", "a private key is not that of its certificate: restore the one that fits", lambda found: ()),
    (r"[Cc]ertificate (has expired|.*expired)|x509: ", "a certificate is not accepted: renew it", lambda found: ()),
)


def repair(change: Change, status: Status, home: str = HOME, blockers: Sequence[Repair] = ()) -> Repair:
    """What blocks the revert of a change that is `revert-failed`, and what to type on its node, as root. `blockers`: what its node has
    answered since, about the start of the old process; it is more exact than the words of a process."""
    here = directory(change.id, home)
    again = f"sh {here}/change.sh revert"
    if found := _NOT_RESTORED.search(status.reason):
        why, commands = _file(found[1], found[2], here)
        return Repair(f"{found[1]} is not restored ({found[2]}): {why}", (*commands, again))
    edits = [(number, edit) for number, edit in enumerate(change.files, 1) if _differs(edit, status.files, number)]
    if edits:
        names = ", ".join(edit.path for _, edit in edits)
        copies = tuple(_copy(edit, number, here) for number, edit in edits)
        return Repair(f"{names}: somebody has written it since it was restored", (*copies, again))
    why, commands = _unit(change, status.unit) or _blocked(status, blockers) or _start(status)
    return Repair(f"the old files are in place, and {change.component} does not start: {why}", (*commands, again))


def _differs(edit: FileEdit, seen: Sequence[str], number: int) -> bool:
    return len(seen) >= number and seen[number - 1] != edit.before_sha256


def _copy(edit: FileEdit, number: int, here: str) -> str:
    if edit.before_sha256 == ABSENT:
        return f"rm -f {quote(edit.path)}"
    # Beside it first: a kubelet never reads half a file, and skips names with a dot.
    beside = quote(posixpath.join(posixpath.dirname(edit.path), f".daytwo-{number}"))
    return f"cp --preserve=all {here}/before/{number} {beside} && mv -f -T {beside} {quote(edit.path)}"


def bring_resolver(path: str) -> tuple[str, ...]:
    """Commands that make the file with DNS servers at `path` of the node's other one; an empty one lets the control plane's pods start,
    which use the node's own. Nothing that is there is written over, and no link is followed (noclobber)."""
    others = " || ".join(f"cat {one}" for one in RESOLVERS if one != path)
    return f"mkdir -p {quote(posixpath.dirname(path))}", f"(set -C; {{ {others}; }} >{quote(path)}); [ -f {quote(path)} ]"


def restart_runtime(name: str) -> tuple[str, ...]:
    """The command that restarts the container runtime whose socket has this name, without .sock; none if its unit is not known by that."""
    unit = _RUNTIMES.get(name)
    return (f"systemctl restart {unit}.service",) if unit else ()


def _file(path: str, said: str, here: str) -> tuple[str, tuple[str, ...]]:
    for pattern, why, commands in _FILES:
        if found := re.search(pattern, said):
            words = (quote(path), quote(posixpath.dirname(path)), quote(found[1]) if found.groups() else "", here)
            return why, tuple(command.format(*words) for command in commands)
    return "remove what keeps it", ()


def _unit(change: Change, unit: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    if unit.get("LoadState") == "masked":
        return f"{change.unit} is masked", (f"systemctl unmask {quote(change.unit)}",)
    if unit.get("LoadState") in ("not-found", "bad-setting", "error"):
        return f"systemd cannot load {change.unit} ({unit['LoadState']})", ("systemctl daemon-reload",)
    if change.kind == "static-pod" and unit.get("ActiveState") == "inactive":
        return f"{change.unit} is stopped", (f"systemctl start {quote(change.unit)}",)
    return None


def _blocked(status: Status, blockers: Sequence[Repair]) -> tuple[str, tuple[str, ...]] | None:
    if not blockers:
        return None
    said = f" [{status.blocked_by}]" if status.blocked_by else ""
    return "; ".join(one.why for one in blockers) + said, tuple(dict.fromkeys(word for one in blockers for word in one.commands))


def _start(status: Status) -> tuple[str, tuple[str, ...]]:
    said = status.blocked_by
    for pattern, why, commands in _STARTS:
        if said and (found := re.search(pattern, said)):
            return f"{why} [{said}]", commands(found)
    return f"correct what it says: {said}" if said else "it says nothing about the reason", ()
