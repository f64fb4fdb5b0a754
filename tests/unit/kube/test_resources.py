"""What a pod requests, in each view, and its limits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from roles.engine.kube.quotas import usage
from roles.engine.kube.resources import View, limits, ranked, requests

MIB, GIB = 2**20, 2**30


def with_all(kind: str) -> dict[str, Any]:
    return {
        "containers": [
            {"name": "a", "resources": {kind: {"cpu": "100m", "memory": "1Gi"}}},
            {"name": "b", "resources": {kind: {"cpu": "0.2"}}},
        ],
        "initContainers": [
            {"name": "first", "resources": {kind: {"cpu": "1"}}},
            {"name": "side", "restartPolicy": "Always", "resources": {kind: {"cpu": "50m", "memory": "1Mi"}}},
            {"name": "last", "resources": {kind: {"memory": "2Gi"}}},
        ],
        "overhead": {"cpu": "10m", "pods": "1"},
    }


@pytest.mark.parametrize("view", View)
def test_a_pod_asks_for_its_containers_and_sidecars_or_for_an_init_container(view: View) -> None:
    spec = with_all("requests")
    one = {"metadata": {"name": "p"}, "spec": spec}
    assert requests(one, view) == {"cpu": 1 + Fraction(1, 100), "memory": 2 * GIB + MIB, "pods": 1}
    whole = one | {"spec": spec | {"resources": {"requests": {"cpu": "3"}}}}
    assert requests(whole, view) == {"cpu": 3 + Fraction(1, 100), "memory": 2 * GIB + MIB, "pods": 1}


def test_limits_are_counted_as_requests_are_and_overhead_where_there_is_a_limit() -> None:
    """PodLimits: a quota counts the limits of init containers and sidecars too."""
    one = {"metadata": {"name": "p"}, "spec": with_all("limits")}
    assert limits(one) == {"cpu": 1 + Fraction(1, 100), "memory": 2 * GIB + MIB}
    assert limits(one, with_overhead=False) == {"cpu": 1, "memory": 2 * GIB + MIB}
    assert usage(one)["limits.memory"] == 2 * GIB + MIB
    whole = one | {"spec": one["spec"] | {"resources": {"limits": {"memory": "4Gi"}}}}
    assert usage(whole)["limits.memory"] == 4 * GIB


@pytest.mark.parametrize(
    ("view", "cpu", "infeasible"), [(View.SPEC, 4, 4), (View.ALLOCATED, 1, 1), (View.RUNNING, 2, 2), (View.SCHEDULED, 4, 2)]
)
def test_a_resize_counts_in_each_view(view: View, cpu: int, infeasible: int) -> None:
    """The spec wants 4, the kubelet has allocated 1, and the container still runs with 2."""
    state = {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "2"}}}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}
    resized = {"spec": spec, "status": {"containerStatuses": [state]}}
    assert requests(resized, view) == {"cpu": cpu}
    refused = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    assert requests({"spec": spec, "status": {**resized["status"], "conditions": [refused]}}, view) == {"cpu": infeasible}
    assert ranked(resized, "cpu") == 1
