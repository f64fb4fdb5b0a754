"""The mark on a node that a run takes out of service: one annotation, by which a later run, an undo and deploys/uncordon.py find it. Pure.

Versions of daytwo before had two, which are read too, and which the next write removes: CORDONED_BY, with the run, and " (change)" for a
change; and beside it, from before the drain of a reboot until after its proof, REBOOT.

The node's own credential can write a mark. It is a claim: a cordon counts as daytwo's only while nobody else has set it (cordon.py), and an
undo goes by the record of its run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roles.engine.bounds import read_json
from roles.engine.kube import Object
from roles.engine.kube.fields import annotations_of
from roles.engine.objects import ObjectPath
from roles.engine.transaction import ChangedField

OUTAGE, CORDONED_BY, REBOOT = "daytwo.dev/outage", "daytwo.dev/cordoned-by", "daytwo.dev/reboot"
#: Where a node may have a mark, the one that daytwo writes first.
MARKS: tuple[ObjectPath, ...] = tuple(("metadata", "annotations", name) for name in (OUTAGE, CORDONED_BY, REBOOT))
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_FOR_CHANGE = " (change)"
_MOST = 64


@dataclass(frozen=True)
class Mark:
    """`run` has taken the node out, for the `purpose` of this name. `boot`: the id of the boot that a reboot or a power off ends; `keep`:
    the run whose cordon the node had before, and keeps, as in CORDONED_BY; `why`: the reason that its operator gave. `certificate` and
    `authority`: what ends while a machine is off, as roles/sleeping/ writes and reads it."""

    run: str
    purpose: str = "drain"
    boot: str = ""
    keep: str = ""
    why: str = ""
    certificate: str = ""
    authority: str = ""

    def __str__(self) -> str:
        return self.run + (_FOR_CHANGE if self.purpose == "change" else "")

    def text(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value})

    def fields(self, *, comes: bool) -> list[dict[str, Any]]:
        """For the record of a step: that the node gets this mark, or loses it."""
        text = self.text()
        return [{"path": list(MARKS[0]), "before": None if comes else text, "after": text if comes else None}]

    @property
    def holder(self) -> str:
        """Whose cordon it is, for people."""
        return self.keep or str(self)

    @property
    def runs(self) -> set[str]:
        """All that have a part in the outage."""
        return {self.run, run_of(self.keep)} - {""}


def run_of(text: str) -> str:
    """The run in a mark as CORDONED_BY has it, and those of surges."""
    return text.removesuffix(_FOR_CHANGE)


def read_mark(node: Object) -> Mark | None:
    """None for a node without a mark, or with one that daytwo did not write."""
    notes: Mapping[str, Any] = annotations_of(node)
    if OUTAGE in notes:
        return _mark(_fields(notes[OUTAGE]))
    cordoned, reboot = parse_mark(notes.get(CORDONED_BY)), _fields(notes.get(REBOOT))
    mark = _mark({**reboot, "purpose": "reboot", "keep": ""}) if reboot.get("boot") else None
    if mark is None or cordoned is None or cordoned.run in (mark.run, reboot.get("of")):
        return mark or cordoned
    return Mark(mark.run, mark.purpose, mark.boot, str(cordoned))


def parse_mark(text: object) -> Mark | None:
    """A mark from its text, of any version; None if it is none."""
    if not isinstance(text, str):
        return None
    if _RUN.fullmatch(run_of(text)):
        return Mark(run_of(text), "change" if text.endswith(_FOR_CHANGE) else "drain")
    return _mark(_fields(text))


def mark_before(fields: Iterable[ChangedField]) -> str:
    """The mark that a node had before a recorded write, as text; "" for none."""
    had = {field.path[-1]: field.before for field in fields if field.path in MARKS and field.before}
    mark = read_mark({"metadata": {"annotations": had}})
    return mark.text() if mark is not None else " ".join(map(str, had.values()))


def _fields(text: object) -> Mapping[str, Any]:
    try:
        found: Any = read_json(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _mark(found: Mapping[str, Any]) -> Mark | None:
    values = [found.get(name, "") for name in ("run", "purpose", "boot", "keep", "why", "certificate", "authority")]
    if not all(isinstance(value, str) and len(value) <= _MOST for value in values):
        return None
    run, purpose, boot, keep, *more = values
    if not _RUN.fullmatch(run) or not purpose or (keep and not _RUN.fullmatch(run_of(keep))):
        return None
    return Mark(run, purpose, boot, keep, *more)
