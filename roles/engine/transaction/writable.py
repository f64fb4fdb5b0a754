"""What the undo of a recorded run may write: a table of objects and fields, which each capability has. Pure.

A record says what to write where. Whoever can write the record must not get more from it than the deploy itself could write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roles.engine.harmless import one_line
from roles.engine.transaction.object_record import ChangedObject

#: One part of an object's path: a name as the API has it (RFC 1123, RBAC's with colons). Never `..`, and nothing that is encoded.
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}")


def _nothing_else(_: ChangedObject) -> str:
    return ""


@dataclass(frozen=True)
class Writable:
    """Objects whose recorded fields may be restored. In `path`, and in each path of `fields`, `*` is any one part. `refuse`: why the values
    may not be restored; "" if they may."""

    path: str
    fields: tuple[tuple[str, ...], ...]
    refuse: Callable[[ChangedObject], str] = _nothing_else

    def has(self, path: str) -> bool:
        wanted, found = self.path.split("/"), path.split("/")
        return len(wanted) == len(found) and all(
            one == other or (one == "*" and _PART.fullmatch(other) is not None) for one, other in zip(wanted, found, strict=True)
        )

    def has_field(self, path: Sequence[str]) -> bool:
        return any(
            len(field) == len(path) and all(one in ("*", other) for one, other in zip(field, path, strict=True)) for field in self.fields
        )


def not_writable(one: ChangedObject, writes: Sequence[Writable]) -> str:
    """Why a recorded object may not be restored; "" if it may."""
    able = [writable for writable in writes if writable.has(one.path)]
    if not able:
        return one_line(f"{one.name}: the path {one.path}")
    if unknown := [".".join(field.path) for field in one.fields if not any(writable.has_field(field.path) for writable in able)]:
        return one_line(f"{one.name}: the field {', '.join(unknown)}")
    return next((one_line(f"{one.name}: {why}") for writable in able if (why := writable.refuse(one))), "")
