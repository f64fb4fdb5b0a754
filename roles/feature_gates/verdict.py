"""What a component of a certain version makes of its gates: taken, taken with a warning, refused; by rule, each with the way out. Pure.

The rules are those of k8s.io/component-base/featuregate (feature_gate.go, Set and Validate) and k8s.io/component-base/compatibility
(registry.go); the facts about gates those of the catalogue. Rules of daytwo's own, which no component has, are marked as such: what a
change does to a cluster needs consent.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from roles.engine.editing import KUBE
from roles.feature_gates.catalogue import SPECIAL, Catalogue, Gate, GateStage, load
from roles.feature_gates.hazards import HAZARDS, KUBEADM

# The prefix `kube:` came with the registry of components (k8s.io/component-base/compatibility).
PREFIX_SINCE = 31
_ALIKE = 0.75


class Level(IntEnum):
    """ACCEPT: there is only something to say; WARN: the component takes it and warns in its log; REFUSE: it does not start."""

    ACCEPT = 0
    WARN = 1
    REFUSE = 2


Rule = Literal[
    "unknown",
    "removed",
    "not yet there",
    "kubeadm's own",
    "locked",
    "GA",
    "deprecated",
    "no effect",
    "dependency",
    "other component",
    "prefix",
    "all of a stage",
    "hazard",
]
# Where daytwo asks for consent to something that every component takes.
OWN: frozenset[Rule] = frozenset({"all of a stage", "hazard"})


@dataclass(frozen=True)
class GateFinding:
    """What one rule says about one gate; `way_out` is what an operator can do."""

    level: Level
    rule: Rule
    gate: str
    message: str
    way_out: str = ""

    def __str__(self) -> str:
        return self.message + (f"; {self.way_out}" if self.way_out else "")


@dataclass(frozen=True)
class Subject:
    """One running component. `emulated`: the minor it is told to behave as (--emulated-version), None for its own; `live`: the gates
    as the component itself tells them, over the catalogue's, with None for one that it does not know."""

    component: str
    minor: int
    emulated: int | None = None
    live: Mapping[str, GateStage | None] = field(default_factory=dict)

    @property
    def then(self) -> int:
        return self.minor if self.emulated is None else self.emulated

    @property
    def told(self) -> str:
        emulated = f" that behaves as 1.{self.emulated}" if self.emulated not in (None, self.minor) else ""
        return f"{self.component} 1.{self.minor}{emulated}"

    def stage(self, name: str, catalogue: Catalogue) -> GateStage | None:
        """The gate as this component has it; None where it does not know it."""
        if name in SPECIAL:
            return SPECIAL[name]
        if name in self.live:
            return self.live[name]
        gate = catalogue.gate(name)
        return gate.at(self.minor, self.emulated) if gate and self.component not in gate.unknown_to else None


def emulated_minor(values: Iterable[str]) -> int | None:
    """The minor of --emulated-version, given as `1.33` or `kube=1.33`, the last one winning; None where it is not set."""
    parts = [part.strip() for value in values for part in value.split(",")]
    found = [match.group(1) for part in parts if (match := re.fullmatch(r"(?:kube=)?v?1\.(\d+)", part))]
    return int(found[-1]) if found else None


def judge_gate(
    subject: Subject,
    wanted: Mapping[str, bool | None],
    sourced: Mapping[str, bool],
    consent: Iterable[str] = (),
    catalogue: Catalogue | None = None,
) -> list[GateFinding]:
    """All that is to be said about gates wanted on a component (None: taken out), whose sources set others already.

    `consent` names the hazards that the operator takes. Names may have the prefix `kube:`. Of a minor that the catalogue does not cover
    only the component itself can tell what it takes; what needs consent needs it there as well.
    """
    table = catalogue or load()
    found = [*_prefix(subject, wanted, sourced)]
    bare = {name.removeprefix(KUBE): value for name, value in wanted.items()}
    after = {name: value for name, value in sourced.items() if bare.get(name, value) is not None}
    after |= {name: value for name, value in bare.items() if value is not None}
    agreed = {*consent}
    for name, value in after.items():
        if table.covers(subject.minor):
            found += _one(subject, name, value, table, already=name not in bare)
    for name, wish in bare.items():
        stage = subject.stage(name, table)
        # AllBeta=false is not how it is by default: betas that are on go off.
        default = stage.default if stage and name not in SPECIAL else None
        then = default if wish is None else wish
        if then is not None and then is not sourced.get(name, default):
            found += _hazards(subject, name, then, after, agreed, table)
    return [*found, *_dependencies(subject, bare, after, table)] if table.covers(subject.minor) else found


def level(findings: Iterable[GateFinding]) -> Level:
    """What a component does with all of it together."""
    return max((finding.level for finding in findings), default=Level.ACCEPT)


def _prefix(subject: Subject, wanted: Mapping[str, bool | None], sourced: Mapping[str, bool]) -> Iterator[GateFinding]:
    for name in wanted:
        if not name.startswith(KUBE):
            continue
        bare = name.removeprefix(KUBE)
        way_out = f"write {bare}: where a manifest has the prefix, daytwo keeps it"
        if subject.component == "kubelet":
            yield GateFinding(Level.REFUSE, "prefix", name, f"{name}: the kubelet does not know the prefix {KUBE}", way_out)
        elif subject.minor < PREFIX_SINCE:
            message = f"{name}: {subject.told} does not know the prefix {KUBE}, which came with 1.{PREFIX_SINCE}"
            yield GateFinding(Level.REFUSE, "prefix", name, message, way_out)
        elif any(not other.startswith(KUBE) for other in wanted):
            yield GateFinding(Level.REFUSE, "prefix", name, f"{name}: names with and without {KUBE} stand side by side", way_out)


def _one(subject: Subject, name: str, value: bool, table: Catalogue, already: bool) -> Iterator[GateFinding]:
    """One gate that is set after the change. `already`: not by it; then only what stops the component is worth a word."""
    stage = subject.stage(name, table)
    written = f"{name}={_text(value)}"
    out = f"take it out of the sources by --data feature_gates={name}=absent" if already else "take it out of the data"
    if stage is None:
        yield _stranger(subject, name, table, out)
    elif stage.locked and value != stage.default:
        since = _since(table.gate(name), stage, subject)
        message = f"{written}: {subject.told} has it locked to {_text(stage.default)} ({stage.stage}{since})"
        yield GateFinding(Level.REFUSE, "locked", name, message, out)
    elif already or name in SPECIAL:
        return
    elif stage.stage == "Deprecated":
        state = "and so already" if value == stage.default else f"{_text(stage.default)} by default"
        message = f"{written}: it is deprecated in {subject.told}, {state}{_end(table, name, subject)}"
        yield GateFinding(Level.WARN, "deprecated", name, message, out)
    elif stage.stage == "GA":
        if value == stage.default:
            message = f"{written} has no effect: it is GA in {subject.told} and so already{_end(table, name, subject)}"
            yield GateFinding(Level.WARN, "no effect", name, message, out)
        else:
            message = f"{written}: it is GA in {subject.told} and {_text(stage.default)} by default{_end(table, name, subject)}"
            yield GateFinding(Level.WARN, "GA", name, message, "plan to do without")
    elif value == stage.default:
        message = f"{written} has no effect as long as nothing else sets it: it is the default of {subject.told} ({stage.stage})"
        yield GateFinding(Level.ACCEPT, "no effect", name, message)


def _stranger(subject: Subject, name: str, table: Catalogue, out: str) -> GateFinding:
    """Why a component does not know a name, and what may have been meant."""
    gate = table.gate(name)
    if gate is not None and gate.removed_in is not None and subject.minor >= gate.removed_in:
        last = gate.at(gate.removed_in - 1) or gate.steps[-1][1]
        message = f"{name}: {subject.told} does not know it any more: it was removed in 1.{gate.removed_in}, as {last.stage}"
        return GateFinding(Level.REFUSE, "removed", name, f"{message} and {_text(last.default)}", out)
    if gate is not None and (subject.minor < gate.added or gate.at(subject.minor, subject.emulated) is None):
        since = gate.added if subject.minor < gate.added else gate.steps[0][0]
        expected = " (expected: that is not released yet)" if since > table.newest else ""
        message = f"{name}: {subject.told} does not know it yet: it came with 1.{since}{expected}"
        return GateFinding(Level.REFUSE, "not yet there", name, message, f"{out}, or upgrade first")
    if gate is not None:
        return GateFinding(Level.REFUSE, "unknown", name, f"{name}: {subject.told} does not know it, though other components do", out)
    if name in KUBEADM:
        return GateFinding(
            Level.REFUSE,
            "kubeadm's own",
            name,
            f"{name}: it is a gate of kubeadm itself, and no component knows it",
            "give it to kubeadm: featureGates in its ClusterConfiguration, or kubeadm's --feature-gates",
        )
    near = alike(name, subject, table)
    meant = f"did you mean {' or '.join(near)}? Else " if near else ""
    return GateFinding(Level.REFUSE, "unknown", name, f"{name}: {subject.told} does not know it, nor did any minor before", meant + out)


def alike(name: str, subject: Subject, catalogue: Catalogue | None = None) -> list[str]:
    """Up to two gates that this component knows and whose names are nearly `name`."""
    table = catalogue or load()
    known = {other.lower(): other for other in {*SPECIAL, *table.known(subject.minor), *subject.live} if subject.stage(other, table)}
    return [known[near] for near in difflib.get_close_matches(name.lower(), sorted(known), 2, _ALIKE)]


def _since(gate: Gate | None, stage: GateStage, subject: Subject) -> str:
    since = next((minor for minor, step in reversed(gate.steps) if step == stage and minor <= subject.then), None) if gate else None
    return f" since 1.{since}" if since else ""


def _end(table: Catalogue, name: str, subject: Subject) -> str:
    """When its name is a mistake: known, or to be expected."""
    gate = table.gate(name)
    if gate is None or gate.removed_in is None or gate.removed_in <= subject.minor:
        return ""
    return f"; 1.{gate.removed_in} {'is to remove' if gate.removed_in > table.newest else 'removes'} it, and does not start with its name"


def _hazards(
    subject: Subject, name: str, value: bool, after: Mapping[str, bool], consent: set[str], table: Catalogue
) -> Iterator[GateFinding]:
    """What needs consent about a gate that goes from one value to the other."""
    own: list[tuple[Rule, str]] = []
    if name in SPECIAL:
        changed = sorted(
            other
            for other in {*table.known(subject.minor), *subject.live}
            if other not in after
            and (stage := subject.stage(other, table)) is not None
            and stage.stage == SPECIAL[name].stage
            and stage.default != value
            and not stage.locked
        )
        if changed:
            turns = "on" if value else "off"
            own.append(("all of a stage", f"it turns {turns} {len(changed)} gates of {subject.told}: {', '.join(changed)}"))
    stage = subject.stage(name, table)
    if stage is not None and not stage.locked:
        own += [("hazard", hazard.why) for hazard in HAZARDS if hazard.gate == name and hazard.here(subject.then, value)]
    for rule, why in own:
        if name in consent:
            yield GateFinding(Level.ACCEPT, rule, name, f"{name}={_text(value)}: {why} (consented to)")
        else:
            yield GateFinding(
                Level.REFUSE, rule, name, f"{name}={_text(value)}: {why}", f"if that is meant, add --data allow_hazards={name}"
            )


def _enabled(subject: Subject, name: str, gates: Mapping[str, bool], table: Catalogue) -> bool | None:
    """A gate's value under a list of gates; None where the component does not know it."""
    stage = subject.stage(name, table)
    if stage is None:
        return None
    if name in gates:
        return gates[name]
    for special, whole in SPECIAL.items():
        if stage.stage == whole.stage and special in gates:
            return gates[special]
    return stage.default


def _dependencies(
    subject: Subject, wanted: Mapping[str, bool | None], after: Mapping[str, bool], table: Catalogue
) -> Iterator[GateFinding]:
    """Gates that are on after the change though one they depend on is off; what is on by default counts as well."""
    for name in table.known(subject.minor):
        gate = table.gate(name)
        needs = gate.depends_on(subject.minor) if gate else ()
        if not needs or _enabled(subject, name, after, table) is not True:
            continue
        missing = [other for other in needs if _enabled(subject, other, after, table) is False and not _stays(subject, other, table)]
        if not missing:
            continue
        named = name if name in wanted else missing[0]
        if wanted.get(name):
            way_out = f"turn on {' and '.join(missing)} with it: {_flag(dict.fromkeys(missing, True) | {name: True})}"
        else:
            off = {other: False for other in missing if other in wanted} | {name: False}
            way_out = f"turn {name} off with it: {_flag(off)}"
        message = f"{name} is on in {subject.told} and depends on {', '.join(missing)}, which would be off"
        yield GateFinding(Level.REFUSE, "dependency", named, message, way_out)


def _stays(subject: Subject, name: str, table: Catalogue) -> bool:
    """Locked to true: that it cannot be turned off is said already."""
    stage = subject.stage(name, table)
    return stage is not None and stage.locked and stage.default


def _flag(gates: Mapping[str, bool]) -> str:
    return "--data feature_gates=" + ",".join(f"{name}={_text(value)}" for name, value in gates.items())


def _text(value: bool) -> str:
    return "true" if value else "false"
