"""Whether a newer kernel than the running one is installed: releases of kernels, in the order of the node's distribution. Pure."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

# 6.1.0-18-amd64, 6.12.48+deb13-cloud-amd64, 5.15.0-91-generic: the flavour follows the version.
_DEBIAN = re.compile(r"(?P<version>[0-9].*?)-(?P<flavour>[A-Za-z][A-Za-z0-9_-]*)")
# 5.14.0-362.8.1.el9_3.x86_64, with +debug, +rt or +64k behind it.
_RED_HAT = re.compile(r"(?P<version>[0-9].*)\.(?P<flavour>[a-z0-9_]+(?:\+[A-Za-z0-9_-]+)?)")
_LIKE_RED_HAT = frozenset({"rhel", "fedora", "centos"})
_SEGMENTS = re.compile(r"[0-9]+|[A-Za-z]+|~|\^")
_END = (0, "", (0, ""))


@dataclass(frozen=True)
class Release:
    """The release of a kernel (uname -r), cut in two. Only kernels of one flavour are compared: the boot loader's configuration decides
    between flavours."""

    text: str
    version: str
    flavour: str


@dataclass(frozen=True)
class Kernels:
    """`newest` is the newest installed kernel of the running one's flavour that is newer than it, "" if there is none; `others` are
    installed kernels that are not compared with it."""

    newest: str = ""
    others: tuple[str, ...] = ()


def judge_kernels(running: str, installed: Collection[str], family: str) -> Kernels:
    """`installed` are releases; `family` the words of ID and ID_LIKE in os-release(5)."""
    red_hat = bool(_LIKE_RED_HAT & set(re.split(r"[\s\"']+", family.lower())))
    order: Callable[[str], Any] = rpm_order if red_hat else debian_order
    own = _cut(running, red_hat)
    known = {text: _cut(text, red_hat) for text in installed if text != running}
    alike = [one for one in known.values() if own is not None and one is not None and one.flavour == own.flavour]
    others = tuple(sorted(text for text, one in known.items() if one not in alike))
    if own is None or not alike:
        return Kernels("", others)
    newest = max(alike, key=lambda one: order(one.version))
    return Kernels(newest.text if order(newest.version) > order(own.version) else "", others)


def _cut(text: str, red_hat: bool) -> Release | None:
    pattern = _RED_HAT if red_hat else _DEBIAN
    found = pattern.fullmatch(text)
    if found is None:
        return None
    # Oracle's kernels and Red Hat's are two flavours with the same architecture.
    more = " uek" if red_hat and "uek" in found["version"] else ""
    return Release(text, found["version"], found["flavour"] + more)


def debian_order(version: str) -> Any:
    """A key in the order of dpkg (dpkg: lib/dpkg/version.c, verrevcmp; deb-version(7)): text without digits and the number behind it, in
    turn."""
    return [((*map(_weight, text), 0), _number(number)) for text, number in re.findall(r"([^0-9]*)([0-9]*)", version)]


def _weight(character: str) -> int:
    """A tilde comes before the end, which is 0, letters before all other characters."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def rpm_order(version: str) -> Any:
    """A key in the order of rpm for VERSION-RELEASE: the version, then the release (rpm: rpmio/rpmvercmp.cc)."""
    return [[*map(_segment, _SEGMENTS.findall(part)), _END] for part in version.partition("-")[::2]]


def _segment(text: str) -> tuple[int, str, tuple[int, str]]:
    """A tilde comes before the end, a caret behind it, then letters, then numbers."""
    if text[0] in string.digits:
        return 3, "", _number(text)
    return {"~": -1, "^": 1}.get(text, 2), text, (0, "")


def _number(text: str) -> tuple[int, str]:
    """Of any length."""
    digits = text.lstrip("0")
    return len(digits), digits
