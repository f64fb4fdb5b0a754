"""Finds out whether ssh has the same rules for the keys of all hosts. Then `ssh -G` runs once, and not once for each of a thousand hosts.

It reads only enough of ssh_config(5) for that, and is not sure about anything unusual: then each host gets its own `ssh -G`.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: In a block for some hosts, these keywords change nothing about host keys, except by name and port.
_HARMLESS = frozenset(
    [
        "addkeystoagent",
        "batchmode",
        "certificatefile",
        "ciphers",
        "compression",
        "connectionattempts",
        "connecttimeout",
        "controlmaster",
        "controlpath",
        "controlpersist",
        "forwardagent",
        "forwardx11",
        "gssapiauthentication",
        "hostname",
        "identitiesonly",
        "identityagent",
        "identityfile",
        "loglevel",
        "macs",
        "numberofpasswordprompts",
        "passwordauthentication",
        "port",
        "preferredauthentications",
        "pubkeyauthentication",
        "requesttty",
        "sendenv",
        "setenv",
        "serveralivecountmax",
        "serveraliveinterval",
        "tcpkeepalive",
        "user",
    ]
)
_LINE = re.compile(r"([A-Za-z0-9]+)(?:[ \t]*=[ \t]*|[ \t]+)(.*)")
_PLAIN_HOST = re.compile(r"[a-z0-9][a-z0-9._-]*")
_DEEPEST = 16  # READCONF_MAX_DEPTH of OpenSSH's readconf.c


#: Time of the last change, size and inode of a file; None if it is missing.
_State = tuple[int, int, int] | None


class _NotSure(Exception):
    """The configuration may have other rules for some hosts."""


@dataclass(frozen=True)
class SharedRules:
    """The rules are the same for all hosts, except for their names and ports: (patterns of hosts, keyword, value), in order. `files` are
    those that were read, with their states."""

    lines: tuple[tuple[tuple[str, ...], str, str], ...]
    files: Mapping[str, _State]

    @property
    def is_current(self) -> bool:
        """False if one of the files has changed since."""
        return all(_state(path) == state for path, state in self.files.items())

    def address(self, host: str) -> tuple[str, str] | None:
        """Host name and port that ssh would use for a host; None for an unusual name."""
        if not _PLAIN_HOST.fullmatch(host):
            return None
        found = {"hostname": host, "port": "22"}
        # The first value that applies counts.
        for patterns, keyword, value in reversed(self.lines):
            if _applies(patterns, host):
                found[keyword] = value
        return found["hostname"].lower(), found["port"]


def shared_rules(user_file: str | None, home: str) -> SharedRules | None:
    """The rules of a configuration file, or (None) of the user's and the system's; None if they may differ between hosts. `home` is the
    home directory in passwd."""
    files = [(user_file, f"{home}/.ssh")] if user_file else [(f"{home}/.ssh/config", f"{home}/.ssh"), ("/etc/ssh/ssh_config", "/etc/ssh")]
    read: dict[str, _State] = {}
    try:
        return SharedRules(tuple(line for path, folder in files for line in _lines(path, folder, home, ("*",), read, 0)), read)
    except (_NotSure, UnicodeDecodeError, OSError):
        return None


def _state(path: str) -> _State:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _lines(
    path: str, folder: str, home: str, patterns: tuple[str, ...], read: dict[str, _State], depth: int
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    if depth > _DEEPEST:
        raise _NotSure
    read[path] = _state(path)
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        return
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        parsed = _LINE.fullmatch(line)
        keyword, value = (parsed[1].lower(), parsed[2]) if parsed else ("", "")
        if keyword == "host":
            patterns = _words(value)
        elif keyword == "include":
            for name in _words(value):
                if patterns != ("*",):
                    raise _NotSure
                where = os.path.join(folder, home + name[1:] if name.startswith("~/") else name)
                for other in sorted(glob.glob(where)):
                    yield from _lines(other, folder, home, patterns, read, depth + 1)
        elif keyword in ("hostname", "port"):
            (one,) = _words(value)
            if "%" in one:
                raise _NotSure
            yield patterns, keyword, one
        elif keyword in ("", "match", "canonicalizehostname") or (patterns != ("*",) and keyword not in _HARMLESS):
            raise _NotSure


def _words(value: str) -> tuple[str, ...]:
    if not value or re.search(r"[\"'\\#$]", value):
        raise _NotSure
    return tuple(value.split())


def _applies(patterns: Sequence[str], host: str) -> bool:
    found = False
    for pattern in patterns:
        signs = {"*": ".*", "?": "."}
        if re.fullmatch("".join(signs.get(sign) or re.escape(sign) for sign in pattern.removeprefix("!")), host):
            if pattern.startswith("!"):
                return False
            found = True
    return found
