"""Pure: a kubelet and the fields of its configuration that are wanted -> the files that must change. Nothing is written here.

Defaults < --config < drop-ins of --config-dir < command line (cmd/kubelet/app/server.go, NewKubeletCommand). A field is changed
where it takes effect now; a new one goes to a drop-in of daytwo's own where the kubelet reads such, else to the configuration file,
else to the command line.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.change.refusal import Refusal
from roles.formats import ABSENT, FormatError, flags, kubelet_config, unit
from roles.kubelet import schema
from roles.kubelet.facts import OPERATORS_VARIABLE, Kubelet
from roles.kubelet.values import lookup, same_setting

UNIT_DROPIN = "90-daytwo-settings.conf"
CONFIG_DROPIN = "90-daytwo.conf"
_NEW_DROPIN = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
# These flags are written SIGNAL<VALUE (cmd/kubelet/app/options/options.go: LangleSeparatedMapStringString).
_LESS_THAN = frozenset({"eviction-hard", "eviction-soft"})

# Field, dots between its parts -> value, or formats.ABSENT to take it out of all sources.
Wanted = Mapping[str, Any]


@dataclass(frozen=True)
class SettingEdits:
    """New content by path (None: the file goes), and what an operator should know of the places."""

    files: dict[str, bytes | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def edits(kubelet: Kubelet, wanted: Wanted, *, move_flags: bool = False) -> SettingEdits:
    """The files that must change so that the kubelet's sources set `wanted`; a flag that beats the file is changed where it stands,
    or, with `move_flags`, taken out and written to the file. Raises Refusal."""
    try:
        return _Editor(kubelet, move_flags).edit(wanted)
    except FormatError as error:
        raise Refusal(kubelet.seen.host, str(error)) from None


def flag_text(flag: str, value: Any) -> str:
    """A field's value as its flag takes it."""
    if isinstance(value, Mapping):
        sign = "<" if flag in _LESS_THAN else "="
        return ",".join(f"{key}{sign}{entry}" for key, entry in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


class _Editor:
    """Works on copies of the sources: each edit sees those before it."""

    def __init__(self, kubelet: Kubelet, move_flags: bool) -> None:
        self.kubelet = kubelet
        self.move_flags = move_flags
        self.sources = kubelet.sources
        configs = [*([kubelet.config_path] if kubelet.config_path else []), *kubelet.dropin_paths]
        self.configs: dict[str, bytes] = {path: kubelet.seen.data(path) or b"" for path in configs}
        self.units: dict[str, bytes | None] = {}
        self.notes: list[str] = []

    def edit(self, wanted: Wanted) -> SettingEdits:
        for name, value in wanted.items():
            self._edit(name, value)
        self._verify(wanted)
        files = {**self.units, **self.configs}
        seen = self.kubelet.seen
        changed = {path: data for path, data in files.items() if data != seen.data(path) or (seen.file(path) is None and data is not None)}
        return SettingEdits(changed, tuple(self.notes))

    def _edit(self, name: str, value: Any) -> None:
        flag = schema.flag_for(self.kubelet.minor, name)
        text = self._flag(flag)
        if flag and text is not None:
            if value is ABSENT or self.move_flags:
                self._set_flag(flag, None)
            elif not _same_text(text, flag_text(flag, value)):
                self._set_flag(flag, flag_text(flag, value))
            if value is not ABSENT and not self.move_flags:
                where = f"{self.kubelet.config_path} could say" if self.kubelet.config_path else "a configuration file could say"
                self.notes.append(
                    f"{name} stands in --{flag}, which beats what {where}; it stays there (move_flags=true moves it to the file)"
                )
                return
            if value is not ABSENT:
                self.notes.append(f"--{flag}={text} is taken out; {name} goes to the configuration file")
        if value is ABSENT:
            for path in list(self._holders(name)):
                self._write(path, {tuple(name.split(".")): ABSENT})
        elif place := self._place(name):
            self._put(place, name, value)
        elif flag:
            self._set_flag(flag, flag_text(flag, value))
        else:
            raise Refusal(
                self.kubelet.seen.host,
                f"the kubelet runs without --config, and no flag of v1.{self.kubelet.minor} sets {name}",
                "give the kubelet a configuration file first",
            )

    def _put(self, path: str, name: str, value: Any) -> None:
        parts = tuple(name.split("."))
        # Maps are merged key by key: what a file read before this one adds has to go there.
        if isinstance(value, Mapping):
            for other in list(self._holders(name)):
                surplus = {
                    (*parts, key): ABSENT for key in lookup(kubelet_config.read(self.configs[other]), name) or () if key not in value
                }
                if surplus and other != path:
                    self._write(other, surplus)
        if not same_setting(lookup(self._read(path), name), value):
            self._write(path, {parts: value})

    def _place(self, name: str) -> str | None:
        """The file in which a field takes effect, or is to."""
        holders = list(self._holders(name))
        if holders:
            return holders[-1]
        if folder := self.kubelet.dropin_folder:
            path = posixpath.join(folder, CONFIG_DROPIN)
            self.configs.setdefault(path, _NEW_DROPIN)
            return path
        return self.kubelet.config_path

    def _holders(self, name: str) -> Iterator[str]:
        """The files that set a field, in the order they are read."""
        for path in self._order():
            if lookup(self._read(path), name) is not None:
                yield path

    def _order(self) -> list[str]:
        main = [path for path in self.configs if not self.kubelet.is_dropin(path)]
        return [*main, *sorted(path for path in self.configs if self.kubelet.is_dropin(path))]

    def _read(self, path: str) -> dict[str, Any]:
        try:
            return kubelet_config.read(self.configs[path])
        except FormatError as error:
            raise error.in_file(path) from None

    def _write(self, path: str, changes: Mapping[tuple[str, ...], Any]) -> None:
        try:
            self.configs[path] = kubelet_config.edit_fields(self.configs[path], changes)
        except FormatError as error:
            raise error.in_file(path) from None

    def _flag(self, flag: str | None) -> str | None:
        if flag is None:
            return None
        switch = schema.flags(self.kubelet.minor)[flag].switch
        return flags.last_flag([word.text for word in self.sources.resolve().argv], flag, switch=switch)

    def _set_flag(self, flag: str, text: str | None) -> None:
        folder = f"/etc/systemd/system/{self.kubelet.unit_name}.d"
        switch = schema.flags(self.kubelet.minor)[flag].switch
        changed = unit.edit_flag(
            self.sources, flag, text, variable=OPERATORS_VARIABLE, new_dropin=posixpath.join(folder, UNIT_DROPIN), switch=switch
        )
        self.units |= changed
        for path, data in changed.items():
            self.sources = self.sources.with_file(path, data)

    def _verify(self, wanted: Wanted) -> None:
        """The sources are read again as the kubelet would: what was meant must come out. Raises Refusal."""
        order = self._order()
        main = next((self.configs[path] for path in order if not self.kubelet.is_dropin(path)), None)
        merged = kubelet_config.merge(main, [self.configs[path] for path in order if self.kubelet.is_dropin(path)])
        for name, value in wanted.items():
            flag = schema.flag_for(self.kubelet.minor, name)
            text = self._flag(flag)
            meant = None if value is ABSENT else value
            if flag and text is not None:
                right = meant is not None and _same_text(text, flag_text(flag, meant))
            else:
                right = same_setting(lookup(merged, name), meant)
            if not right:
                raise Refusal(
                    self.kubelet.seen.host,
                    f"{name}: its sources would not come to what is wanted ({text if text is not None else lookup(merged, name)!r})",
                    "bring its files into a simpler form first: deploys/status.py shows where it stands",
                )


def _same_text(one: str, other: str) -> bool:
    """Maps and lists in a flag: the order does not count."""
    return sorted(item.strip() for item in one.split(",")) == sorted(item.strip() for item in other.split(","))
