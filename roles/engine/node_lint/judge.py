"""All that is wrong on one node: changes in flight, processes that differ from their files (a missing daemon-reload, a kubelet or a static
pod that was not restarted since), and files (files.py). Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roles.engine.api import GateMetric
from roles.engine.control_plane import Component, ManifestFile
from roles.engine.editing import FormatError, flags, kubelet_config, manifest, unit
from roles.engine.findings import Finding, Place, Severity
from roles.engine.kubelet import Kubelet, kubelet_plan
from roles.engine.kubelet.pending import GATES, Pending, pending_arguments, pending_settings, younger_files
from roles.engine.kubelet.values import shown
from roles.engine.node import Observation
from roles.engine.node_lint import files
from roles.engine.node_lint.rules import NodeRule
from roles.engine.transaction import Refusal, in_flight

_KUBELET = "kubelet"
ACTIVE = "/var/lib/daytwo/active"


def lint(
    seen: Observation,
    kubelet: Kubelet | None = None,
    components: Mapping[str, Component] | None = None,
    refusals: Mapping[str, Refusal] | None = None,
    manifests: Sequence[ManifestFile] = (),
    configuration: Mapping[str, Any] | str | None = None,
    gates: Mapping[str, GateMetric] | str | None = None,
) -> list[Finding]:
    """The findings of one node; without a kubelet only those that need none. `refusals`: by component, why its manifest is not clear
    (control_plane.look); `manifests`: all of their directory; `configuration`, `gates`: what the kubelet runs with (else not known)."""
    found = [*_in_flight(seen), *_unread_unit(seen)]
    if kubelet is not None:
        strays = [*files.manifests(kubelet, manifests)]
        known = None if isinstance(configuration, str) else configuration
        running = {} if gates is None or isinstance(gates, str) else gates
        found += [*_kubelet(kubelet, known, running), *strays, *files.dropins(kubelet)]
        found += [one for each in (components or {}).values() for one in _component(each)]
        # Two files for a pod, or one that cannot be read, are the cause.
        if not any(one.rule in (NodeRule.TWIN, NodeRule.BROKEN) for one in strays):
            for name, refusal in (refusals or {}).items():
                where = Place(seen.host, name, file=kubelet.manifests)
                found.append(NodeRule.COMPONENT.found(where, refusal.message, refusal.way_out))
    return found


def _in_flight(seen: Observation) -> Iterator[Finding]:
    for one in in_flight(seen.changes, seen.boot_id, seen.uptime):
        failed, log = one.state == "revert-failed", f"/var/lib/daytwo/changes/{one.name}/log"
        way_out = f"{log} says why; change.sh in the same directory has the verbs status and revert" if failed else ""
        where = Place(seen.host, name=one.name, file=posixpath.join(ACTIVE, one.name), value=one.state or "no record")
        yield NodeRule.IN_FLIGHT.found(where, str(one), way_out, Severity.critical if failed else None)


def _unread_unit(seen: Observation) -> Iterator[Finding]:
    """What of the kubelet's unit systemd has not read."""
    if seen.unit is None or not seen.unit.unread:
        return
    read = (seen.unit.fragment, *seen.unit.dropins)
    new = [
        posixpath.join(folder, name)
        for folder, names in seen.directories.items()
        if posixpath.basename(folder) == f"{seen.unit.name}.d"
        for name in names
        if name.endswith(".conf") and name not in map(posixpath.basename, seen.unit.dropins)
    ]
    gone = [path for path in read if seen.data(path) is None]
    if not new and not gone:
        # systemd does not say which file was edited; the one that was written last is the most likely.
        there = [file for path in read if (file := seen.file(path)) is not None]
        gone = [max(there, key=lambda file: file.mtime).path] if there else [seen.unit.fragment]
    for path in (*new, *gone):
        data = seen.data(path)
        what = "is new" if path in new else "is gone" if data is None else "was written"
        line = files.first_entry(unit.UnitFile(path, data)) if data is not None else None
        yield NodeRule.UNIT.found(
            Place(seen.host, _KUBELET, None, path, line, f"NeedDaemonReload=yes, {path} {what}"),
            f"{seen.unit.unread}: a restart of the kubelet still uses the old unit, and the next daemon-reload loads the new one",
        )


def _kubelet(found: Kubelet, configuration: Mapping[str, Any] | None, gates: Mapping[str, GateMetric]) -> Iterator[Finding]:
    """`configuration`: what it runs with (/configz), None: not known; `gates`: of its /metrics, as far as they are known."""
    host, process = found.seen.host, found.process
    if process.binary_replaced:
        value = f"runs {process.version or 'the old binary'}, the file is {process.next_version or 'of an unknown version'}"
        yield NodeRule.BINARY.found(Place(host, _KUBELET, file=process.binary, value=value), kubelet_plan.another_binary(found))
    known = configuration if found.is_known else None
    try:
        differ = [*_arguments(found), *_settings(found, known, gates)]
    except FormatError as error:
        differ = [NodeRule.UNKNOWN.found(Place(host, _KUBELET), f"the values in the kubelet's files are not known: {error}")]
    yield from differ
    named = {one.place.file for one in differ}
    yield from (one for one in _younger(found, known is not None) if one.place.file not in named)


def _arguments(found: Kubelet) -> Iterator[Finding]:
    for one in pending_arguments(found) or ():
        path, line = _flag_place(found, one.name)
        value = " ".join(one.words(one.then or one.now))
        where = Place(found.seen.host, _KUBELET, one.name or None, path, line, value)
        yield NodeRule.ARGUMENT.found(where, f"the kubelet's arguments differ from its unit, and a restart applies {one}")


def _flag_place(found: Kubelet, name: str) -> tuple[str, int | None]:
    """Where its unit sets a flag last; without it, its command."""
    for word in reversed(found.service.argv):
        if name and flags.name_of(word.text) == name:
            return word.origin.path, found.line_of(word.origin, word.mapped)
    return found.service.command_path, found.service.command.line


def _settings(found: Kubelet, configuration: Mapping[str, Any] | None, gates: Mapping[str, GateMetric]) -> Iterator[Finding]:
    for one in pending_settings(found, configuration) if configuration is not None else ():
        if one.name != GATES:
            yield _setting(found, one, one.name, tuple(one.name.split(".")))
            continue
        for gate in _gates(found, one, gates):
            name = gate.name.partition(".")[2]
            yield _setting(found, gate, name, (GATES, name), f"{name}={shown(gate.value)}")


def _setting(found: Kubelet, one: Pending, name: str, path: tuple[str, ...], value: str = "") -> Finding:
    by_flag = one.where.startswith("--")
    file, line = _flag_place(found, one.where.removeprefix("--")) if by_flag else (found.config_path, None)
    for source in () if by_flag else found.config_paths:
        lines = kubelet_config.lines(found.seen.data(source) or b"")
        file, line = (source, lines[path]) if path in lines else (file, line)
    where = Place(found.seen.host, _KUBELET, name, file, line, value or f"{name}: {shown(one.value, name)}")
    return NodeRule.SETTING.found(where, str(one))


def _gates(found: Kubelet, all_of_them: Pending, running: Mapping[str, GateMetric]) -> Iterator[Pending]:
    """Each gate by itself, unless /metrics have its value: one that a file has meanwhile, with the value of its default, changes nothing.
    What no source has any longer counts only if a file was written after the start."""
    then, now = all_of_them.value or {}, all_of_them.now or {}
    gone = [name for name in now if name not in then] if younger_files(found) else []
    for name in (*then, *gone):
        wanted, has = then.get(name), now.get(name)
        if wanted != has and not (name in running and running[name].enabled == wanted):
            yield Pending(f"{GATES}.{name}", wanted, has, "--feature-gates" if name in found.flag_gates else "its files")


def _younger(found: Kubelet, known: bool) -> Iterator[Finding]:
    """Files that were written after the process started, whether or not their values differ. `known`: its fields were compared."""
    variables = (file.path for file in found.service.environment_files if file.present)
    younger = dict.fromkeys(younger_files(found), known)
    younger |= {path: pending_arguments(found) is not None for path in variables if found.seen.is_younger(path, found.process)}
    for path, compared in younger.items():
        file = found.seen.file(path)
        assert file is not None  # it is younger
        value = f"written {file.mtime - found.seen.started_at(found.process):.0f} s after the kubelet started"
        what = "all its values that can be compared are in effect" if compared else "whether its values are in effect is not known"
        where = Place(found.seen.host, _KUBELET, file=path, value=value)
        why = f"the file was changed after the kubelet started, which reads it only at its start; {what}"
        yield NodeRule.YOUNGER.found(where, why, severity=Severity.note if compared else None)


def _component(found: Component) -> Iterator[Finding]:
    """A component whose process does not have the arguments of its manifest, one for each that differs. A word with a variable is not
    compared."""
    variable = any("$(" in word for word in found.argv)
    more = [word for word in found.argv if word not in found.process.argv and "$(" not in word]
    less = [] if variable else [word for word in found.process.argv if word not in found.argv]
    if found.manifest_path is None or found.argv == found.process.argv or (variable and not more):
        return
    with_less = f" (it runs with {' '.join(less)})" if less and more else ""
    why = f"the arguments of {found.name} differ from its manifest{with_less}: the kubelet has not applied the manifest"
    lines = dict(manifest.argument_lines(found.data, found.container))
    for word in more or found.argv[:1]:
        flag = re.match(r"--([A-Za-z0-9_-]+)", word)
        value = word if more else f"without {' '.join(less)}"
        where = Place(found.host, found.name, flag and flag[1], found.manifest_path, lines.get(word), value)
        yield NodeRule.MANIFEST.found(where, why)
