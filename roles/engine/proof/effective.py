"""Compares what a process must run with and what it runs with: gates by its /metrics, fields of a kubelet by its /configz. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roles.engine.api import GateMetric
from roles.engine.editing import FlagChanges, FlagValues, any_flag
from roles.engine.kubelet.values import in_effect, lookup, same_setting, shown, without_replaced
from roles.engine.transaction import mask_text


@dataclass(frozen=True)
class UnmetGate:
    """A gate of a component that differs from the desired value. `wanted`: None for absent; `found`: None if it is not set, or not
    published; `by`: the source of `found`, its /metrics or its command line and files."""

    component: str
    gate: str
    wanted: bool | None
    found: bool | None
    by: Literal["metrics", "sources"] = "metrics"

    @property
    def known(self) -> bool:
        """False for a gate that should be off and is set nowhere: only /metrics shows whether it is off by default."""
        return not (self.by == "sources" and self.wanted is False and self.found is None)

    def __str__(self) -> str:
        if self.wanted is None:
            return f"{self.component}: {self.gate}={_text(self.found)} is set, wanted absent"
        if self.by == "sources":
            return f"{self.component}: {self.gate} is {_text(self.found)} in its flags and files, wanted {_text(self.wanted)}"
        if self.found is None:
            return f"{self.component} does not publish {self.gate} (kubernetes_feature_enabled, 1.26 and later)"
        return f"{self.component} runs with {self.gate}={_text(self.found)}, wanted {_text(self.wanted)}"


@dataclass(frozen=True)
class UnmetField:
    """A field of a running kubelet that differs from the desired value (None: not set). `key`: the entry, if it is one entry of a map."""

    name: str
    wanted: Any
    found: Any
    key: str = ""

    @property
    def path(self) -> str:
        return f"{self.name}.{self.key}" if self.key else self.name

    @property
    def entries(self) -> list[UnmetField]:
        """The entries that differ, if the field is a map; else the field itself."""
        wanted, found = self.wanted, self.found
        if not isinstance(wanted, Mapping) or not isinstance(found, Mapping):
            return [self]
        keys = [key for key in {**wanted, **found} if not same_setting(wanted.get(key), found.get(key))]
        return [UnmetField(self.name, wanted.get(key), found.get(key), key) for key in keys]

    def __str__(self) -> str:
        wanted, found = shown(self.wanted, self.name), shown(self.found, self.name)
        if self.key:
            return f"{self.name}: {self.key} is {found}, wanted {wanted}"
        return f"kubelet runs with {self.name}={found}, wanted {wanted}"


def unmet_gates(component: str, wanted: Mapping[str, bool], effective: Mapping[str, GateMetric]) -> list[UnmetGate]:
    """The gates of the running process that differ from the desired values."""
    found = {name: effective[name].enabled if name in effective else None for name in wanted}
    return [UnmetGate(component, name, value, found[name]) for name, value in wanted.items() if found[name] is not value]


def unmet_fields(wanted: Mapping[str, Any], configuration: Mapping[str, Any]) -> list[UnmetField]:
    """The fields of the running kubelet that differ from the desired values; dots between their parts, None: not set."""
    pairs = [
        (name, *(without_replaced(name, one, configuration) for one in (value, lookup(configuration, name))))
        for name, value in wanted.items()
    ]
    return [UnmetField(name, value, found) for name, value, found in pairs if not in_effect(value, found)]


@dataclass(frozen=True)
class UnmetFlag:
    """A flag of a control-plane component that differs from the desired values; None: not given. `where`: its manifest, or the arguments
    of its process."""

    component: str
    flag: str
    wanted: FlagValues
    found: FlagValues
    where: str

    def __str__(self) -> str:
        found, wanted = (mask_text(written(self.flag, values)) for values in (self.found, self.wanted))
        return f"{self.component}: {self.where} have {found}, wanted {wanted}"


def unmet_flags(component: str, wanted: FlagChanges, argv: Sequence[str], where: str) -> list[UnmetFlag]:
    """The flags of a command line that differ from the desired values."""
    found = {name: any_flag.given(argv, name, values) for name, values in wanted.items()}
    return [
        UnmetFlag(component, name, values, found[name], where) for name, values in wanted.items() if not any_flag.same(found[name], values)
    ]


def written(name: str, values: FlagValues) -> str:
    """A flag as on a command line."""
    return f"no --{name}" if values is None else " ".join(f"--{name}={value}" for value in values)


def changed_fields(before: Any, after: Any, path: str = "") -> list[str]:
    """The fields that differ between two configurations, as `A.B: 1 -> 2`. Items of a list that have names are compared by them; an older
    scheduler (1.32) writes the names of fields as Go has them."""
    if isinstance(before, list) and isinstance(after, list):
        for key in (key for key in ("name", "Name") if _named(before, key) and _named(after, key)):
            return changed_fields({item[key]: item for item in before}, {item[key]: item for item in after}, path)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = dict.fromkeys([*before, *after])
        return [line for name in names for line in changed_fields(before.get(name), after.get(name), f"{path}.{name}" if path else name)]
    if before == after:
        return []
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return [line for number, pair in enumerate(pairs) for line in changed_fields(*pair, f"{path}[{number}]")]
    return [f"{path}: {shown(before)} -> {shown(after)}"]


def _named(items: Sequence[Any], key: str) -> bool:
    return bool(items) and all(isinstance(item, Mapping) and isinstance(item.get(key), str) for item in items)


def _text(value: bool | None) -> str:
    return "absent" if value is None else str(value).lower()
