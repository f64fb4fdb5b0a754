"""Pure: a kubelet and the gates wanted on it -> the files that must change. Nothing is written here."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from roles.change.model import FileEdit
from roles.change.refusal import Refusal
from roles.formats import FormatError, GateChanges, flags, kubelet_config, unit
from roles.kubelet import restart
from roles.kubelet.facts import OPERATORS_VARIABLE, Kubelet

DROPIN = "90-daytwo-feature-gates.conf"


def edits(kubelet: Kubelet, wanted: GateChanges) -> dict[str, bytes | None]:
    """The new content of each file that must change, so that the kubelet's sources set the gates as wanted.

    A gate is changed where it takes effect: flags beat drop-ins beat the config file. A new one goes to the config file on
    kubeadm nodes, to the operator's variable on others. Raises Refusal.
    """
    try:
        return _edits(kubelet, wanted)
    except FormatError as error:
        raise Refusal(kubelet.seen.host, str(error)) from None


def _edits(kubelet: Kubelet, wanted: GateChanges) -> dict[str, bytes | None]:
    by_flag = kubelet.flag_gates
    result: dict[str, bytes | None] = {}
    left = dict(wanted)
    on_flags = {name: value for name, value in wanted.items() if name in by_flag}
    for name, value in on_flags.items():
        if value is not None:
            del left[name]
    # The file that is read last beats those before it.
    for path in (*reversed(kubelet.dropin_paths), *([kubelet.config_path] if kubelet.config_path else [])):
        data = kubelet.seen.data(path) or b""
        try:
            present = kubelet_config.gates(data)
            here = {name: value for name, value in left.items() if name in present}
            new = path == kubelet.config_path and kubelet.style == "kubeadm"
            if new:
                here |= {name: value for name, value in left.items() if value is not None}
            edited = kubelet_config.edit_gates(data, here)
        except FormatError as error:
            raise error.in_file(path) from None
        if edited != data:
            result[path] = edited
        for name, value in here.items():
            if value is not None:
                del left[name]
    on_flags |= {name: value for name, value in left.items() if value is not None}
    if on_flags:
        folder = f"/etc/systemd/system/{kubelet.unit_name}.d"
        result |= unit.edit_gates(kubelet.sources, on_flags, variable=OPERATORS_VARIABLE, new_dropin=posixpath.join(folder, DROPIN))
    _verify(kubelet, wanted, result)
    return {path: data for path, data in result.items() if data != kubelet.seen.data(path) or kubelet.seen.file(path) is None}


def _verify(kubelet: Kubelet, wanted: GateChanges, result: Mapping[str, bytes | None]) -> None:
    """Read all sources again, the drop-ins of the configuration over its file: the gates are as wanted, and no other is changed."""
    if not any(kubelet.is_dropin(path) for path in kubelet.dropin_paths):
        return
    main = (result.get(kubelet.config_path) or kubelet.seen.data(kubelet.config_path)) if kubelet.config_path else None
    dropins = [result.get(path) or kubelet.seen.data(path) or b"" for path in kubelet.dropin_paths]
    configured = kubelet_config.merge(main, dropins).get("featureGates") or {}
    found = {**configured, **flags.effective_gates([word.text for word in new_service(kubelet, result).argv])}
    meant = {name: value for name, value in kubelet.gates.items() if wanted.get(name, value) is not None}
    meant |= {name: value for name, value in wanted.items() if value is not None}
    if found == meant:
        return
    for path in reversed(kubelet.dropin_paths):
        fields = kubelet_config.read(kubelet.seen.data(path) or b"")
        if "featureGates" in fields and fields["featureGates"] is None:
            line = kubelet_config.lines(kubelet.seen.data(path) or b"").get(("featureGates",))
            raise FormatError(
                "featureGates: null takes out what the files before it set", file=path, line=line, way_out="take it out first"
            )
    raise FormatError(
        "the edit could not take effect among the drop-ins of the configuration", value=str(found), way_out="edit them by hand"
    )


def file_edits(kubelet: Kubelet, changed: dict[str, bytes | None]) -> tuple[FileEdit, ...]:
    """The edits with what stands there now. Raises Refusal for a target that a rename cannot rightly replace."""
    made = []
    for path, after in sorted(changed.items()):
        seen = kubelet.seen.file(path)
        if seen is not None and (why := seen.why_not_replaceable()):
            raise Refusal(kubelet.seen.host, f"{path} {why}")
        if path.startswith(("/usr/", "/lib/")):
            raise Refusal(
                kubelet.seen.host,
                f"{path}: this stands in a file that belongs to a package, which the next upgrade overwrites",
                "move it to a drop-in in /etc or to the environment file",
            )
        made.append(FileEdit(path, seen.data if seen else None, after))
    return tuple(made)


def new_service(kubelet: Kubelet, changed: Mapping[str, bytes | None]) -> unit.Service:
    """The command line as the changed files give it."""
    sources = kubelet.sources
    for path, data in changed.items():
        if path != kubelet.config_path and not kubelet.is_dropin(path):
            sources = sources.with_file(path, data)
    return sources.resolve()


def touches_units(kubelet: Kubelet, changed: dict[str, bytes | None]) -> bool:
    """True where systemd must read its units again before the restart."""
    others = {*kubelet.sources.environment_files, kubelet.config_path}
    return any(path not in others and not kubelet.is_dropin(path) for path in changed)


def warnings(kubelet: Kubelet, changed: Mapping[str, bytes | None] | None = None) -> list[str]:
    """What an operator should know of this kubelet's files, and of those that a change makes of them."""
    found = [] if changed else restart.more(kubelet)
    names = {OPERATORS_VARIABLE, *kubelet.service.split_variables, *kubelet.service.whole_variables}
    pattern = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(map(re.escape, sorted(names)))})(?![A-Za-z0-9_])")
    found += [
        f"{line.path}:{line.line}: systemd ignores this line, since `{line.variable}` is no name of a variable: what it sets has no effect"
        for line in kubelet.service.ignored
        if pattern.search(line.variable or "")
    ]
    return found + _copies(kubelet, changed or {})


def _copies(kubelet: Kubelet, changed: Mapping[str, bytes | None]) -> list[str]:
    """Drop-ins of daytwo's own that hold a copy of the unit's command line, there or about to be made."""
    sources = kubelet.sources
    service = kubelet.service
    found = []
    for path, data in changed.items():
        if sources.data(path) is None and data is not None and unit.frozen_copy(sources.with_file(path, data), path):
            found.append(
                f"{path} will hold a copy of the command line in {service.command_path}:{service.command.line}, which belongs to a package:"
                " what an upgrade changes there has no effect while the copy stands; take the gate or flag out again, and it goes"
            )
    if unit.frozen_copy(sources, service.command_path):
        try:
            below = sources.with_file(service.command_path, None).resolve()
        except FormatError:
            return found
        if not {word.text for word in below.argv} <= {word.text for word in service.argv}:
            found.append(
                f"{service.command_path} holds a copy of the command line in {below.command_path}:{below.command.line}, which was changed"
                " since: the change there has no effect while the copy stands"
            )
    return found


__all__ = ["DROPIN", "edits", "file_edits", "new_service", "touches_units", "warnings"]
