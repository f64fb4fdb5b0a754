"""Pure: a kubelet and its desired gates -> the files that must change. Nothing is written here."""

from __future__ import annotations

import posixpath

from roles.engine.editing import FormatError, GateChanges, flags, kubelet_config, unit
from roles.engine.kubelet import pending, schema
from roles.engine.kubelet.facts import OPERATORS_VARIABLE, Kubelet
from roles.engine.transaction import Change, FileEdit, Refusal, change_id

DROPIN = "90-daytwo-feature-gates.conf"


def edits(kubelet: Kubelet, wanted: GateChanges) -> dict[str, bytes | None]:
    """The new content of each file that must change so that the kubelet's sources set the desired gates.

    A gate is changed where it takes effect: flags override drop-ins, drop-ins the config file. A new one goes to the config file on
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
    # A file overrides those that are read before it.
    for path in (*reversed(kubelet.dropin_paths), *([kubelet.config_path] if kubelet.config_path else [])):
        data = kubelet.seen.data(path) or b""
        try:
            present = kubelet_config.gates(data)
            if path != kubelet.config_path and kubelet.style == "kubeadm":
                _check_nulls(data, left)
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
        result |= unit.edit_flag(
            kubelet.sources,
            flags.FEATURE_GATES,
            kubelet.service.with_gates(on_flags),
            variable=OPERATORS_VARIABLE,
            new_dropin=posixpath.join(folder, DROPIN),
            in_place=kubelet.may_edit,
        )
    return {path: data for path, data in result.items() if data != kubelet.seen.data(path) or kubelet.seen.file(path) is None}


def _check_nulls(dropin: bytes, left: GateChanges) -> None:
    """A new gate goes to the configuration file. A drop-in whose featureGates are null would remove it again (RFC 7386). Raises
    FormatError."""
    if any(value is not None for value in left.values()) and kubelet_config.read(dropin).get("featureGates", ()) is None:
        raise FormatError("featureGates is null here, which removes all gates of the files before this one", way_out="remove the key")


def change(kubelet: Kubelet, changed: dict[str, bytes | None], run_id: str, summary: str) -> Change:
    """The change of a kubelet's files (None: removed), and its restart. Raises Refusal."""
    host = kubelet.seen.host
    return Change(
        id=change_id(run_id, host, "kubelet"),
        node=host,
        component="kubelet",
        kind="kubelet",
        unit=kubelet.unit_name,
        summary=summary,
        files=_file_edits(kubelet, changed),
        health_url=kubelet.health_url,
        old_argv=kubelet.service.known_argv,
        new_argv=new_service(kubelet, changed).known_argv,
        daemon_reload=_touches_units(kubelet, changed),
    )


def _file_edits(kubelet: Kubelet, changed: dict[str, bytes | None]) -> tuple[FileEdit, ...]:
    """The edits with the files' present content. Raises Refusal for a target that a rename cannot replace safely."""
    found = []
    for path, after in sorted(changed.items()):
        seen = kubelet.seen.file(path)
        if seen is not None and (why := seen.why_not_replaceable()):
            raise Refusal(kubelet.seen.host, f"{path} {why}")
        if path.startswith(("/usr/", "/lib/")):
            raise Refusal(
                kubelet.seen.host,
                f"{path}: this file belongs to a package, and the next upgrade overwrites it",
                "move the setting to a drop-in in /etc or to the environment file",
            )
        found.append(FileEdit(path, seen.data if seen else None, after))
    return tuple(found)


def new_service(kubelet: Kubelet, changed: dict[str, bytes | None]) -> unit.Service:
    """The command line that results from the changed files. Raises Refusal if a flag in it would become another flag's value."""
    service = _new_sources(kubelet, changed).resolve()
    before, after = ([word.text for word in one.argv] for one in (kubelet.service, service))
    if pair := flags.swallowed(before, after, schema.switches()):
        raise Refusal(
            kubelet.seen.host,
            f"{pair[1]} would follow {pair[0]}, which has no value yet and would take it as its value",
            f"give {pair[0]} its value in the unit's files, as {pair[0]}=VALUE",
        )
    return service


def _new_sources(kubelet: Kubelet, changed: dict[str, bytes | None]) -> unit.Sources:
    units = {path: data for path, data in changed.items() if path != kubelet.config_path and not kubelet.is_dropin(path)}
    return kubelet.sources.with_files(units)


def _touches_units(kubelet: Kubelet, changed: dict[str, bytes | None]) -> bool:
    """True if systemd must read its units again before the restart."""
    others = {*kubelet.sources.environment_files, kubelet.config_path}
    return any(path not in others and not kubelet.is_dropin(path) for path in changed)


def warnings(kubelet: Kubelet) -> list[str]:
    """What an operator should know before a restart of this kubelet, as far as the node itself shows it."""
    found = []
    if others := pending.pending_arguments(kubelet):
        found.append(f"the running kubelet's arguments differ from its files; a restart also applies: {'; '.join(map(str, others))}")
    if kubelet.process.binary_replaced:
        found.append(another_binary(kubelet))
    found += map(str, kubelet.service.ignored)
    found += [_outdated(copy) for copy in unit.copies(kubelet.sources) if copy.changed is not False]
    return found + pending.not_compared(kubelet)


def another_binary(kubelet: Kubelet) -> str:
    """What a restart starts, if the kubelet's file was replaced since it started."""
    process = kubelet.process
    if not process.starts_another:
        return f"{process.binary} was replaced since the kubelet started, by a file with the same bytes"
    versions = f"{process.version or '(version unknown)'} -> {process.next_version or '(version unknown: it did not say one)'}"
    return f"a restart starts another kubelet: {versions}; {process.binary} was replaced since it started"


def refuse_another_binary(kubelet: Kubelet, *, consent: bool) -> Refusal | None:
    """Why this kubelet must not be restarted by the way; None with the operator's consent, or if the same binary starts again. Without the
    new one's version there is no consent: the skew policy cannot be judged."""
    process = kubelet.process
    if not process.starts_another or (consent and process.next_version):
        return None
    way_out = (
        f"restart that kubelet first: drain the node, `systemctl restart {kubelet.unit_name}` there, check it, and uncordon it, as your"
        " upgrade's procedure says"
    )
    if process.next_version:
        way_out += "; or let this run start it: --data allow_new_binary=true"
    return Refusal(kubelet.seen.host, f"{another_binary(kubelet)}, and no revert brings the old one back: it restores files only", way_out)


def _outdated(copy: unit.Copy) -> str:
    how = "has changed since" if copy.changed else "may have changed since"
    return (
        f"{copy.path}, created by daytwo, copies ExecStart= of {copy.origin}; that command {how}, but systemd uses the copy: compare them,"
        " remove the copy, run `systemctl daemon-reload`, and set again what daytwo had added there"
    )


def new_copies(kubelet: Kubelet, changed: dict[str, bytes | None]) -> list[str]:
    """Warnings about commands that the changed files copy from a file that is not the operator's, and so mask."""
    return [
        f"{copy.path} copies ExecStart= of {copy.origin}, which reads no variable; later edits of that file have no effect until"
        f" {copy.path} is removed: daytwo removes it with the last flag that it has added there (absent)"
        for copy in unit.copies(_new_sources(kubelet, changed))
        if copy.path in changed and kubelet.seen.data(copy.path) is None
    ]
