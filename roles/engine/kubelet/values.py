"""Values of a KubeletConfiguration: found by their field, compared by what they mean. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.fields import at
from roles.engine.kube.times import parse_duration

# Fields with secret values: headers that a kubelet authenticates with.
SECRETS = frozenset({"staticPodURLHeader"})

# A kubelet with these reserves their number of CPUs, whatever its files reserve of cpu: /configz has that number in systemReserved, if its
# files have that field at all, and no cpu in kubeReserved (cmd/kubelet/app/server.go, run).
RESERVED_CPUS: Final = "reservedSystemCPUs"
RESERVED: Final = ("systemReserved", "kubeReserved")


def lookup(configuration: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted field (`authentication.anonymous.enabled`); None if it is not set."""
    return at(configuration, name.split("."))


def same_setting(one: Any, other: Any) -> bool:
    """True if a kubelet treats both as equal: 5m and 300s, 1Gi and 1024Mi; an empty map or list equals one that is not set."""
    if _empty(one) or _empty(other):
        return _empty(one) and _empty(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_setting(one[key], other[key]) for key in one)
    if _list(one) and _list(other):
        return len(one) == len(other) and all(map(same_setting, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, str) != isinstance(other, str):
        # A quantity can be a number in a file; a kubelet shows it as text.
        one, other = (str(value) if isinstance(value, (int, float)) else value for value in (one, other))
    if isinstance(one, str) and isinstance(other, str):
        return one == other or _known(_duration(one), _duration(other)) or _known(_quantity(one), _quantity(other))
    return bool(one == other)


def without_replaced(name: str, value: Any, configuration: Mapping[str, Any]) -> Any:
    """A field's value without the reservation of cpu, if `configuration` has reservedSystemCPUs, which replace it."""
    if name in RESERVED and isinstance(value, Mapping) and configuration.get(RESERVED_CPUS):
        return {key: amount for key, amount in value.items() if key != "cpu"}
    return value


def in_effect(wanted: Any, running: Any) -> bool:
    """True if a kubelet whose /configz shows `running` has the value `wanted` (None: not set).

    /configz omits what is 0, false or empty (config/v1beta1/types.go: omitempty), so these equal a value that is not set.
    """
    return same_setting(wanted, running) or ((wanted is None or running is None) and _nothing(wanted) and _nothing(running))


def shown(value: Any, name: str = "") -> str:
    """A value for an operator, as in a configuration file (JSON; a single text without quotes). The value of a field (`name`) that holds
    a secret is not shown."""
    if value is None:
        return "(not set)"
    if name in SECRETS:
        return "(a secret)"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _nothing(value: Any) -> bool:
    if isinstance(value, str) and value:
        return _duration(value) == 0
    return not value


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, Mapping, Sequence)) and len(value) == 0)


def _list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _known(one: object, other: object) -> bool:
    return one is not None and one == other


def _duration(text: str) -> Fraction | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _quantity(text: str) -> Fraction | None:
    try:
        return parse_quantity(text)
    except ValueError:
        return None
