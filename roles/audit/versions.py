"""Checks gates, flags and fields against a Kubernetes version: the node's own, and the target of an upgrade. Pure.

Sources: k8s.io/component-base/featuregate (Set, locked and removed gates), the catalogue of gates, the kubelet's table of flags and
fields (roles/engine/kubelet/fields.json). What the running process reports about its gates wins over the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roles.audit import parsed
from roles.audit.model import SourcedSetting
from roles.audit.node_view import GATES, NodeView
from roles.audit.rules import AuditRule
from roles.engine.editing import FormatError, flags
from roles.engine.findings import Finding, Place, Severity
from roles.engine.kubelet import schema
from roles.engine.kubelet.values import shown
from roles.feature_gates import (
    SPECIAL,
    Catalogue,
    Gate,
    GateFinding,
    GateStage,
    Level,
    Subject,
    emulated_minor,
    judge_gate,
    overlay,
    readers,
)


def parse_target(value: Any, catalogue: Catalogue) -> int | None:
    """The minor of `--data target_version=1.37` (or v1.37.2); None if it is not given. Raises ValueError for an unknown minor.

    pyinfra converts values that look like numbers: 1.30 arrives as 1.3.
    """
    if value is None:
        return None
    found = re.fullmatch(r"v?1\.([0-9]+)(\.[0-9]+)?", str(value).strip())
    known = f"the table has v1.{catalogue.minors[0]} to v1.{catalogue.minors[-1]}"
    if found is None:
        raise ValueError(f"target_version is {value!r}; write a minor release: v1.{catalogue.newest}")
    minor = int(found.group(1))
    if isinstance(value, float) and minor < catalogue.minors[0]:
        raise ValueError(f"target_version is {value}, since pyinfra reads 1.{minor}0 as a number; write v1.{minor}0 ({known})")
    if not catalogue.covers(minor):
        raise ValueError(f"target_version is v1.{minor}; its gates are not known: {known}")
    return minor


def findings(view: NodeView, catalogue: Catalogue, target: int | None = None) -> Iterator[Finding]:
    """The findings of one node."""
    if not view.is_read:
        return
    yield from _gates_now(view, catalogue)
    for place in view.gates if target is not None else ():
        yield from gate_then(view.host, place, view.minor(place.component), target or 0, catalogue)
    yield from _flags(view, target)
    yield from _fields(view, target)


# ---- gates


def _gates_now(view: NodeView, catalogue: Catalogue) -> Iterator[Finding]:
    """Judges each source by the rules of roles/feature_gates/verdict.py: a component refuses a bad name even if another source
    overrides it."""
    for component, process in view.processes.items():
        minor = process.minor
        if minor is None or not catalogue.covers(minor):
            continue
        places = [place for place in view.gates if place.component == component]
        effective = {place.name: place.value == "true" for place in places if place.counts}
        emulated = emulated_minor(flags.flag_values(process.argv, "emulated-version"))
        live = overlay(component, minor, view.running.get(component) or {}, {}, effective, emulated, catalogue)
        subject = Subject(component, minor, emulated, live)
        for place in places:
            wanted = {**effective, place.name: place.value == "true"}
            judged = judge_gate(subject, {place.name: wanted[place.name]}, wanted, (), catalogue, place.file)
            problems = [found for found in judged if found.gate == place.name and found.level > Level.ACCEPT]
            # A gate that is refused for itself is not reported again for its dependencies.
            alone = [found for found in problems if found.level == Level.REFUSE and found.rule != "dependency"]
            for found in problems:
                if found in alone or not alone:
                    way_out = found.way_out or f"remove it from {place.file}"
                    yield _gate(view.host, place, _severity(found), found.message, way_out)
            if place.name in SPECIAL and wanted[place.name]:
                rule = f"{place.name} turns on every gate of its stage that is not set by name, including those that an upgrade adds"
                yield _gate(view.host, place, Severity.warning, rule, "set the gates that you want by name instead")
            yield from _not_read(view.host, place, minor, subject.stage(place.name, catalogue), catalogue)


def _severity(found: GateFinding) -> Severity:
    if found.level == Level.REFUSE:
        return Severity.critical
    return Severity.note if found.rule == "no effect" else Severity.warning


def _not_read(host: str, place: SourcedSetting, minor: int, stage: GateStage | None, catalogue: Catalogue) -> Iterator[Finding]:
    """A gate that a component accepts and does not read; nothing if the value has no effect anyway."""
    by = readers(place.name, minor, catalogue)
    if stage is None or stage.locked or not by or place.component in by or (place.value == "true") == stage.default:
        return
    do = "do" if len(by) > 1 else "does"
    rule = f"{place.name}={place.value} has no effect here: in 1.{minor} {place.component} does not read it ({' and '.join(by)} {do})"
    yield _gate(host, place, Severity.note, rule, f"remove it from {place.file}, unless all components should have the same gates")


def gate_then(host: str | None, place: SourcedSetting, minor: int | None, target: int, catalogue: Catalogue) -> Iterator[Finding]:
    """What the target does to one source that sets a gate, if the current minor (None: unknown) does not already do it."""
    gate = catalogue.gate(place.name)
    if gate is None or place.component in gate.unknown_to or (minor is not None and (target <= minor or gate.at(minor) is None)):
        return
    now, then, wanted = gate.at(minor) if minor is not None else None, gate.at(target), place.value == "true"
    if then is None:
        rule = f"v1.{target} no longer knows it (removed in v1.{gate.removed_in}): {place.component} would not start after the upgrade"
        way_out = f"remove it before the upgrade{_after_all(gate, wanted)}"
        yield _gate(host, place, Severity.critical, rule, way_out, AuditRule.TARGET_VERSION)
    elif then.locked and not (now and now.locked):
        rule, default = f"in v1.{target} it is locked to {shown(then.default)} ({then.stage})", f"{place.name}={shown(then.default)}"
        if wanted != then.default:
            rule += f": {place.component} would not start after the upgrade"
            way_out = f"remove it before the upgrade; check first what {default} changes"
            yield _gate(host, place, Severity.critical, rule, way_out, AuditRule.TARGET_VERSION)
        else:
            rule += ": it no longer has an effect; a later release removes it"
            yield _gate(host, place, Severity.note, rule, "remove it after the upgrade", AuditRule.TARGET_VERSION)


def _after_all(gate: Gate, wanted: bool) -> str:
    last = gate.at((gate.removed_in or 0) - 1)
    if last is None or last.default == wanted:
        return ""
    return f"; without it the feature is {'on' if last.default else 'off'}, with it {'on' if wanted else 'off'}"


def _gate(
    host: str | None, place: SourcedSetting, severity: Severity, rule: str, way_out: str, kind: AuditRule = AuditRule.GATE
) -> Finding:
    where = Place(host, place.component, place.name, place.file, place.line, f"{place.name}={place.value}")
    return kind.found(where, rule, way_out, severity)


# ---- flags and fields of the kubelet


def _flags(view: NodeView, target: int | None) -> Iterator[Finding]:
    """Flags that the node's own version no longer has, and those that the target removes."""
    if (minor := view.known_minor) is None:
        return
    for flag in view.flags:
        gone = _removed(flag.name, max(minor, target or minor))
        if gone is not None and gone <= minor:
            rule = f"v1.{minor} no longer has this flag (removed in v1.{gone}): the kubelet does not start with it"
            yield _flag(view, flag, AuditRule.FIELD, rule)
        elif gone is not None:
            field = schema.field_for_flag(minor, flag.name)
            rule = f"v1.{gone} removes this flag: the kubelet would not start after the upgrade"
            yield _flag(view, flag, AuditRule.TARGET_VERSION, rule + (f"; the field {field} replaces it" if field else ""))


def _removed(name: str, until: int) -> int | None:
    """The first minor up to `until` that no longer has a flag; None if `until` still has it, or no minor had it."""
    known = [minor for minor in range(schema.OLDEST, min(until, schema.NEWEST) + 1) if name in schema.flags(minor)]
    return known[-1] + 1 if known and known[-1] < until else None


def _flag(view: NodeView, flag: Any, kind: AuditRule, rule: str) -> Finding:
    place: SourcedSetting = flag.place
    variable = f" ({place.variable})" if place.variable else ""
    return kind.found(
        view.at("kubelet", flag.name, place, f"--{flag.name}={flag.value}" if flag.value else f"--{flag.name}"),
        rule + ("; another source overrides this one today" if flag.masked else ""),
        f"remove it from {place.file}{variable}",
        Severity.note if flag.masked else Severity.critical,
    )


def _fields(view: NodeView, target: int | None) -> Iterator[Finding]:
    """Fields in the kubelet's files that the kubelet ignores or rejects, now or after the upgrade."""
    if (minor := view.known_minor) is None:
        return
    for path, content, lines in _files(view):
        now = schema.check(minor, content)
        yield from (_field(view, AuditRule.FIELD, problem, path, lines) for problem in now)
        if target is not None and minor < target <= schema.NEWEST:
            known = {problem.path for problem in now}
            then = [problem for problem in schema.check(target, content) if problem.path not in known]
            yield from (_field(view, AuditRule.TARGET_VERSION, problem, path, lines) for problem in then)


def _field(view: NodeView, kind: AuditRule, problem: schema.FieldProblem, path: str, lines: Mapping[tuple[str, ...], int]) -> Finding:
    value = shown(problem.value, problem.path.partition(".")[0])[:80]
    where = Place(view.host, "kubelet", problem.path, path, _line(lines, problem.path), value)
    return kind.found(where, problem.rule, problem.way_out or "")


def _files(view: NodeView) -> Iterator[tuple[str, dict[str, Any], Mapping[tuple[str, ...], int]]]:
    for path in view.kubelet.config_paths:
        data = view.seen.data(path) or b""
        try:
            content = parsed.read(data)
            # A null in a drop-in removes the field; it is not a value.
            plain = {key: value for key, value in content.items() if key not in ("kind", "apiVersion", GATES) and value is not None}
            yield path, plain, parsed.lines(data)
        except FormatError:
            continue


def _line(lines: Mapping[tuple[str, ...], int], path: str) -> int | None:
    parts: Sequence[str] = re.sub(r"\[[0-9]+\]", "", path).split(".")
    for length in range(len(parts), 0, -1):
        if (line := lines.get((*parts[: length - 1], ".".join(parts[length - 1 :])))) or (line := lines.get(tuple(parts[:length]))):
            return line
    return None
