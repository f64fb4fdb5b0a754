"""Feature gates by minor release: stage, default, lock, dependencies, and who reads them. Pure; the table is gates.json beside this module.

A minor is a plain number here, 36 for 1.36. The table is a list of facts about releases; what runs on a node has the last word
(roles/feature_gates/verdict.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, Literal

StageName = Literal["Alpha", "Beta", "GA", "Deprecated"]

# The components check from here on that what a gate depends on is on (k8s.io/component-base/featuregate, Dependencies).
DEPENDENCIES_SINCE: Final = 35


@dataclass(frozen=True)
class GateStage:
    """A gate in one minor. `locked`: the component refuses to start where it is set to anything but `default`."""

    stage: StageName
    default: bool
    locked: bool = False


# Each sets all gates of its stage that are not set by name; never proven by name (k8s.io/component-base/featuregate, specialFeatures).
SPECIAL: Final[Mapping[str, GateStage]] = MappingProxyType({"AllAlpha": GateStage("Alpha", False), "AllBeta": GateStage("Beta", False)})


@dataclass(frozen=True)
class Gate:
    """One gate. `added`: the first minor that knows it (21: in 1.21, or before); `removed_in`: the first that does not any more;
    `other_readers`: what reads it besides the four components, such as kube-proxy; `unknown_to`: components that do not know it though
    the others do."""

    name: str
    added: int
    removed_in: int | None
    steps: tuple[tuple[int, GateStage], ...]
    shipped: Mapping[int, GateStage] = field(default_factory=dict, hash=False)
    readers_in: int | None = None
    readers_then: frozenset[str] = frozenset()
    kep_components: frozenset[str] = frozenset()
    other_readers: tuple[str, ...] = ()
    needs_in: int | None = None
    needs: tuple[str, ...] = ()
    unknown_to: frozenset[str] = frozenset()

    def at(self, minor: int, emulated: int | None = None) -> GateStage | None:
        """The gate as a component of this minor has it; None where that does not know it: not yet, or not any more.

        `emulated`: the minor that the component is told to behave as; a gate that was not there then cannot be set.
        """
        if minor < self.added or (self.removed_in is not None and minor >= self.removed_in):
            return None
        if emulated in (None, minor) and minor in self.shipped:
            return self.shipped[minor]
        then = minor if emulated is None else emulated
        return next((stage for since, stage in reversed(self.steps) if since <= then), None)

    def readers(self, minor: int) -> frozenset[str] | None:
        """The components that read the gate in this minor; empty: none of the four; None: not known.

        The code was searched in the newest minor with readers (`readers_in`). In those before, what the KEP names counts too:
        rather one component too many.
        """
        if self.readers_in is None:
            return None
        if minor < self.readers_in:
            return self.readers_then | self.kep_components
        return self.readers_then if min(minor, _newest()) == self.readers_in else frozenset()

    def depends_on(self, minor: int) -> tuple[str, ...]:
        """Gates that must be on where this one is, else a component of this minor does not start; empty before 1.35."""
        # Of a minor that is not released yet the newest one is the best guess.
        if self.needs_in is None or minor < DEPENDENCIES_SINCE or min(minor, _newest()) > self.needs_in:
            return ()
        return self.needs


@dataclass(frozen=True)
class Catalogue:
    """All gates. `minors` are those that were looked at, and last the `provisional` one, which is not released yet."""

    gates: Mapping[str, Gate]
    minors: tuple[int, ...]
    newest: int
    provisional: int

    def covers(self, minor: int) -> bool:
        """Whether the table has something to say about this minor."""
        return minor in self.minors

    def gate(self, name: str) -> Gate | None:
        """A gate by its very name; None where no minor knows it. AllAlpha and AllBeta are not among them (SPECIAL)."""
        return self.gates.get(name)

    def known(self, minor: int) -> set[str]:
        """The names that a component of this minor takes, besides AllAlpha and AllBeta."""
        return {name for name, gate in self.gates.items() if gate.at(minor) is not None}


@cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__ or "roles.feature_gates").joinpath("gates.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _newest() -> int:
    return int(_table()["newest"])


@cache
def load() -> Catalogue:
    """The shipped table."""
    table = _table()
    gates = {name: _gate(name, facts) for name, facts in table["gates"].items()}
    minors = (*table["minors"], table["provisional"])
    return Catalogue(MappingProxyType(gates), minors, table["newest"], table["provisional"])


def _gate(name: str, facts: Mapping[str, Any]) -> Gate:
    readers, needs = facts.get("readers", {}), facts.get("needs", {})
    return Gate(
        name=name,
        added=facts["from"],
        removed_in=facts.get("to"),
        steps=tuple((minor, GateStage(stage, default, bool(lock))) for minor, stage, default, *lock in facts["stages"]),
        shipped=MappingProxyType({int(minor): GateStage(stage, default) for minor, (stage, default) in facts.get("shipped", {}).items()}),
        readers_in=readers.get("in"),
        readers_then=frozenset(readers.get("of", ())),
        kep_components=frozenset(facts.get("kep", ())),
        other_readers=tuple(facts.get("others", ())),
        needs_in=needs.get("in"),
        needs=tuple(needs.get("of", ())),
        unknown_to=frozenset(facts.get("unknown_to", ())),
    )
