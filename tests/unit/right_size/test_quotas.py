"""Which quotas count a pod, and whether they have room for what grows in place and for the one extra pod of a roll-out."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from roles.engine.kube.quotas import counts
from roles.engine.objects.workload_rollout import unavailable
from roles.right_size.room import grown, quota_problems, surge_problems
from tests.unit.right_size.world import MI, ONE_BY_ONE, rolling, running, step

PODS = [running("web-1", "100m", "64Mi"), running("web-2", "100m", "64Mi")]
HARD = {"requests.cpu": "1", "limits.memory": "1Gi", "pods": "5"}
USED = {"requests.cpu": "700m", "limits.memory": "128Mi", "pods": "4"}


def quota(hard: dict[str, str] = HARD, used: dict[str, str] = USED, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q", "namespace": "shop"}, "spec": spec, "status": {"hard": hard, "used": used}}


def scoped(name: str, operator: str = "Exists", *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"scopeName": name, "operator": operator, **({"values": list(values)} if values else {})}]}


def test_how_much_more() -> None:
    assert grown(step("300m", "128Mi")) == {"cpu": 200, "memory": 64 * MI, "limits.memory": 64 * MI}
    assert grown(step("50m", "32Mi")) == {"cpu": -50, "memory": -32 * MI, "limits.memory": -32 * MI}


def test_a_quota_must_have_room_for_all_of_them() -> None:
    assert list(quota_problems([step("300m", "64Mi")], "shop", [quota()], PODS)) == []
    [why] = quota_problems([step("300m", "64Mi"), step("300m", "64Mi", "web-2")], "shop", [quota()], PODS)
    assert why == "the ResourceQuota q allows 1 of requests.cpu, 700m are used, and this would add 400m"
    [why] = quota_problems([step("100m", "1Gi")], "shop", [quota()], PODS)
    assert "1Gi of limits.memory" in why
    assert list(quota_problems([step("300m", "64Mi")] * 9, "blog", [quota()], PODS)) == []


def pod(**spec: Any) -> dict[str, Any]:
    found = copy.deepcopy(PODS[0])
    found["spec"].update(spec)
    return found


BEST_EFFORT = {**PODS[0], "status": {"phase": "Running", "qosClass": "BestEffort"}}
ELSEWHERE = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaces": ["blog"]}}]}}
HERE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}
GOLD = pod(priorityClassName="gold")


@pytest.mark.parametrize(
    ("spec", "there", "counted"),
    [
        ({}, PODS[0], True),
        ({}, running("x", "1", "1Mi", phase="Succeeded"), False),
        ({"scopes": ["BestEffort"]}, PODS[0], False),
        ({"scopes": ["NotBestEffort"]}, PODS[0], True),
        ({"scopes": ["BestEffort"]}, BEST_EFFORT, True),
        ({"scopes": ["BestEffort"]}, pod(containers=[{"name": "app"}]), True),
        ({"scopes": ["Terminating"]}, PODS[0], False),
        ({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=9), True),
        ({"scopes": ["NotTerminating"]}, PODS[0], True),
        ({"scopes": ["NotTerminating", "BestEffort"]}, PODS[0], False),
        ({"scopes": ["PriorityClass"]}, PODS[0], False),
        ({"scopes": ["PriorityClass"]}, GOLD, True),
        ({"scopeSelector": scoped("PriorityClass", "In", "gold", "silver")}, GOLD, True),
        ({"scopeSelector": scoped("PriorityClass", "In", "silver")}, GOLD, False),
        ({"scopeSelector": scoped("PriorityClass", "In", "silver")}, PODS[0], False),
        ({"scopeSelector": scoped("PriorityClass", "NotIn", "silver")}, PODS[0], True),
        ({"scopeSelector": scoped("PriorityClass", "NotIn", "gold")}, GOLD, False),
        ({"scopeSelector": scoped("PriorityClass", "DoesNotExist")}, PODS[0], True),
        ({"scopeSelector": scoped("PriorityClass", "DoesNotExist")}, GOLD, False),
        ({"scopeSelector": scoped("PriorityClass", "a newer one")}, GOLD, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, pod(affinity=ELSEWHERE), True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, pod(affinity=HERE), False),
        ({"scopes": ["VolumeAttributesClass"]}, PODS[0], False),
    ],
)
def test_a_quota_counts_the_pods_of_its_scopes(spec: dict[str, Any], there: dict[str, Any], counted: bool) -> None:
    assert counts(quota(**spec), there) is counted
    found = list(quota_problems([step("900m", "64Mi")], "shop", [quota(**spec)], [there]))
    assert bool(found) is (counted or there["metadata"]["name"] == "x"), "a pod that is not known counts"


@pytest.mark.parametrize(
    ("surge", "most", "count", "first"),
    [("25%", "25%", 3, True), ("25%", "25%", 4, False), (1, 0, 9, True), (1, 1, 9, False), (0, 0, 2, False), ("1%", 0, 1, True)],
)
def test_a_roll_out_that_starts_a_pod_first(surge: Any, most: Any, count: int, first: bool) -> None:
    assert (not unavailable("Deployment", rolling(surge, most, count))) is first
    assert unavailable("Deployment", rolling(surge, most, count, "Recreate"))
    assert unavailable("StatefulSet", {"spec": {}})


def test_a_daemon_set_that_starts_a_pod_first() -> None:
    for more, first in (({}, False), ({"maxSurge": 1, "maxUnavailable": 0}, True), ({"maxSurge": 0, "maxUnavailable": 1}, False)):
        assert (not unavailable("DaemonSet", {"spec": {"updateStrategy": {"rollingUpdate": more}}})) is first


def test_a_roll_out_that_a_quota_would_stop_is_refused() -> None:
    """Two pods of 100m become 150m in place, which fits, and then the roll-out starts a third one."""
    steps = [step("150m", "64Mi"), step("150m", "64Mi", "web-2")]
    new = running("web-1", "150m", "64Mi")

    def found(item: dict[str, Any], of: dict[str, Any]) -> list[str]:
        return list(surge_problems("Deployment", item, new, steps, [of], PODS))

    assert found(rolling(), quota()) == []
    tight = quota({"requests.cpu": "900m"})
    assert list(quota_problems(steps, "shop", [tight], PODS)) == []
    [why] = found(rolling(), tight)
    assert why == (
        "its roll-out starts a new pod before an old one ends (maxUnavailable 0): the ResourceQuota q allows 900m of requests.cpu, 800m are "
        "used, and this would add 150m; raise the quota, or set template=keep"
    )
    assert found(ONE_BY_ONE, tight) == [], "an old one ends first"
    assert found(rolling(), quota({"requests.cpu": "900m"}, scopes=["BestEffort"])) == []
    [why] = found(rolling(), quota({"pods": "4"}))
    assert "allows 4 of pods, 4 are used, and this would add 1;" in why
    assert found(rolling(), quota({"requests.cpu": "950m", "services": "0"})) == []
