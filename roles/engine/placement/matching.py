"""Pure: label selectors, node selectors and tolerations, as the API machinery matches them.

Sources (Kubernetes 1.36): k8s.io/apimachinery/pkg/labels/selector.go (Requirement.Matches), k8s.io/component-helpers/scheduling/corev1
(nodeaffinity, MatchNodeSelectorTerms), k8s.io/api/core/v1/toleration.go (ToleratesTaint).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roles.engine.kube import Object
from roles.engine.kube.pods import labels

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
SCHEDULES = ("NoSchedule", "NoExecute")
UNSCHEDULABLE: Mapping[str, str] = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def selects(selector: Mapping[str, Any] | None, of: Mapping[str, str]) -> bool:
    """A LabelSelector; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(of.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(one, of) for one in selector.get("matchExpressions") or ())


def is_empty(selector: Mapping[str, Any] | None) -> bool:
    """True for a selector that selects everything."""
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def with_label_keys(selector: Mapping[str, Any] | None, keys: Iterable[str], of: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The selector that also asks for the pod's own values of `keys` (matchLabelKeys)."""
    values = {key: of[key] for key in keys if key in of}
    if selector is None or not values:
        return selector
    return {
        **selector,
        "matchExpressions": [
            *(selector.get("matchExpressions") or ()),
            *({"key": key, "operator": "In", "values": [value]} for key, value in values.items()),
        ],
    }


def _meets(requirement: Mapping[str, Any], of: Mapping[str, str]) -> bool:
    """One requirement of a selector; an operator that is not known is not met."""
    key, values = str(requirement.get("key")), requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return key in of and of[key] in values
        case "NotIn":
            return key not in of or of[key] not in values
        case "Exists":
            return key in of
        case "DoesNotExist":
            return key not in of
        case "Gt":
            return (both := _integers(of.get(key), values)) is not None and both[0] > both[1]
        case "Lt":
            return (both := _integers(of.get(key), values)) is not None and both[0] < both[1]
    return False


def _integers(value: str | None, values: Sequence[str]) -> tuple[int, int] | None:
    if value is None or len(values) != 1 or not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(str(values[0]))):
        return None
    return int(value), int(values[0])


# ---- nodes


def node_terms(terms: Iterable[Mapping[str, Any]], node: Object) -> bool:
    """NodeSelectorTerms: one of them has to match; an empty one matches no node."""
    fields = {"metadata.name": str(node["metadata"]["name"])}
    for term in terms:
        expressions, of_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
        if not expressions and not of_fields:
            continue
        if all(_meets(one, labels(node)) for one in expressions) and all(_meets(one, fields) for one in of_fields):
            return True
    return False


def wrong_node(pod: Object, node: Object) -> str:
    """Why the pod's nodeSelector or required node affinity is against this node; ""."""
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels(node).get(key) != value:
            return f"nodeSelector {key}={value} does not match"
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not node_terms(required.get("nodeSelectorTerms") or (), node):
        return "its required node affinity does not match"
    return ""


# ---- taints


def untolerated(pod: Object, taints: Iterable[Mapping[str, Any]], effects: Sequence[str] = SCHEDULES) -> Mapping[str, Any] | None:
    """The first taint of these effects that the pod does not tolerate."""
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Operators Lt and Gt (alpha) count as not tolerated; `compares` finds them."""
    if toleration.get("effect") and toleration.get("effect") != taint.get("effect"):
        return False
    if toleration.get("key") and toleration.get("key") != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Equal":
            return str(toleration.get("value") or "") == str(taint.get("value") or "")
        case "Exists":
            return True
    return False


def compares(pod: Object) -> bool:
    """True if a toleration of the pod has an operator that depends on a feature gate (TaintTolerationComparisonOperators)."""
    return any(one.get("operator") in ("Lt", "Gt") for one in pod["spec"].get("tolerations") or ())


def taint_text(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def taints_of(node: Object, cordoned: bool = False) -> list[Mapping[str, Any]]:
    """The node's taints, with the one that a cordon adds."""
    spec = node.get("spec") or {}
    found = list(spec.get("taints") or ())
    if (cordoned or spec.get("unschedulable")) and not any(one.get("key") == UNSCHEDULABLE["key"] for one in found):
        found.append(UNSCHEDULABLE)
    return found
