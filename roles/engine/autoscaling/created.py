"""A pod as the API server creates it from a template, and the limit ranges that refuse it. Pure.

Sources: pkg/apis/core/v1/defaults.go (SetDefaults_Pod, SetDefaults_LimitRangeItem), plugin/pkg/admission/limitranger/admission.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from roles.engine.kube import Object, amounts, namespace_and_name, resources
from roles.engine.kube.amounts import quantity
from roles.engine.kube.fields import spec_of
from roles.engine.kube.resources import View

CONTAINERS = ("containers", "initContainers")


def as_created(spec: Mapping[str, Any], limit_ranges: Sequence[Object]) -> dict[str, Any]:
    """The pod spec with what is filled in when a pod is created: limits as requests, then the defaults of limit ranges. (A template itself
    gets neither.) `limit_ranges`: those of its namespace."""
    requests, limits = _defaults(limit_ranges)
    return {**spec, **{key: [_filled(one, requests, limits) for one in spec.get(key) or ()] for key in CONTAINERS if spec.get(key)}}


def _defaults(limit_ranges: Sequence[Object]) -> tuple[dict[str, Any], dict[str, Any]]:
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for item in limit_ranges:
        for rule in spec_of(item).get("limits") or ():
            if rule.get("type") == "Container":
                most = {**(rule.get("max") or {}), **(rule.get("default") or {})}
                limits |= most
                requests |= {**(rule.get("min") or {}), **most, **(rule.get("defaultRequest") or {})}
    return requests, limits


def _filled(container: Mapping[str, Any], requests: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    own = resources.get("limits") or {}
    filled = {"requests": {**requests, **own, **(resources.get("requests") or {})}, "limits": {**limits, **own}}
    return {**container, "resources": {**resources, **{key: value for key, value in filled.items() if value}}}


# ---- limit ranges


@dataclass(frozen=True)
class RangeRule:
    """One rule of a LimitRange (`place`), of type Container or Pod. `ratio`: how many times the request a limit may be."""

    place: str
    type: str
    least: Mapping[str, Fraction]
    most: Mapping[str, Fraction]
    ratio: Mapping[str, Fraction]


def range_rules(items: Iterable[Object], namespace: str) -> Iterator[RangeRule]:
    """The rules of a namespace. Raises ValueError for an invalid quantity."""
    for item in items:
        where, name = namespace_and_name(item)
        for rule in (spec_of(item).get("limits") or ()) if where == namespace else ():
            least, most, ratio = (amounts.listed(rule.get(key)) for key in ("min", "max", "maxLimitRequestRatio"))
            yield RangeRule(f"LimitRange {where}/{name}", str(rule.get("type") or ""), least, most, ratio)


def refused(pod: Object, rule: Mapping[str, Any]) -> Iterator[str]:
    """Why one rule of a limit range refuses a pod as it is created."""
    try:
        if rule.get("type") == "Container":
            for one in (one for key in CONTAINERS for one in spec_of(pod).get(key) or ()):
                own = one.get("resources") or {}
                requests, limits = amounts.listed(own.get("requests")), amounts.listed(own.get("limits"))
                yield from _outside(f"container {one.get('name')}", requests, limits, rule)
        elif rule.get("type") == "Pod":
            total = resources.requests(pod, View.SPEC, with_overhead=False)
            yield from _outside("the pod", total, resources.limits(pod, with_overhead=False), rule)
    except ValueError:
        return


def _outside(who: str, requests: Mapping[str, Fraction], limits: Mapping[str, Fraction], rule: Mapping[str, Any]) -> Iterator[str]:
    for resource, most in amounts.listed(rule.get("max")).items():
        if resource not in limits:
            yield f"{who} has no limit of {resource}, and at most {quantity(resource, most)} are allowed"
        elif (has := max(limits[resource], requests.get(resource, Fraction(0)))) > most:
            yield f"{who} has {quantity(resource, has)}, and at most {quantity(resource, most)} are allowed"
    for resource, least in amounts.listed(rule.get("min")).items():
        if (asks := requests.get(resource, Fraction(0))) < least:
            yield f"{who} requests {quantity(resource, asks)}, and at least {quantity(resource, least)} are needed"
    for resource, ratio in amounts.listed(rule.get("maxLimitRequestRatio")).items():
        limit, asks = limits.get(resource, Fraction(0)), requests.get(resource, Fraction(0))
        if not limit or not asks or limit / asks > ratio:
            yield (
                f"{who} has a limit of {quantity(resource, limit)} and a request of {quantity(resource, asks)}, and the limit may be at "
                f"most {float(ratio):g} times the request"
            )
