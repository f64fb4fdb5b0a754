"""Node selectors and tolerations, as the API machinery matches them. Pure.

Sources (Kubernetes 1.36): k8s.io/component-helpers/scheduling/corev1/nodeaffinity (nodeSelectorTerm.match),
k8s.io/api/core/v1/toleration.go (ToleratesTaint).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roles.engine.kube.fields import labels_of
from roles.engine.kube.objects import Object
from roles.engine.kube.selectors import OF_NODES, LabelSelector, of_expressions

SCHEDULES = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
#: The taint of a cordoned node.
CORDON: Mapping[str, str] = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}


# ---- nodes


def node_terms(terms: Iterable[Mapping[str, Any]], node: Object) -> bool:
    """NodeSelectorTerms: one of them has to match. An empty one matches no node, nor does one that Kubernetes cannot read."""
    fields = {"metadata.name": str(node["metadata"]["name"])}
    return any(_term(one).matches(labels_of(node)) and _fields_match(one, fields) for one in terms if _is_set(one))


def _is_set(term: Mapping[str, Any]) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _term(term: Mapping[str, Any]) -> LabelSelector:
    return of_expressions(term.get("matchExpressions") or (), OF_NODES)


def _fields_match(term: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    """In and NotIn with one value each; a field that a node does not have is "" (apimachinery/pkg/fields)."""
    for one in term.get("matchFields") or ():
        values, found = list(one.get("values") or ()), fields.get(str(one.get("key")), "")
        if len(values) != 1 or one.get("operator") not in ("In", "NotIn") or (found == values[0]) is not (one["operator"] == "In"):
            return False
    return True


def wrong_node(pod: Object, node: Object) -> str:
    """Why the pod's nodeSelector or required node affinity is against this node; ""."""
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels_of(node).get(key) != value:
            return f"nodeSelector {key}={value} does not match"
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not node_terms(required.get("nodeSelectorTerms") or (), node):
        return "its required node affinity does not match"
    return ""


def asked_of_nodes(pod: Object) -> tuple[Any, ...]:
    """All that `wrong_node` and `untolerated` read of a pod."""
    spec = pod["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return (spec.get("nodeSelector"), affinity.get("requiredDuringSchedulingIgnoredDuringExecution"), spec.get("tolerations"))


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
    if (cordoned or spec.get("unschedulable")) and not any(one.get("key") == UNSCHEDULABLE for one in found):
        found.append(CORDON)
    return found
