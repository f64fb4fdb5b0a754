"""Finds the keys of a host's data that no deploy reads: a typo there would silently change nothing. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

OWN_PREFIX = "x_"
# Similarity of two names (difflib's ratio) above which one is a typo of the other, and above which it is worth a question.
TYPO, NEAR = 0.8, 0.6
WAY_OUT = (
    f"docs/reference/data.md has all keys; your own must begin with {OWN_PREFIX} or _, or be listed in own_keys (own_keys=NAME,PREFIX_*)"
)


def unknown(given: Iterable[str], known: Collection[str], pyinfra: Collection[str], own: Iterable[str] = ()) -> dict[str, str]:
    """Each key of `given` that no deploy reads, with its message.

    `known` are daytwo's, `pyinfra` those of pyinfra and its connectors, `own` the patterns of `own_keys`. A key that begins with `x_` or
    `_`, or that matches `own`, is the operator's own. But a typo of a known key (`_sduo`, `feature_gate` under a pattern) is not, unless
    `own` has its whole name.
    """
    own = tuple(own)
    found = {}
    for key in sorted(set(given) - set(known) - set(pyinfra) - set(own)):
        theirs = key.startswith((OWN_PREFIX, "_")) or any(fnmatchcase(key, pattern) for pattern in own)
        meant = _meant(key, [*known, *pyinfra], TYPO if theirs else NEAR)
        if theirs and (meant is None or key.startswith(OWN_PREFIX)):
            continue
        found[key] = f"{key} is not a key of daytwo's data; " + (f"did you mean {meant}?" if meant else "no deploy reads it")
    return found


def _meant(key: str, candidates: list[str], cutoff: float) -> str | None:
    plain = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter.group()}", key).lower().replace("-", "_")
    near = difflib.get_close_matches(plain, candidates, 1, cutoff)
    return near[0] if near else None
