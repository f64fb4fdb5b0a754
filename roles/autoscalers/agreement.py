"""Whether an autoscaler does what daytwo computes, once it is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.autoscaling import JudgedAutoscaler, JudgedVertical, ScalingRule
from roles.engine.autoscaling.vertical import PROVIDED, requests_of
from roles.engine.findings import why_of
from roles.engine.kube import Object, amounts, uid
from roles.engine.kube.fields import containers_of, name_of, status_of

_ABLE, _ACTIVE, _LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"


@dataclass(frozen=True)
class Agreement:
    """Whether the status shows that the autoscaler is handled as daytwo computes. `proof`: in words; else `missing`: what is not so."""

    proof: str = ""
    missing: str = ""


def agreement(judged: JudgedAutoscaler, *, new_sync: bool, unseen: str = "") -> Agreement:
    """Compare the status with the own computation. `new_sync`: the controller has surely looked at it since the write, unless `unseen` says
    why that is not known. Pure."""
    status, decision = judged.autoscaler.status, judged.decision
    able, active, limited = (status.condition(one) for one in (_ABLE, _ACTIVE, _LIMITED))
    # Conditions stay as they are when nobody leads.
    if why := why_of(judged.problems, ScalingRule.NOT_JUDGED, ScalingRule.NOT_HANDLED):
        return Agreement(missing=why)
    if able is None:
        return Agreement(missing="the controller has not looked at it yet")
    if not new_sync:
        return Agreement(missing="the controller may not have looked at it since the change")
    if not able.status:
        return Agreement(missing=f"{able}: {able.message}")
    if decision.failed:
        return Agreement(missing=decision.failed)
    disabled = decision.current == 0 and not decision.rows
    if active is None or (not active.status and not disabled):
        return Agreement(missing=f"{active}: {active.message}" if active else f"there is no condition {_ACTIVE}")
    if not disabled and limited is None:
        return Agreement(missing=f"there is no condition {_LIMITED}")
    if decision.rows and (old := _not_fresh(judged)):
        return Agreement(missing=old)
    said = status.desired
    if said is None or not decision.lowest <= said <= decision.highest:
        return Agreement(missing=f"desiredReplicas is {said}, and daytwo computes {_computed(judged)}")
    conditions = ", ".join(str(one) for one in (able, active, limited) if one is not None)
    metrics = "; ".join(f"{row.metric.title} {row.now}" for row in decision.rows)
    return Agreement(
        f"{conditions}; desiredReplicas {said}, and daytwo computes {_computed(judged)}"
        + (f" ({metrics})" if metrics else "")
        + (f"; NOT PROVEN that the controller has looked at it since the change: {unseen}" if unseen else "")
    )


def _computed(judged: JudgedAutoscaler) -> str:
    found = judged.decision
    return str(found.desired) if found.desired is not None else f"{found.lowest} to {found.highest}, as far as its memory is known"


def _not_fresh(judged: JudgedAutoscaler) -> str:
    """Why status.currentMetrics are not those of the spec."""
    shown = judged.autoscaler.status.metrics
    wanted = judged.autoscaler.metrics
    if len(shown) != len(wanted):
        return f"currentMetrics has {len(shown)} of {len(wanted)} metrics"
    for metric, one in zip(wanted, shown, strict=True):
        source: Mapping[str, Any] = one.get(metric.type[:1].lower() + metric.type[1:]) or {}
        name = source.get("name") or (source.get("metric") or {}).get("name")
        if one.get("type") != metric.type or name != metric.name or not source.get("current"):
            return f"currentMetrics has no value of {metric.title}"
    return ""


# ---- vertical ones


def vertical_agreement(judged: JudgedVertical, *, late: bool, first: Sequence[Object] = ()) -> Agreement:
    """Whether the recommender has a recommendation within the bounds, and what the updater did with it. `late`: there is no more time to
    wait for the updater; `first`: the pods as they were right after the write."""
    item, pods = judged.vertical, judged.scene.pods
    found = item.condition(PROVIDED)
    if odd := why_of(judged.problems, ScalingRule.NOT_JUDGED):
        return Agreement(missing=odd)
    if not pods:
        return Agreement(f"{_said(judged)}; no sign that a recommender sees it: there is no pod to recommend for")
    if found is None or not found.status or item.advice is None:
        why = why_of(judged.problems, ScalingRule.NO_RECOMMENDATION) or "there is no recommendation"
        return Agreement(missing=why)
    if outside := _beyond(judged):
        return Agreement(missing=f"the recommendation is not within the bounds yet: {outside}")
    if judged.outlook.state == "acts" and not late:
        return Agreement(missing=judged.outlook.text)
    unproven = "NOT PROVEN that the updater runs: " if judged.outlook.state == "acts" else ""
    done = "".join(f"{one}; " for one in updated(first, pods))
    return Agreement(f"{found}; {_said(judged)}; {done}{unproven}{judged.outlook.text}")


def updated(first: Sequence[Object], pods: Sequence[Object]) -> list[str]:
    """What an updater did with the pods meanwhile: those resized in place, and those that are new."""
    before = {uid(pod): pod for pod in first}
    found = []
    for pod in pods:
        old, name = before.get(uid(pod)), name_of(pod)
        if old is None:
            found += [f"pod {name} is new"] if first else []
            continue
        has, had = _requests(pod), _requests(old)
        if has != had:
            text = ", ".join(
                f"{key} {had.get(key, 'none')} to {has.get(key, 'none')}" for key in sorted({*has, *had}) if has.get(key) != had.get(key)
            )
            restarted = _containers(pod) != _containers(old)
            found.append(f"pod {name} was resized in place, {'with a restart' if restarted else 'without a restart'}: {text}")
    return found


def _requests(pod: Object) -> dict[str, str]:
    """`CONTAINER RESOURCE`, to the amount that it runs with."""
    try:
        return {
            f"{one['name']} {resource}": amounts.shown(resource, amounts.units(resource, amount))
            for one in containers_of(pod)
            for resource, amount in requests_of(pod, one).items()
        }
    except ValueError:
        return {}


def _containers(pod: Object) -> list[tuple[object, object]]:
    return [(one.get("containerID"), one.get("restartCount")) for one in status_of(pod).get("containerStatuses") or ()]


def _said(judged: JudgedVertical) -> str:
    return f"recommended: {'; '.join(map(str, judged.vertical.advice or ())) or 'nothing yet'}"


def _beyond(judged: JudgedVertical) -> str:
    """A target that is outside of minAllowed and maxAllowed; "" if none is. An amount that cannot be read is not compared."""
    item = judged.vertical
    general = next((one for one in item.policies if one.get("containerName") == "*"), {})
    for advice in item.advice or ():
        policy = next((one for one in item.policies if one.get("containerName") == advice.container), general)
        try:
            least, most = amounts.listed(policy.get("minAllowed")), amounts.listed(policy.get("maxAllowed"))
        except ValueError:
            continue
        for resource, target in advice.target.items():
            if target < least.get(resource, target) or target > most.get(resource, target):
                return str(advice)
    return ""
