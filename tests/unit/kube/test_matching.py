"""Node selectors and tolerations, as Kubernetes reads them."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.kube.matching import CORDON, node_terms, untolerated

NODE = {"metadata": {"name": "w1", "labels": {"zone": "a", "cpus": "8", "odd": "08x"}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("one", "matches"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("rack", "NotIn", "a"), True),
        (expression("zone", "Exists"), True),
        (expression("rack", "DoesNotExist"), True),
        (expression("cpus", "Gt", "7"), True),
        (expression("cpus", "Gt", "8"), False),
        (expression("cpus", "Lt", "9"), True),
        (expression("odd", "Gt", "1"), False),
        (expression("rack", "Gt", "1"), False),
        # Kubernetes cannot read these, so no node matches (apimachinery/pkg/labels/selector.go: NewRequirement).
        (expression("zone", "NotIn"), False),
        (expression("zone", "Exists", "a"), False),
        (expression("rack", "DoesNotExist", "a"), False),
        (expression("cpus", "Gt", "1", "2"), False),
        (expression("cpus", "Lt", "9e9"), False),
        (expression("cpus", "Lt", str(2**63)), False),
        (expression("a/b/c", "DoesNotExist"), False),
        (expression("rack", "NotIn", "b c"), False),
        (expression("zone", "Near", "a"), False),
    ],
)
def test_a_term_of_a_node_selector(one: dict[str, Any], matches: bool) -> None:
    assert node_terms([{"matchExpressions": [one]}], NODE) is matches
    assert not node_terms([{}], NODE), "an empty term matches no node"


@pytest.mark.parametrize(
    ("one", "matches"),
    [
        (expression("metadata.name", "In", "w1"), True),
        (expression("metadata.name", "NotIn", "w1"), False),
        (expression("metadata.name", "In", "w1", "w2"), False),
        (expression("metadata.name", "Exists"), False),
        (expression("metadata.uid", "NotIn", "x"), True),
    ],
)
def test_a_field_of_a_node(one: dict[str, Any], matches: bool) -> None:
    assert node_terms([{"matchFields": [one]}], NODE) is matches


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        ({"operator": "Exists"}, CORDON, True),
        ({"operator": "Exists", "effect": "NoExecute"}, CORDON, False),
        ({"key": CORDON["key"], "operator": "Exists", "effect": "NoSchedule"}, CORDON, True),
        ({"key": CORDON["key"]}, CORDON, True),
        ({"key": CORDON["key"], "value": "x"}, CORDON, False),
        # An empty key stands for all keys, also with Equal (api/core/v1/toleration.go: ToleratesTaint).
        ({"operator": "Equal"}, CORDON, True),
        ({"value": "1"}, {"key": "a", "value": "1", "effect": "NoSchedule"}, True),
        ({"value": "2"}, {"key": "a", "value": "1", "effect": "NoSchedule"}, False),
        # Lt and Gt compare only with a gate that is alpha.
        ({"key": CORDON["key"], "operator": "Lt"}, CORDON, False),
        ({"key": "a", "operator": "Gt", "value": "1"}, {"key": "a", "value": "1", "effect": "NoSchedule"}, False),
    ],
)
def test_a_toleration(toleration: dict[str, Any], taint: dict[str, Any], tolerated: bool) -> None:
    assert (untolerated({"spec": {"tolerations": [toleration]}}, [taint]) is None) is tolerated
