"""OpenSSH's known_hosts, and what it says about one host's key (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT). Pure.

paramiko reads such files too, and passes over what it does not know: patterns, negated names, `@revoked`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

#: `known`: this very key; `changed`: the host has others; `new`: nothing is known of the host; `revoked`: this key is not to be used.
Verdict = Literal["known", "changed", "new", "revoked"]


@dataclass(frozen=True)
class Entry:
    """One line: names or patterns, or a hash of a name; the key's type and its base64. `marker` is "", `@revoked` or `@cert-authority`."""

    marker: str
    names: str
    kind: str
    key: str

    def is_of(self, name: str) -> bool:
        """Whether the line is about `name`, which is `host`, or `[host]:port` where the port is another than 22."""
        name = name.lower()
        if self.names.startswith("|"):
            return _hashed(self.names, name)
        found = False
        for pattern in self.names.lower().split(","):
            if _matches(pattern.removeprefix("!"), name):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def parse(text: str) -> list[Entry]:
    """The lines of a file that can be understood; sshd(8) says of all others that they are ignored."""
    found = []
    for line in text.splitlines():
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        found.append(Entry(marker, *words[:3]))
    return found


def verdict(entries: Iterable[Entry], name: str, kind: str, key: str) -> Verdict:
    """What is known of the key that `name` shows. One of another type than those that are known counts as changed."""
    own = [entry for entry in entries if entry.is_of(name)]
    if any(entry.marker == "@revoked" and (entry.kind, entry.key) == (kind, key) for entry in own):
        return "revoked"
    plain = [entry for entry in own if not entry.marker]
    if any((entry.kind, entry.key) == (kind, key) for entry in plain):
        return "known"
    return "changed" if plain else "new"


def kinds(entries: Iterable[Entry], name: str) -> list[str]:
    """The types of the keys that are known of a host, none twice: what to ask it for."""
    return list(dict.fromkeys(entry.kind for entry in entries if not entry.marker and entry.is_of(name)))


def _matches(pattern: str, name: str) -> bool:
    parts = (".*" if character == "*" else "." if character == "?" else re.escape(character) for character in pattern)
    return re.fullmatch("".join(parts), name) is not None


def _hashed(text: str, name: str) -> bool:
    try:
        _, version, salt, digest = text.split("|")
        made = hmac.new(base64.b64decode(salt), name.encode(), "sha1").digest()
        return version == "1" and hmac.compare_digest(made, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False
