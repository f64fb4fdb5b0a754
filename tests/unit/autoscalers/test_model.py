"""The data keys: what is accepted, and the words for what is not."""

from __future__ import annotations

from typing import Any

import pytest

from roles.autoscalers import DesiredAutoscalers, read_desired
from roles.engine.transaction import Refusal

WEB = {"min": 2, "max": 10, "cpu": "60%"}


def read(value: Any, key: str = "autoscalers", **more: Any) -> DesiredAutoscalers:
    data = {key: value, **more}
    found = read_desired([("cp1", data.get)])
    assert found is not None
    return found


def refused(value: Any, key: str = "autoscalers") -> str:
    with pytest.raises(Refusal) as refusal:
        read(value, key)
    return refusal.value.text


def spec(**fields: Any) -> dict[str, Any]:
    (one,) = read({"shop/deployment/web": {"max": 10, **fields}}).entries
    return one.manifest()


def test_an_autoscaler() -> None:
    (one,) = read({"shop/deploy/web": WEB}).entries
    assert (one.key, one.data_key) == ("shop/web", "shop/deployment/web")
    assert one.manifest() == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 10,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}],
    }


def test_what_the_data_does_not_set_is_not_applied() -> None:
    assert set(spec(cpu="60%")) == {"scaleTargetRef", "maxReplicas", "metrics"}


def test_every_kind_of_metric() -> None:
    found = spec(
        memory="300Mi",
        containers={"app": {"cpu": "70%"}},
        pods={"hits": "100", "slow": {"average": "2", "selector": {"matchLabels": {"path": "x"}}}},
        object={"requests": {"on": "ingress/main", "value": "1k"}},
        external={"queue": {"average": "30"}, "jobs": {"value": "5"}},
    )["metrics"]
    assert [one["type"] for one in found] == ["Resource", "ContainerResource", "Pods", "Pods", "Object", "External", "External"]
    assert found[0]["resource"]["target"] == {"type": "AverageValue", "averageValue": "300Mi"}
    assert found[1]["containerResource"]["container"] == "app"
    assert found[3]["pods"]["metric"] == {"name": "slow", "selector": {"matchLabels": {"path": "x"}}}
    assert found[4]["object"]["describedObject"] == {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}
    assert found[4]["object"]["target"] == {"type": "Value", "value": "1k"}
    assert found[5]["external"]["target"] == {"type": "AverageValue", "averageValue": "30"}
    raw = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    assert spec(metrics=[raw])["metrics"] == [raw]


def test_behavior_is_as_kubernetes_has_it() -> None:
    rules = {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}], "tolerance": 0.05}
    assert spec(cpu="60%", behavior={"scaleDown": rules})["behavior"]["scaleDown"] == {**rules, "tolerance": "0.05"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"web": WEB}, "is not NAMESPACE/KIND/NAME, such as shop/deployment/web"),
        ({"deploy/web": WEB}, "has no namespace; write NAMESPACE/KIND/NAME, such as shop/deploy/web"),
        ({"shop/daemonset/agent": WEB}, "a DaemonSet has no scale"),
        ({"shop/deplyment/web": WEB}, "did you mean 'deployment'?"),
        ({"Shop/deployment/web": WEB}, "not a valid namespace"),
        ({"shop/deployment/web": {"min": 2, "cpu": "60%"}}, "give max"),
        ({"shop/deployment/web": {"min": 5, "max": 2, "cpu": "60%"}}, "min 5 is more than max 2"),
        ({"shop/deployment/web": {"max": 5}}, "give a metric: one of cpu, memory"),
        ({"shop/deployment/web": {"min": 0, "max": 5, "cpu": "60%"}}, "min 0 needs a metric that exists without pods"),
        ({"shop/deployment/web": {"max": 5, "cpu": "0%"}}, "not more than 0%"),
        ({"shop/deployment/web": {"max": 5, "cpu": "much"}}, "write '60%' of the request, or an amount"),
        ({"shop/deployment/web": {"max": 5, "cpus": "60%"}}, "unknown field 'cpus', did you mean 'cpu'?"),
        ({"shop/deployment/web": {"max": "many", "cpu": "60%"}}, "'many' is not a number of pods"),
        ({"shop/deployment/web": {"max": 5, "containers": {"app": {"disk": "1"}}}}, "not a mapping of cpu or memory"),
        ({"shop/deployment/web": {"max": 5, "object": {"hits": {"on": "main", "value": 5}}}}, "not KIND/NAME"),
        ({"shop/deployment/web": {"max": 5, "external": {"q": {"avrage": 5}}}}, "did you mean 'average'?"),
        ({"shop/deployment/web": {"max": 5, "external": {"q": {"average": 5, "value": 5}}}}, "give average or value"),
        ({"shop/deployment/web": {"max": 5, "pods": {"a/b": 5}}}, "not a name of a metric"),
        ({"shop/deployment/web": {"max": 5, "cpu": "60%", "behavior": {"scaleup": {}}}}, "did you mean 'scaleUp'?"),
        (
            {"shop/deployment/web": {"max": 5, "cpu": "60%", "behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}}},
            "between 0 and 3600",
        ),
        ({"shop/deployment/web": {"max": 5, "cpu": "60%", "behavior": {"scaleUp": {"selectPolicy": "max"}}}}, "did you mean 'Max'?"),
        ({"shop/deployment/web": {"max": 5, "cpu": "60%", "behavior": {"scaleUp": {"policies": []}}}}, "at least one"),
        (
            {
                "shop/deployment/web": {
                    "max": 5,
                    "cpu": "60%",
                    "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}},
                }
            },
            "between 1 and 1800",
        ),
        ({"shop/deployment/web": {"max": 5, "cpu": "60%", "behavior": {"scaleUp": {"tolerance": "-1"}}}}, "less than 0"),
        ("shop/deployment/web", "is not NAMESPACE/KIND/NAME=absent"),
        ({"shop/deployment/web": "gone"}, "neither `absent` nor a mapping"),
        ({"shop/deployment/web": {"max": 5, "cpu": "60%", "kind": "x"}}, "unknown field 'kind'"),
    ],
)
def test_what_is_refused_and_why(value: Any, words: str) -> None:
    assert words in refused(value)


def test_absent_and_its_short_form() -> None:
    for value in ({"shop/deployment/web": "absent"}, "shop/deployment/web=absent"):
        (one,) = read(value).entries
        assert one.absent and one.key == "shop/web"


def test_another_name_and_only() -> None:
    found = read({"shop/deployment/web": {**WEB, "name": "web-cpu"}, "shop/sts/db": WEB}, only_objects="shop/deployment/web")
    assert [one.key for one in found.entries] == ["shop/web-cpu"]
    assert found.known == ["shop/deployment/web", "shop/statefulset/db"]


def test_a_vertical_autoscaler() -> None:
    value = {"shop/deployment/db": {"mode": "Initial", "min": {"memory": "256Mi"}, "max": {"memory": "2Gi"}, "resources": "memory"}}
    (one,) = read(value, "vertical_autoscalers").entries
    assert one.manifest() == {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "db"},
        "updatePolicy": {"updateMode": "Initial"},
        "resourcePolicy": {
            "containerPolicies": [
                {
                    "containerName": "*",
                    "minAllowed": {"memory": "256Mi"},
                    "maxAllowed": {"memory": "2Gi"},
                    "controlledResources": ["memory"],
                }
            ]
        },
    }
    (plain,) = read({"shop/daemonset/agent": {}}, "vertical_autoscalers").entries
    assert plain.manifest()["updatePolicy"] == {"updateMode": "Off"} and "resourcePolicy" not in plain.manifest()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mode": "initial"}, "did you mean 'Initial'?"),
        ({"min": {"memory": "2Gi"}, "max": {"memory": "1Gi"}}, "min memory is more than max memory"),
        ({"min": {"disk": "1"}}, "neither cpu nor memory"),
        ({"resources": ["disk"]}, "neither cpu nor memory"),
        ({"modes": "Off"}, "did you mean 'mode'?"),
    ],
)
def test_what_a_vertical_one_refuses(fields: dict[str, Any], words: str) -> None:
    assert words in refused({"shop/deployment/db": fields}, "vertical_autoscalers")
