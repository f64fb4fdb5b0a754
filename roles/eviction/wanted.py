"""Pure: the desired thresholds and what a kubelet uses now -> the fields to write, and what /configz must show afterwards.

A field is written in full. evictionHard then names each signal that has a default, those that are off as 0%. Only this form means the
same in every place and version: in a configuration file, whose evictionHard drops the defaults that it does not name; with
mergeDefaultEvictionSettings (1.33 and later), which adds them; in a drop-in, which is merged over the defaults; and in a flag, which
replaces everything. mergeDefaultEvictionSettings itself is not written: the kubelet ignores it in a drop-in, a kubelet before 1.33 drops
it and the defaults (kubelet-config is one ConfigMap for all versions in a cluster), and it would turn on signals that a node has switched
off. The price: if a later version changes a default, the node does not get it; `notes` says so. If the data only sets signals to `absent`
and only the defaults remain, the field is removed.

Sources: cmd/kubelet/app/server.go (loadConfigFile, mergeKubeletConfigurations) of Kubernetes 1.32 to 1.36,
k8s.io/component-base/cli/flag/langle_separated_map_string_string.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from roles.engine.kube import amounts
from roles.engine.kube.times import parse_duration
from roles.engine.kubelet.thresholds import DEFAULT_HARD, DERIVED, PID, SIGNALS, Amount, parse_reclaim, parse_threshold
from roles.engine.transaction import Refusal
from roles.eviction.model import ABSENT, DesiredThresholds, ThresholdTexts

HARD = "evictionHard"
SOFT = "evictionSoft"
GRACE = "evictionSoftGracePeriod"
RECLAIM = "evictionMinimumReclaim"
POD_GRACE = "evictionMaxPodGracePeriod"
TRANSITION = "evictionPressureTransitionPeriod"
MAPS = (HARD, SOFT, GRACE, RECLAIM)

_DEFAULT_TRANSITION = Fraction(300)
_OFF = "0%"


def shown(configuration: Mapping[str, Any]) -> dict[str, object]:
    """Each eviction field as /configz shows it: maps of text, seconds, a Go duration; None for a field that is empty or 0."""
    found: dict[str, object] = {field: dict(configuration.get(field) or {}) or None for field in MAPS}
    found[POD_GRACE] = configuration.get(POD_GRACE) or None
    found[TRANSITION] = _transition(configuration)
    return found


def expected(desired: DesiredThresholds, configuration: Mapping[str, Any], defaults: Mapping[str, str] = DEFAULT_HARD) -> dict[str, object]:
    """What /configz of a kubelet that shows `configuration` now must show after the change, by field, in the form of `shown`.

    `defaults`: the kubelet's default hard thresholds; {} if it runs without --config.
    """
    after = shown(configuration)
    for field, value in fields(desired, configuration, defaults).items():
        if value is not None:
            after[field] = {**value} if isinstance(value, dict) else value
        else:
            after[field] = dict(defaults) or None if field == HARD else None
    after[POD_GRACE] = after[POD_GRACE] or None
    after[TRANSITION] = _transition(after)
    return after


def fields(
    desired: DesiredThresholds, configuration: Mapping[str, Any], defaults: Mapping[str, str] = DEFAULT_HARD
) -> dict[str, dict[str, str] | int | str | None]:
    """The fields to write so that only the desired settings change; None: remove the field from all its sources; {} if converged.

    `configuration` is what the running kubelet shows at /configz.
    """
    written: dict[str, dict[str, str] | int | str | None] = {}
    now = shown(configuration)
    for field, signals in desired.maps.items():
        before = texts(now, field)
        after = _changed(before, signals, defaults if field == HARD else {})
        if field == GRACE:
            for signal, text in desired.eviction_soft.items():
                if text is None and signal not in signals:
                    after.pop(signal, None)
        if enabled(field, after) == enabled(field, before):
            continue
        if field == HARD:
            only_defaults = enabled(HARD, after) == enabled(HARD, defaults) and all(text is None for text in signals.values())
            written[field] = None if only_defaults else _ordered(dict.fromkeys(defaults, _OFF) | after)
        else:
            written[field] = _ordered(after) or None
    if (pod_grace := desired.eviction_max_pod_grace_period) is not None:
        new_pod_grace = None if pod_grace == ABSENT else int(pod_grace)
        if (new_pod_grace or None) != now[POD_GRACE]:
            written[POD_GRACE] = new_pod_grace
    if (transition := desired.eviction_pressure_transition_period) is not None:
        new_transition = None if transition == ABSENT else transition
        if _transition({TRANSITION: new_transition}) != now[TRANSITION]:
            written[TRANSITION] = new_transition
    return written


def named(desired: DesiredThresholds) -> dict[tuple[str, ...], Any]:
    """The settings that the data names, by their path in a KubeletConfiguration; None for `absent`."""
    found: dict[tuple[str, ...], Any] = {
        (field, signal): text for field, signals in desired.maps.items() for signal, text in signals.items()
    }
    for field, value in ((POD_GRACE, desired.eviction_max_pod_grace_period), (TRANSITION, desired.eviction_pressure_transition_period)):
        if value is not None:
            found[(field,)] = None if value == ABSENT else value
    return found


def lasting(configuration: Mapping[str, Any], settings: Mapping[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    """The fields to write to a KubeletConfiguration in a file, for settings in the form of `named`; None: removed.

    A kubelet with such a file has its default thresholds if the file has no evictionHard, or merges the defaults.
    """
    maps: dict[str, dict[str, str | None]] = {field: {} for field in MAPS}
    for path, value in settings.items():
        if path[0] in MAPS:
            maps[path[0]][path[1]] = value
    single: dict[str, Any] = {path[0]: ABSENT if value is None else value for path, value in settings.items() if path[0] not in MAPS}
    desired = DesiredThresholds.model_construct(
        eviction_hard=maps[HARD],
        eviction_soft=maps[SOFT],
        eviction_soft_grace_period=maps[GRACE],
        eviction_minimum_reclaim=maps[RECLAIM],
        eviction_max_pod_grace_period=single.get(POD_GRACE),
        eviction_pressure_transition_period=single.get(TRANSITION),
    )
    hard = configuration.get(HARD)
    merged = hard is None or configuration.get("mergeDefaultEvictionSettings") is True
    effective = {**configuration, HARD: {**(DEFAULT_HARD if merged else {}), **(hard or {})}}
    return {(field,): value for field, value in fields(desired, effective).items()}


def problems(
    host: str,
    desired: DesiredThresholds,
    configuration: Mapping[str, Any],
    capacity: Mapping[str, int],
    defaults: Mapping[str, str] = DEFAULT_HARD,
) -> list[Refusal]:
    """Why the desired settings are invalid on a kubelet that shows `configuration` now; [] if they are valid.

    `capacity`: signal -> the node's capacity in bytes, inodes or processes, if known. Only settings that the data names are judged;
    `notes` reports on the node's other settings.
    """
    after = expected(desired, configuration, defaults)
    found = [*_soft_problems(desired, after), *_orphans(desired, after), *_sizes(desired, after, capacity)]
    return [Refusal(host, message, way_out) for message, way_out in found]


def notes(
    desired: DesiredThresholds, configuration: Mapping[str, Any], capacity: Mapping[str, int], defaults: Mapping[str, str] = DEFAULT_HARD
) -> list[str]:
    """What an operator should know about the change: the effect of `absent` and 0%, what else is written, and settings of the node that
    are probably a mistake."""
    now, after = shown(configuration), expected(desired, configuration, defaults)
    changed = fields(desired, configuration, defaults)
    found = [*_absences(desired, now, after, defaults), *_disabled(desired)]
    if HARD in changed:
        found += _hard_notes(desired, now, changed, defaults)
    named = {*desired.eviction_hard, *desired.eviction_soft}
    for signal, soft, hard in _pairs(after):
        if signal in named and _reached_first(soft, hard, capacity.get(signal)) is None:
            found.append(f"{signal}: the node's capacity is unknown; daytwo did not check that the soft threshold is above the hard one")
        if signal not in named and _reached_first(soft, hard, capacity.get(signal)) is False:
            found.append(f"{signal}: its soft threshold is not above its hard one, and never has an effect")
    if enabled(SOFT, texts(after, SOFT)) and not after[POD_GRACE]:
        found.append(f"{POD_GRACE} is 0: pods that a soft threshold evicts are killed after 1 s, as by a hard one")
    return found


def _changed(before: Mapping[str, str], desired: ThresholdTexts, defaults: Mapping[str, str]) -> dict[str, str]:
    after = dict(before)
    for signal, text in desired.items():
        value = text if text is not None else defaults.get(signal)
        if value is None:
            after.pop(signal, None)
        else:
            after[signal] = value
    return after


def texts(view: Mapping[str, object], field: str) -> dict[str, str]:
    """The signals of a field of `shown` or `expected`, with their values as text."""
    found = view[field]
    return {signal: str(text) for signal, text in found.items()} if isinstance(found, Mapping) else {}


def enabled(field: str, signals: Mapping[str, str]) -> dict[str, object]:
    """A map as the kubelet reads it: 500Mi equals 512000Ki, and 0% equals a signal that is not named."""
    parse = {
        HARD: parse_threshold,
        SOFT: parse_threshold,
        GRACE: lambda _, text: parse_duration(text),
        RECLAIM: parse_reclaim,
    }[field]
    read: dict[str, object] = {signal: parse(signal, text) for signal, text in signals.items()}
    return {signal: value for signal, value in read.items() if value is not None}


def _ordered(signals: Mapping[str, str]) -> dict[str, str]:
    order = (*SIGNALS, *DERIVED)
    return {signal: signals[signal] for signal in sorted(signals, key=order.index)}


def _transition(view: Mapping[str, Any]) -> str:
    """The period in Go's form. A kubelet reads 0 in a file as its default."""
    seconds = parse_duration(str(view.get(TRANSITION) or "0"))
    return _go_duration(seconds or _DEFAULT_TRANSITION)


def _go_duration(seconds: Fraction) -> str:
    """A duration as Go's Duration.String() writes it: 5m0s, 1h0m0s, 1.5s, 20ms."""
    if 0 < abs(seconds) < 1:
        unit, size = next((unit, size) for unit, size in (("ms", 1000), ("µs", 10**6), ("ns", 10**9)) if abs(seconds) * size >= 1)
        return f"{_decimal(seconds * size)}{unit}"
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return sign + (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{_decimal(rest)}s"


def _decimal(number: Fraction) -> str:
    nanos = round(number * 10**9)
    whole, part = divmod(nanos, 10**9)
    return f"{whole}.{part:09d}".rstrip("0").rstrip(".")


def _pairs(view: Mapping[str, object]) -> Iterator[tuple[str, Amount, Amount]]:
    """The signals with a soft and a hard threshold."""
    soft, hard = texts(view, SOFT), texts(view, HARD)
    for signal in SIGNALS:
        if signal in soft and signal in hard:
            soft_amount, hard_amount = parse_threshold(signal, soft[signal]), parse_threshold(signal, hard[signal])
            if soft_amount is not None and hard_amount is not None:
                yield signal, soft_amount, hard_amount


def _reached_first(soft: Amount, hard: Amount, capacity: int | None) -> bool | None:
    """True if the soft threshold is reached before the hard one; None if that depends on an unknown capacity."""
    if soft.quantity is not None and hard.quantity is not None:
        return soft.quantity > hard.quantity
    if soft.fraction is not None and hard.fraction is not None:
        return soft.fraction > hard.fraction
    return None if capacity is None else soft.of(capacity) > hard.of(capacity)


def _soft_problems(desired: DesiredThresholds, after: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    soft, grace = texts(after, SOFT), texts(after, GRACE)
    for signal in SIGNALS:
        if signal in soft and signal not in grace and enabled(SOFT, {signal: soft[signal]}):
            yield (
                f"eviction_soft: {signal}={soft[signal]} has no grace period, and the kubelet would not start",
                f"set one: eviction_soft_grace_period {signal}=1m30s",
            )
    wanted = [signal for signal, text in desired.eviction_soft.items() if text is not None and enabled(SOFT, {signal: text})]
    if wanted and not after[POD_GRACE] and desired.eviction_max_pod_grace_period is None:
        yield (
            f"eviction_soft: {', '.join(wanted)}: evictionMaxPodGracePeriod is 0 on this node, so pods would be killed after 1 s as by a"
            " hard threshold, whatever their own grace period",
            "set eviction_max_pod_grace_period in seconds (0 to accept that)",
        )


def _orphans(desired: DesiredThresholds, after: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    soft = enabled(SOFT, texts(after, SOFT))
    for signal, text in desired.eviction_soft_grace_period.items():
        if text is not None and signal not in soft:
            yield (
                f"eviction_soft_grace_period: {signal}={text}: there is no soft threshold of {signal}, and the kubelet would ignore it",
                f"set eviction_soft {signal}, or remove the grace period",
            )
        if text is None and signal in soft:
            yield (
                f"eviction_soft_grace_period: {signal}={ABSENT}: the soft threshold {signal}={texts(after, SOFT)[signal]} needs one, and"
                " the kubelet would not start",
                f"remove the threshold too: eviction_soft {signal}={ABSENT}",
            )
    hard = enabled(HARD, texts(after, HARD))
    for signal, text in desired.eviction_minimum_reclaim.items():
        if text is not None and signal not in soft and signal not in hard:
            yield (
                f"eviction_minimum_reclaim: {signal}={text}: {signal} has no threshold on this node, and nothing would be reclaimed",
                f"set eviction_hard or eviction_soft {signal}, or remove the minimum reclaim",
            )


def _sizes(desired: DesiredThresholds, after: Mapping[str, object], capacity: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for signal, soft, hard in _pairs(after):
        if signal in {*desired.eviction_soft, *desired.eviction_hard} and _reached_first(soft, hard, capacity.get(signal)) is False:
            yield (
                f"{signal}: the soft threshold {texts(after, SOFT)[signal]} is not above the hard one {texts(after, HARD)[signal]}"
                f"{_on_node(signal, soft, hard, capacity)}, so it would never have an effect",
                "raise the soft threshold, or lower the hard one",
            )
    for key, field, signals in (("eviction_hard", HARD, desired.eviction_hard), ("eviction_soft", SOFT, desired.eviction_soft)):
        for signal, text in signals.items():
            wanted = parse_threshold(signal, text) if text is not None else None
            if wanted is not None and signal in capacity and wanted.of(capacity[signal]) >= capacity[signal]:
                yield (
                    f"{key}: {signal}={text} is not below the {_text(signal, capacity[signal])} that the node has, so this threshold of"
                    f" {field} would always be met",
                    "lower it",
                )
    yield from _reclaims(desired, after, capacity)


def _reclaims(desired: DesiredThresholds, after: Mapping[str, object], capacity: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for signal, text in desired.eviction_minimum_reclaim.items():
        if text is None or signal not in capacity:
            continue
        reclaim = parse_reclaim(signal, text).of(capacity[signal])
        for field in (HARD, SOFT):
            threshold = texts(after, field).get(signal)
            least = parse_threshold(signal, threshold) if threshold is not None else None
            if least is not None and (end := least.of(capacity[signal]) + reclaim) > capacity[signal]:
                yield (
                    f"eviction_minimum_reclaim: {signal}={text}: with the threshold {threshold} of {field}, pressure would end only when"
                    f" {_text(signal, end)} is free, and the node has {_text(signal, capacity[signal])}",
                    "lower the minimum reclaim",
                )


def _text(signal: str, size: int) -> str:
    """Exact to a tenth of a MiB: these are compared."""
    return str(size) if signal == PID or signal.endswith(".inodesFree") else amounts.shown("memory", size)


def _on_node(signal: str, soft: Amount, hard: Amount, capacity: Mapping[str, int]) -> str:
    if signal not in capacity or (soft.quantity is None) == (hard.quantity is None):
        return ""
    return f" ({_text(signal, soft.of(capacity[signal]))} and {_text(signal, hard.of(capacity[signal]))} on this node)"


def _absences(
    desired: DesiredThresholds, now: Mapping[str, object], after: Mapping[str, object], defaults: Mapping[str, str]
) -> Iterator[str]:
    for field, signals in desired.maps.items():
        for signal, text in signals.items():
            if text is None:
                default = defaults.get(signal) if field == HARD else None
                yield f"{field}: {signal} " + (f"goes back to the kubelet's default, {default}" if default else "becomes unset")
    for signal in sorted(texts(now, GRACE).keys() - texts(after, GRACE).keys() - desired.eviction_soft_grace_period.keys()):
        yield f"{GRACE}: {signal} is removed with its threshold"
    if desired.eviction_max_pod_grace_period == ABSENT:
        yield f"{POD_GRACE} goes back to the kubelet's default, 0"
    if desired.eviction_pressure_transition_period == ABSENT:
        yield f"{TRANSITION} goes back to the kubelet's default, {_go_duration(_DEFAULT_TRANSITION)}"


def _disabled(desired: DesiredThresholds) -> Iterator[str]:
    for field, signals in ((HARD, desired.eviction_hard), (SOFT, desired.eviction_soft)):
        for signal, text in signals.items():
            if text is not None and parse_threshold(signal, text) is None:
                yield f"{field}: {signal}={text} disables the signal"


def _hard_notes(
    desired: DesiredThresholds, now: Mapping[str, object], changed: Mapping[str, object], defaults: Mapping[str, str]
) -> Iterator[str]:
    written = changed[HARD]
    if written is None:
        yield f"{HARD} is removed: only the kubelet's defaults remain"
        return
    before = enabled(HARD, texts(now, HARD))
    if kept := [signal for signal in defaults if signal in before and signal not in desired.eviction_hard]:
        yield f"{HARD} is written in full to keep {', '.join(kept)} as they are; a new default of a later version will not apply"
    if off := [signal for signal in defaults if signal not in before and signal not in desired.eviction_hard]:
        yield f"{HARD}: off on this node, and kept off ({_OFF}): {', '.join(off)}; the value {ABSENT} restores a signal's default"
