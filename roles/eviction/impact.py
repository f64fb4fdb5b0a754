"""What new thresholds would do to a node the moment they are set: from its usage now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roles.engine.kubelet import thresholds
from roles.engine.transaction import Refusal
from roles.eviction.order import amount
from roles.eviction.predict import Prediction, Pressure, predict
from roles.kubelet_config import KubeletState, Outlook, allocatable_outlook

# Of a long order an operator sees as many here; deploys/eviction_order.py shows all.
SHOWN = 8


def eviction_impact(state: KubeletState, after: Mapping[str, Any]) -> Outlook:
    """What the configuration `after` would come to on this node. Raises Refusal where its usage cannot be read for what it is."""
    changed = allocatable_outlook(state, after)
    try:
        now = predict(state.summary, state.pods, state.node, thresholds.effective(state.configuration))
        then = predict(state.summary, state.pods, state.node, thresholds.effective(after))
    except ValueError as error:
        raise Refusal(state.host, f"what its thresholds would do cannot be foreseen: {error}") from None
    new = then.not_in(now)
    evicts = [_evicts(pressure) for pressure in new]
    # Also under a pressure that there is already: those pods run only because the kubelet was not restarted since.
    if then.rejected:
        evicts.append(f"the kubelet, when it starts anew under that pressure, may refuse to take back: {', '.join(then.rejected)}")
    notes = [f"note: {note}" for note in then.notes] if new else []
    # What goes on under an old pressure is no doing of this change, and cannot be told from it either.
    may_go = {*then.rejected, *(local.pod for local in then.local), *(pod for pressure in then.pressures for pod in _goers(pressure))}
    return Outlook((*_lines(then), *changed.lines, *notes), (*evicts, *changed.evicts), changed.may_go | may_go)


def _goers(pressure: Pressure) -> Iterator[str]:
    """The victims, and those that may as well go in their place, being of the same rank."""
    victims = {victim.uid for victim in pressure.victims}
    ranks = {entry.rank for entry in pressure.order if entry.uid in victims}
    yield from (entry.pod for entry in pressure.order if entry.rank in ranks and not entry.protected)


def _lines(then: Prediction) -> Iterator[str]:
    for threshold in then.thresholds:
        kind = "hard" if threshold.hard else f"soft, after {threshold.grace:g} s"
        reading = then.readings.get(threshold.signal)
        if reading is None:
            yield f"{threshold.signal} ({kind}): the node does not tell what is left; this threshold is never reached"
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
    goers = [victim.pod for victim in pressure.victims]
    if not goers:
        who = "no pod that may be evicted is there"
    else:
        more = f" and {len(goers) - SHOWN} more" if len(goers) > SHOWN else ""
        who = f"in this order: {', '.join(goers[:SHOWN])}{more}"
    enough = "" if pressure.enough else "; even all of them would not be enough, and the node stays under pressure"
    return (
        f"{signal} has {amount(signal, pressure.reading.available)} left and the threshold is {amount(signal, pressure.limit)}"
        f" ({missing} short): pods go {when}, {who}{enough}"
    )
