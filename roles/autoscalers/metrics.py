"""Metrics and behavior as an operator writes them, to autoscaling/v2. Pure. Each error has a way out.

The rules are the API server's (pkg/apis/autoscaling/validation/validation.go), so that a mistake is found before any request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roles.engine.inputs import did_you_mean
from roles.engine.kube.amounts import parse_quantity

#: The fields of an entry that are metrics.
METRIC_FIELDS = ("cpu", "memory", "containers", "pods", "object", "external", "metrics")
_PERCENT = re.compile(r"([0-9]{1,9})%\Z")
_RESOURCES = ("cpu", "memory")
_WINDOW, _PERIOD = 3600, 1800
_DIRECTIONS = ("scaleUp", "scaleDown")
_RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_SELECT = ("Max", "Min", "Disabled")
_POLICIES = ("Pods", "Percent")


def metrics_of(given: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The metrics of an entry. Raises ValueError."""
    return tuple(_metrics(given))


def _metrics(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _RESOURCES:
        if given.get(name) is not None:
            yield {"type": "Resource", "resource": {"name": name, "target": _resource_target(name, given[name])}}
    for container, wanted in _mapping(given, "containers", "{'app': {'cpu': '60%'}}").items():
        if not isinstance(wanted, Mapping) or not wanted or set(wanted) - set(_RESOURCES):
            raise ValueError(f"containers: {container}: {wanted!r} is not a mapping of cpu or memory to a target, such as {{'cpu': '60%'}}")
        for name, value in wanted.items():
            target = _resource_target(f"containers: {container}: {name}", value)
            yield {"type": "ContainerResource", "containerResource": {"name": name, "container": str(container), "target": target}}
    for name, value in _mapping(given, "pods", "{'requests_per_second': '100'}").items():
        target, selector = _value("pods", name, value, ("average",))
        yield {"type": "Pods", "pods": {"metric": _identifier(name, selector), "target": target}}
    for name, value in _mapping(given, "object", "{'requests': {'on': 'ingress/main', 'value': '1000'}}").items():
        yield _object(str(name), value)
    for name, value in _mapping(given, "external", "{'queue_length': {'average': '30'}}").items():
        target, selector = _value("external", name, value, ("average", "value"))
        yield {"type": "External", "external": {"metric": _identifier(name, selector), "target": target}}
    raw = given.get("metrics") or ()
    if isinstance(raw, str | Mapping) or not all(isinstance(one, Mapping) and one.get("type") for one in raw):
        raise ValueError("metrics is a list of metrics as Kubernetes has them: [{'type': 'Resource', 'resource': {...}}]")
    yield from (dict(one) for one in raw)


def _mapping(given: Mapping[str, Any], field: str, example: str) -> Mapping[str, Any]:
    found = given.get(field)
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"{field}: {found!r} is not a mapping such as {example}")
    return found


def _resource_target(place: str, value: Any) -> dict[str, Any]:
    text = str(value)
    percent = _PERCENT.match(text)
    if percent:
        if not int(percent[1]):
            raise ValueError(f"{place}: {text} is not more than 0%")
        return {"type": "Utilization", "averageUtilization": int(percent[1])}
    example = "'60%' of the request, or an amount a pod, such as '500m' or '300Mi'"
    return {"type": "AverageValue", "averageValue": _positive(place, text, example)}


def _positive(place: str, text: str, example: str) -> str:
    try:
        if parse_quantity(text) > 0:
            return text
    except ValueError:
        pass
    raise ValueError(f"{place}: {text!r} is no amount that is more than 0; write {example}")


def _value(field: str, name: Any, value: Any, allowed: Sequence[str]) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """The target of a metric, and its selector. A plain value is an average a pod."""
    if not isinstance(value, Mapping):
        value = {"average": value}
    example = f"{{'{allowed[0]}': '30'}}"
    unknown = [str(one) for one in value if one not in (*allowed, "selector", "on")]
    if unknown:
        raise ValueError(
            f"{field}: {name}: unknown field {unknown[0]!r}{did_you_mean(unknown[0], [*allowed, 'selector'])}; write {example}"
        )
    chosen = [one for one in allowed if value.get(one) is not None]
    if len(chosen) != 1:
        raise ValueError(f"{field}: {name}: give {' or '.join(allowed)}, such as {example}")
    text = _positive(f"{field}: {name}", str(value[chosen[0]]), example)
    selector = value.get("selector")
    if selector is not None and not (isinstance(selector, Mapping) and set(selector) <= {"matchLabels", "matchExpressions"}):
        raise ValueError(f"{field}: {name}: selector is a LabelSelector, such as {{'matchLabels': {{'queue': 'orders'}}}}")
    if chosen[0] == "average":
        return {"type": "AverageValue", "averageValue": text}, selector
    return {"type": "Value", "value": text}, selector


def _identifier(name: Any, selector: Mapping[str, Any] | None) -> dict[str, Any]:
    text = str(name)
    if not text or text in (".", "..") or "/" in text or "%" in text:
        raise ValueError(f"{text!r} is not a name of a metric: no '/' and no '%'")
    return {"name": text, **({"selector": dict(selector)} if selector is not None else {})}


#: The kinds of objects that metrics are mostly of, by what an operator may write for them.
_KINDS = {
    "ingress": ("networking.k8s.io/v1", "Ingress"),
    "service": ("v1", "Service"),
    "namespace": ("v1", "Namespace"),
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
}


def _object(name: str, value: Any) -> dict[str, Any]:
    on = value.get("on") if isinstance(value, Mapping) else None
    kind, slash, own = str(on or "").partition("/")
    known = _KINDS.get(kind.lower())
    if not slash or not own or known is None:
        raise ValueError(
            f"object: {name}: on: {on!r} is not KIND/NAME with a kind of {', '.join(_KINDS)}; for other kinds use `metrics`, as Kubernetes "
            "has them"
        )
    target, selector = _value("object", name, value, ("value", "average"))
    described = {"apiVersion": known[0], "kind": known[1], "name": own}
    return {"type": "Object", "object": {"describedObject": described, "metric": _identifier(name, selector), "target": target}}


# ---- behavior


def behavior_of(given: Any) -> dict[str, Any]:
    """spec.behavior, as Kubernetes has it. Raises ValueError."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError("behavior is a mapping as Kubernetes has it: {'scaleDown': {'stabilizationWindowSeconds': 60}}")
    if unknown := [str(one) for one in given if one not in _DIRECTIONS]:
        raise ValueError(f"behavior: unknown field {unknown[0]!r}{did_you_mean(unknown[0], _DIRECTIONS)}; it has scaleUp and scaleDown")
    return {str(direction): _direction(f"behavior: {direction}", rules) for direction, rules in given.items()}


def _direction(place: str, rules: Any) -> dict[str, Any]:
    if not isinstance(rules, Mapping):
        raise ValueError(f"{place}: {rules!r} is not a mapping with {', '.join(_RULES)}")
    if unknown := [str(one) for one in rules if one not in _RULES]:
        raise ValueError(f"{place}: unknown field {unknown[0]!r}{did_you_mean(unknown[0], _RULES)}; fields are {', '.join(_RULES)}")
    found = dict(rules)
    window = found.get("stabilizationWindowSeconds")
    if window is not None and not (isinstance(window, int) and 0 <= window <= _WINDOW):
        raise ValueError(f"{place}: stabilizationWindowSeconds {window!r} is not between 0 and {_WINDOW}")
    select = found.get("selectPolicy")
    if select is not None and select not in _SELECT:
        raise ValueError(f"{place}: selectPolicy {select!r} is not one of {', '.join(_SELECT)}{did_you_mean(str(select), _SELECT)}")
    if "policies" in found:
        found["policies"] = _policies(place, found["policies"])
    if found.get("tolerance") is not None:
        found["tolerance"] = str(found["tolerance"])
        try:
            negative = parse_quantity(found["tolerance"]) < 0
        except ValueError as error:
            raise ValueError(f"{place}: tolerance: {error}") from None
        if negative:
            raise ValueError(f"{place}: tolerance {found['tolerance']} is less than 0; write 0.05 for 5 %")
    return found


def _policies(place: str, given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list | tuple) or not given:
        raise ValueError(f"{place}: policies is a list with at least one, such as {{'type': 'Pods', 'value': 2, 'periodSeconds': 60}}")
    for one in given:
        if not isinstance(one, Mapping) or set(one) != {"type", "value", "periodSeconds"}:
            raise ValueError(f"{place}: {one!r} needs type, value and periodSeconds, and nothing else")
        if one["type"] not in _POLICIES:
            raise ValueError(f"{place}: type {one['type']!r} is neither Pods nor Percent{did_you_mean(str(one['type']), _POLICIES)}")
        if not isinstance(one["value"], int) or one["value"] <= 0:
            raise ValueError(f"{place}: value {one['value']!r} is not more than 0")
        if not isinstance(one["periodSeconds"], int) or not 0 < one["periodSeconds"] <= _PERIOD:
            raise ValueError(f"{place}: periodSeconds {one['periodSeconds']!r} is not between 1 and {_PERIOD}")
    return [dict(one) for one in given]
