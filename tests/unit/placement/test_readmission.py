"""The re-admission forecast: which pods a starting kubelet does not admit again."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.kube.resources import View, requests
from roles.engine.placement import forecast
from tests.unit.placement.cluster import prefers_node

GIB = 2**30
MIB = 2**20


def pod(
    name: str, *, born: int = 0, priority: int = 0, static: bool = False, qos: str = "Burstable", spec: Any = None, **asked: str
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "x",
            "creationTimestamp": f"2026-01-01T00:00:{born:02d}Z",
            "annotations": {"kubernetes.io/config.mirror": "1"} if static else {},
        },
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": asked}}]} | (spec or {}),
        "status": {"phase": "Running", "qosClass": qos},
    }


def node(
    *,
    cpu: str = "4",
    memory: str = "4Gi",
    pods: int = 110,
    now: dict[str, str] | None = None,
    taints: Any = (),
    conditions: Any = (),
    **more: str,
) -> dict[str, Any]:
    """`now`: what its status says that it can allocate."""
    capacity = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"} | more
    return {
        "metadata": {"name": "w1", "labels": {"disk": "ssd"}},
        "spec": {"taints": [dict(zip(("key", "value", "effect"), one, strict=True)) for one in taints]},
        "status": {
            "capacity": capacity,
            "allocatable": capacity | (now or {}),
            "conditions": [{"type": one, "status": "True"} for one in conditions],
        },
    }


def outcomes(pods: list[dict[str, Any]], there: dict[str, Any], **after: Any) -> dict[str, str]:
    """The losers; a reason with ? may be."""
    found = forecast(pods, there, {}, after).losers
    return {one.pod.removeprefix("x/"): one.reason + "?" * (one.outcome == "may be lost") for one in found}


def test_the_youngest_is_not_admitted() -> None:
    pods = [pod("young", born=3, memory="1Gi"), pod("old", born=1, memory="2Gi"), pod("middle", born=2, memory="1Gi"), pod("free", born=9)]
    assert outcomes(pods, node()) == {}
    assert outcomes(pods, node(), systemReserved={"memory": "1"}) == {"young": "OutOfmemory"}
    (lost,) = forecast(pods, node(), {}, {"systemReserved": {"memory": "1Gi"}}).losers
    assert str(lost) == "x/young (OutOfmemory: memory: 1024.0Mi requested, 0 left)"


def test_a_smaller_one_still_fits_after_a_larger_one_did_not() -> None:
    pods = [pod("large", born=1, cpu="3"), pod("small", born=2, cpu="1")]
    assert outcomes(pods, node(), kubeReserved={"cpu": "2500m"}) == {"large": "OutOfcpu"}


def test_what_fits_by_the_old_values_of_the_node_only_is_lost_and_the_other_way_round_may_be() -> None:
    pods = [pod("p", cpu="2")]
    assert outcomes(pods, node(), kubeReserved={"cpu": "3"}) == {"p": "OutOfcpu"}
    assert outcomes(pods, node(now={"cpu": "1"})) == {"p": "OutOfcpu?"}


def test_pods_of_the_same_second_are_admitted_in_any_order() -> None:
    pods = [pod("a", born=1, cpu="2"), pod("b", born=1, cpu="2"), pod("c", born=2, cpu="1")]
    assert outcomes(pods, node(), kubeReserved={"cpu": "1"}) == {"a": "OutOfcpu?", "b": "OutOfcpu?", "c": "OutOfcpu?"}
    assert outcomes(pods[1:], node(), kubeReserved={"cpu": "1"}) == {}


def test_the_number_of_pods_counts_too_but_not_finished_ones() -> None:
    pods = [pod(f"p{number}", born=number) for number in range(4)]
    pods[0]["status"]["phase"] = "Succeeded"
    assert outcomes(pods, node(), maxPods=2) == {"p3": "OutOfpods"}


def test_a_terminating_pod_holds_its_room_and_is_not_lost() -> None:
    pods = [pod("going", born=1, cpu="3"), pod("young", born=2, cpu="2")]
    pods[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert outcomes(pods, node()) == {"young": "OutOfcpu?"}


def test_an_extended_resource_unknown_to_the_node_is_not_asked_of_it() -> None:
    one = pod("p", **{"example.com/gpu": "2"})
    assert outcomes([one], node()) == {}
    assert outcomes([one], node(**{"example.com/gpu": "1"})) == {"p": "OutOfexample.com/gpu"}


@pytest.mark.parametrize(
    ("spec", "there", "after", "expected"),
    [
        ({"nodeSelector": {"disk": "hdd"}}, {}, {}, "NodeAffinity"),
        ({"nodeSelector": {"disk": "ssd"}}, {}, {}, None),
        ({"affinity": prefers_node({"key": "gone", "operator": "Exists"})}, {}, {}, "NodeAffinity"),
        ({}, {"taints": [("k", "v", "NoExecute")]}, {}, "TaintToleration"),
        ({}, {"taints": [("k", "v", "NoSchedule")]}, {}, None),
        ({"tolerations": [{"key": "k", "operator": "Exists"}]}, {"taints": [("k", "v", "NoExecute")]}, {}, None),
        ({"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]}, {"taints": [("k", "2", "NoExecute")]}, {}, "TaintToleration?"),
        ({}, {"conditions": ["DiskPressure"]}, {}, "Evicted?"),
        ({"priority": 2_000_000_000}, {"conditions": ["DiskPressure"]}, {}, None),
        ({}, {"conditions": ["MemoryPressure"]}, {}, None),
        ({"resources": {"requests": {"cpu": "1"}}}, {}, {"featureGates": {"PodLevelResources": False}}, "PodLevelResourcesNotSupported"),
        ({"os": {"name": "windows"}}, {}, {}, "PodOSNotSupported"),
        ({"securityContext": {"supplementalGroupsPolicy": "Strict"}}, {}, {}, "SupplementalGroupsPolicyNotSupported?"),
    ],
)  # fmt: skip
def test_what_else_a_kubelet_asks(spec: dict[str, Any], there: dict[str, Any], after: dict[str, Any], expected: str | None) -> None:
    assert outcomes([pod("p", spec=spec)], node(**there), **after).get("p") == expected


def test_static_pods_tolerate_every_taint() -> None:
    assert outcomes([pod("p", static=True)], node(taints=[("k", "v", "NoExecute")])) == {}


def test_sysctls_that_are_allowed_no_more() -> None:
    one = pod(
        "p", spec={"securityContext": {"sysctls": [{"name": "net/core/somaxconn", "value": "1"}, {"name": "net.ipv4.tcp_syncookies"}]}}
    )
    before = {"allowedUnsafeSysctls": ["net.core.*"]}
    assert forecast([one], node(), before, before).losers == ()
    (lost,) = forecast([one], node(), before, {"allowedUnsafeSysctls": ["kernel.msg*"]}).losers
    assert (lost.outcome, lost.reason) == ("lost", "SysctlForbidden")


def test_ports_of_the_host_are_held_by_the_older_pod() -> None:
    def holding(name: str, born: int) -> dict[str, Any]:
        return pod(name, born=born, spec={"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]})

    assert outcomes([holding("young", 2), holding("old", 1)], node()) == {"young": "NodePorts"}
    assert outcomes([holding("one", 1), holding("other", 1)], node()) == {"one": "NodePorts?", "other": "NodePorts?"}


def test_what_is_aligned_cannot_be_judged() -> None:
    aligned, other = pod("aligned", qos="Guaranteed", cpu="2", memory="1Gi"), pod("other", cpu="2")
    static = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted", "kubeReserved": {"cpu": "100m"}}
    found = forecast([aligned | {"spec": aligned["spec"]}, other], node(cpu="8"), static, static).losers
    assert [(one.pod, one.reason, one.outcome) for one in found] == [("x/aligned", "TopologyAffinityError", "may be lost")]
    best = static | {"topologyManagerPolicy": "best-effort"}
    assert forecast([aligned, other], node(cpu="8"), best, best).losers == ()
    assert [one.reason for one in forecast([aligned, other], node(cpu="8"), {}, best).losers] == ["UnexpectedAdmissionError"]


def test_a_resized_pod_is_admitted_with_its_allocation() -> None:
    one = pod("p", cpu="5")
    one["status"]["containerStatuses"] = [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}]
    assert outcomes([one], node()) == {}
    small = pod("p", cpu="1")
    small["status"]["containerStatuses"] = [{"name": "c", "resources": {"requests": {"cpu": "5"}}}]
    assert outcomes([small], node()) == {"p": "OutOfcpu"}


# ---- critical pods


def test_static_pods_come_first_and_take_the_room() -> None:
    pods = [pod("old", born=1, memory="3Gi"), pod("etcd", born=50, static=True, memory="1Gi")]
    assert outcomes(pods, node(), systemReserved={"memory": "1Gi"}) == {"old": "OutOfmemory"}


def test_a_critical_pod_preempts_others_the_lowest_class_first() -> None:
    pods = [
        pod("guaranteed", born=1, memory="1Gi", qos="Guaranteed"),
        pod("large", born=2, memory="1Gi"),
        pod("near", born=3, memory="600Mi"),
        pod("critical", born=4, priority=2_000_001_000, memory="512Mi"),
    ]
    there, after = node(memory="4Gi"), {"systemReserved": {"memory": f"{2 * GIB - 600 * MIB}"}}
    assert outcomes(pods, there, **after) == {"near": "Preempting"}
    assert str(forecast(pods, there, {}, after).losers[0]) == (
        "x/near (Preempting: x/critical, which is critical, preempts it: memory: 512.0Mi requested, 0 left)"
    )


def test_a_preempted_pod_may_hold_its_room_for_those_that_come_next() -> None:
    pods = [
        pod("large", born=1, cpu="2"),
        pod("critical", born=2, priority=2_000_001_000, cpu="1"),
        pod("next", born=3, cpu="500m"),
        pod("asks nothing", born=4),
    ]
    assert outcomes(pods, node(cpu="2")) == {"large": "Preempting", "next": "OutOfcpu?"}


def test_if_it_is_not_known_which_all_may_be_preempted() -> None:
    pods = [
        pod("one", born=1, memory="1Gi"),
        pod("two", born=2, memory="1Gi"),
        pod("critical", born=4, priority=2_000_001_000, memory="1Gi"),
    ]
    assert outcomes(pods, node(memory="2Gi")) == {"one": "Preempting?", "two": "Preempting?"}


def test_a_guaranteed_pod_goes_where_the_others_are_not_enough() -> None:
    pods = [
        pod("guaranteed", born=1, memory="2Gi", qos="Guaranteed"),
        pod("small", born=2, memory="1Mi"),
        pod("critical", born=4, priority=2_000_001_000, memory="2Gi"),
    ]
    assert outcomes(pods, node(memory="2049Mi")) == {"guaranteed": "Preempting"}


def test_a_critical_pod_with_nobody_to_preempt_is_lost_itself() -> None:
    pods = [pod("one", born=1, priority=2_000_001_000, memory="2Gi"), pod("two", born=2, priority=2_000_000_000, memory="2Gi")]
    assert outcomes(pods, node(memory="3Gi")) == {"two": "UnexpectedAdmissionError"}
    pods[1]["spec"]["priority"] = 2_000_001_001
    assert outcomes(pods, node(memory="3Gi")) == {"one": "Preempting"}


def test_what_a_preempted_pod_counts_for_is_less_than_what_it_takes() -> None:
    critical = pod("critical", born=9, priority=2_000_001_000, **{"ephemeral-storage": "2Gi"})
    storage = pod("storage", born=1, **{"ephemeral-storage": "2Gi"})
    there = node(**{"ephemeral-storage": "3Gi"})
    assert outcomes([storage, critical], there) == {"storage": "Preempting"}
    # With requests of the pod as a whole, of which ephemeral-storage cannot be one, the kubelet does not see the container's.
    storage["spec"]["resources"] = {"requests": {"cpu": "1"}}
    assert outcomes([storage, critical], there)["critical"] == "UnexpectedAdmissionError"
    # Nor the overhead of what the pod itself does not request.
    overhead = pod("overhead", born=1, cpu="1", spec={"overhead": {"ephemeral-storage": "2Gi"}})
    assert outcomes([overhead, critical], there)["critical"] == "UnexpectedAdmissionError"


# ---- any pods


def many(seed: int) -> list[dict[str, Any]]:
    dice = Random(seed)
    asks = [{}, {"cpu": "100m"}, {"cpu": "1"}, {"cpu": "1500m", "memory": "1Gi"}, {"memory": "1.5Gi"}]
    return [
        pod(
            f"p{number}",
            born=dice.randrange(5),
            priority=dice.choice([0, 0, 0, 1000, 2_000_000_000]),
            static=dice.randrange(6) == 0,
            qos=dice.choice(["BestEffort", "Burstable", "Guaranteed"]),
            **dice.choice(asks),
        )
        for number in range(dice.randint(0, 8))
    ]


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=200)
def test_what_stays_fits_together_and_nothing_is_lost_on_a_large_node(seed: int) -> None:
    pods, dice = many(seed), Random(seed)
    reserved, most = dice.randrange(4), dice.randint(1, 8)
    there = node(cpu="5", memory="6Gi")
    lost = {
        one.pod
        for one in forecast(pods, there, {}, {"systemReserved": {"cpu": str(reserved), "memory": f"{reserved}Gi"}, "maxPods": most}).losers
    }
    kept = [one for one in pods if f"x/{one['metadata']['name']}" not in lost]
    assert len(kept) <= most
    for resource, whole in (("cpu", 5), ("memory", 6 * GIB)):
        each = reserved if resource == "cpu" else reserved * GIB
        assert sum(requests(one, View.ALLOCATED).get(resource, Fraction(0)) for one in kept) <= whole - each
    assert forecast(pods, node(cpu="13", memory="13Gi"), {}, {}).losers == ()
