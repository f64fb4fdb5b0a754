"""Pure: what is wanted and what a kubelet uses now -> the fields to write, and what /configz must show afterwards.

A field is written whole. evictionHard then names each signal that the kubelet has a default for, those that are off as 0%. This one
form is right in every place and version: in a configuration file, whose evictionHard drops the defaults that it leaves out; over one
with mergeDefaultEvictionSettings (1.33 and later), which adds them; in a drop-in, which is merged over the defaults; and in a flag,
which replaces all of it. mergeDefaultEvictionSettings itself is not set: a drop-in's is not looked at, a kubelet before 1.33 drops it
with the defaults (kubelet-config is one ConfigMap for all of a cluster's versions), and it would bring back what a node has switched
off. The price is that a default which a later version changes does not reach the node; `notes` says so. Where all that is
wanted is `absent` and that leaves the defaults alone, the field is taken out again.

Sources: cmd/kubelet/app/server.go (loadConfigFile, mergeKubeletConfigurations) of Kubernetes 1.32 to 1.36,
k8s.io/component-base/cli/flag/langle_separated_map_string_string.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from roles.engine.kubelet import DEFAULT_HARD, DERIVED, SIGNALS, Amount, parse_duration, parse_reclaim, parse_threshold
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
    """Each eviction field as /configz shows it: maps of text, seconds, a Go duration; None for what it leaves out, being empty or 0."""
    found: dict[str, object] = {field: dict(configuration.get(field) or {}) or None for field in MAPS}
    found[POD_GRACE] = configuration.get(POD_GRACE) or None
    found[TRANSITION] = _transition(configuration)
    return found


def expected(desired: DesiredThresholds, configuration: Mapping[str, Any], defaults: Mapping[str, str] = DEFAULT_HARD) -> dict[str, object]:
    """What /configz must show after the change, by field as `shown` gives it, of a kubelet that shows `configuration` now.

    `defaults`: the hard thresholds that the kubelet has by itself; none ({}) where it runs without --config.
    """
    meant = shown(configuration)
    for field, value in fields(desired, configuration, defaults).items():
        if value is not None:
            meant[field] = {**value} if isinstance(value, dict) else value
        else:
            meant[field] = dict(defaults) or None if field == HARD else None
    meant[POD_GRACE] = meant[POD_GRACE] or None
    meant[TRANSITION] = _transition(meant)
    return meant


def fields(
    desired: DesiredThresholds, configuration: Mapping[str, Any], defaults: Mapping[str, str] = DEFAULT_HARD
) -> dict[str, dict[str, str] | int | str | None]:
    """The fields to write so that exactly the wanted settings change; None for one to take out of all its sources. {} when converged.

    `configuration` is what the running kubelet shows at /configz.
    """
    written: dict[str, dict[str, str] | int | str | None] = {}
    now = shown(configuration)
    for field, wishes in desired.maps.items():
        before = texts(now, field)
        after = _meant(before, wishes, defaults if field == HARD else {})
        if field == GRACE:
            for signal, text in desired.eviction_soft.items():
                if text is None and signal not in wishes:
                    after.pop(signal, None)
        if enabled(field, after) == enabled(field, before):
            continue
        if field == HARD:
            untouched = enabled(HARD, after) == enabled(HARD, defaults) and all(text is None for text in wishes.values())
            written[field] = None if untouched else _ordered(dict.fromkeys(defaults, _OFF) | after)
        else:
            written[field] = _ordered(after) or None
    if (pod_grace := desired.eviction_max_pod_grace_period) is not None:
        meant = None if pod_grace == ABSENT else int(pod_grace)
        if (meant or None) != now[POD_GRACE]:
            written[POD_GRACE] = meant
    if (transition := desired.eviction_pressure_transition_period) is not None:
        meant_transition = None if transition == ABSENT else transition
        if _transition({TRANSITION: meant_transition}) != now[TRANSITION]:
            written[TRANSITION] = meant_transition
    return written


def named(desired: DesiredThresholds) -> dict[tuple[str, ...], Any]:
    """The settings that the data names, by where they stand in a KubeletConfiguration; None for `absent`."""
    found: dict[tuple[str, ...], Any] = {(field, signal): text for field, wishes in desired.maps.items() for signal, text in wishes.items()}
    for field, value in ((POD_GRACE, desired.eviction_max_pod_grace_period), (TRANSITION, desired.eviction_pressure_transition_period)):
        if value is not None:
            found[(field,)] = None if value == ABSENT else value
    return found


def lasting(configuration: Mapping[str, Any], settings: Mapping[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    """The fields to write to a KubeletConfiguration as a file has it, for settings as `named` gives them; None: taken out.

    A kubelet that is given such a file has its default thresholds where evictionHard is not in it, or is to be merged.
    """
    wishes: dict[str, dict[str, str | None]] = {field: {} for field in MAPS}
    for path, value in settings.items():
        if path[0] in MAPS:
            wishes[path[0]][path[1]] = value
    single: dict[str, Any] = {path[0]: ABSENT if value is None else value for path, value in settings.items() if path[0] not in MAPS}
    desired = DesiredThresholds.model_construct(
        eviction_hard=wishes[HARD],
        eviction_soft=wishes[SOFT],
        eviction_soft_grace_period=wishes[GRACE],
        eviction_minimum_reclaim=wishes[RECLAIM],
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
    """Why what is wanted cannot be meant on a kubelet that shows `configuration` now; [] where it can.

    `capacity`: signal -> what the node has of it in bytes, inodes or processes, as far as it is known. Only what the data names is
    judged, not what the node uses already; for that see `notes`.
    """
    meant = expected(desired, configuration, defaults)
    found = [*_soft_problems(desired, meant), *_orphans(desired, meant), *_sizes(desired, meant, capacity)]
    return [Refusal(host, message, way_out) for message, way_out in found]


def notes(
    desired: DesiredThresholds, configuration: Mapping[str, Any], capacity: Mapping[str, int], defaults: Mapping[str, str] = DEFAULT_HARD
) -> list[str]:
    """What an operator should know of the change: what `absent` and 0% come to, what is written beside the wanted signals, and what
    the node's own settings do that nobody may have meant."""
    now, meant = shown(configuration), expected(desired, configuration, defaults)
    changed = fields(desired, configuration, defaults)
    found = [*_absences(desired, now, meant, defaults), *_disabled(desired)]
    if HARD in changed:
        found += _hard_notes(desired, now, changed, defaults)
    named = {*desired.eviction_hard, *desired.eviction_soft}
    for signal, soft, hard in _pairs(meant):
        if signal in named and _reached_first(soft, hard, capacity.get(signal)) is None:
            found.append(f"{signal}: what the node has of it is not known; that the soft threshold comes before the hard was not checked")
        if signal not in named and _reached_first(soft, hard, capacity.get(signal)) is False:
            found.append(f"{signal}: its soft threshold is not above its hard one, and never has an effect")
    if enabled(SOFT, texts(meant, SOFT)) and not meant[POD_GRACE]:
        found.append(f"{POD_GRACE} is 0: pods that a soft threshold evicts are killed after 1 s, as by a hard one")
    return found


def _meant(before: Mapping[str, str], wishes: ThresholdTexts, defaults: Mapping[str, str]) -> dict[str, str]:
    after = dict(before)
    for signal, text in wishes.items():
        value = text if text is not None else defaults.get(signal)
        if value is None:
            after.pop(signal, None)
        else:
            after[signal] = value
    return after


def texts(view: Mapping[str, object], field: str) -> dict[str, str]:
    """The signals of a field of `shown` or `expected`, as they are written."""
    found = view[field]
    return {signal: str(text) for signal, text in found.items()} if isinstance(found, Mapping) else {}


def enabled(field: str, signals: Mapping[str, str]) -> dict[str, object]:
    """What the kubelet makes of a map: 500Mi and 512000Ki are the same, and 0% is the same as not named."""
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
    """The period in Go's form. A kubelet takes 0 in a file for its default."""
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
            one, other = parse_threshold(signal, soft[signal]), parse_threshold(signal, hard[signal])
            if one is not None and other is not None:
                yield signal, one, other


def _reached_first(soft: Amount, hard: Amount, capacity: int | None) -> bool | None:
    """True where the soft threshold is reached before the hard one; None where that depends on a capacity which is not known."""
    if soft.quantity is not None and hard.quantity is not None:
        return soft.quantity > hard.quantity
    if soft.fraction is not None and hard.fraction is not None:
        return soft.fraction > hard.fraction
    return None if capacity is None else soft.of(capacity) > hard.of(capacity)


def _soft_problems(desired: DesiredThresholds, meant: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    soft, grace = texts(meant, SOFT), texts(meant, GRACE)
    for signal in SIGNALS:
        if signal in soft and signal not in grace and enabled(SOFT, {signal: soft[signal]}):
            yield (
                f"eviction_soft: {signal}={soft[signal]} has no grace period, and the kubelet would not start",
                f"give it one: eviction_soft_grace_period {signal}=1m30s",
            )
    wanted = [signal for signal, text in desired.eviction_soft.items() if text is not None and enabled(SOFT, {signal: text})]
    if wanted and not meant[POD_GRACE] and desired.eviction_max_pod_grace_period is None:
        yield (
            f"eviction_soft: {', '.join(wanted)}: evictionMaxPodGracePeriod is 0 on this node, so pods would be killed after 1 s as by a"
            " hard threshold, whatever their own grace period",
            "set eviction_max_pod_grace_period in seconds (0, if that is meant)",
        )


def _orphans(desired: DesiredThresholds, meant: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    soft = enabled(SOFT, texts(meant, SOFT))
    for signal, text in desired.eviction_soft_grace_period.items():
        if text is not None and signal not in soft:
            yield (
                f"eviction_soft_grace_period: {signal}={text}: there is no soft threshold of {signal}, and the kubelet would ignore it",
                f"set eviction_soft {signal}, or leave the grace period out",
            )
        if text is None and signal in soft:
            yield (
                f"eviction_soft_grace_period: {signal}={ABSENT}: the soft threshold {signal}={texts(meant, SOFT)[signal]} needs one, and"
                " the kubelet would not start",
                f"take the threshold out too: eviction_soft {signal}={ABSENT}",
            )
    hard = enabled(HARD, texts(meant, HARD))
    for signal, text in desired.eviction_minimum_reclaim.items():
        if text is not None and signal not in soft and signal not in hard:
            yield (
                f"eviction_minimum_reclaim: {signal}={text}: {signal} has no threshold on this node, and nothing would be reclaimed",
                f"set eviction_hard or eviction_soft {signal}, or leave it out",
            )


def _sizes(desired: DesiredThresholds, meant: Mapping[str, object], capacity: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for signal, soft, hard in _pairs(meant):
        if signal in {*desired.eviction_soft, *desired.eviction_hard} and _reached_first(soft, hard, capacity.get(signal)) is False:
            yield (
                f"{signal}: the soft threshold {texts(meant, SOFT)[signal]} is not above the hard one {texts(meant, HARD)[signal]}"
                f"{_on_node(signal, soft, hard, capacity)}, so it would never have an effect",
                "raise the soft threshold, or lower the hard one",
            )
    for key, field, wishes in (("eviction_hard", HARD, desired.eviction_hard), ("eviction_soft", SOFT, desired.eviction_soft)):
        for signal, text in wishes.items():
            amount = parse_threshold(signal, text) if text is not None else None
            if amount is not None and signal in capacity and amount.of(capacity[signal]) >= capacity[signal]:
                yield (
                    f"{key}: {signal}={text} is not below the {capacity[signal]} that the node has, so {field} would always be breached",
                    "lower it",
                )
    yield from _reclaims(desired, meant, capacity)


def _reclaims(desired: DesiredThresholds, meant: Mapping[str, object], capacity: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for signal, text in desired.eviction_minimum_reclaim.items():
        if text is None or signal not in capacity:
            continue
        reclaim = parse_reclaim(signal, text).of(capacity[signal])
        for field in (HARD, SOFT):
            threshold = texts(meant, field).get(signal)
            amount = parse_threshold(signal, threshold) if threshold is not None else None
            if amount is not None and (end := amount.of(capacity[signal]) + reclaim) > capacity[signal]:
                yield (
                    f"eviction_minimum_reclaim: {signal}={text}: with the threshold {threshold} of {field}, pressure would end only when"
                    f" {end} is free, and the node has {capacity[signal]}",
                    "lower the minimum reclaim",
                )


def _on_node(signal: str, soft: Amount, hard: Amount, capacity: Mapping[str, int]) -> str:
    if signal not in capacity or (soft.quantity is None) == (hard.quantity is None):
        return ""
    return f" ({soft.of(capacity[signal])} and {hard.of(capacity[signal])} on this node)"


def _absences(
    desired: DesiredThresholds, now: Mapping[str, object], meant: Mapping[str, object], defaults: Mapping[str, str]
) -> Iterator[str]:
    for field, wishes in desired.maps.items():
        for signal, text in wishes.items():
            if text is None:
                default = defaults.get(signal) if field == HARD else None
                yield f"{field}: {signal} goes back to " + (f"the kubelet's default, {default}" if default else "not being set")
    for signal in sorted(texts(now, GRACE).keys() - texts(meant, GRACE).keys() - desired.eviction_soft_grace_period.keys()):
        yield f"{GRACE}: {signal} is taken out with its threshold"
    if desired.eviction_max_pod_grace_period == ABSENT:
        yield f"{POD_GRACE} goes back to the kubelet's default, 0"
    if desired.eviction_pressure_transition_period == ABSENT:
        yield f"{TRANSITION} goes back to the kubelet's default, {_go_duration(_DEFAULT_TRANSITION)}"


def _disabled(desired: DesiredThresholds) -> Iterator[str]:
    for field, wishes in ((HARD, desired.eviction_hard), (SOFT, desired.eviction_soft)):
        for signal, text in wishes.items():
            if text is not None and parse_threshold(signal, text) is None:
                yield f"{field}: {signal}={text} disables the signal"


def _hard_notes(
    desired: DesiredThresholds, now: Mapping[str, object], changed: Mapping[str, object], defaults: Mapping[str, str]
) -> Iterator[str]:
    written = changed[HARD]
    if written is None:
        yield f"{HARD} is taken out: the kubelet's own defaults are all that is wanted"
        return
    before = enabled(HARD, texts(now, HARD))
    if kept := [signal for signal in defaults if signal in before and signal not in desired.eviction_hard]:
        yield f"{HARD} is written in full, so that {', '.join(kept)} stay as they are; new defaults of a later version will not reach it"
    if off := [signal for signal in defaults if signal not in before and signal not in desired.eviction_hard]:
        yield f"{HARD}: off on this node, and left so ({_OFF}): {', '.join(off)}; a signal wanted {ABSENT} goes back to its default"
