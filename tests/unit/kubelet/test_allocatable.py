"""What is left for pods, and when a kubelet would not start for what is reserved."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kubelet.allocatable import allocatable, problems, reservation

GIB = 2**30
MIB = 2**20
PODS = 110


def node(**changes: str) -> dict[str, Any]:
    capacity = {"cpu": "16", "memory": "32Gi", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0", "pods": "110"} | changes
    return {"status": {"capacity": capacity, "allocatable": dict(capacity)}}


# The example of kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources.
DOCUMENTED = {
    "kubeReserved": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1Gi"},
    "systemReserved": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
    "evictionHard": {"memory.available": "500Mi", "nodefs.available": "10%"},
    "maxPods": PODS,
}


def test_the_documented_example() -> None:
    left = allocatable(DOCUMENTED, node())
    assert left["cpu"] == 14500
    assert left["memory"] == 29 * GIB - 500 * MIB
    # 10% as the kubelet holds it: 160 bytes more than a tenth of 100 Gi.
    assert left["ephemeral-storage"] == 98 * GIB - 10 * GIB - 160
    assert left["pods"] == PODS
    assert problems("w1", DOCUMENTED, node()) == []


def test_nothing_reserved_is_all_left() -> None:
    assert allocatable({}, node()) == {"cpu": 16000, "memory": 32 * GIB, "ephemeral-storage": 100 * GIB, "hugepages-2Mi": 0, "pods": 110}


def test_a_disabled_threshold_and_soft_ones_reserve_nothing() -> None:
    configuration = {"evictionHard": {"memory.available": "0%", "nodefs.inodesFree": "50%"}, "evictionSoft": {"memory.available": "1Gi"}}
    assert allocatable(configuration, node())["memory"] == 32 * GIB


def test_huge_pages_are_no_memory() -> None:
    left = allocatable(DOCUMENTED, node(**{"hugepages-2Mi": "1Gi", "hugepages-1Gi": "2Gi"}))
    assert left["memory"] == 26 * GIB - 500 * MIB
    assert (left["hugepages-2Mi"], left["hugepages-1Gi"]) == (GIB, 2 * GIB)


def test_devices_stay_as_their_plugin_says() -> None:
    there = node(**{"example.com/gpu": "4"})
    there["status"]["allocatable"]["example.com/gpu"] = "3"
    assert allocatable(DOCUMENTED, there)["example.com/gpu"] == 3


@pytest.mark.parametrize(
    ("configuration", "pods"),
    [({}, 110), ({"maxPods": 20}, 20), ({"maxPods": 200, "podsPerCore": 10}, 160), ({"maxPods": 50, "podsPerCore": 10}, 50)],
)
def test_the_number_of_pods(configuration: dict[str, Any], pods: int) -> None:
    assert allocatable(configuration, node())["pods"] == pods


def test_reserved_cpus_replace_what_is_reserved_of_cpu() -> None:
    assert allocatable(DOCUMENTED | {"reservedSystemCPUs": "0-2,15"}, node())["cpu"] == 12000


@given(st.integers(0, 99), st.integers(0, 99), st.sampled_from(["memory.available", "nodefs.available"]))
def test_a_higher_threshold_never_leaves_more(one: int, other: int, signal: str) -> None:
    lower, higher = (allocatable({"evictionHard": {signal: f"{share}.5%"}}, node()) for share in sorted([one, other]))
    assert all(higher[resource] <= lower[resource] for resource in lower)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40))
def test_over_reservation_is_refused_and_nothing_else(kube: int, system: int, hard: int) -> None:
    configuration = {
        "kubeReserved": {"memory": f"{kube}Gi"},
        "systemReserved": {"memory": f"{system}Gi"},
        "evictionHard": {"memory.available": f"{hard}Gi"},
    }
    assert bool(problems("w1", configuration, node())) == (kube + system + hard > 32)
    assert allocatable(configuration, node())["memory"] == max(0, 32 - kube - system - hard) * GIB


def test_over_reservation_names_the_numbers() -> None:
    configuration = {
        "kubeReserved": {"memory": "1Gi", "cpu": "1500m"},
        "systemReserved": {"cpu": "1"},
        "evictionHard": {"memory.available": "50%", "nodefs.available": "100Mi"},
    }
    found = [str(problem) for problem in problems("w1", configuration, node(memory="1Gi", cpu="2"))]
    assert found == [
        "w1: cpu: kubeReserved 1.5 + systemReserved 1 = 2.5 are reserved, but the node has 2; the kubelet would not start"
        " (invalid Node Allocatable configuration); reserve less",
        "w1: memory: kubeReserved 1Gi + evictionHard memory.available 512Mi = 1536Mi are reserved, but the node has 1Gi;"
        " the kubelet would not start (invalid Node Allocatable configuration); reserve less",
    ]


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"kubeReserved": {"gpu": "1"}}, "kubeReserved: gpu cannot be reserved (only cpu, memory, ephemeral-storage, pid can)"),
        ({"systemReserved": {"memory": "-1Gi"}}, "systemReserved: memory: -1Gi is negative"),
        ({"systemReserved": {"memory": "lots"}}, "systemReserved: memory: 'lots' is not a quantity"),
        ({"reservedSystemCPUs": "3-0"}, "reservedSystemCPUs: '3-0' is not a list of CPUs"),
        ({"evictionHard": {"memory.available": "x"}}, "'x' is not a quantity"),
        ({"cpuManagerPolicy": "static"}, "cpuManagerPolicy static needs reserved cpu"),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "0"}}, "cpuManagerPolicy static needs reserved cpu"),
        (
            {"kubeReserved": {"pid": "20000"}, "systemReserved": {"pid": "12768"}},
            "pid: 32768 are reserved, but the node has 32768; pods could not start a process",
        ),
        (
            {
                "memoryManagerPolicy": "Static",
                "evictionHard": {"memory.available": "200Mi"},
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
            },
            "reservedMemory has 100Mi of memory, but evictionHard memory.available 200Mi come to 200Mi; the kubelet would not start",
        ),
    ],
)
def test_configurations_that_do_not_start(configuration: dict[str, Any], message: str) -> None:
    (problem,) = problems("w1", configuration, node(), 32768)
    assert message in str(problem) and problem.host == "w1" and problem.way_out


@pytest.mark.parametrize(
    "configuration",
    [
        {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1m"}},
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
        {"kubeReserved": {"pid": "32767"}},
        {
            "memoryManagerPolicy": "Static",
            "kubeReserved": {"memory": "100Mi"},
            "evictionHard": {"memory.available": "100Mi"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "150Mi"}}, {"numaNode": 1, "limits": {"memory": "50Mi"}}],
        },
    ],
)
def test_configurations_that_do(configuration: dict[str, Any]) -> None:
    assert problems("w1", configuration, node(), 32768) == []


def test_every_reservable_resource_is_read() -> None:
    assert reservation({"kubeReserved": {"cpu": "1", "memory": "1", "ephemeral-storage": "1", "pid": "1"}}, node()) == {
        "cpu": 1,
        "memory": 1,
        "ephemeral-storage": 1,
        "hugepages-2Mi": 0,
    }
