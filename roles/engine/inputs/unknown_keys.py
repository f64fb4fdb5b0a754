"""Which keys of a host's data nobody reads: a slip of the pen there would silently change nothing. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

OWN_PREFIX = "x_"
# So alike are two names of which one is a slip of the other (difflib's ratio), and so alike that it is worth a question.
SLIP, NEAR = 0.8, 0.6
WAY_OUT = (
    f"docs/reference/data.md has all keys; one of your own begins with {OWN_PREFIX} or _, or is named in own_keys (own_keys=NAME,PREFIX_*)"
)


def unknown(given: Iterable[str], known: Collection[str], pyinfra: Collection[str], own: Iterable[str] = ()) -> dict[str, str]:
    """Each key of `given` that nobody reads, with the sentence that tells so.

    `known` are daytwo's, `pyinfra` those of pyinfra and its connectors, `own` the patterns of `own_keys`. A key that begins with `x_` or
    `_` is the operator's own, and so is one that `own` names; but a slip of a key that has a meaning (`_sduo`, `feature_gate` under
    a pattern) is none: only its whole name in `own` makes it one.
    """
    own = tuple(own)
    told = {}
    for key in sorted(set(given) - set(known) - set(pyinfra) - set(own)):
        theirs = key.startswith((OWN_PREFIX, "_")) or any(fnmatchcase(key, pattern) for pattern in own)
        meant = _meant(key, [*known, *pyinfra], SLIP if theirs else NEAR)
        if theirs and (meant is None or key.startswith(OWN_PREFIX)):
            continue
        told[key] = f"{key} is no key of daytwo's data; " + (f"did you mean {meant}?" if meant else "no deploy reads it")
    return told


def _meant(key: str, candidates: list[str], cutoff: float) -> str | None:
    plain = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter.group()}", key).lower().replace("-", "_")
    near = difflib.get_close_matches(plain, candidates, 1, cutoff)
    return near[0] if near else None
