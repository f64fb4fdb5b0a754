"""Feature gates by minor release: stage, default, lock, dependencies and readers. Pure; the table is gates.json in this directory.

A minor is a plain number here, 36 for 1.36. The table lists facts about releases; the component that runs on a node decides
(roles/feature_gates/verdict.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, Literal

from roles.engine.bounds import read_json

StageName = Literal["Alpha", "Beta", "GA", "Deprecated"]

# From this minor on, components check that a gate's dependencies are on (k8s.io/component-base/featuregate, Dependencies).
DEPENDENCIES_SINCE: Final = 35


@dataclass(frozen=True)
class GateStage:
    """A gate in one minor. `locked`: the component does not start if the gate is set to anything but `default`."""

    stage: StageName
    default: bool
    locked: bool = False


# Each sets all gates of its stage that are not set by name; never proven by name (k8s.io/component-base/featuregate, specialFeatures).
SPECIAL: Final[Mapping[str, GateStage]] = MappingProxyType({"AllAlpha": GateStage("Alpha", False), "AllBeta": GateStage("Beta", False)})


@dataclass(frozen=True)
class Gate:
    """One gate. `added`: the first minor that knows it (21: in 1.21, or before); `removed_in`: the first minor that no longer knows it;
    `other_readers`: readers other than the four components, such as kube-proxy; `unknown_to`: components that do not know it, though
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
        """The gate as a component of this minor has it; None if the component does not know it yet, or no longer knows it.

        `emulated`: the minor that the component emulates; a gate that did not exist in that minor cannot be set.
        """
        if minor < self.added or (self.removed_in is not None and minor >= self.removed_in):
            return None
        if emulated in (None, minor) and minor in self.shipped:
            return self.shipped[minor]
        then = minor if emulated is None else emulated
        return next((stage for since, stage in reversed(self.steps) if since <= then), None)

    def readers(self, minor: int) -> frozenset[str] | None:
        """The components that read the gate in this minor; empty: none of the four; None: unknown.

        The code was searched in the newest minor with readers (`readers_in`). In earlier minors the components of the KEP count too:
        one component too many does less harm than one too few.
        """
        if self.readers_in is None:
            return None
        if minor < self.readers_in:
            return self.readers_then | self.kep_components
        return self.readers_then if min(minor, _newest()) == self.readers_in else frozenset()

    def depends_on(self, minor: int) -> tuple[str, ...]:
        """Gates that must be on if this one is, or a component of this minor does not start; empty before 1.35."""
        # The newest minor is the best guess for one that is not released yet.
        if self.needs_in is None or minor < DEPENDENCIES_SINCE or min(minor, _newest()) > self.needs_in:
            return ()
        return self.needs


@dataclass(frozen=True)
class Catalogue:
    """All gates. `minors` are the minors that the table covers; the last one is `provisional`, which is not released yet."""

    gates: Mapping[str, Gate]
    minors: tuple[int, ...]
    newest: int
    provisional: int

    def covers(self, minor: int) -> bool:
        """Whether the table covers this minor."""
        return minor in self.minors

    def gate(self, name: str) -> Gate | None:
        """A gate by its exact name; None if no minor knows it. AllAlpha and AllBeta are not in the table (SPECIAL)."""
        return self.gates.get(name)

    def known(self, minor: int) -> set[str]:
        """The names that a component of this minor accepts, without AllAlpha and AllBeta."""
        return {name for name, gate in self.gates.items() if gate.at(minor) is not None}


@cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__ or "roles.feature_gates").joinpath("gates.json").read_text(encoding="utf-8")
    table: dict[str, Any] = read_json(text)
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
