"""Whether a newer kernel than the running one is installed: releases of kernels, in the order of the node's distribution. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import zip_longest

from roles.engine.bounds import digits

# 6.1.0-18-amd64, 6.12.48+deb13-cloud-amd64, 5.15.0-91-generic: the flavour follows the version.
_DEBIAN = re.compile(r"(?P<version>[0-9].*?)-(?P<flavour>[A-Za-z][A-Za-z0-9_-]*)")
# 5.14.0-362.8.1.el9_3.x86_64, with +debug, +rt or +64k behind it.
_RED_HAT = re.compile(r"(?P<version>[0-9].*)\.(?P<flavour>[a-z0-9_]+(?:\+[A-Za-z0-9_-]+)?)")
_LIKE_RED_HAT = frozenset({"rhel", "fedora", "centos"})
_RUNS = re.compile(r"[0-9]+|[^0-9]+")
_SEGMENTS = re.compile(r"[0-9]+|[A-Za-z]+|~|\^")


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
    order = compare_rpm if red_hat else compare_debian
    own = _cut(running, red_hat)
    known = {text: _cut(text, red_hat) for text in installed if text != running}
    alike = [one for one in known.values() if own is not None and one is not None and one.flavour == own.flavour]
    others = tuple(sorted(text for text, one in known.items() if one not in alike))
    if own is None or not alike:
        return Kernels("", others)

    def compare(one: Release, other: Release) -> int:
        return order(one.version, other.version)

    newest = max(alike, key=functools.cmp_to_key(compare))
    return Kernels(newest.text if order(newest.version, own.version) > 0 else "", others)


def _cut(text: str, red_hat: bool) -> Release | None:
    pattern = _RED_HAT if red_hat else _DEBIAN
    found = pattern.fullmatch(text)
    if found is None:
        return None
    # Oracle's kernels and Red Hat's are two flavours with the same architecture.
    more = " uek" if red_hat and "uek" in found["version"] else ""
    return Release(text, found["version"], found["flavour"] + more)


def compare_debian(one: str, other: str) -> int:
    """Less than, equal to or greater than 0, as dpkg orders versions (dpkg: lib/dpkg/version.c, verrevcmp; deb-version(7))."""
    for first, second in zip_longest(_pairs(one), _pairs(other), fillvalue=("", "0")):
        text = _compare_text(first[0], second[0])
        if text:
            return text
        number = int(first[1] or 0) - int(second[1] or 0)
        if number:
            return number
    return 0


def _pairs(text: str) -> list[tuple[str, str]]:
    """Text without digits and the number behind it, in turn."""
    runs = _RUNS.findall(text)
    if runs and runs[0][0] in "0123456789":
        runs.insert(0, "")
    runs += [""] * (len(runs) % 2)
    return list(zip(runs[::2], runs[1::2], strict=True))


def _compare_text(one: str, other: str) -> int:
    for first, second in zip_longest(map(_weight, one), map(_weight, other), fillvalue=0):
        if first != second:
            return first - second
    return 0


def _weight(character: str) -> int:
    """A tilde comes before the end, letters before all other characters."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def compare_rpm(one: str, other: str) -> int:
    """The same for VERSION-RELEASE as rpm orders them: the version, then the release (rpm: rpmio/rpmvercmp.cc)."""
    for first, second in zip_longest(one.partition("-")[::2], other.partition("-")[::2], fillvalue=""):
        found = _compare_segments(_SEGMENTS.findall(first), _SEGMENTS.findall(second))
        if found:
            return found
    return 0


def _compare_segments(one: list[str], other: list[str]) -> int:
    for first, second in zip_longest(one, other, fillvalue=""):
        if first == second:
            continue
        if "~" in (first, second):
            return -1 if first == "~" else 1
        if "^" in (first, second):
            # After the end, but before anything else.
            return (-1 if second else 1) if first == "^" else (1 if first else -1)
        here, there = digits(first), digits(second)
        if here is not None and there is not None:
            if here != there:
                return here - there
            continue
        if not first or not second:
            return 1 if first else -1
        # A number is newer than letters.
        if (here is None) != (there is None):
            return 1 if there is None else -1
        return 1 if first > second else -1
    return 0
