"""The desired gates that a component must be restarted for: those that it reads, and their dependencies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roles.feature_gates.catalogue import Catalogue, load


@dataclass(frozen=True)
class LeftOut:
    """A component that is not changed for one gate, since only `readers` read the gate."""

    host: str
    component: str
    gate: str
    readers: tuple[str, ...]
    set_to: bool | None = None

    @property
    def why(self) -> str:
        if not self.readers:
            return "none of the four components reads it"
        return f"it does not read it ({' and '.join(self.readers)} {'do' if len(self.readers) > 1 else 'does'})"


def readers(gate: str, minor: int | None, catalogue: Catalogue | None = None) -> tuple[str, ...] | None:
    """The components of a minor that read a gate, sorted; None if that is unknown."""
    table = catalogue or load()
    found = table.gate(gate)
    if minor is None or found is None or not table.covers(minor) or found.at(minor) is None:
        return None
    found_readers = found.readers(minor)
    return None if found_readers is None else tuple(sorted((*found_readers, *found.other_readers)))


def needed(component: str, minor: int | None, wanted: Mapping[str, bool | None], catalogue: Catalogue | None = None) -> set[str]:
    """The desired gates that concern a component: those that it reads or may read, their dependencies and their dependents. A component
    checks dependencies even of gates that it does not read."""
    table = catalogue or load()
    concerned = {name for name in wanted if (by := readers(name, minor, table)) is None or component in by}
    if minor is None:
        return concerned
    pairs = [(name, other) for name in wanted if (gate := table.gate(name)) for other in gate.depends_on(minor) if other in wanted]
    while more := {end for pair in pairs if concerned & {*pair} for end in pair} - concerned:
        concerned |= more
    return concerned
