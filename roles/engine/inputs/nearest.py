"""What a name may have meant that matches nothing. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BeforeValidator

from roles.engine.folding import shortened

# So many names are listed.
_MOST = 20


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` if a known name is similar, else ""."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def choice(key: str, *known: str) -> BeforeValidator:
    """Reads one of a few words."""

    def read(value: Any) -> Any:
        if value not in known:
            raise ValueError(f"{key} is {value!r}; it must be one of {', '.join(known)}{did_you_mean(str(value), known)}")
        return value

    return BeforeValidator(read)


def listing(known: Collection[str], most: int = _MOST) -> str:
    """`a, b`; a long list is cut, and `none` if it is empty."""
    return shortened(sorted(known), most) or "none"


def unmatched(asked: Iterable[str], known: Collection[str], what: str) -> list[str]:
    """For each name that is not known, a sentence with the nearest one and the list of what there is. `what` is in the singular and begins
    with `no`, such as `no namespace of this cluster`."""
    missing = [name for name in dict.fromkeys(asked) if name not in known]
    return [f"{name!r} is {what}{did_you_mean(name, known) or ';'} there are: {listing(known)}" for name in missing]
