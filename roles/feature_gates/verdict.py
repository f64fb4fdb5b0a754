"""Whether a component of a given version accepts its gates, accepts them with a warning, or refuses them; by rule, with the way out. Pure.

The rules come from k8s.io/component-base/featuregate (feature_gate.go, Set and Validate) and k8s.io/component-base/compatibility
(registry.go); the facts about gates from the catalogue. OWN has daytwo's own rules, which no component has: they demand consent to what
a change does to the cluster.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from roles.engine import folding
from roles.engine.editing import KUBE
from roles.engine.kubelet.values import shown
from roles.feature_gates.catalogue import SPECIAL, Catalogue, Gate, GateStage, load
from roles.feature_gates.hazards import HAZARDS, KUBEADM

# The prefix `kube:` came with the registry of components (k8s.io/component-base/compatibility).
PREFIX_SINCE = 31
_ALIKE = 0.75


class Level(IntEnum):
    """ACCEPT: only information; WARN: the component accepts the gate and warns in its log; REFUSE: it does not start."""

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
# daytwo demands consent to these, although every component accepts them.
OWN: frozenset[Rule] = frozenset({"all of a stage", "hazard"})


@dataclass(frozen=True)
class GateFinding:
    """The finding of one rule about one gate; `way_out` is what an operator can do; `mistake`: as Refusal has it. It has a Level, no
    severity: a plan asks whether a gate is refused, and the audit maps them."""

    level: Level
    rule: Rule
    gate: str
    message: str
    way_out: str = ""
    mistake: str = ""

    def __str__(self) -> str:
        return self.message + (f"; {self.way_out}" if self.way_out else "")


@dataclass(frozen=True)
class Subject:
    """One running component. `emulated`: the minor that it emulates (--emulated-version), None for its own; `live`: the gates that the
    component itself reports, which override the catalogue's; None for a gate that it does not know."""

    component: str
    minor: int
    emulated: int | None = None
    live: Mapping[str, GateStage | None] = field(default_factory=dict)

    @property
    def effective_minor(self) -> int:
        return self.minor if self.emulated is None else self.emulated

    @property
    def label(self) -> str:
        emulated = f" that emulates 1.{self.emulated}" if self.emulated not in (None, self.minor) else ""
        return f"{self.component} 1.{self.minor}{emulated}"

    def stage(self, name: str, catalogue: Catalogue) -> GateStage | None:
        """The gate as this component has it; None if it does not know the gate."""
        if name in SPECIAL:
            return SPECIAL[name]
        if name in self.live:
            return self.live[name]
        gate = catalogue.gate(name)
        return gate.at(self.minor, self.emulated) if gate and self.component not in gate.unknown_to else None


def emulated_minor(values: Iterable[str]) -> int | None:
    """The minor of --emulated-version, written as `1.33` or `kube=1.33`; the last one counts; None if it is not set."""
    parts = [part.strip() for value in values for part in value.split(",")]
    found = [match.group(1) for part in parts if (match := re.fullmatch(r"(?:kube=)?v?1\.([0-9]+)", part))]
    return int(found[-1]) if found else None


def judge_gate(
    subject: Subject,
    wanted: Mapping[str, bool | None],
    sourced: Mapping[str, bool],
    consent: Iterable[str] = (),
    catalogue: Catalogue | None = None,
    where: str = "the data",
) -> list[GateFinding]:
    """All findings about the gates wanted on a component (None: removed) whose sources already set others.

    `consent` names the hazards that the operator accepts; `where`: what has the gates that are wanted. Names may have the prefix `kube:`.
    If the catalogue does not cover the minor, only the component itself can say what it accepts; the rules that need consent apply there
    too.
    """
    table = catalogue or load()
    found = [*_prefix(subject, wanted)]
    bare = {name.removeprefix(KUBE): value for name, value in wanted.items()}
    after = {name: value for name, value in sourced.items() if bare.get(name, value) is not None}
    after |= {name: value for name, value in bare.items() if value is not None}
    allowed = {*consent}
    for name, value in after.items():
        if table.covers(subject.minor):
            remove = f"remove it from {where}" if name in bare else f"remove it from the sources with --data feature_gates={name}=absent"
            found += _one(subject, name, value, table, remove, already=name not in bare)
    for name, wanted_value in bare.items():
        stage = subject.stage(name, table)
        # AllBeta=false differs from its default: it turns off the betas that are on.
        default = stage.default if stage and name not in SPECIAL else None
        new_value = default if wanted_value is None else wanted_value
        if new_value is not None and new_value is not sourced.get(name, default):
            found += _hazards(subject, name, new_value, after, allowed, table)
    return [*found, *_dependencies(subject, bare, after, table)] if table.covers(subject.minor) else found


def _prefix(subject: Subject, wanted: Mapping[str, bool | None]) -> Iterator[GateFinding]:
    for name in wanted:
        if not name.startswith(KUBE):
            continue
        bare = name.removeprefix(KUBE)
        way_out = f"write {bare}: if a manifest has the prefix, daytwo keeps it"
        if subject.component == "kubelet":
            yield GateFinding(Level.REFUSE, "prefix", name, f"{name}: the kubelet does not know the prefix {KUBE}", way_out)
        elif subject.minor < PREFIX_SINCE:
            message = f"{name}: {subject.label} does not know the prefix {KUBE}, which came with 1.{PREFIX_SINCE}"
            yield GateFinding(Level.REFUSE, "prefix", name, message, way_out)
        elif any(not other.startswith(KUBE) for other in wanted):
            yield GateFinding(Level.REFUSE, "prefix", name, f"{name}: names with and without {KUBE} are mixed", way_out)


def _one(subject: Subject, name: str, value: bool, table: Catalogue, remove: str, *, already: bool) -> Iterator[GateFinding]:
    """One gate that is set after the change. `already`: the change does not set it; then only refusals are reported."""
    stage = subject.stage(name, table)
    written = f"{name}={shown(value)}"
    if stage is None:
        yield _unknown(subject, name, table, remove)
    elif stage.locked and value != stage.default:
        since = _since(table.gate(name), stage, subject)
        locked = f"it is locked to {shown(stage.default)} ({stage.stage}{since})"
        mistake = f"{_first(remove, name)}: in 1.{subject.effective_minor} {locked}"
        yield GateFinding(Level.REFUSE, "locked", name, f"{written}: in {subject.label} {locked}", remove, mistake)
    elif already or name in SPECIAL:
        return
    elif stage.stage == "Deprecated":
        state = "where that is the default" if value == stage.default else f"{shown(stage.default)} by default"
        message = f"{written}: it is deprecated in {subject.label}, {state}{_removal(table, name, subject)}"
        yield GateFinding(Level.WARN, "deprecated", name, message, remove)
    elif stage.stage == "GA":
        if value == stage.default:
            message = f"{written} has no effect: it is GA in {subject.label}, where that is the default{_removal(table, name, subject)}"
            yield GateFinding(Level.WARN, "no effect", name, message, remove)
        else:
            message = f"{written}: it is GA in {subject.label} and {shown(stage.default)} by default{_removal(table, name, subject)}"
            yield GateFinding(Level.WARN, "GA", name, message, "plan to remove it")
    elif value == stage.default:
        message = f"{written} has no effect unless another source sets the gate: it is the default of {subject.label} ({stage.stage})"
        yield GateFinding(Level.ACCEPT, "no effect", name, message)


def _unknown(subject: Subject, name: str, table: Catalogue, remove: str) -> GateFinding:
    """Why a component does not know a name, and which names are similar."""
    gate = table.gate(name)
    if gate is not None and gate.removed_in is not None and subject.minor >= gate.removed_in:
        last = gate.at(gate.removed_in - 1) or gate.steps[-1][1]
        removed = f"it was removed in 1.{gate.removed_in}, as {last.stage} and {shown(last.default)} by default"
        message = f"{name}: {subject.label} no longer knows it: {removed}"
        return GateFinding(Level.REFUSE, "removed", name, message, remove, f"{_first(remove, name)}: {removed}")
    if gate is not None and (subject.minor < gate.added or gate.at(subject.minor, subject.emulated) is None):
        since = gate.added if subject.minor < gate.added else gate.steps[0][0]
        expected = " (expected: not released yet)" if since > table.newest else ""
        message = f"{name}: {subject.label} does not know it yet: it came with 1.{since}{expected}"
        mistake = f"{_first(remove, name)}, or upgrade first: it came with 1.{since}{expected}"
        return GateFinding(Level.REFUSE, "not yet there", name, message, f"{remove}, or upgrade first", mistake)
    if gate is not None:
        return GateFinding(Level.REFUSE, "unknown", name, f"{name}: {subject.label} does not know it, though other components do", remove)
    if name in KUBEADM:
        return GateFinding(
            Level.REFUSE,
            "kubeadm's own",
            name,
            f"{name}: it is a gate of kubeadm itself, and no component knows it",
            "set it for kubeadm: featureGates in its ClusterConfiguration, or kubeadm's --feature-gates",
        )
    near = alike(name, subject, table)
    meant = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
    message = f"{name}: {subject.label} does not know it, and no other minor does"
    mistake = f"{' or '.join(near)}? You wrote {name}" if near else f"Remove {name} from the data: no version of any component knows it"
    return GateFinding(Level.REFUSE, "unknown", name, message, meant + remove, mistake)


def _first(remove: str, name: str) -> str:
    """The way out where nothing has named the gate before."""
    return remove.replace("remove it", f"Remove {name}", 1)


def alike(name: str, subject: Subject, catalogue: Catalogue | None = None) -> list[str]:
    """Up to two gates that this component knows and whose names are similar to `name`."""
    table = catalogue or load()
    known = {other.lower(): other for other in {*SPECIAL, *table.known(subject.minor), *subject.live} if subject.stage(other, table)}
    return [known[near] for near in difflib.get_close_matches(name.lower(), sorted(known), 2, _ALIKE)]


def _since(gate: Gate | None, stage: GateStage, subject: Subject) -> str:
    since = (
        next((minor for minor, step in reversed(gate.steps) if step == stage and minor <= subject.effective_minor), None) if gate else None
    )
    return f" since 1.{since}" if since else ""


def _removal(table: Catalogue, name: str, subject: Subject) -> str:
    """The minor that removes the gate, known or expected."""
    gate = table.gate(name)
    if gate is None or gate.removed_in is None or gate.removed_in <= subject.minor:
        return ""
    removes = "is expected to remove" if gate.removed_in > table.newest else "removes"
    return f"; 1.{gate.removed_in} {removes} it, and does not start while it is set"


def _hazards(
    subject: Subject, name: str, value: bool, after: Mapping[str, bool], consent: set[str], table: Catalogue
) -> Iterator[GateFinding]:
    """What needs consent about a gate whose value changes."""
    reasons: list[tuple[Rule, str]] = []
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
            # A plan names all of them: whoever consents can read them there.
            names = ", ".join(changed) if name in consent or folding.verbose() else folding.shortened(changed)
            reasons.append(("all of a stage", f"it turns {'on' if value else 'off'} {len(changed)} gates of {subject.label}: {names}"))
    stage = subject.stage(name, table)
    if stage is not None and not stage.locked:
        reasons += [("hazard", hazard.why) for hazard in HAZARDS if hazard.gate == name and hazard.applies(subject.effective_minor, value)]
    for rule, why in reasons:
        if name in consent:
            yield GateFinding(Level.ACCEPT, rule, name, f"{name}={shown(value)}: {why} (allowed by allow_hazards)")
        else:
            yield GateFinding(Level.REFUSE, rule, name, f"{name}={shown(value)}: {why}", f"to accept that, add --data allow_hazards={name}")


def _enabled(subject: Subject, name: str, gates: Mapping[str, bool], table: Catalogue) -> bool | None:
    """A gate's value under a list of gates; None if the component does not know the gate."""
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
    """Gates that are on after the change, also by default, although one of their dependencies is off."""
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
            way_out = f"turn on {' and '.join(missing)} too: {_flag(dict.fromkeys(missing, True) | {name: True})}"
        else:
            off = {other: False for other in missing if other in wanted} | {name: False}
            way_out = f"turn {name} off too: {_flag(off)}"
        message = f"{name} is on in {subject.label} and depends on {', '.join(missing)}, which would be off"
        yield GateFinding(Level.REFUSE, "dependency", named, message, way_out)


def _stays(subject: Subject, name: str, table: Catalogue) -> bool:
    """The gate is locked to true: the rule "locked" already refuses to turn it off."""
    stage = subject.stage(name, table)
    return stage is not None and stage.locked and stage.default


def _flag(gates: Mapping[str, bool]) -> str:
    return "--data feature_gates=" + ",".join(f"{name}={shown(value)}" for name, value in gates.items())
