"""Pure: a kubelet and the desired fields of its configuration -> the files that must change. Nothing is written here.

Defaults < --config < drop-ins of --config-dir < command line (cmd/kubelet/app/server.go, NewKubeletCommand). A field is changed
where it takes effect now; a new one goes to daytwo's own drop-in if the kubelet reads drop-ins, else to the configuration file, else to
the command line.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.engine.editing import ABSENT, FlagValues, FormatError, flags, kubelet_config, unit
from roles.engine.kubelet import schema
from roles.engine.kubelet.facts import OPERATORS_VARIABLE, Kubelet
from roles.engine.kubelet.values import lookup, same_setting, shown
from roles.engine.transaction import Refusal

UNIT_DROPIN = "90-daytwo-settings.conf"
CONFIG_DROPIN = "90-daytwo.conf"
_NEW_DROPIN = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
# These flags are written SIGNAL<VALUE (cmd/kubelet/app/options/options.go: LangleSeparatedMapStringString).
_LESS_THAN = frozenset({"eviction-hard", "eviction-soft"})

# Up to this minor, drop-ins are read as whole configurations (cmd/kubelet/app/server.go of 1.28, mergeKubeletConfigurations).
_WHOLE_DROPINS = 28

# Before this minor, a drop-in is merged by the names of Go's internal type: a field with another name there (resolvConf) is ignored
# silently (the same function, up to 1.31). A new field then goes to the configuration file.
_MERGED_BY_JSON_NAME = 32
# Kinds whose flags have a syntax other than that of lists and maps (--register-with-taints, --reserved-memory, --manifest-url-header).
SPECIAL_SYNTAX = ("list[object]", "map[list[string]]")

# Dotted field -> value, or roles.engine.editing.ABSENT to remove it from all sources.
WantedSettings = Mapping[str, Any]


@dataclass(frozen=True)
class SettingEdits:
    """New content by path (None: the file is removed), notes for the operator about the files, and the running command line with the
    changed flags, for a unit with parts that only the node can resolve."""

    files: dict[str, bytes | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()


def edits(kubelet: Kubelet, wanted: WantedSettings, *, move_flags: bool = False) -> SettingEdits:
    """The files that must change so that the kubelet's sources set `wanted`. A flag that overrides the file is changed in place or, with
    `move_flags`, removed and written to the file. Raises Refusal."""
    if kubelet.dropin_folder and kubelet.minor <= _WHOLE_DROPINS:
        raise Refusal(
            kubelet.seen.host,
            f"--config-dir={kubelet.dropin_folder}: a kubelet of v1.{kubelet.minor} fills each drop-in with defaults, which then override"
            " the files before it; the result of a change cannot be predicted",
            "move the drop-ins' settings to the configuration file and remove --config-dir, or upgrade the kubelet",
        )
    try:
        return _Editor(kubelet, move_flags).edit(wanted)
    except FormatError as error:
        raise Refusal(kubelet.seen.host, str(error)) from None


def _has_key(configuration: Mapping[str, Any], name: str) -> bool:
    parent, _, key = name.rpartition(".")
    inner = lookup(configuration, parent) if parent else configuration
    return isinstance(inner, Mapping) and key in inner


def as_value(kind: str, flag: str, text: str) -> Any:
    """A flag's text as /configz would show it."""
    if kind == "bool":
        return flags.parse_bool(text)
    if kind in ("int32", "int64", "uint32", "float"):
        return float(text) if re.search(r"[.eE]", text) else int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else text
    items = [item.strip() for item in text.split(",") if item.strip()]
    if kind.startswith("map"):
        return dict(item.partition("<" if flag in _LESS_THAN else "=")[::2] for item in items)
    return items if kind.startswith("list") else text


def on_flags(minor: int, flag: str, argv: Sequence[str]) -> str | None:
    """A flag's value on a command line: the last one, but all values of a list or map, which add up (pflag StringSlice, component-base
    MapStringString)."""
    known = schema.flags(minor)[flag]
    values = flags.flag_values(argv, flag, switch=known.switch)
    if not values:
        return None
    return ",".join(values) if known.kind in ("list", "map") else values[-1]


def flag_text(flag: str, value: Any) -> str:
    """A field's value in the syntax of its flag."""
    if isinstance(value, Mapping):
        sign = "<" if flag in _LESS_THAN else "="
        return ",".join(f"{key}{sign}{entry}" for key, entry in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def _dropins(kubelet: Kubelet) -> str:
    return f"/etc/systemd/system/{kubelet.unit_name}.d"


def edit_flag(
    kubelet: Kubelet, sources: unit.Sources, flag: str, values: FlagValues, dropin: str, *, switch: bool = False
) -> dict[str, bytes | None]:
    """The files of `sources`, those of a kubelet, that change so that a flag has these values (unit.edit_flag); a new drop-in has the name
    `dropin`. Raises FormatError."""
    path = f"{_dropins(kubelet)}/{dropin}"
    return unit.edit_flag(sources, flag, values, variable=OPERATORS_VARIABLE, new_dropin=path, switch=switch, in_place=kubelet.may_edit)


class _Editor:
    """Works on copies of the sources: each edit sees those before it."""

    def __init__(self, kubelet: Kubelet, move_flags: bool) -> None:
        self.kubelet = kubelet
        self.move_flags = move_flags
        self.sources = kubelet.sources
        self.configs: dict[str, bytes] = {path: kubelet.seen.data(path) or b"" for path in kubelet.config_paths}
        self.units: dict[str, bytes | None] = {}
        self.notes: list[str] = []
        self.argv = list(kubelet.process.argv)

    def edit(self, wanted: WantedSettings) -> SettingEdits:
        for name, value in wanted.items():
            self._edit(name, value)
        self._verify(wanted)
        files = {**self.units, **self.configs}
        seen = self.kubelet.seen
        changed = {path: data for path, data in files.items() if data != seen.data(path) or (seen.file(path) is None and data is not None)}
        return SettingEdits(changed, tuple(self.notes), tuple(self.argv))

    def _edit(self, name: str, value: Any) -> None:
        flag = schema.flag_for(self.kubelet.minor, name)
        text = self._flag(flag)
        if flag and text is not None:
            if value is ABSENT or self.move_flags:
                self._set_flag(flag, None)
            elif not self._says(name, flag, text, value):
                self._set_flag(flag, self._text(name, flag, value))
            if value is not ABSENT and not self.move_flags:
                file = self.kubelet.config_path or "a configuration file"
                self.notes.append(
                    f"{name} is set by --{flag}, which overrides {file}; it stays there (move_flags=true moves it to the file)"
                )
                return
            if value is not ABSENT:
                self.notes.append(f"--{flag}={text} is removed; {name} moves to a configuration file")
        if value is ABSENT:
            for path in list(self._holders(name)):
                self._write(path, {tuple(name.split(".")): ABSENT})
        elif place := self._place(name):
            self._put(place, name, value)
        elif flag:
            self._set_flag(flag, self._text(name, flag, value))
        else:
            raise Refusal(
                self.kubelet.seen.host,
                f"the kubelet runs without --config, and no flag of v1.{self.kubelet.minor} sets {name}",
                "give the kubelet a configuration file first",
            )

    def _says(self, name: str, flag: str, text: str, value: Any) -> bool:
        """True if a flag's text means a value; as in the kubelet, 60s is 1m."""
        kind = schema.fields(self.kubelet.minor)[name].kind
        return kind not in SPECIAL_SYNTAX and same_setting(as_value(kind, flag, text), value)

    def _text(self, name: str, flag: str, value: Any) -> str:
        if schema.fields(self.kubelet.minor)[name].kind in SPECIAL_SYNTAX:
            raise Refusal(
                self.kubelet.seen.host,
                f"{name} would have to be written to --{flag}, which has a special syntax that daytwo does not write",
                "set it in the configuration file: --data move_flags=true removes the flag",
            )
        return flag_text(flag, value)

    def _put(self, path: str, name: str, value: Any) -> None:
        parts = tuple(name.split("."))
        # Maps are merged key by key: surplus keys must be removed from the other files.
        if isinstance(value, Mapping):
            for other in list(self._holders(name)):
                surplus = {
                    (*parts, key): ABSENT for key in lookup(kubelet_config.read(self.configs[other]), name) or () if key not in value
                }
                if surplus and other != path:
                    self._write(other, surplus)
        found = lookup(self._read(path), name)
        # If nothing is set, an empty list or text must be written too: the kubelet's default may differ.
        if found is None or not same_setting(found, value):
            self._write(path, {parts: value})

    def _place(self, name: str) -> str | None:
        """The file in which a field takes effect, or in which a new one should."""
        # A file with null removes the field of those before it, so it too decides the field.
        if holders := [path for path in self._order() if _has_key(self._read(path), name)]:
            return holders[-1]
        folder = self.kubelet.dropin_folder
        if folder and (self.kubelet.minor >= _MERGED_BY_JSON_NAME or not self.kubelet.config_path):
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
        return [*main, *self.kubelet.dropins(self.configs)]

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
        return on_flags(self.kubelet.minor, flag, [word.text for word in self.sources.resolve().argv])

    def _set_flag(self, flag: str, text: str | None) -> None:
        switch = schema.flags(self.kubelet.minor)[flag].switch
        changed = edit_flag(self.kubelet, self.sources, flag, None if text is None else (text,), UNIT_DROPIN, switch=switch)
        if owned := next((path for path in changed if path.startswith(("/usr/", "/lib/"))), None):
            raise Refusal(
                self.kubelet.seen.host,
                f"--{flag} is set in {owned}, which belongs to a package: its next upgrade would overwrite the change",
                f"copy it to a drop-in in {_dropins(self.kubelet)} (systemctl edit {self.kubelet.unit_name}), and change it there",
            )
        self.argv = [*flags.without(self.argv, flag, switch=switch), *([f"--{flag}={text}"] if text is not None else [])]
        self.units |= changed
        for path, data in changed.items():
            self.sources = self.sources.with_file(path, data)

    def _verify(self, wanted: WantedSettings) -> None:
        """Reads the sources again as the kubelet would: they must result in the desired values. Raises Refusal."""
        order = self._order()
        main = next((self.configs[path] for path in order if not self.kubelet.is_dropin(path)), None)
        merged = kubelet_config.merge(main, [self.configs[path] for path in order if self.kubelet.is_dropin(path)])
        for name, value in wanted.items():
            flag = schema.flag_for(self.kubelet.minor, name)
            text = self._flag(flag)
            meant = None if value is ABSENT else value
            if flag and text is not None:
                right = meant is not None and self._says(name, flag, text, meant)
            else:
                right = same_setting(lookup(merged, name), meant)
            if not right:
                result = text if text is not None else shown(lookup(merged, name), name)
                raise Refusal(
                    self.kubelet.seen.host,
                    f"{name}: its sources would result in {result}, not {shown(meant, name)}",
                    "simplify its files first: deploys/status.py shows where it is set",
                )
