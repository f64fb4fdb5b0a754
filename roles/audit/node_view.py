"""One node as an audit sees it: every source that sets a gate or a field, with its line. Pure, from one observation.

A role that changes a node refuses what it cannot read for certain. The audit reads all that it can, and reports the rest as unknown.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roles.audit import parsed
from roles.audit.model import NodeKind, SourcedSetting, SourceKind
from roles.engine import kubelet
from roles.engine.api import GateMetric
from roles.engine.control_plane import Component, ManifestFile, look, manifest_files
from roles.engine.editing import FormatError, Mapped, envfile, flags, manifest, unit, words
from roles.engine.findings import Place
from roles.engine.kubelet import Kubelet, as_value, schema
from roles.engine.kubelet.pending import reads_as_unset, with_fields
from roles.engine.kubelet.values import SECRETS, lookup, shown
from roles.engine.node import Observation, Process
from roles.engine.transaction import Refusal

GATES = "featureGates"


@dataclass(frozen=True)
class FlagSource:
    """One flag of a component's command line, or of a variable that another source overrides (`masked`)."""

    name: str
    value: str
    place: SourcedSetting
    masked: bool = False


@dataclass(frozen=True)
class NodeView:
    """A node. `unclear`: why the manifest of a component is not, by its name; `manifests`: all of their directory; `gates` and `settings`:
    each source that sets something, weakest first. `running`: gates by component (/metrics), empty if the API could not be asked;
    `configuration`: what the kubelet runs with (/configz), then None."""

    host: str
    groups: tuple[str, ...]
    seen: Observation
    kind: NodeKind
    refusal: Refusal | None = None
    found: Kubelet | None = None
    components: Mapping[str, Component] = field(default_factory=dict)
    unclear: Mapping[str, Refusal] = field(default_factory=dict)
    manifests: tuple[ManifestFile, ...] = ()
    gates: tuple[SourcedSetting, ...] = ()
    settings: tuple[SourcedSetting, ...] = ()
    flags: tuple[FlagSource, ...] = ()
    running: Mapping[str, Mapping[str, GateMetric]] = field(default_factory=dict)
    configuration: Mapping[str, Any] | None = None

    def as_worker(self) -> NodeView:
        """The node without components of the control plane: a host that the inventory does not have in that group only claims them."""
        return replace(self, components={}, unclear={}, gates=tuple(one for one in self.gates if one.component == "kubelet"))

    def at(self, component: str, name: str, source: SourcedSetting | None, value: str | None, home: str | None = None) -> Place:
        """Where a setting is; `home`: the file that would have it if no source has."""
        return Place(self.host, component, name, source.file if source else home, source.line if source else None, value)

    @property
    def is_read(self) -> bool:
        """Its kubelet is known."""
        return self.found is not None

    @property
    def kubelet(self) -> Kubelet:
        """Of a node that is read."""
        assert self.found is not None
        return self.found

    @property
    def why(self) -> str:
        """Why it is not of a kind that daytwo knows, or could not be read; "" for others."""
        return self.refusal.text if self.refusal else ""

    @property
    def processes(self) -> dict[str, Process]:
        found = {"kubelet": self.kubelet.process} if self.is_read else {}
        return found | {name: component.process for name, component in self.components.items()}

    def minor(self, component: str) -> int | None:
        """36 for v1.36.3; None if the version of the process is unknown."""
        process = self.processes.get(component)
        return process.minor if process else None

    @property
    def known_minor(self) -> int | None:
        """The kubelet's minor, None if its fields and flags are not known."""
        minor = self.minor("kubelet")
        return minor if minor is not None and schema.OLDEST <= minor <= schema.NEWEST else None

    def winner(self, component: str, gate: str) -> SourcedSetting | None:
        """The source that counts for a gate."""
        return next((one for one in self.gates if (one.component, one.name, one.counts) == (component, gate, True)), None)

    def setting(self, name: str) -> SourcedSetting | None:
        """The source that counts for a field, or for a part of it."""
        inside = [one for one in self.settings if one.counts and (one.name == name or one.name.startswith(f"{name}."))]
        return inside[0] if inside else None

    def gate(self, component: str, name: str) -> bool | None:
        """The effective value of a gate; if unknown, the value of its sources; None if they do not set it."""
        running = self.running.get(component, {}).get(name)
        if running is not None:
            return running.enabled
        found = self.winner(component, name)
        return None if found is None else found.value == "true"

    @property
    def effective(self) -> dict[str, Any]:
        """The kubelet's effective fields, nested; if unknown, the result of its sources and the defaults."""
        if self.configuration is not None:
            return dict(self.configuration)
        if not self.is_read:
            return {}
        if (minor := self.known_minor) is None:
            return dict(self.kubelet.configuration)
        known = ((schema.flags(minor).get(flag.name), flag) for flag in self.flags if not flag.masked)
        given = {one.field: _value(one, flag.name, flag.value) for one, flag in known if one and one.field and one.field != GATES}
        made = with_fields(self.kubelet.configuration, given)
        # A kubelet with --config fills in its defaults, and /configz has them.
        fields = schema.fields(minor) if self.kubelet.config_path else {}
        unset = (one for one in fields.values() if one.default and "[]" not in one.path and reads_as_unset(one, lookup(made, one.path)))
        return with_fields(made, {one.path: one.default for one in unset})


def wanted(seen: Observation) -> tuple[list[str], list[str]]:
    """The files and directories of a kubelet's observation, and in addition all files in the drop-in directories of its unit and of its
    configuration."""
    files, directories = kubelet.wanted(seen)
    found = list(directories)
    if seen.unit is not None:
        name = seen.unit.name
        found += [f"{folder}/{name}.d" for folder in ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")]
        found += [posixpath.dirname(path) for path in seen.unit.dropins]
    if seen.kubelet is not None and (folder := flags.last_flag(seen.kubelet.argv, "config-dir")):
        found.append(posixpath.normpath(folder))
    return files, [path for path in dict.fromkeys(found) if path in directories or not _listed_whole(seen, path)]


def _listed_whole(seen: Observation, path: str) -> bool:
    # The kubelet's observation lists only *.conf in the configuration's drop-in directory.
    config_dir = flags.last_flag(seen.kubelet.argv, "config-dir") if seen.kubelet else None
    return path in seen.directories and path != posixpath.normpath(config_dir or "/")


def view_of(seen: Observation, groups: Sequence[str] = ()) -> NodeView:
    """A node, without what its running processes report. Raises Refusal if it could not be read: without root."""
    if seen.uid != 0:
        raise Refusal(seen.host, f"daytwo needs root on the node and runs as uid {seen.uid}", "set _sudo = True in the inventory's data")
    made = NodeView(seen.host, tuple(groups), seen, "unreadable")
    try:
        found = kubelet.find(seen, to_change=False)
    except Refusal as refusal:
        unsupported = isinstance(refusal, kubelet.UnsupportedNode)
        return replace(made, kind="unsupported" if unsupported else "unreadable", refusal=refusal)
    made = replace(made, kind=found.style, found=found, manifests=tuple(manifest_files(found)))
    control = look(found, to_change=False)
    made = replace(made, components=control.components, unclear=control.refusals)
    flag_list = tuple(_flags(found))
    gates = tuple(_counted([*_kubelet_gates(found), *(gate for one in made.components.values() for gate in _component_gates(one))]))
    made = replace(made, gates=gates, flags=flag_list)
    return replace(made, settings=tuple(_settings(made, found)))


# ---- static pods


def _component_gates(component: Component) -> Iterator[SourcedSetting]:
    if component.manifest_path is None:
        return
    try:
        arguments = manifest.argument_lines(component.data, component.container)
        listed = [Mapped.of(word.encode("utf-8", "surrogateescape"), source=str(line)) for word, line in arguments]
        for flag in flags.gate_flags(listed):
            for item in flag.items:
                line = int(flag.words[-1].source)
                yield SourcedSetting(
                    component=component.name,
                    name=item.name,
                    value=shown(item.value),
                    source="manifest",
                    file=component.manifest_path,
                    line=line,
                )
    except FormatError:
        return  # reported as a stray file or by the component's other findings


# ---- the kubelet


def _kubelet_gates(found: Kubelet) -> Iterator[SourcedSetting]:
    for path, kind in _configs(found):
        data = found.seen.data(path) or b""
        lines = parsed.lines(data)
        for name, value in parsed.gates(data).items():
            yield SourcedSetting(component="kubelet", name=name, value=shown(value), source=kind, file=path, line=lines.get((GATES, name)))
    origins = {id(word.mapped): word.origin for word in found.service.argv}
    for flag in flags.gate_flags([word.mapped for word in found.service.argv]):
        for item in flag.items:
            origin = origins[id(flag.words[-1])]
            yield _flag_setting(found, item.name, shown(item.value), origin, item.whole)


def _configs(found: Kubelet) -> Iterator[tuple[str, SourceKind]]:
    if found.config_path:
        yield found.config_path, "file"
    for path in found.dropin_paths:
        yield path, "drop-in"


def _flag_setting(found: Kubelet, name: str, value: str, origin: unit.Origin, mapped: Mapped) -> SourcedSetting:
    line = found.line_of(origin, mapped)
    return SourcedSetting(component="kubelet", name=name, value=value, source="flag", file=origin.path, line=line, variable=origin.variable)


def _counted(found: Sequence[SourcedSetting]) -> Iterator[SourcedSetting]:
    """If several sources set the same, the last one counts."""
    last = {(one.component, one.name): one for one in found}
    for one in found:
        yield one if last[(one.component, one.name)] is one else one.model_copy(update={"counts": False})


def _flags(found: Kubelet) -> Iterator[FlagSource]:
    """The flags of the command line that the unit's files result in, and those of variables that other sources override."""
    used: set[tuple[str, tuple[int, int]]] = set()
    argv = list(found.service.argv)
    origins = {id(word.mapped): word.origin for word in argv}
    for flag in _found([word.mapped for word in argv]):
        origin = origins[id(flag[1][0])]
        used |= {(word.source, word.extent) for word in flag[1]}
        yield FlagSource(flag[0], flag[2], _flag_setting(found, flag[0], flag[2], origin, flag[1][0]))
    for setting in _assignments(found):
        for name, parts, value in _found(envfile.split_variable(setting.value)):
            if not {(word.source, word.extent) for word in parts} & used:
                yield FlagSource(name, value, _flag_setting(found, name, value, setting.origin, parts[0]), masked=True)


def _found(listed: Sequence[Mapped]) -> Iterator[tuple[str, tuple[Mapped, ...], str]]:
    """The flags of a command line: name, words, value ("" for a switch without one)."""
    names = dict.fromkeys(
        word.string.removeprefix("--").partition("=")[0].replace("_", "-") for word in listed if re.match(r"--[A-Za-z]", word.string)
    )
    for name in names:
        for flag in flags.find(listed, name, switch=name in schema.switches()):
            yield name, flag.words, flag.value.string if flag.value else ""


def _assignments(found: Kubelet) -> Iterator[unit.UnitVariable]:
    """Each Environment= and each line of an environment file that sets a variable, overridden ones too."""
    for file in (found.sources.fragment, *found.sources.dropins):
        for entry in unit.entries(file):
            if (entry.section, entry.key) == ("Service", "Environment"):
                try:
                    parts = words.split(entry.value, c_escapes=True)
                except FormatError:
                    continue
                for word in parts:
                    name, equals, _ = word.string.partition("=")
                    if equals:
                        value = word.slice(word.text.index(b"=") + 1, len(word.text))
                        yield unit.UnitVariable(value, unit.Origin("environment", file.path, entry.line, name))
    for path, data in found.sources.environment_files.items():
        try:
            listed = envfile.parse(data or b"", found.sources.systemd, source=path).assignments
        except FormatError:
            continue
        for one in listed:
            yield unit.UnitVariable(one.value, unit.Origin("environment_file", path, one.line, one.name))


def _settings(made: NodeView, found: Kubelet) -> Iterator[SourcedSetting]:
    """Each source that sets a field, by dotted name; each entry of a map is a field."""
    listed: list[tuple[str, SourcedSetting]] = []
    for path, kind in _configs(found):
        data = found.seen.data(path) or b""
        lines = parsed.lines(data)
        for parts, value in _leaves(parsed.read(data)):
            if parts[0] not in (GATES, "apiVersion", "kind"):
                name = ".".join(parts)
                line = lines.get(parts)
                text = shown(value, name)
                listed.append((name, SourcedSetting(component="kubelet", name=name, value=text, source=kind, file=path, line=line)))
    minor = made.known_minor
    for flag in made.flags if minor is not None else ():
        known = schema.flags(minor or 0).get(flag.name)
        if known is None or known.field is None or known.field == GATES or flag.masked:
            continue
        value = _value(known, flag.name, flag.value)
        for parts, text in _leaves({known.field: value}):
            name = ".".join(parts)
            listed.append((known.field, flag.place.model_copy(update={"name": name, "value": shown(text, name)})))
    overridden = {owner for owner, one in listed if one.source == "flag"}
    last = {one.name: one for _, one in listed}
    for _, one in listed:
        # A flag replaces the whole field, so no entry of a map in the file is left.
        replaced = one.source != "flag" and any(one.name == owner or one.name.startswith(f"{owner}.") for owner in overridden)
        yield one if last[one.name] is one and not replaced else one.model_copy(update={"counts": False})


def _value(known: schema.KubeletFlag, name: str, text: str) -> Any:
    try:
        return as_value("map[string]" if known.kind == "map" else known.kind, name, text or ("true" if known.switch else text))
    except FormatError:
        return text


def _leaves(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        # A field with a secret stays whole, so that `shown` can mask it by its name.
        if isinstance(inner, Mapping) and inner and key not in SECRETS:
            yield from _leaves(inner, (*path, str(key)))
        else:
            yield (*path, str(key)), inner


def flat(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration by dotted names, the entries of maps too; without gates and empty values."""
    return {
        ".".join(parts): value
        for parts, value in _leaves(configuration)
        if parts[0] not in (GATES, "apiVersion", "kind") and value not in (None, {}, [], "")
    }
