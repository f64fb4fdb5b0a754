"""Processes that differ from their files: changes in flight, a missing daemon-reload, a kubelet or a static pod that was not restarted
after a change. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from roles.audit.model import SourcedSetting
from roles.audit.node_view import GATES, NodeView
from roles.audit.rules import AuditRule
from roles.audit.strays import first_entry
from roles.engine.editing import FormatError, flags, manifest, unit
from roles.engine.findings import Finding, Place, Severity
from roles.engine.kubelet import Kubelet
from roles.engine.kubelet.pending import Pending, pending_arguments, pending_settings, younger_files
from roles.engine.node import Process
from roles.engine.transaction import in_flight

ACTIVE = "/var/lib/daytwo/active"


def findings(view: NodeView) -> Iterator[Finding]:
    """The findings of one node."""
    yield from _in_flight(view)
    if view.is_read:
        yield from _reload(view)
        yield from _kubelet(view)
        yield from _static_pods(view)
        yield from _gates(view)


def _in_flight(view: NodeView) -> Iterator[Finding]:
    seen = view.seen
    for name, change in sorted(seen.changes.items()):
        for sentence in in_flight({name: change}, seen.boot_id, seen.uptime):
            failed = change.get("state") == "revert-failed"
            yield AuditRule.IN_FLIGHT.found(
                Place(view.host, name=name, file=posixpath.join(ACTIVE, name), value=change.get("state") or "no record"),
                sentence,
                f"/var/lib/daytwo/changes/{name}/log says why; change.sh in the same directory has the verbs status and revert"
                if failed
                else "",
                Severity.critical if failed else None,
            )


# ---- systemd


def _reload(view: NodeView) -> Iterator[Finding]:
    seen = view.seen
    if seen.unit is None or not seen.unit.unread:
        return
    new = list(_unread(view))
    gone = [path for path in (seen.unit.fragment, *seen.unit.dropins) if seen.data(path) is None]
    if not new and not gone:
        # systemd does not say which file was edited; the one that was written last is the most likely.
        files = [file for path in (seen.unit.fragment, *seen.unit.dropins) if (file := seen.file(path)) is not None]
        gone = [max(files, key=lambda file: file.mtime).path] if files else [seen.unit.fragment]
    for path in (*new, *gone):
        data = seen.data(path)
        what = "is new" if path in new else "is gone" if data is None else "was written"
        line = first_entry(unit.UnitFile(path, data)) if data is not None else None
        yield AuditRule.DAEMON_RELOAD.found(
            Place(view.host, "kubelet", None, path, line, f"NeedDaemonReload=yes, {path} {what}"),
            f"{seen.unit.unread}: a restart of the kubelet still uses the old unit, and the next daemon-reload loads the new one",
        )


def _unread(view: NodeView) -> Iterator[str]:
    """Drop-ins in the unit's directories that systemd has not read."""
    assert view.seen.unit is not None  # _reload has checked
    read = {posixpath.basename(path) for path in view.seen.unit.dropins}
    for folder, names in view.seen.directories.items():
        if posixpath.basename(folder) == f"{view.seen.unit.name}.d":
            yield from (posixpath.join(folder, name) for name in names if name.endswith(".conf") and name not in read)


# ---- processes


def _kubelet(view: NodeView) -> Iterator[Finding]:
    found = view.kubelet
    differences: list[Finding] = []
    differences += _arguments(view, found)
    if found.process.binary_replaced:
        rule = "the kubelet's binary was replaced after the kubelet started: the next restart, for whatever reason, starts the new one"
        way_out = "restart the kubelet at a time that suits you, drained, one node at a time"
        value = f"runs {found.process.version or 'the old binary'}, the file is {found.process.next_version or 'of an unknown version'}"
        differences.append(AuditRule.STALE.found(Place(view.host, "kubelet", file=found.process.binary, value=value), rule, way_out))
    if view.configuration is not None and view.known_minor is not None:
        try:
            differences += _settings(view, found, pending_settings(found, view.configuration))
        except FormatError as error:
            rule = f"the values in the kubelet's files are not known: {error}"
            differences.append(AuditRule.STALE.found(Place(view.host, "kubelet"), rule, "fix the files"))
    yield from differences
    named = {one.place.file for one in (*differences, *_gates(view))}
    yield from (one for one in _younger(view) if one.place.file not in named)


def _arguments(view: NodeView, found: Kubelet) -> Iterator[Finding]:
    for one in pending_arguments(found) or ():
        place = next((flag.place for flag in reversed(view.flags) if flag.name == one.name and not flag.masked), None)
        path, line = (place.file, place.line) if place else (found.service.command_path, found.service.command.line)
        rule = "the kubelet runs without this flag: the file was changed after the kubelet started, and the next restart applies it"
        way_out = "restart the kubelet if the flag is intended; otherwise restore the file"
        if not one.then:
            rule = "the kubelet runs with this flag, but no file of its unit has it any longer: the next restart removes it"
            way_out = "restart the kubelet if that is intended; otherwise restore the flag"
        value = " ".join(one.words(one.then or one.now))
        yield AuditRule.STALE.found(Place(view.host, "kubelet", one.name or None, path, line, value), rule, way_out)


def _settings(view: NodeView, found: Kubelet, differences: Sequence[Pending]) -> Iterator[Finding]:
    for one in differences:
        if one.name == GATES and view.running.get("kubelet"):
            continue  # _gates() reports each gate
        place = view.setting(one.name)
        where = view.at("kubelet", one.name, place, f"{place.name}: {place.value}" if place else None, found.config_path)
        way_out = "restart the kubelet if the file is right; otherwise restore the file"
        yield AuditRule.STALE.found(where, f"the kubelet has not applied its files: {one}", way_out)


def _younger(view: NodeView) -> Iterator[Finding]:
    """Files that were written after the process started, whether or not their values differ."""
    found = view.kubelet
    variables = (file.path for file in found.service.environment_files if file.present)
    for path in (*younger_files(found), *(path for path in variables if view.seen.is_younger(path, found.process))):
        known = view.configuration is not None
        file = view.seen.file(path)
        assert file is not None  # it is younger
        value = f"written {file.mtime - view.seen.started_at(found.process):.0f} s after the kubelet started"
        rule = "all its values that can be compared are in effect" if known else "whether its values are in effect is not known"
        rule = f"the file is newer than the kubelet's process; {rule}"
        way_out = "restart the kubelet at a time that suits you, to apply the file"
        yield AuditRule.STALE.found(Place(view.host, "kubelet", file=path, value=value), rule, way_out, Severity.note if known else None)


def _static_pods(view: NodeView) -> Iterator[Finding]:
    for name, component in view.components.items():
        if component.manifest_path is None:
            folder = view.kubelet.manifests
            rule = f"{name} runs as a static pod, but no readable manifest has its container"
            yield AuditRule.STALE.found(
                Place(view.host, name, file=folder, value=f"pid {component.process.pid}"), rule, "restore its manifest, or fix it"
            )
            continue
        if any("$(" in word for word in component.argv) or component.argv == component.process.argv:
            continue
        yield from _other_arguments(view, name, component.argv, component.process)


def _other_arguments(view: NodeView, name: str, argv: Sequence[str], process: Process) -> Iterator[Finding]:
    component = view.components[name]
    lines = dict(manifest.argument_lines(component.data, component.container))
    more = [word for word in argv if word not in process.argv]
    less = [word for word in process.argv if word not in argv]
    with_less = f" (it runs with {' '.join(less)})" if less and more else ""
    rule = f"the arguments of {name} differ from its manifest{with_less}: the kubelet has not applied the manifest"
    way_out = "the kubelet's journal says why; a kubelet that was restarted while its API was down needs one more restart"
    for word in more or argv[:1]:
        flag = re.match(r"--([A-Za-z0-9_-]+)", word)
        value = word if more else f"without {' '.join(less)}"
        yield AuditRule.STALE.found(
            Place(view.host, name, flag and flag[1], component.manifest_path, lines.get(word), value), rule, way_out
        )


def _gates(view: NodeView) -> Iterator[Finding]:
    """Gates whose effective value differs from the source that counts."""
    for place in view.gates:
        running = view.running.get(place.component, {}).get(place.name)
        if not place.counts or running is None or running.enabled == (place.value == "true") or _is_running(view, place):
            continue
        value = f"{place.name}={place.value}"
        rule = f"{place.component} runs with {str(running.enabled).lower()}: it was not restarted after this was written"
        way_out = "restart it if the file is right; otherwise restore the file"
        yield AuditRule.STALE.found(view.at(place.component, place.name, place, value), rule, way_out)


def _is_running(view: NodeView, place: SourcedSetting) -> bool:
    """The process already has the flag, so a restart does not change its value."""
    process = view.processes.get(place.component)
    try:
        return (
            process is not None
            and place.source != "file"
            and flags.effective_gates(process.argv).get(place.name) == (place.value == "true")
        )
    except FormatError:
        return False
