"""What is left for pods, when a kubelet would not start for what is reserved, and which pods a starting kubelet does not take back."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kubelet.allocatable import Lack, Unfit, allocatable, problems, requests, reservation, unfit_pods, which_no_longer_fit

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


def pod(name: str, *, born: int = 0, priority: int = 0, static: bool = False, qos: str = "Burstable", **asked: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "x",
            "creationTimestamp": f"2026-01-01T00:00:{born:02d}Z",
            "annotations": {"kubernetes.io/config.mirror": "1"} if static else {},
        },
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": asked}}]},
        "status": {"phase": "Running", "qosClass": qos},
    }


def room(**amounts: int) -> dict[str, int]:
    return {"cpu": 4000, "memory": 4 * GIB, "ephemeral-storage": 100 * GIB, "pods": PODS} | amounts


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


def test_a_pod_asks_for_its_containers_and_sidecars_or_for_an_init_container() -> None:
    spec = {
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}},
            {"name": "b", "resources": {"requests": {"cpu": "0.2"}}},
        ],
        "initContainers": [
            {"name": "first", "resources": {"requests": {"cpu": "1"}}},
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m", "memory": "1Mi"}}},
            {"name": "last", "resources": {"requests": {"memory": "2Gi"}}},
        ],
        "overhead": {"cpu": "10m"},
    }
    one = {"metadata": {"name": "p"}, "spec": spec}
    assert requests(one) == {"cpu": 1 + Fraction(1, 100), "memory": 2 * GIB + MIB}
    whole = one | {"spec": spec | {"resources": {"requests": {"cpu": "3"}}}}
    assert requests(whole) == {"cpu": 3 + Fraction(1, 100), "memory": 2 * GIB + MIB}


def test_what_is_allocated_counts_and_not_what_a_resize_asks_for() -> None:
    resized = pod("p", cpu="4", memory="1Gi")
    resized["status"]["containerStatuses"] = [
        {"name": "c", "allocatedResources": {"cpu": "1", "memory": "1Gi"}, "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    ]
    assert requests(resized)["cpu"] == 1
    assert requests(resized, actuated=True)["cpu"] == 2


def test_the_youngest_is_not_taken_back() -> None:
    pods = [pod("young", born=3, memory="1Gi"), pod("old", born=1, memory="2Gi"), pod("middle", born=2, memory="1Gi"), pod("free", born=9)]
    assert which_no_longer_fit(pods, room(), room(memory=4 * GIB - 1)) == (Unfit("x/young", (Lack("memory", GIB, 3 * GIB, 4 * GIB - 1),)),)
    assert which_no_longer_fit(pods, room(), room(memory=4 * GIB)) == ()


def test_a_smaller_one_still_fits_after_a_larger_one_did_not() -> None:
    pods = [pod("large", born=1, cpu="3"), pod("small", born=2, cpu="1")]
    assert [unfit.pod for unfit in which_no_longer_fit(pods, room(), room(cpu=1500))] == ["x/large"]


def test_what_did_not_fit_before_is_not_told() -> None:
    pods = [pod("large", born=1, cpu="5"), pod("small", born=2, cpu="1")]
    assert which_no_longer_fit(pods, room(), room(cpu=1000)) == ()


def test_the_number_of_pods_counts_too_but_not_ended_ones() -> None:
    pods = [pod(f"p{number}", born=number) for number in range(4)]
    pods[0]["status"]["phase"] = "Succeeded"
    assert which_no_longer_fit(pods, room(), room(pods=2)) == (Unfit("x/p3", (Lack("pods", 1, 2, 2),)),)


def test_all_that_is_lacking_is_told() -> None:
    (unfit,) = which_no_longer_fit(
        [pod("p", cpu="2", memory="3Gi", **{"ephemeral-storage": "2Gi"})], room(), room(cpu=1000, memory=GIB, pods=0)
    )
    assert str(unfit) == "x/p (pods: 1 requested, 0 left, cpu: 2000m requested, 1000m left, memory: 3072.0Mi requested, 1024.0Mi left)"


def test_an_extended_resource_unknown_to_the_node_is_not_asked_of_it() -> None:
    one = pod("p", **{"example.com/gpu": "2"})
    assert unfit_pods([one], room()) == ()
    assert unfit_pods([one], room(**{"example.com/gpu": 1})) == (Unfit("x/p", (Lack("example.com/gpu", 2, 0, 1),)),)


def test_static_pods_come_first_and_take_the_room() -> None:
    pods = [pod("old", born=1, memory="3Gi"), pod("etcd", born=50, static=True, memory="1Gi")]
    assert [unfit.pod for unfit in which_no_longer_fit(pods, room(), room(memory=3 * GIB))] == ["x/old"]


def test_a_critical_pod_makes_others_go_the_lowest_class_first() -> None:
    pods = [
        pod("guaranteed", born=1, memory="1Gi", qos="Guaranteed"),
        pod("large", born=2, memory="1Gi"),
        pod("near", born=3, memory="600Mi"),
        pod("critical", born=4, priority=2_000_001_000, memory="512Mi"),
    ]
    tight = room(memory=2 * GIB + 600 * MIB)
    lack = Lack("memory", 512 * MIB, 2 * GIB + 600 * MIB, 2 * GIB + 600 * MIB)
    assert which_no_longer_fit(pods, room(), tight) == (Unfit("x/near", (lack,), "x/critical"),)
    assert str(Unfit("x/near", (lack,), "x/critical")) == "x/near is preempted by x/critical (memory: 512.0Mi requested, 0 left)"


def test_a_guaranteed_pod_goes_where_the_others_are_not_enough() -> None:
    pods = [
        pod("guaranteed", born=1, memory="2Gi", qos="Guaranteed"),
        pod("small", born=2, memory="1Mi"),
        pod("critical", born=4, priority=2_000_001_000, memory="2Gi"),
    ]
    assert [unfit.pod for unfit in unfit_pods(pods, room(memory=2 * GIB + MIB))] == ["x/guaranteed"]


def test_a_critical_pod_with_no_one_to_make_room_goes_itself() -> None:
    pods = [pod("one", born=1, priority=2_000_001_000, memory="2Gi"), pod("two", born=2, priority=2_000_000_000, memory="2Gi")]
    assert [(unfit.pod, unfit.preempted_by) for unfit in unfit_pods(pods, room(memory=3 * GIB))] == [("x/two", "")]
    pods[1]["spec"]["priority"] = 2_000_001_001
    assert [(unfit.pod, unfit.preempted_by) for unfit in unfit_pods(pods, room(memory=3 * GIB))] == [("x/one", "x/two")]


def test_what_a_pod_that_goes_counts_for_is_less_than_what_it_takes() -> None:
    critical = pod("critical", born=9, priority=2_000_001_000, **{"ephemeral-storage": "2Gi"})
    storage = pod("storage", born=1, **{"ephemeral-storage": "2Gi"})
    tight = room(**{"ephemeral-storage": 3 * GIB})
    assert [unfit.pod for unfit in unfit_pods([storage, critical], tight)] == ["x/storage"]
    # With requests of the pod as a whole, of which ephemeral-storage cannot be one, the kubelet does not see the container's.
    storage["spec"]["resources"] = {"requests": {"cpu": "1"}}
    assert [unfit.pod for unfit in unfit_pods([storage, critical], tight)] == ["x/critical"]
    # Nor the overhead of what the pod itself does not ask for.
    overhead = pod("overhead", born=1, cpu="1")
    overhead["spec"]["overhead"] = {"ephemeral-storage": "2Gi"}
    assert [unfit.pod for unfit in unfit_pods([overhead, critical], tight)] == ["x/critical"]


asks = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(["100m", "1", "1500m"]), "memory": st.sampled_from(["64Mi", "1Gi", "1.5Gi"])}
)


@st.composite
def many_pods(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        pod(
            f"p{number}",
            born=draw(st.integers(0, 59)),
            priority=draw(st.sampled_from([0, 1000, 2_000_000_000])),
            static=draw(st.booleans()),
            qos=draw(st.sampled_from(["BestEffort", "Burstable", "Guaranteed"])),
            **draw(asks),
        )
        for number in range(draw(st.integers(0, 8)))
    ]


rooms = st.fixed_dictionaries({"cpu": st.integers(0, 5000), "memory": st.integers(0, 6 * GIB), "pods": st.integers(0, 8)})


@given(many_pods(), rooms)
def test_what_is_taken_back_fits(pods: list[dict[str, Any]], left: dict[str, int]) -> None:
    unfit = {found.pod for found in unfit_pods(pods, left)}
    kept = [one for one in pods if f"x/{one['metadata']['name']}" not in unfit]
    assert len(kept) <= left["pods"]
    for resource, unit in (("cpu", 1000), ("memory", 1)):
        assert sum(requests(one).get(resource, Fraction(0)) * unit for one in kept) <= left[resource]


@given(many_pods(), rooms)
def test_no_one_goes_without_a_reason(pods: list[dict[str, Any]], left: dict[str, int]) -> None:
    assert which_no_longer_fit(pods, left, left) == ()
    for unfit in unfit_pods(pods, left):
        assert unfit.lacks
        assert all(lack.requested > lack.allocatable - lack.used for lack in unfit.lacks)
    assert unfit_pods(pods, {"cpu": 12001, "memory": 13 * GIB, "pods": 8}) == ()


def test_every_reservable_resource_is_read() -> None:
    assert reservation({"kubeReserved": {"cpu": "1", "memory": "1", "ephemeral-storage": "1", "pid": "1"}}, node()) == {
        "cpu": 1,
        "memory": 1,
        "ephemeral-storage": 1,
        "hugepages-2Mi": 0,
    }
