"""Pure: the eviction thresholds of a kubelet, in the kubelet's own arithmetic.

Sources (Kubernetes 1.32 to 1.36): pkg/kubelet/eviction/helpers.go (ParseThresholdConfig, parsePercentage, UpdateContainerFsThresholds),
pkg/kubelet/eviction/api/types.go (GetThresholdQuantity), pkg/kubelet/eviction/defaults_linux.go,
Go's time.ParseDuration and strconv.ParseFloat.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from roles.engine.bounds import digits
from roles.engine.kube.amounts import parse_quantity, whole
from roles.engine.kube.times import parse_duration

MEMORY = "memory.available"
ALLOCATABLE_MEMORY = "allocatableMemory.available"
NODEFS = "nodefs.available"
NODEFS_INODES = "nodefs.inodesFree"
IMAGEFS = "imagefs.available"
IMAGEFS_INODES = "imagefs.inodesFree"
CONTAINERFS = "containerfs.available"
CONTAINERFS_INODES = "containerfs.inodesFree"
PID = "pid.available"

# The signals that an operator can set with effect, in the order in which daytwo lists them.
SIGNALS = (MEMORY, NODEFS, NODEFS_INODES, IMAGEFS, IMAGEFS_INODES, PID)
# The kubelet accepts these too, but derives their thresholds from those of the signals above.
DERIVED = (ALLOCATABLE_MEMORY, CONTAINERFS, CONTAINERFS_INODES)

# What a Linux kubelet uses if its --config file has no evictionHard.
DEFAULT_HARD: Mapping[str, str] = {MEMORY: "100Mi", NODEFS: "10%", NODEFS_INODES: "5%", IMAGEFS: "15%", IMAGEFS_INODES: "5%"}

# The percentages that disable a signal. Only these texts do: 0.0% and 100.0% are thresholds.
DISABLING = ("0%", "100%")

_PERCENTAGE = re.compile(r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_FLOAT32_MAX = (2**24 - 1) * Fraction(2) ** 104


@dataclass(frozen=True)
class Amount:
    """How much of a resource: a quantity (bytes, inodes or processes), or a fraction (0..1) of what the node has. One of them is set."""

    quantity: int | None = None
    fraction: Fraction | None = None

    def of(self, capacity: int) -> int:
        """The amount on a node that has `capacity` of it, rounded down as by the kubelet (GetThresholdQuantity)."""
        if self.quantity is not None:
            return self.quantity
        return int(float(capacity) * float(self.fraction or 0))


@dataclass(frozen=True)
class Threshold:
    """Eviction begins when less than `amount` is left of what `signal` observes, for `grace` seconds (0: at once, a hard threshold).

    It ends when `min_reclaim` more than the amount is left.
    """

    signal: str
    amount: Amount
    grace: float = 0
    min_reclaim: Amount | None = None

    @property
    def hard(self) -> bool:
        """True if pods are evicted at once, without their grace period. A soft threshold with a grace period of 0 counts as hard."""
        return self.grace == 0


def parse_fraction(text: str) -> Fraction:
    """A percentage as the kubelet stores it, a float32: "10%" is not quite a tenth. Raises ValueError; the range is the caller's."""
    number = text.rstrip("%")
    if not text.endswith("%") or _PERCENTAGE.fullmatch(number) is None or abs(Fraction(number)) > _FLOAT32_MAX:
        raise ValueError(f"{text!r} is not a percentage; write a number and a percent sign: 10%")
    return _float32(_float32(Fraction(number)) / 100)


def _float32(value: Fraction) -> Fraction:
    """The nearest IEEE 754 single, ties to even."""
    if not value:
        return value
    exponent = max(math.frexp(value)[1] - 24, -149)
    step = Fraction(2) ** exponent
    return round(value / step) * step


def without_unit(text: str) -> str:
    """Why an amount of memory or of a disk, as an operator wrote it, has too few bytes to be meant: 500 instead of 500Mi; "" if it has not.
    Raises ValueError if it is no quantity."""
    if not 0 < parse_quantity(text) < 2**20:
        return ""
    return f"{text} is less than a mebibyte; is the unit missing" + (f", as in {text}Mi?" if digits(text) is not None else "?")


def parse_threshold(signal: str, text: str) -> Amount | None:
    """The value of a threshold; None if it disables the signal. Raises ValueError if the kubelet would not start with it."""
    if text in DISABLING:
        return None
    if text.endswith("%"):
        fraction = parse_fraction(text)
        if not 0 <= fraction <= 1:
            raise ValueError(f"{signal}: {text} is not between 0% and 100%")
        return Amount(fraction=fraction)
    quantity = parse_quantity(text)
    if quantity <= 0:
        raise ValueError(f"{signal}: {text} is not more than 0; write {DISABLING[0]} to disable the threshold")
    return Amount(whole(quantity))


def parse_reclaim(signal: str, text: str) -> Amount:
    """The value of a minimum reclaim. Raises ValueError if the kubelet would not start with it."""
    if text.endswith("%"):
        fraction = parse_fraction(text)
        if fraction <= 0:
            raise ValueError(f"{signal}: a minimum reclaim of {text} is not more than 0%; write the quantity 0 for none")
        return Amount(fraction=fraction)
    quantity = parse_quantity(text)
    if quantity < 0:
        raise ValueError(f"{signal}: a minimum reclaim of {text} is negative; write 0 or more")
    return Amount(whole(quantity))


def shutdown_seconds(configuration: Mapping[str, Any]) -> float:
    """How long a kubelet asks logind to delay a shutdown; 0: not at all. Unreadable durations count as 0
    (pkg/kubelet/nodeshutdown/nodeshutdown_manager.go: newPodManager, periodRequested)."""
    by_priority = configuration.get("shutdownGracePeriodByPodPriority") or ()
    if by_priority:
        return float(sum(int(one.get("shutdownGracePeriodSeconds") or 0) for one in by_priority))
    try:
        return float(parse_duration(str(configuration.get("shutdownGracePeriod") or "0")))
    except ValueError:
        return 0.0


def effective(configuration: Mapping[str, Any]) -> tuple[Threshold, ...]:
    """The thresholds of a kubelet, from its KubeletConfiguration as /configz returns it: hard ones, soft ones, then the derived one.

    If `pods` is in enforceNodeAllocatable, the kubelet also watches allocatableMemory.available with the hard threshold of
    memory.available (in /configz a missing list is an empty one; in a file it is [pods]). Disabled signals are left out, and so is
    containerfs, whose values the kubelet overrides: see `with_containerfs`. Raises ValueError for values that no kubelet starts with.
    """
    reclaims = {signal: parse_reclaim(signal, text) for signal, text in _map(configuration, "evictionMinimumReclaim")}
    grace = {signal: _grace(signal, text) for signal, text in _map(configuration, "evictionSoftGracePeriod")}
    found = [
        Threshold(signal, amount, 0, reclaims.get(signal))
        for signal, text in _map(configuration, "evictionHard")
        if (amount := parse_threshold(signal, text)) is not None
    ]
    for signal, text in _map(configuration, "evictionSoft"):
        amount = parse_threshold(signal, text)
        if amount is None:
            continue
        if signal not in grace:
            raise ValueError(f"the soft threshold of {signal} has no grace period")
        found.append(Threshold(signal, amount, grace[signal], reclaims.get(signal)))
    if "pods" in (configuration.get("enforceNodeAllocatable") or ()):
        found += [replace(threshold, signal=ALLOCATABLE_MEMORY) for threshold in found if threshold.signal == MEMORY and threshold.hard]
    return tuple(threshold for threshold in found if threshold.signal not in (CONTAINERFS, CONTAINERFS_INODES))


def _map(configuration: Mapping[str, Any], field: str) -> list[tuple[str, str]]:
    """A field's signals and values in daytwo's order."""
    known = SIGNALS + DERIVED
    found = configuration.get(field) or {}
    for signal in found:
        if signal not in known:
            raise ValueError(f"{field}: unsupported eviction signal {signal}")
    return [(signal, str(found[signal])) for signal in known if signal in found]


def _grace(signal: str, text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0:
        raise ValueError(f"{signal}: a grace period of {text} is negative")
    return float(seconds)


def with_containerfs(thresholds: Sequence[Threshold], *, image_filesystem: bool) -> tuple[Threshold, ...]:
    """The thresholds, and those that the kubelet derives for the filesystem of the containers' writable layers.

    The derived ones equal those of imagefs if images and containers together have a separate filesystem (`image_filesystem`). Else, with
    one filesystem for all or a separate one only for images, they equal those of nodefs.
    """
    origin = {IMAGEFS: CONTAINERFS, IMAGEFS_INODES: CONTAINERFS_INODES}
    if not image_filesystem:
        origin = {NODEFS: CONTAINERFS, NODEFS_INODES: CONTAINERFS_INODES}
    return (*thresholds, *(replace(found, signal=origin[found.signal]) for found in thresholds if found.signal in origin))
