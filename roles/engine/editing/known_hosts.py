"""Files of known host keys, as ssh reads them (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT; OpenSSH's hostfile.c). Pure."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

#: Of a host's key: it is known; another key is known; no key is known; it is revoked.
KeyVerdict = Literal["known", "changed", "new", "revoked"]

_MARKERS = ("@cert-authority", "@revoked")


@dataclass(frozen=True)
class KnownKey:
    """One line for a host. `kind` is the key's type (`ssh-ed25519`), `blob` the key in its wire format, `marker` is "",
    "@cert-authority" or "@revoked", `where` is FILE:LINE."""

    kind: str
    blob: bytes
    marker: str
    where: str


def keys_of(text: str, name: str, path: str) -> Iterator[KnownKey]:
    """The lines of a file for a host: `name` is `host`, or `[host]:port` for a port that is not 22. A line that ssh cannot read is
    skipped, as ssh does."""
    lines, name = _lines(text), name.lower()
    hashed = [line for line, salt, digest in lines.hashed if hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)]
    matching = [*lines.plain.get(name, ()), *(line for line in lines.patterns if _is_for(line.names, name)), *hashed]
    for line in sorted(matching, key=lambda line: line.number):
        if blob := _blob(line.kind, line.key):
            yield KnownKey(line.kind, blob, line.marker, f"{path}:{line.number}")


@dataclass(frozen=True)
class _Line:
    number: int
    marker: str
    names: str
    kind: str
    key: str


@dataclass(frozen=True)
class _Lines:
    """The lines that ssh can read: by each of their names; those with patterns; and those with a hash, with its salt and its digest."""

    plain: dict[str, list[_Line]]
    patterns: list[_Line]
    hashed: list[tuple[_Line, bytes, bytes]]


# A run asks for each of its hosts, and the file has a line or more for each of them.
@lru_cache(8)
def _lines(text: str) -> _Lines:
    found = _Lines({}, [], [])
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(None, 4)
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or (marker and marker not in _MARKERS):
            continue
        one = _Line(number, marker, *words[:3])
        if one.names.startswith("|"):
            found.hashed.extend((one, *parts) for parts in _hash(one.names))
        elif set(one.names) & set("*?!"):
            found.patterns.append(one)
        else:
            for name in set(one.names.lower().split(",")):
                found.plain.setdefault(name, []).append(one)
    return found


def verdict(known: Sequence[KnownKey], blob: bytes) -> tuple[KeyVerdict, str]:
    """What these lines say about a key, and the line that says so ("" for none)."""
    for key in known:
        if key.marker == "@revoked" and key.blob == blob:
            return "revoked", key.where
    plain = [key for key in known if not key.marker]
    for key in plain:
        if key.blob == blob:
            return "known", key.where
    return ("changed", plain[0].where) if plain else ("new", "")


def lists_key(text: str, blob: bytes) -> bool:
    """True if a list of public keys, one a line (RevokedHostKeys of ssh_config(5)), has this one."""
    for line in text.splitlines():
        words = line.split(None, 2)
        if len(words) >= 2 and not words[0].startswith("#") and _blob(words[0], words[1]) == blob:
            return True
    return False


def fingerprint(blob: bytes) -> str:
    """As ssh shows it: `SHA256:...`."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _blob(kind: str, text: str) -> bytes | None:
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    # It begins with its type, as a string (RFC 4253, 6.6): one with another type is not a key.
    return blob if blob[4 : 4 + len(kind)] == kind.encode() else None


def _is_for(patterns: str, name: str) -> bool:
    found = False
    for pattern in patterns.lower().split(","):
        if _matches(pattern.removeprefix("!"), name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _matches(pattern: str, name: str) -> bool:
    # Only * and ? are special; brackets are literal.
    return re.fullmatch("".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern), name, re.DOTALL) is not None


def _hash(field: str) -> Iterator[tuple[bytes, bytes]]:
    """Salt and digest of a hashed name; nothing for another field."""
    parts = field.split("|")
    if len(parts) == 4 and parts[1] == "1":
        with contextlib.suppress(binascii.Error, ValueError):
            yield base64.b64decode(parts[2], validate=True), base64.b64decode(parts[3], validate=True)
