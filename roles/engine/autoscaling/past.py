"""What the API shows of the controller's memory: its leader's age, the last change of the count, the events of changes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from roles.engine.autoscaling.decide import BELOW_MINIMUM
from roles.engine.autoscaling.limits import ABLE, LIMITED, TOO_MANY, UP_LIMIT, Past, ScalingHistory
from roles.engine.autoscaling.model import Autoscaler, LiveScale, ScalingController
from roles.engine.bounds import EARLIEST, span
from roles.engine.kube import Object
from roles.engine.kube.times import time_of

#: The reason of the event that the controller writes with each change of the count.
EVENT = "SuccessfulRescale"
_MESSAGE = re.compile(r"New size: ([0-9]{1,10}); reason: (.*)", re.DOTALL)
#: Times of the API have whole seconds.
_SECOND = span(1)


def history_of(autoscaler: Autoscaler, scale: LiveScale, controller: ScalingController, events: Sequence[Object]) -> ScalingHistory:
    """What is surely in the controller's memory, and since when nothing is missing. `events`: of the autoscaler, of reason EVENT. Raises
    nothing: an event that cannot be read counts for nothing."""
    status = autoscaler.status
    started = max((one for one in (controller.leads_since, autoscaler.created) if one is not None), default=None)
    if controller.leads_since is None:
        started = None
    # The controller is the only one that changes the count, as far as its own status shows.
    alone = status.desired in (None, scale.spec)
    last = status.last_scale
    recommendations = []
    if started is not None and alone and (last is None or last + _SECOND < started):
        # The first thing that it remembers is the count that it finds.
        recommendations.append(Past(started, scale.spec))
    raised = _raised_to(scale.spec, events, last) if alone else None
    if raised is not None and (started is None or raised >= started):
        recommendations.append(Past(raised, scale.spec))
    # The controller writes the count first, and then its status: with another count there, a change may be missing from the status.
    changes_since = _changes_since(last, started) if alone else None
    return ScalingHistory(
        tuple(recommendations), changes_since=changes_since, ceiling=scale.spec if alone and _bounded(autoscaler) else None
    )


def _changes_since(last: datetime | None, started: datetime | None) -> datetime | None:
    """Since the last change there is none, and a new leader has none to remember."""
    if last is None:
        return EARLIEST
    if started is not None and started > last + _SECOND:
        return EARLIEST
    return last + _SECOND


def _bounded(autoscaler: Autoscaler) -> bool:
    """Nothing higher than the count of now was recommended: else the controller would have set it."""
    limited, able = autoscaler.status.condition(LIMITED), autoscaler.status.condition(ABLE)
    if able is not None and not able.status:
        return False
    if autoscaler.behavior is not None and autoscaler.behavior.up.window:
        return False
    return limited is None or not limited.status or limited.reason not in (TOO_MANY, UP_LIMIT)


def _raised_to(count: int, events: Sequence[Object], last: datetime | None) -> datetime | None:
    """When the metrics last raised the count to what it is now, if that was the last change."""
    for event in events:
        found = _MESSAGE.match(str(event.get("message") or ""))
        try:
            at = time_of(event.get("lastTimestamp") or event.get("eventTime"))
        except ValueError:
            continue
        if found is None or at is None or last is None or int(found[1]) != count:
            continue
        if abs((at - last).total_seconds()) <= 1 and found[2].endswith("above target") and BELOW_MINIMUM not in found[2]:
            return at
    return None
