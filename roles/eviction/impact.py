"""The immediate effect of new thresholds on a node, predicted from its current usage. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roles.engine.folding import shortened
from roles.engine.kubelet import thresholds
from roles.engine.transaction import Refusal
from roles.eviction.order import amount
from roles.eviction.predict import Prediction, Pressure, predict
from roles.kubelet_config import Impact, KubeletState, allocatable_impact

# The plan shows this many pods of a long order; deploys/eviction_order.py shows all.
SHOWN = 8


def eviction_impact(state: KubeletState, after: Mapping[str, Any]) -> Impact:
    """The predicted effect of the configuration `after` on this node. Raises Refusal if its usage cannot be interpreted."""
    changed = allocatable_impact(state, after)
    try:
        now = predict(state.summary, state.pods, state.node, thresholds.effective(state.configuration))
        then = predict(state.summary, state.pods, state.node, thresholds.effective(after))
    except ValueError as error:
        raise Refusal(state.host, f"the effect of its thresholds cannot be predicted: {error}") from None
    new = then.not_in(now)
    evicts = [_evicts(pressure) for pressure in new]
    # Also under an existing pressure. The re-admission forecast has them, too; but without consent the plan does not come that far.
    if then.rejected:
        evicts.append(f"a kubelet that starts under that pressure may refuse to re-admit: {', '.join(then.rejected)}")
    notes = [f"note: {note}" for note in then.notes] if new else []
    # This change does not cause evictions under an existing pressure, but they cannot be distinguished from those that it causes.
    may_be_evicted = {
        *then.rejected,
        *(local.pod for local in then.local),
        *(pod for pressure in then.pressures for pod in _may_go(pressure)),
    }
    return Impact(
        (*_lines(then), *changed.lines, *notes), (*evicts, *changed.evicts), changed.may_be_evicted | may_be_evicted, then.conditions
    )


def _may_go(pressure: Pressure) -> Iterator[str]:
    """The victims, and the pods of the same rank, which may be evicted instead."""
    victims = {victim.uid for victim in pressure.victims}
    ranks = {entry.rank for entry in pressure.order if entry.uid in victims}
    yield from (entry.pod for entry in pressure.order if entry.rank in ranks and not entry.protected)


def _lines(then: Prediction) -> Iterator[str]:
    for threshold in then.thresholds:
        kind = "hard" if threshold.hard else f"soft, after {threshold.grace:g} s"
        reading = then.readings.get(threshold.signal)
        if reading is None:
            yield f"{threshold.signal} ({kind}): the node does not report what is left; this threshold is never reached"
            continue
        signal, limit = threshold.signal, threshold.amount.of(reading.capacity)
        state = "REACHED NOW" if reading.available < limit else f"{amount(signal, reading.available - limit)} above it"
        yield (
            f"{signal} ({kind}): {amount(signal, reading.available)} left of {amount(signal, reading.capacity)},"
            f" evicts below {amount(signal, limit)}: {state}"
        )


def _evicts(pressure: Pressure) -> str:
    signal = pressure.signal
    missing = amount(signal, pressure.goal - pressure.reading.available)
    when = "at once" if not pressure.grace else f"after {pressure.grace:g} s"
    victims = [victim.pod for victim in pressure.victims]
    if not victims:
        effect = f"the kubelet would evict {when}, but may not evict any of these pods; the node stays under pressure"
    else:
        enough = "" if pressure.enough else "; even all of them would not be enough, and the node stays under pressure"
        effect = f"pods are evicted {when}, in this order: {shortened(victims, SHOWN)}{enough}"
    return (
        f"{signal} has {amount(signal, pressure.reading.available)} left and the threshold is {amount(signal, pressure.limit)}"
        f" ({missing} short): {effect}"
    )
