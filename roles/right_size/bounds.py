"""Advice within what the namespace's LimitRanges allow: the API server refuses a pod outside of them, so that it would not come back. Pure.

plugin/pkg/admission/limitranger/admission.go: minConstraint, maxConstraint, limitRequestRatioConstraint; of type Pod for the sum of the
containers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from roles.engine.autoscaling.created import RangeRule
from roles.engine.kube import amounts
from roles.right_size.quantities import text_of
from roles.right_size.recommend import Advice, Decision, Present


def within(advice: Advice, now: Present, rules: Iterable[RangeRule]) -> Advice:
    """The advice for one container, with request and limit inside the rules for containers; `why` names the one that it follows."""
    for rule in rules:
        if rule.type == "Container" and advice.request is not None:
            advice = _within(advice, now, rule)
    return advice


def _within(advice: Advice, now: Present, rule: RangeRule) -> Advice:
    resource, text = advice.resource, partial(text_of, advice.resource)
    least, most, ratio = _amount(rule.least, resource), _amount(rule.most, resource), rule.ratio.get(resource)
    request, limit, target, reasons = advice.request, advice.limit, advice.target, []
    assert request is not None
    if least is not None:
        if request < least or (limit is not None and limit < least):
            reasons.append(f"{rule.place} needs at least {text(least)}")
        request, limit, target = max(request, least), None if limit is None else max(limit, least), _larger(target, least)
    if most is not None and max(request, limit or 0) > most:
        reasons.append(f"{rule.place} allows at most {text(most)}: raise that first")
        request, limit = min(request, most), None if limit is None else min(limit, most)
    if ratio and limit is not None and Fraction(limit) > ratio * request:
        # Only the request follows: a lower limit may end the program.
        request = math.ceil(limit / ratio)
        reasons.append(f"{rule.place} allows a limit of {float(ratio):g} times the request")
        target = _larger(target, request)
    return _changed(advice, now, request, limit, target, reasons)


def _changed(advice: Advice, now: Present, request: int, limit: int | None, target: int | None, reasons: Sequence[str]) -> Advice:
    if not reasons or not advice.changes:
        return replace(advice, target=target)
    decision, why = _decision(now.of(advice.resource), (request, limit)), "; ".join([advice.why, *reasons])
    return replace(advice, decision=decision, why=why, request=request, limit=limit, target=target)


def _decision(has: tuple[int | None, int | None], wanted: tuple[int | None, int | None]) -> Decision:
    pairs = [(one, other) for one, other in zip(has, wanted, strict=True) if one != other]
    if not pairs:
        return "keep"
    return "raise" if any(one is None or (other is not None and other > one) for one, other in pairs) else "lower"


def within_pod(
    advices: Mapping[str, tuple[Advice, Advice]], now: Mapping[str, Present], rules: Iterable[RangeRule]
) -> dict[str, tuple[Advice, Advice]]:  # fmt: skip
    """The advice for all containers of a pod, by name: what leads the sum out of a rule for pods stays as it is."""
    found = dict(advices)
    for rule in rules:
        for number, resource in enumerate(("cpu", "memory")):
            if rule.type == "Pod" and (why := _outside(rule, resource, [pair[number] for pair in found.values()])):
                for name, pair in found.items():
                    held = _held(pair[number], now[name], why)
                    found[name] = (held, pair[1]) if number == 0 else (pair[0], held)
    return found


def _outside(rule: RangeRule, resource: str, advices: Sequence[Advice]) -> str:
    text = partial(text_of, resource)
    requests = sum(one.request or 0 for one in advices)
    limits = sum(one.limit or 0 for one in advices)
    least, most = _amount(rule.least, resource), _amount(rule.most, resource)
    if least is not None and requests < least:
        return f"{rule.place} needs at least {text(least)} of each pod"
    if most is not None and max(requests, limits) > most:
        return f"{rule.place} allows at most {text(most)} of each pod: raise that first"
    return ""


def _held(advice: Advice, now: Present, why: str) -> Advice:
    if not advice.changes:
        return advice
    request, limit = now.of(advice.resource)
    return replace(advice, decision="keep", why=f"{advice.why}; {why}", request=request, limit=limit, target=request)


def _amount(found: Mapping[str, Fraction], resource: str) -> int | None:
    return amounts.units(resource, found[resource]) if resource in found else None


def _larger(one: int | None, other: int) -> int | None:
    return None if one is None else max(one, other)
