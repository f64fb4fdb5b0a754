"""Pure: desired fields, one kubelet's version and its present configuration -> the fields to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roles.engine.editing import ABSENT
from roles.engine.kubelet import KubeletState, allocatable, idle, schema
from roles.engine.kubelet.pending import EMPTY_BY_DEFAULT, EMPTY_IS_DEFAULT, ZERO_COUNTS
from roles.engine.kubelet.thresholds import MEMORY
from roles.engine.kubelet.values import RESERVED, RESERVED_CPUS, SECRETS, in_effect, lookup, shown
from roles.engine.proof.effective import unmet_fields
from roles.engine.transaction import Refusal
from roles.kubelet_config import model, shutdown, swap
from roles.kubelet_config.carry_out import Settled, after
from roles.kubelet_config.model import DesiredFields


def settle(desired: DesiredFields, state: KubeletState) -> Settled:
    """The fields to write for this kubelet. Raises Refusal with all errors."""
    minor = state.kubelet.minor
    known = schema.fields(minor)
    problems: list[str] = []
    mistakes: list[str] = []
    fields: dict[str, Any] = {}
    values_by_name: dict[str, Any] = {}
    named: dict[tuple[str, ...], Any] = {}
    for name, value in _leaves(desired.kubelet_config, known):
        if name in values_by_name and values_by_name[name] != value:
            first = shown(values_by_name[name], name)
            problems.append(f"{name} is set twice, to {first} and to {shown(value, name)}; keep one of them")
        values_by_name[name] = value
        owner = name if name in known else _map_of(name, known)
        if owner is None:
            # The value does not matter: the schema rejects the name.
            found = schema.check(minor, _nested({name: value}))
            problems += map(str, found)
            mistakes += [f"{one.meant}? You wrote {one.path}" for one in found if one.meant]
        elif owner in SECRETS:
            problems.append(f"{owner} holds a secret, which plans and records of daytwo would show; set it by hand")
        elif owner in schema.OWNED and not _together(name, desired):
            problems.append(f"{owner} is managed by deploys/{schema.OWNED[owner]}.py: remove it from kubelet_config")
        elif owner == name:
            fields[name] = ABSENT if value == model.ABSENT else value
            named[tuple(name.split("."))] = None if value == model.ABSENT else value
        else:
            key = name.removeprefix(f"{owner}.")
            fields[owner] = _with_key(fields.get(owner, lookup(state.configuration, owner)), key, value)
            if owner in schema.OWNED:
                # As a whole: in a file that lacks the map, one key alone would remove the defaults of the others.
                named[(owner,)] = fields[owner]
            else:
                named[(*owner.split("."), key)] = None if value == model.ABSENT else value
    values = {name: value for name, value in fields.items() if value is not ABSENT}
    problems += map(str, schema.check(minor, _nested(values)))
    problems += _read_differently(values, known)
    problems += _replaced(fields, named, state)
    if problems:
        refusal = _refusal(state, problems)
        raise Refusal(state.host, refusal.message, mistake=mistakes[0], by="kubelet") if mistakes and len(problems) == 1 else refusal
    # The value of a removed field can only be checked if its default is a constant.
    expected: dict[str, Any] = {}
    for name, value in fields.items():
        if value is not ABSENT:
            expected[name] = value
        elif known[name].default is not None or name in EMPTY_BY_DEFAULT or known[name].kind.startswith(("map", "list")):
            expected[name] = known[name].default
    settled = Settled(fields, expected, _summary(fields))
    notes = list(restart_limits(state, settled))
    notes += [f"{name}: it no longer has any effect in v1.{minor}" for name in values if known[name].useless]
    unused = idle(after(state.configuration, settled), values, state.kubelet.seen.cgroup2)
    notes += [f"{name}: the kubelet will accept it, and it has no effect: {why}" for name, why in unused.items()]
    notes += [
        f"{name}: the kubelet's default is not a constant; daytwo does not check the value" for name in fields if name not in expected
    ]
    return Settled(fields, expected, settled.summary, tuple(notes), named)


def _together(name: str, desired: DesiredFields) -> bool:
    """The threshold that the Static memory manager adds up with the reservations may be set with them: one change, or none would start."""
    return name == f"evictionHard.{MEMORY}" and "reservedMemory" in desired.kubelet_config


def _replaced(fields: Mapping[str, Any], named: Mapping[tuple[str, ...], Any], state: KubeletState) -> Iterator[str]:
    """Reservations of cpu that were named, and that reservedSystemCPUs replaces by another amount."""
    cpus = fields.get(RESERVED_CPUS, lookup(state.configuration, RESERVED_CPUS))
    try:
        count = len(allocatable.reserved_cpus({RESERVED_CPUS: "" if cpus is ABSENT else cpus})[1])
    except ValueError:
        return  # the prediction of Allocatable refuses it
    for name in RESERVED if count else ():
        whole = named.get((name,))
        cpu = named.get((name, "cpu"), whole.get("cpu") if isinstance(whole, Mapping) else None)
        if cpu is not None and not (name == RESERVED[0] and in_effect(str(cpu), str(count))):
            yield (
                f"{name}.cpu is {shown(cpu)}, but {RESERVED_CPUS} ({cpus}) replaces it: the kubelet reserves the number of these CPUs,"
                f" {count}; remove {name}.cpu from kubelet_config, or set {RESERVED_CPUS}={model.ABSENT}"
            )


def _read_differently(values: Mapping[str, Any], known: Mapping[str, schema.KubeletField]) -> Iterator[str]:
    """Values that a kubelet accepts but reads as different ones (pkg/kubelet/apis/config/v1beta1/defaults.go, validation.go)."""
    for name, value in values.items():
        default = known[name].default
        zero = known[name].kind == "duration" and isinstance(value, str) and in_effect(value, None)
        empty = name in EMPTY_IS_DEFAULT and not isinstance(value, bool) and value in (0, "")
        if default is not None and not in_effect(default, None) and name not in ZERO_COUNTS and (zero or empty):
            yield (
                f"{name}: a kubelet reads {shown(value) if value != '' else 'an empty text'} as not set, and uses its default,"
                f" {shown(default)}; write that, or {name}={model.ABSENT}"
            )
    # The candidate that the kubelet's binary validates has a different maxPods, so the binary cannot judge this one.
    if isinstance(pods := values.get("maxPods"), int) and pods < 0:
        yield f"maxPods: {pods} is negative, and the kubelet would not start; write how many pods the node may have"


def restart_limits(state: KubeletState, settled: Settled) -> tuple[str, ...]:
    """Warnings about fields that a restart of the kubelet does not apply to everything that runs. Raises Refusal for fields that need
    more than a restart and more than a drained node."""
    both = (state.configuration, after(state.configuration, settled))
    found = schema.needs_more(one.name for one in unmet_fields(settled.expected, state.configuration))
    warned = [f"{more.path}: {more.reason}; {more.way_out}" for more in found]
    if refused := [text for text, more in zip(warned, found, strict=True) if more.refused]:
        raise _refusal(state, refused)
    return (*warned, *shutdown.notes(state, *both), *swap.notes(state, *both))


def _refusal(state: KubeletState, problems: list[str]) -> Refusal:
    return Refusal(state.host, f"kubelet {state.kubelet.process.version}: " + "; ".join(dict.fromkeys(problems)))


def _leaves(wanted: Mapping[str, Any], known: Mapping[str, schema.KubeletField], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields with a value, by their full name; nested data and dotted names are equivalent."""
    for key, value in wanted.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and name in known and known[name].kind == "object":
            yield from _leaves(value, known, f"{name}.")
        else:
            yield name, value


def _map_of(name: str, known: Mapping[str, schema.KubeletField]) -> str | None:
    """The map of which a dotted name is a key; keys may have dots too (`evictionHard.memory.available`)."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        owner = ".".join(parts[:end])
        if owner in known:
            return owner if known[owner].kind.startswith("map") else None
    return None


def _with_key(whole: object, key: str, value: Any) -> dict[str, Any]:
    rest = {name: entry for name, entry in whole.items() if name != key} if isinstance(whole, Mapping) else {}
    return rest if value == model.ABSENT else {**rest, key: value}


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        *parents, last = name.split(".")
        inner = nested
        for part in parents:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def _summary(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'absent' if value is ABSENT else _text(value)}" for name, value in fields.items())


def _text(value: Any) -> str:
    """A value on one line, as in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)
