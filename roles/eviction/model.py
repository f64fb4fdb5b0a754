"""The desired eviction settings of a kubelet: thresholds, grace periods, minimum reclaims. Typed; rejects what no kubelet accepts.

These rules need no node. The rules that depend on what a kubelet uses now are in `wanted.problems`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine.inputs import Boolean, Data, OfNodes, read_host
from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.times import parse_duration
from roles.engine.kubelet.thresholds import (
    ALLOCATABLE_MEMORY,
    CONTAINERFS,
    CONTAINERFS_INODES,
    DERIVED,
    DISABLING,
    IMAGEFS,
    MEMORY,
    NODEFS,
    SIGNALS,
    parse_fraction,
    parse_reclaim,
    parse_threshold,
    without_unit,
)

ABSENT = "absent"

# Signal -> its value as the kubelet accepts it; None if it should be absent.
ThresholdTexts = dict[str, str | None]

_ITEM = re.compile(r"([^<>=!]*?)\s*([<>=!]+)\s*(.*)", re.DOTALL)
_DERIVED_FROM = {
    ALLOCATABLE_MEMORY: "the kubelet derives this threshold from the hard one of memory.available; set memory.available",
    CONTAINERFS: "the kubelet overrides it with the threshold of nodefs.available or imagefs.available, whichever holds the"
    " containers' writable layers; set those",
    CONTAINERFS_INODES: "the kubelet overrides it with the threshold of nodefs.inodesFree or imagefs.inodesFree, whichever holds the"
    " containers' writable layers; set those",
}


def _map(key: str, operators: str, check: Callable[[str, str, str], None]) -> BeforeValidator:
    """Reads a map of signals, as data or as text; `check` (key, signal, value) judges each value and raises ValueError."""

    def read_map(value: Any) -> ThresholdTexts:
        problems: list[str] = []
        found: ThresholdTexts = {}
        for signal, wanted in _items(key, operators, value, problems):
            try:
                _signal(key, signal, wanted)
                found[signal] = _text(key, signal, wanted)
                if (text := found[signal]) is not None:
                    check(key, signal, text)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("; ".join(problems))
        return found

    return BeforeValidator(read_map)


def _items(key: str, operators: str, value: Any, problems: list[str]) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        return [(str(signal), wanted) for signal, wanted in value.items()]
    if not isinstance(value, str) or not value.strip(", "):
        raise ValueError(f"{key}: {value!r} names no signal; write SIGNAL{operators[0]}VALUE, or leave {key} out")
    found: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        parts = _ITEM.fullmatch(item)
        if parts is None:
            problems.append(f"{key}: {item!r} has no value; write {item}{operators[0]}VALUE, or {item}={ABSENT}")
            continue
        signal, operator, wanted = parts.groups()
        if operator not in operators:
            rule = "a signal's only operator is <" if "<" in operators else "a value follows ="
            problems.append(f"{key}: {item!r} has the operator {operator}; {rule}: write {signal}{operators[0]}{wanted}")
        elif signal in found:
            problems.append(f"{key}: {signal} is set twice, to {found[signal]} and to {wanted}; keep one of them")
        else:
            found[signal] = wanted
    return list(found.items())


def _signal(key: str, signal: str, wanted: Any) -> None:
    if signal in SIGNALS or (signal in DERIVED and wanted == ABSENT):
        return
    if signal in DERIVED:
        raise ValueError(f"{key}: {signal}: {_DERIVED_FROM[signal]}, or write {signal}={ABSENT} to remove it")
    known = {name.lower(): name for name in SIGNALS}
    close = difflib.get_close_matches(signal.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {known[close[0]]}?" if close else f"the signals are {', '.join(SIGNALS)}"
    raise ValueError(f"{key}: {signal!r} is not an eviction signal; {hint}")


def _text(key: str, signal: str, wanted: Any) -> str | None:
    if wanted == ABSENT:
        return None
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return str(wanted)
    if not isinstance(wanted, str):
        raise ValueError(f'{key}: {signal}: {wanted!r} is not text; write it in quotes as the kubelet accepts it: "500Mi", "10%"')
    if not wanted:
        raise ValueError(f"{key}: {signal} has an empty value; write {signal}={ABSENT} to go back to the kubelet's default")
    return wanted


def _threshold(key: str, signal: str, text: str) -> None:
    if text.endswith("%"):
        fraction = _fraction(key, signal, text)
        if text not in DISABLING and fraction in (0, 1):
            meaning = "every pod is evicted at once" if fraction else "it is never reached"
            raise ValueError(f"{key}: {signal}: the kubelet reads {text} as a threshold ({meaning}); to switch the signal off write 0%")
    else:
        _quantity(key, signal, text)
    try:
        parse_threshold(signal, text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _reclaim(key: str, signal: str, text: str) -> None:
    if text.endswith("%"):
        if _fraction(key, signal, text) > 1:
            raise ValueError(f"{key}: {signal}: {text} is more than 100%; write a percentage above 0% and up to 100%, or a quantity")
    else:
        _quantity(key, signal, text)
    try:
        parse_reclaim(signal, text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _fraction(key: str, signal: str, text: str) -> Fraction:
    if text.endswith("%%"):
        raise ValueError(f"{key}: {signal}: {text!r} is not a percentage; write one percent sign")
    try:
        return parse_fraction(text)
    except ValueError as error:
        raise ValueError(f"{key}: {signal}: {error}") from None


def _quantity(key: str, signal: str, text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except ValueError as error:
        raise ValueError(f"{key}: {signal}: {error}, or a percentage such as 10%") from None
    if quantity.denominator != 1:
        meant = f"; did you mean {text[:-1]}Mi?" if text.endswith("m") else "; write a whole number, with a suffix such as Mi"
        raise ValueError(f"{key}: {signal}: {text} is {float(quantity):g}, not a whole number of bytes, inodes or processes{meant}")
    if signal in (MEMORY, NODEFS, IMAGEFS) and (why := without_unit(text)):
        raise ValueError(f"{key}: {signal}: {why}")
    if quantity >= 2**63:
        raise ValueError(f"{key}: {signal}: {text} is more than a node can have (2^63); write a smaller quantity, or a percentage")


def _grace(key: str, signal: str, text: str) -> None:
    seconds = _seconds(key, f"{signal}: ", text)
    if seconds < 0:
        raise ValueError(f"{key}: {signal}: a grace period of {text} is negative; the kubelet would not start: write how long to wait")
    if seconds == 0:
        raise ValueError(
            f"{key}: {signal}: a grace period of {text} makes it a hard threshold; set it in eviction_hard, or write a longer time"
        )


def _seconds(key: str, place: str, text: str) -> Fraction:
    try:
        return parse_duration(text)
    except ValueError as error:
        unit = f"; did you mean {text}s?" if re.fullmatch(r"[0-9]+", text) else ""
        raise ValueError(f"{key}: {place}{error}{unit}") from None


def _pod_grace(value: Any) -> int | str:
    key = "eviction_max_pod_grace_period"
    if value == ABSENT:
        return ABSENT
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key}: {value!r} is not a whole number of seconds; write a number without a unit: 30, or {ABSENT}")
    if value < 0:
        # The flag's help says that with a negative value the pod's own period counts; the eviction manager uses the smaller one.
        raise ValueError(f"{key}: {value} is negative, and pods would be killed after 1 s; write how many seconds they may have")
    if value >= 2**31:
        raise ValueError(f"{key}: {value} does not fit in 32 bits; write how many seconds pods may have")
    return value


def _transition(value: Any) -> str:
    key = "eviction_pressure_transition_period"
    if value == ABSENT:
        return ABSENT
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{key}: {value!r} is not a duration; write numbers with units: 5m, 1m30s, or {ABSENT}")
    seconds = _seconds(key, "", str(value))
    if seconds < 0:
        raise ValueError(f"{key}: {value} is negative; write how long a node keeps its pressure condition: 5m")
    if seconds == 0:
        raise ValueError(f"{key}: a kubelet reads {value} as not set, and uses 5m; write a time above 0, or {ABSENT}")
    return str(value)


_SIGNALS = WithJsonSchema(
    {
        "type": ["object", "string"],
        "minProperties": 1,
        "propertyNames": {"enum": [*SIGNALS, *DERIVED]},
        "additionalProperties": {"type": ["string", "integer"]},
    }
)


class DesiredThresholds(OfNodes):
    """The data keys that deploys/eviction.py reads for one host.

    eviction_hard, eviction_soft: signal -> quantity or percentage, or the flag's form `memory.available<500Mi,nodefs.available=10%`.
    eviction_soft_grace_period: signal -> Go duration. eviction_minimum_reclaim: signal -> quantity or percentage.
    eviction_max_pod_grace_period: seconds. eviction_pressure_transition_period: a Go duration. The value `absent` stands for the
    kubelet's default; settings that are not named stay as they are. allow_evictions: continue if pods would be evicted. move_flags: move
    a flag that overrides the configuration file into that file.
    """

    eviction_hard: Annotated[
        ThresholdTexts,
        _map("eviction_hard", "=<", _threshold),
        _SIGNALS,
        Field(
            description="hard thresholds: a quantity, or a percentage of what the node has. `0%` switches a signal off, `absent` restores"
            " the kubelet's default; a signal that is not named keeps its value",
            examples=[{"memory.available": "500Mi", "nodefs.available": "10%"}, "memory.available<500Mi,pid.available=5%"],
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it
    eviction_soft: Annotated[
        ThresholdTexts,
        _map("eviction_soft", "=<", _threshold),
        _SIGNALS,
        Field(description="soft thresholds, written as hard ones", examples=[{"memory.available": "1Gi"}]),
    ] = {}  # noqa: RUF012 - pydantic copies it
    eviction_soft_grace_period: Annotated[
        ThresholdTexts,
        _map("eviction_soft_grace_period", "=", _grace),
        _SIGNALS,
        Field(
            description="how long a soft threshold must be met before pods are evicted: a duration with units",
            examples=[{"memory.available": "1m30s"}],
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it
    eviction_minimum_reclaim: Annotated[
        ThresholdTexts,
        _map("eviction_minimum_reclaim", "=", _reclaim),
        _SIGNALS,
        Field(
            description="how much more than the threshold must be free before eviction ends: a quantity or a percentage",
            examples=[{"memory.available": "200Mi"}],
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it
    eviction_max_pod_grace_period: Annotated[
        int | Literal["absent"] | None,
        BeforeValidator(_pod_grace),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, {"const": ABSENT}]}),
        Field(description="how many seconds at most a pod evicted by a soft threshold may take to end", examples=[60, ABSENT]),
    ] = None
    eviction_pressure_transition_period: Annotated[
        str | None,
        BeforeValidator(_transition),
        WithJsonSchema({"type": "string"}),
        Field(description="how long a node keeps its pressure condition after the pressure: a duration above 0", examples=["5m", ABSENT]),
    ] = None
    allow_evictions: Annotated[
        Boolean,
        Field(description="consent: continue if pods would be evicted, or not admitted again by the restarted kubelet", examples=[True]),
    ] = False
    move_flags: Annotated[
        Boolean, Field(description="consent: move a flag that overrides the configuration file into that file", examples=[True])
    ] = False

    @property
    def maps(self) -> dict[str, ThresholdTexts]:
        """The named signals, by their field."""
        return {
            "evictionHard": self.eviction_hard,
            "evictionSoft": self.eviction_soft,
            "evictionSoftGracePeriod": self.eviction_soft_grace_period,
            "evictionMinimumReclaim": self.eviction_minimum_reclaim,
        }


SETTINGS = tuple(name for name in DesiredThresholds.model_fields if name.startswith("eviction_"))


def read_thresholds(host: str, data: Data) -> DesiredThresholds | None:
    """The desired thresholds of a host from its inventory data; None if it has none. Raises Refusal."""
    return read_host(host, data, DesiredThresholds, SETTINGS)
