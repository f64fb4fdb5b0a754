"""Pure: a kubelet and its desired gates -> the files that must change. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from roles.engine.editing import FormatError, GateChanges, flags, kubelet_config, unit
from roles.engine.kubelet import pending, schema
from roles.engine.kubelet.facts import Kubelet
from roles.engine.kubelet.settings import edit_flag
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
    for path in reversed(kubelet.config_paths):
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
        result |= edit_flag(kubelet, kubelet.sources, flags.FEATURE_GATES, kubelet.service.with_gates(on_flags), DROPIN)
    return {path: data for path, data in result.items() if data != kubelet.seen.data(path) or kubelet.seen.file(path) is None}


def _check_nulls(dropin: bytes, left: GateChanges) -> None:
    """A new gate goes to the configuration file. A drop-in whose featureGates are null would remove it again (RFC 7386). Raises
    FormatError."""
    if any(value is not None for value in left.values()) and kubelet_config.read(dropin).get("featureGates", ()) is None:
        raise FormatError("featureGates is null here, which removes all gates of the files before this one", way_out="remove the key")


@dataclass(frozen=True)
class KubeletEdit:
    """The files of a kubelet that change, with their new content (None: removed), and what follows from them."""

    kubelet: Kubelet
    files: Mapping[str, bytes | None]

    @cached_property
    def _units(self) -> Mapping[str, bytes | None]:
        """Those that define its command line."""
        own = self.kubelet
        return {path: data for path, data in self.files.items() if path != own.config_path and not own.is_dropin(path)}

    @cached_property
    def _sources(self) -> unit.Sources:
        return self.kubelet.sources.with_files(self._units)

    @cached_property
    def service(self) -> unit.Service:
        """The command line that results. Raises Refusal if a flag in it would become another flag's value."""
        service = self._sources.resolve()
        before, after = ([word.text for word in one.argv] for one in (self.kubelet.service, service))
        if pair := flags.swallowed(before, after, schema.switches()):
            raise Refusal(
                self.kubelet.seen.host,
                f"{pair[1]} would follow {pair[0]}, which has no value yet and would take it as its value",
                f"give {pair[0]} its value in the unit's files, as {pair[0]}=VALUE",
            )
        return service

    @property
    def argv(self) -> tuple[str, ...]:
        """The resulting arguments; if only the node can resolve a part of them, the running ones with the resulting gates."""
        if (known := self.service.known_argv) is not None:
            return known
        rest, gates = flags.without_gates(self.kubelet.process.argv), self.service.gates
        return (*rest, *([f"--{flags.FEATURE_GATES}={flags.written(gates)}"] if gates else ()))

    def change(self, run_id: str, summary: str) -> Change:
        """The change of the files, and the kubelet's restart. Raises Refusal."""
        host = self.kubelet.seen.host
        return Change(
            id=change_id(run_id, host, "kubelet"),
            node=host,
            component="kubelet",
            kind="kubelet",
            unit=self.kubelet.unit_name,
            summary=summary,
            files=_file_edits(self.kubelet, self.files),
            health_url=self.kubelet.health_url,
            old_argv=self.kubelet.service.known_argv,
            new_argv=self.service.known_argv,
            daemon_reload=any(path not in self.kubelet.sources.environment_files for path in self._units),
        )

    @property
    def why_there(self) -> str:
        """Why files of its command line change, and not its configuration file; "" if none of them does, or if it has no such file."""
        own, units = self.kubelet, sorted(self._units)
        if not units or own.config_path is None:
            return ""
        return f"{' and '.join(units)}: flags of this kubelet are set there, and a flag overrides {own.config_path}"

    def copies(self) -> list[str]:
        """Warnings about commands that the files copy from a file that is not the operator's, and so mask."""
        return [
            f"{copy.path} copies ExecStart= of {copy.origin}, which reads no variable. Later edits of that file have no effect until"
            f" {copy.path} is removed: daytwo removes it with the last flag that it has added there (absent)"
            for copy in unit.copies(self._sources)
            if copy.path in self.files and self.kubelet.seen.data(copy.path) is None
        ]


def _file_edits(kubelet: Kubelet, changed: Mapping[str, bytes | None]) -> tuple[FileEdit, ...]:
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
        f"{copy.path}, created by daytwo, copies ExecStart= of {copy.origin}. That command {how}, but systemd uses the copy: compare them,"
        " remove the copy, run `systemctl daemon-reload`, and set again what daytwo had added there"
    )
