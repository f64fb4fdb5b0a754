"""The data key disruption_budgets: what is accepted, and the words for what is not."""

from __future__ import annotations

from typing import Any

import pytest

from roles.disruption_budgets import read_budgets
from roles.disruption_budgets.model import Budget
from roles.engine.transaction import Refusal


def read(value: Any, **more: Any) -> tuple[Budget, ...]:
    data = {"disruption_budgets": value, **more}
    found = read_budgets([("cp1", data.get)])
    assert found is not None
    return found.budgets


def refused(value: Any) -> str:
    with pytest.raises(Refusal) as refusal:
        read(value)
    return refusal.value.text


WEB = {"workload": "deploy/web", "max_unavailable": 1}


def test_a_budget() -> None:
    (one,) = read({"shop/web": {**WEB, "unhealthy_pod_eviction_policy": "AlwaysAllow"}})
    assert (one.key, one.workload, one.kind_and_name) == ("shop/web", "Deployment/web", ("Deployment", "web"))
    selector = {"matchLabels": {"app": "web"}}
    assert one.manifest(selector) == {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": selector, "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    }


def test_kubernetes_spellings_and_numbers_as_text() -> None:
    (one,) = read({"shop/web": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "2"}})
    assert (one.min_available, one.max_unavailable, one.unhealthy_pod_eviction_policy) == (2, None, None)
    (other,) = read({"shop/web": {"workload": "sts/db", "maxUnavailable": "25%"}})
    assert other.max_unavailable == "25%"


def test_absent_also_on_the_command_line() -> None:
    assert [one.key for one in read("shop/web=absent, shop/db=absent") if one.absent] == ["shop/web", "shop/db"]
    assert read({"shop/web": "absent"})[0].absent


def test_only_some() -> None:
    assert [one.key for one in read({"shop/web": WEB, "shop/db": WEB}, only_objects="shop/db")] == ["shop/db"]


def test_no_data() -> None:
    assert read_budgets([("cp1", {}.get)]) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"web": WEB}, "'web' does not have the form NAMESPACE/NAME"),
        ({"Shop/web": WEB}, "not a valid namespace"),
        ({"shop/web": {}}, "give either workload (KIND/NAME) or selector"),
        ({"shop/web": {"workload": "deployment/web"}}, "give either max_unavailable or min_available"),
        ({"shop/web": {**WEB, "min_available": 1}}, "give either max_unavailable or min_available"),
        ({"shop/web": {**WEB, "selector": {"matchLabels": {"a": "b"}}}}, "give either workload"),
        ({"shop/web": {**WEB, "maxUnavailable": 2}}, "the same field"),
        ({"shop/web": {**WEB, "max_unavailible": 2}}, "unknown field 'max_unavailible', did you mean 'max_unavailable'?"),
        ({"shop/web": {**WEB, "max_unavailable": "half"}}, "neither a number of pods nor a percentage"),
        ({"shop/web": {**WEB, "max_unavailable": "101%"}}, "more than 100%"),
        ({"shop/web": {**WEB, "max_unavailable": "٣%"}}, "neither a number of pods nor a percentage"),
        ({"shop/web": {**WEB, "max_unavailable": -1}}, "0 or more"),
        ({"shop/web": {**WEB, "max_unavailable": True}}, "neither a number of pods nor a percentage"),
        ({"shop/web": {**WEB, "workload": "web"}}, "'web' is not KIND/NAME"),
        ({"shop/web": {**WEB, "workload": "job/web"}}, "'job' is not one of"),
        ({"shop/web": {**WEB, "unhealthy_pod_eviction_policy": "Always"}}, "must be AlwaysAllow or IfHealthyBudget"),
        ({"shop/web": {"selector": {}, "max_unavailable": 1}}, "would select all pods of the namespace"),
        ({"shop/web": {"selector": {"app": "web"}, "max_unavailable": 1}}, "labels go under matchLabels"),
        ({"shop/web": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "max_unavailable": 1}}, "needs values"),
        ({"shop/web": {"selector": {"matchLabels": {"a b": "c"}}, "max_unavailable": 1}}, "not a valid key"),
        ({"shop/web": {**WEB, "absent": True}}, "write `absent` instead of its fields"),
        ({"shop/web": "gone"}, "neither `absent` nor a mapping"),
        ("shop/web=1", "is not NAMESPACE/NAME=absent"),
        (["shop/web"], "is not a mapping"),
    ],
)
def test_refused(value: Any, words: str) -> None:
    text = refused(value)
    assert words in text
    assert "disruption_budgets" in text


def test_hosts_that_differ() -> None:
    with pytest.raises(Refusal, match="differs between cp1 and w1"):
        read_budgets([("cp1", {"disruption_budgets": {"shop/web": WEB}}.get), ("w1", {"disruption_budgets": {"shop/web": "absent"}}.get)])
