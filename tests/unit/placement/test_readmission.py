"""Which pods a starting kubelet does not admit again."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roles.engine.placement import Lack, Unfit, requests, unfit_pods, which_no_longer_fit

GIB = 2**30
MIB = 2**20
PODS = 110


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
