"""Gates, flags and fields held against a Kubernetes version: the node's own, and the one it is to be upgraded to. Pure.

Sources: k8s.io/component-base/featuregate (Set, locked and removed gates), the catalogue of gates, the kubelet's table of flags and
fields (roles/engine/kubelet/fields.json). What the running process tells of its gates wins over the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roles.audit import parsed
from roles.audit.model import Finding, Severity, SourcedSetting
from roles.audit.view import GATES, View
from roles.engine.editing import FormatError, flags
from roles.engine.kubelet import schema, shown
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
    """The minor of `--data target_version=1.37` (or v1.37.2); None where none is given. Raises ValueError for one that is not known.

    pyinfra makes numbers of what looks so: 1.30 comes here as 1.3.
    """
    if value is None:
        return None
    found = re.fullmatch(r"v?1\.(\d+)(\.\d+)?", str(value).strip())
    known = f"the table has v1.{catalogue.minors[0]} to v1.{catalogue.minors[-1]}"
    if found is None:
        raise ValueError(f"target_version is {value!r}; write a minor release: v1.{catalogue.newest}")
    minor = int(found.group(1))
    if isinstance(value, float) and minor < catalogue.minors[0]:
        raise ValueError(f"target_version is {value}, since pyinfra reads 1.{minor}0 as a number; write v1.{minor}0 ({known})")
    if not catalogue.covers(minor):
        raise ValueError(f"target_version is v1.{minor}, and its gates are not known here: {known}")
    return minor


def findings(view: View, catalogue: Catalogue, target: int | None = None) -> Iterator[Finding]:
    """Of one node."""
    if view.kubelet is None:
        return
    yield from _gates_now(view, catalogue)
    for place in view.gates if target is not None else ():
        yield from gate_then(view.host, place, view.minor(place.component), target or 0, catalogue)
    yield from _flags_now(view)
    yield from _fields(view)
    if target is not None:
        yield from _flags_then(view, target)
        yield from _fields_then(view, target)


# ---- gates


def _gates_now(view: View, catalogue: Catalogue) -> Iterator[Finding]:
    """As the rules of roles/feature_gates/verdict.py judge each place; what beats it does not save a component from a name it refuses."""
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
            judged = judge_gate(subject, {place.name: wanted[place.name]}, wanted, (), catalogue)
            told = [found for found in judged if found.gate == place.name and found.level > Level.ACCEPT]
            # What is refused for itself is not told again for what depends on it.
            alone = [found for found in told if found.level == Level.REFUSE and found.rule != "dependency"]
            for found in told:
                if found in alone or not alone:
                    way_out = (
                        found.way_out.replace("take it out of the data", f"take it out of {place.file}") or f"take it out of {place.file}"
                    )
                    yield _gate(view.host, place, _severity(found), found.message, way_out)
            if place.name in SPECIAL and wanted[place.name]:
                rule = f"{place.name} turns on every gate of its stage that is not set by name, those that an upgrade brings too"
                yield _gate(view.host, place, Severity.warning, rule, "name the gates that are wanted instead")
            yield from _not_read(view.host, place, minor, subject.stage(place.name, catalogue), catalogue)


def _severity(found: GateFinding) -> Severity:
    if found.level == Level.REFUSE:
        return Severity.critical
    return Severity.note if found.rule == "no effect" else Severity.warning


def _not_read(host: str, place: SourcedSetting, minor: int, stage: GateStage | None, catalogue: Catalogue) -> Iterator[Finding]:
    """A gate that a component takes and never asks for; not said of what has no effect anyhow."""
    by = readers(place.name, minor, catalogue)
    if stage is None or stage.locked or not by or place.component in by or (place.value == "true") == stage.default:
        return
    do = "do" if len(by) > 1 else "does"
    rule = f"{place.name}={place.value} has no effect here: in 1.{minor} {place.component} does not read it ({' and '.join(by)} {do})"
    yield _gate(host, place, Severity.note, rule, f"take it out of {place.file}, unless all components are to be alike")


def gate_then(host: str | None, place: SourcedSetting, minor: int | None, target: int, catalogue: Catalogue) -> Iterator[Finding]:
    """What the target does to one place that sets a gate; only what the minor of now (None: not known) does not do already."""
    gate = catalogue.gate(place.name)
    if gate is None or place.component in gate.unknown_to or (minor is not None and (target <= minor or gate.at(minor) is None)):
        return
    now, then, wanted = gate.at(minor) if minor is not None else None, gate.at(target), place.value == "true"
    if then is None:
        yield _gate(
            host,
            place,
            Severity.critical,
            f"v1.{target} does not know it any more (removed in v1.{gate.removed_in}): {place.component} would not start after the upgrade",
            "take it out before the upgrade" + _after_all(gate, wanted),
            kind="target-version",
        )
    elif then.locked and wanted != then.default and not (now and now.locked):
        yield _gate(
            host,
            place,
            Severity.critical,
            f"v1.{target} has it locked to {_text(then.default)} ({then.stage}): {place.component} would not start after the upgrade",
            f"take it out before the upgrade, and see what {place.name}={_text(then.default)} changes first",
            kind="target-version",
        )
    elif then.locked and not (now and now.locked):
        yield _gate(
            host,
            place,
            Severity.note,
            f"v1.{target} has it locked to {_text(then.default)} ({then.stage}): it has no effect any more, and a later release removes it",
            "take it out after the upgrade",
            kind="target-version",
        )


def _after_all(gate: Gate, wanted: bool) -> str:
    last = gate.at((gate.removed_in or 0) - 1)
    if last is None or last.default == wanted:
        return ""
    return f"; without it the feature is {'on' if last.default else 'off'}, and this file has it {'on' if wanted else 'off'}"


def _gate(host: str | None, place: SourcedSetting, severity: Severity, rule: str, way_out: str, kind: Any = "gate") -> Finding:
    return Finding(
        severity=severity,
        kind=kind,
        node=host,
        component=place.component,
        name=place.name,
        file=place.file,
        line=place.line,
        value=f"{place.name}={place.value}",
        rule=rule,
        way_out=way_out,
    )


def _text(value: bool) -> str:
    return "true" if value else "false"


# ---- flags and fields of the kubelet


def _flags_now(view: View) -> Iterator[Finding]:
    minor = view.known_minor
    if minor is None:
        return
    for flag in view.flags:
        gone = _removed(flag.name, minor)
        if gone is not None and gone <= minor:
            yield _flag(
                view,
                flag,
                Severity.note if flag.masked else Severity.critical,
                "field",
                f"v1.{minor} has no such flag any more (removed in v1.{gone}): the kubelet does not start with it",
            )


def _flags_then(view: View, target: int) -> Iterator[Finding]:
    minor = view.known_minor
    if minor is None or target <= minor:
        return
    for flag in view.flags:
        gone = _removed(flag.name, target)
        if gone is not None and minor < gone <= target:
            yield _flag(
                view,
                flag,
                Severity.note if flag.masked else Severity.critical,
                "target-version",
                f"v1.{gone} removes this flag: the kubelet would not start after the upgrade"
                + (f"; its field {field} takes its place" if (field := schema.field_for_flag(minor, flag.name)) else ""),
            )


def _removed(name: str, until: int) -> int | None:
    """The first minor up to `until` that has a flag no more; None where it is still there, or was never known."""
    known = [minor for minor in range(schema.OLDEST, min(until, schema.NEWEST) + 1) if name in schema.flags(minor)]
    return known[-1] + 1 if known and known[-1] < until else None


def _flag(view: View, flag: Any, severity: Severity, kind: Any, rule: str) -> Finding:
    place: SourcedSetting = flag.place
    variable = f" ({place.variable})" if place.variable else ""
    return Finding(
        severity=severity,
        kind=kind,
        node=view.host,
        component="kubelet",
        name=flag.name,
        file=place.file,
        line=place.line,
        value=f"--{flag.name}={flag.value}" if flag.value else f"--{flag.name}",
        rule=rule + ("; another place beats this one today" if flag.masked else ""),
        way_out=f"take it out of {place.file}{variable}",
    )


def _fields(view: View) -> Iterator[Finding]:
    """What the kubelet passes over, or would not take, in its files."""
    minor = view.known_minor
    for path, content, lines in _files(view) if minor is not None else ():
        for problem in schema.check(minor or 0, content):
            line = _line(lines, problem.path)
            yield Finding(
                severity=Severity.warning,
                kind="field",
                node=view.host,
                component="kubelet",
                name=problem.path,
                file=path,
                line=line,
                value=shown(problem.value, problem.path.partition(".")[0])[:80],
                rule=problem.rule,
                way_out=problem.way_out or "take it out",
            )


def _fields_then(view: View, target: int) -> Iterator[Finding]:
    minor = view.known_minor
    if minor is None or not minor < target <= schema.NEWEST:
        return
    for path, content, lines in _files(view):
        now = {problem.path for problem in schema.check(minor, content)}
        for problem in schema.check(target, content):
            if problem.path not in now:
                yield Finding(
                    severity=Severity.warning,
                    kind="target-version",
                    node=view.host,
                    component="kubelet",
                    name=problem.path,
                    file=path,
                    line=_line(lines, problem.path),
                    value=shown(problem.value, problem.path.partition(".")[0])[:80],
                    rule=problem.rule,
                    way_out=problem.way_out or "take it out before the upgrade",
                )


def _files(view: View) -> Iterator[tuple[str, dict[str, Any], Mapping[tuple[str, ...], int]]]:
    found = view.kubelet
    if found is None:
        return
    for path in (*([found.config_path] if found.config_path else []), *found.dropin_paths):
        data = view.seen.data(path) or b""
        try:
            content = parsed.read(data)
            # What is null in a drop-in takes the field away, and is no value of it.
            plain = {key: value for key, value in content.items() if key not in ("kind", "apiVersion", GATES) and value is not None}
            yield path, plain, parsed.lines(data)
        except FormatError:
            continue


def _line(lines: Mapping[tuple[str, ...], int], path: str) -> int | None:
    parts: Sequence[str] = re.sub(r"\[\d+\]", "", path).split(".")
    for length in range(len(parts), 0, -1):
        if (line := lines.get((*parts[: length - 1], ".".join(parts[length - 1 :])))) or (line := lines.get(tuple(parts[:length]))):
            return line
    return None
