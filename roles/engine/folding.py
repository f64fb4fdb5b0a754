"""How much a run prints. With many hosts, like ones share a line; the data key `verbose` shows each of them, and proofs in full."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

KEY = "verbose"
#: With so many hosts, each has lines of its own.
FEW = 8
# How long a list of hosts may be.
_NAMES = 60

_hosts = 0
_verbose = False


def set_run(hosts: int, values: Iterable[object]) -> None:
    """The number of hosts of this process's run, and their values of KEY (None: not set). Raises ValueError."""
    global _hosts, _verbose  # one process is one run
    found = list(values)
    _hosts, _verbose = hosts, True in found
    wrong = [value for value in found if value not in (True, False, None)]
    if wrong:
        raise ValueError(f"{KEY}={wrong[0]!r} is not a boolean; write true or false")


def folds() -> bool:
    """True if like hosts share a line."""
    return _hosts > FEW and not _verbose


def verbose() -> bool:
    """True if nothing is to be left out."""
    return _verbose


def shortened(texts: Collection[str], most: int = 5, mark: str = ",") -> str:
    """`a, b and 3 more` in the order of `texts`; with another mark `a; b; and 3 more`."""
    more = f"{mark.lstrip(',')} and {len(texts) - most} more" if len(texts) > most else ""
    return f"{mark} ".join(list(texts)[:most]) + more


def hosts(names: Sequence[str]) -> str:
    """Hosts in one cell: `w1`, or `12 hosts: cp1-cp3, w1-w9`; a long list is cut."""
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return names[0]
    text = f"{len(names)} hosts: "
    ranges = list(_ranges(names))
    for number, part in enumerate(ranges):
        text += f"{', ' if number else ''}{part}"
        if len(text) > _NAMES and number + 1 < len(ranges):
            return f"{text}, ..."
    return text


def counted(number: int, thing: str) -> str:
    """`1 change`, `2 changes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def or_none(texts: Iterable[str]) -> str:
    """`a, b`, or `none`."""
    return ", ".join(texts) or "none"


def once_each(parts: Iterable[str]) -> str:
    """The parts of one cell, each once, without empty ones: one cause may stop several checks, and each would name it."""
    return "; ".join(dict.fromkeys(filter(None, parts)))


def listed(names: Sequence[str]) -> str:
    """Hosts in a sentence: all of them, unless they are too many."""
    return ", ".join(names) if len(names) <= FEW or not folds() else hosts(names)


def merged(reasons: Iterable[str]) -> list[str]:
    """Sentences `HOST: TEXT` with the same text as one, in the order of the first of them; each alone if nothing is to be left out."""
    found: dict[str, list[str]] = {}
    for reason in reasons:
        host, colon, text = reason.partition(": ")
        folded = bool(colon) and not _verbose and " " not in host
        found.setdefault(text if folded else reason, []).append(host if folded else "")
    return [f"{listed(list(dict.fromkeys(names)))}: {text}" if names[0] else text for text, names in found.items()]


def alike(texts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Hosts and their texts; those with the same text together, in the order of the first of them."""
    if verbose():
        return list(texts)
    found: dict[str, list[str]] = {}
    for host, text in texts:
        found.setdefault(text, []).append(host)
    return [(listed(names), text) for text, names in found.items()]


def _ranges(names: Sequence[str]) -> Iterator[str]:
    """Names that follow each other and count up as `FIRST-LAST`."""
    start = 0
    for index in range(1, len(names) + 1):
        if index == len(names) or _next(names[index - 1]) != names[index]:
            yield names[start] if index - start == 1 else f"{names[start]}-{names[index - 1]}"
            start = index


def _next(name: str) -> str:
    """The name with its last number counted up, zeros before it kept: `node09.rack1` -> `node09.rack2`."""
    found = re.fullmatch(r"(.*?)(\d+)(\D*)", name, re.DOTALL | re.ASCII)
    return f"{found[1]}{int(found[2]) + 1:0{len(found[2])}}{found[3]}" if found else ""
