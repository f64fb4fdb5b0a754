"""Which of the wanted gates a component has to be restarted for: those it reads, and what these depend on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roles.feature_gates.catalogue import Catalogue, load


@dataclass(frozen=True)
class LeftOut:
    """A component that is left as it is for one gate, since only `readers` read that."""

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
    """The components of a minor that read a gate, sorted; None where that is not known."""
    table = catalogue or load()
    found = table.gate(gate)
    if minor is None or found is None or not table.covers(minor) or found.at(minor) is None:
        return None
    by = found.readers(minor)
    return None if by is None else tuple(sorted((*by, *found.other_readers)))


def needed(component: str, minor: int | None, wanted: Mapping[str, bool | None], catalogue: Catalogue | None = None) -> set[str]:
    """The wanted gates that concern a component: those it reads or may read, and those that they depend on, or that depend on them:
    every component checks dependencies, read or not."""
    table = catalogue or load()
    concerned = {name for name in wanted if (by := readers(name, minor, table)) is None or component in by}
    if minor is None:
        return concerned
    pairs = [(name, other) for name in wanted if (gate := table.gate(name)) for other in gate.depends_on(minor) if other in wanted]
    while more := {end for pair in pairs if concerned & {*pair} for end in pair} - concerned:
        concerned |= more
    return concerned
