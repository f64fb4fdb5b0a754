"""Which of the recorded changes deploys/changes.py lists. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine.bounds import moment
from roles.history.facts import Recorded
from roles.history.model import ChangesOptions


def chosen(changes: Sequence[Recorded], wanted: ChangesOptions, now: float) -> list[Recorded]:
    """`changes` in the order of their runs, the newest last; `now`: seconds since 1970. A run with a change that is not over is listed
    unless another run is asked for; so is one whose age is not known."""
    if wanted.run is not None:
        return [change for change in changes if change.run == wanted.run]
    runs = list(dict.fromkeys(change.run for change in changes))
    young = {change.run for change in changes if _is_young(change, wanted, now)}
    kept = {run for run in runs if run in young}
    newest = {run for run in runs[-wanted.last :] if run in kept}
    open_runs = {change.run for change in changes if change.in_flight}
    return [change for change in changes if change.run in newest | open_runs]


def _is_young(change: Recorded, wanted: ChangesOptions, now: float) -> bool:
    seconds = age(str(change.plan.get("at", "")), now)
    return wanted.seconds is None or seconds is None or seconds <= wanted.seconds


def age(at: str, now: float) -> float | None:
    """Seconds since a time of a record; None if it is no time, or more than a day ahead: no clock is that wrong, so somebody wrote it."""
    found = moment(at)
    return None if found is None or found.timestamp() > now + 86400 else now - found.timestamp()
