"""Which autoscalers differ from the inventory, whatever the API server has filled in."""

from __future__ import annotations

from typing import Any

import pytest

from roles.autoscalers import read_desired, unmet_autoscaler
from tests.unit.autoscaling.world import hpa, utilization

WEB = {"min": 1, "max": 10, "cpu": "50%"}


def unmet(found: dict[str, Any] | None, entry: Any = WEB, key: str = "autoscalers", kind: str = "HorizontalPodAutoscaler") -> str:
    desired = read_desired([("cp1", {key: {"shop/deployment/web": entry}}.get)])
    assert desired is not None
    told = unmet_autoscaler(desired.entries[0], {kind: [] if found is None else [found]})
    return str(told or "")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (hpa(), ""),
        (hpa(maximum=9), "shop/web: maxReplicas differs"),
        (hpa(minimum=2, maximum=9), "shop/web: maxReplicas, minReplicas differ"),
        (hpa(utilization(percent=60)), "shop/web: metrics differs"),
        (hpa(scaleTargetRef={"kind": "StatefulSet", "name": "web"}), "shop/web: scaleTargetRef differs"),
        (None, "shop/web: does not exist"),
    ],
)
def test_what_differs(found: dict[str, Any] | None, why: str) -> None:
    assert unmet(found) == why


def test_what_the_data_does_not_set_may_be_anything() -> None:
    entry = {"max": 10, "cpu": "50%"}
    assert unmet(hpa(minimum=4, behavior={"scaleUp": {"selectPolicy": "Min"}}), entry) == ""
    assert unmet(hpa(), "absent") == "shop/web: exists, wanted absent"
    assert unmet(None, "absent") == ""


def test_defaults_and_spellings_are_no_difference() -> None:
    down = {"stabilizationWindowSeconds": 60, "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    entry = {**WEB, "cpu": "0.5", "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "500m"}}}
    assert unmet(hpa(metric, behavior={"scaleDown": down}), entry) == ""
    assert unmet(hpa(metric, behavior={"scaleDown": {**down, "selectPolicy": "Min"}}), entry) == "shop/web: behavior differs"


def test_vertical_ones() -> None:
    entry = {"mode": "Initial", "max": {"memory": "1Gi"}}
    policy = {"containerPolicies": [{"containerName": "*", "maxAllowed": {"memory": "1Gi"}}]}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": "Initial"}, "resourcePolicy": policy}
    found = {"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}
    assert unmet(found, entry, "vertical_autoscalers", "VerticalPodAutoscaler") == ""
    spec["updatePolicy"] = {"updateMode": "Off"}
    assert unmet(found, entry, "vertical_autoscalers", "VerticalPodAutoscaler") == "shop/web: updatePolicy differs"
