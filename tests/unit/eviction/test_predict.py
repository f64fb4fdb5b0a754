"""The prediction, compared with the results of the kubelet's own functions (kubelet.json), and rule by rule."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kube import full_name
from roles.engine.kube.pods import kubelet_uid
from roles.engine.kubelet.thresholds import Amount, Threshold, effective
from roles.eviction import predict
from roles.eviction.order import oom_score_adj
from tests.unit.eviction.pods import GI, MI, filesystem, node, pod, stats, summary

CASES = json.loads(Path(__file__).with_name("kubelet.json").read_text())
APART: predict.Layout = "images and containers apart"


# ---- the kubelet's own results: Kubernetes 1.36.3, rank functions, observations, IsCriticalPod, GetContainerOOMScoreAdjust


@pytest.mark.parametrize("case", CASES, ids=[f"{case['signal']} {case['layout']}" for case in CASES])
def test_the_kubelets_own_results(case: dict[str, Any]) -> None:
    expected, pods = case["kubelet"], case["pods"]
    ranked = predict.rank(case["signal"], case["summary"], pods, case["layout"], 36)
    ranks = {entry.pod: entry.rank for entry in ranked}
    kubelets_order = [ranks[name] for name in expected["order"]]
    assert kubelets_order == sorted(entry.rank for entry in ranked)
    assert [entry.rank for entry in ranked] == kubelets_order
    assert sorted(entry.pod for entry in ranked if entry.protected) == sorted(expected["critical"])
    assert {signal: [seen.available, seen.capacity] for signal, seen in predict.readings(case["summary"]).items()} == expected["seen"]
    for one in pods:
        for container in (*one["spec"].get("initContainers", ()), *one["spec"]["containers"]):
            assert oom_score_adj(one, container, case["capacity"], 36) == expected["adjust"][full_name(one)][container["name"]]


def test_the_cases_are_diverse() -> None:
    """Each signal on each layout, pods of all kinds: otherwise the test above would prove little."""
    assert {(case["signal"], case["layout"]) for case in CASES} == {
        (signal, layout) for signal in predict.RESOURCES for layout in predict._PARTS
    }
    orders = [predict.rank(case["signal"], case["summary"], case["pods"], case["layout"], 36) for case in CASES]
    entries = [entry for order in orders for entry in order]
    assert (
        any(entry.usage is None for entry in entries) and any(entry.over for entry in entries) and any(entry.protected for entry in entries)
    )
    assert sum(order[0].rank < order[-1].rank for order in orders) >= 22


# ---- signals and thresholds


def test_layouts() -> None:
    assert predict.layout_of(summary()) == "one"
    assert predict.layout_of(summary(imagefs=filesystem(capacity=200 * GI))) == APART
    same_make = filesystem(available=20 * GI)
    assert predict.layout_of(summary(imagefs=same_make)) == APART
    a_moment_later = filesystem(available=50 * GI - 3 * MI)
    assert predict.layout_of(summary(imagefs=a_moment_later)) == "one"
    assert predict.layout_of(summary(imagefs=filesystem(capacity=200 * GI), containerfs=filesystem())) == "images apart"


def hard(limits: dict[str, str], **more: Any) -> tuple[Threshold, ...]:
    return effective({"evictionHard": limits, "enforceNodeAllocatable": ["pods"], **more})


def test_a_percentage_refers_to_what_the_signal_measures() -> None:
    """50% of memory.available is half of the sum of available and working set, whatever the node's capacity is."""
    seen = summary(memory=(3 * GI, 4 * GI), all_pods=None)
    found = predict.predict(seen, [], node(memory="16Gi"), hard({"memory.available": "50%"}))
    [pressure] = found.pressures
    assert (pressure.signal, pressure.limit, pressure.goal) == ("memory.available", 7 * GI // 2, 7 * GI // 2)
    assert found.unobserved == ("allocatableMemory.available",)
    assert any("never met" in note for note in found.notes)


def test_exactly_at_the_threshold_is_not_met() -> None:
    at = summary(memory=(500 * MI, GI), all_pods=None)
    assert not predict.predict(at, [], node(), hard({"memory.available": "500Mi"})).pressures
    below = summary(memory=(500 * MI - 1, GI), all_pods=None)
    assert predict.predict(below, [], node(), hard({"memory.available": "500Mi"})).pressures


def test_all_pods_together_have_a_threshold_too() -> None:
    seen = summary(memory=(4 * GI, 4 * GI), all_pods=(200 * MI, 3 * GI))
    [pressure] = predict.predict(seen, [], node(), hard({"memory.available": "500Mi"})).pressures
    assert pressure.signal == "allocatableMemory.available"
    assert not predict.predict(seen, [], node(), effective({"evictionHard": {"memory.available": "500Mi"}})).pressures


def test_containerfs_follows_the_disk_that_it_is_on() -> None:
    small = filesystem(available=GI)
    one = predict.predict(summary(nodefs=small), [], node(), hard({"nodefs.available": "2Gi", "imagefs.available": "1Mi"}))
    assert {entry.signal for entry in one.pressures} == {"nodefs.available", "containerfs.available"}
    apart = predict.predict(
        summary(nodefs=filesystem(), imagefs=small), [], node(), hard({"nodefs.available": "1Mi", "imagefs.available": "2Gi"})
    )
    assert {entry.signal for entry in apart.pressures} == {"imagefs.available", "containerfs.available"}


def test_soft_thresholds_come_after_hard_ones() -> None:
    both = effective({"evictionHard": {"nodefs.available": "60Gi"}, "evictionSoft": {"memory.available": "6Gi", "nodefs.available": "70Gi"},
                      "evictionSoftGracePeriod": {"memory.available": "10s", "nodefs.available": "10s"}})  # fmt: skip
    found = predict.predict(summary(imagefs=filesystem(capacity=GI)), [], node(), both).pressures
    assert [(entry.signal, entry.grace) for entry in found] == [("nodefs.available", 0), ("memory.available", 10), ("nodefs.available", 10)]


def test_memory_comes_first() -> None:
    seen = summary(memory=(MI, GI), nodefs=filesystem(available=1), processes=32000)
    found = predict.predict(seen, [], node(), hard({"pid.available": "10000", "nodefs.available": "10%", "memory.available": "1Gi"}))
    assert found.pressures[0].signal == "memory.available"
    assert any("not determined" in note for note in found.notes)


def test_soft_thresholds_wait() -> None:
    soft = effective({"evictionSoft": {"memory.available": "6Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"}})
    [pressure] = predict.predict(summary(), [], node(), soft).pressures
    assert pressure.grace == 90
    assert (
        "memory.available is a soft threshold: pods are evicted when it has been met for 90 s"
        in predict.predict(summary(), [], node(), soft).notes
    )


# ---- pods


def test_a_static_pod_is_identified_by_its_hash() -> None:
    mirror = pod("etcd-n1", mirror="a" * 32, priority=2000001000)
    seen = summary(stats("etcd-n1", uid="a" * 32, memory=GI))
    [entry] = predict.rank("memory.available", seen, [mirror], "one", 36)
    assert (entry.usage, entry.uid, entry.protected) == (GI, "a" * 32, "static pod")


def test_only_the_priority_makes_a_pod_critical() -> None:
    assert predict.protected(pod("a", priority=2_000_000_000)) and not predict.protected(pod("a", priority=1_999_999_999))
    assert not predict.protected(pod("a", priority=None))
    assert not predict.protected(pod("a", priority=5, spec={"priorityClassName": "system-node-critical"}))


def test_pods_that_have_ended_are_not_ranked() -> None:
    pods = [pod("a", phase="Succeeded"), pod("b", phase="Failed"), pod("c", phase="Pending"), pod("d")]
    assert [full_name(one) for one in predict.active(pods)] == ["default/c", "default/d"]


def test_the_qos_class_does_not_matter() -> None:
    """A pod of high priority over its request is evicted before one of low priority below its request."""
    pods = [pod("low", priority=-10, requests={"memory": "1Gi"}), pod("high", priority=1000, qos="Guaranteed", requests={"memory": "10Mi"})]
    seen = summary(stats("low", memory=900 * MI), stats("high", memory=11 * MI))
    assert [entry.pod for entry in predict.rank("memory.available", seen, pods, "one", 36)] == ["default/high", "default/low"]


def test_inodes_are_ranked_with_the_bytes_requested() -> None:
    pods = [pod("few"), pod("many", requests={"ephemeral-storage": "1Ki"})]
    seen = summary(stats("few", inodes=5), stats("many", inodes=1000))
    assert [entry.pod for entry in predict.rank("nodefs.inodesFree", seen, pods, "one", 36)] == ["default/few", "default/many"]


def test_the_usage_that_counts_on_each_disk() -> None:
    volumes = (
        {"name": "empty", "emptyDir": {}}, {"name": "ram", "emptyDir": {"medium": "Memory"}}, {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "secret", "secret": {}}, {"name": "map", "configMap": {}}, {"name": "claim", "persistentVolumeClaim": {"claimName": "x"}},
    )  # fmt: skip
    one = pod("a", volumes=volumes)
    used = stats("a", rootfs=1, logs=2, volumes={"empty": 4, "ram": 8, "host": 16, "secret": 32, "map": 64, "claim": 128})
    assert predict.usage("nodefs.available", one, used, "one") == 1 + 2 + 4 + 16 + 64
    assert predict.usage("nodefs.available", one, used, APART) == 2 + 4 + 16 + 64
    assert predict.usage("imagefs.available", one, used, APART) == 1
    assert predict.usage("imagefs.available", one, used, "images apart") == 0
    # An eviction only frees the pod's own data.
    assert predict.freed("nodefs.available", summary(used), [one], "one")(kubelet_uid(one)) == 1 + 2 + 4


SIDECAR = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"memory": "30Mi"}}}
INIT = {"name": "init", "resources": {"requests": {"memory": "200Mi"}}}


@pytest.mark.parametrize(
    ("spec", "minor", "wanted"),
    [
        ({}, 36, 100),
        ({"initContainers": [SIDECAR]}, 36, 130),
        ({"initContainers": [SIDECAR]}, 33, 100),
        ({"initContainers": [SIDECAR, INIT]}, 36, 230),
        ({"initContainers": [SIDECAR, INIT]}, 33, 200),
        ({"overhead": {"memory": "7Mi"}}, 36, 107),
        ({"resources": {"requests": {"memory": "500Mi"}}}, 36, 500),
        ({"resources": {"requests": {"memory": "500Mi"}}}, 33, 100),
        # Only cpu at pod level, and yet no container's request counts.
        ({"resources": {"requests": {"cpu": "1"}}}, 36, 0),
        ({"resources": {"requests": {"cpu": "1"}}, "overhead": {"memory": "7Mi"}}, 36, 0),
    ],
)
def test_the_request_that_counts(spec: dict[str, Any], minor: int, wanted: int) -> None:
    assert predict.request(pod("a", requests={"memory": "100Mi"}, spec=spec), "memory", minor) == wanted * MI


def test_ephemeral_storage_does_not_count_if_the_pod_has_pod_level_resources() -> None:
    one = pod("a", requests={"ephemeral-storage": "1Gi"}, spec={"resources": {"requests": {"memory": "1Gi"}}})
    assert (predict.request(one, "ephemeral-storage", 36), predict.request(one, "ephemeral-storage", 33)) == (0, GI)


def test_during_a_resize_the_allocated_resources_count() -> None:
    statuses = {"containerStatuses": [{"name": "app", "allocatedResources": {"memory": "64Mi", "cpu": "1"}}]}
    one = pod("a", requests={"memory": "1Gi"}, status=statuses)
    assert predict.request(one, "memory", 36) == 64 * MI
    found = predict.predict(summary(stats("a", memory=MI)), [one], node(), hard({"memory.available": "5Gi"}))
    assert any("resized" in note for note in found.notes)


# ---- victims


def test_one_pod_after_the_other_until_it_is_enough() -> None:
    pods = [pod(name, priority=priority) for name, priority in (("a", 5), ("b", 1), ("critical", 2_000_000_000), ("c", 9))]
    seen = summary(*(stats(name, memory=100 * MI) for name in ("a", "b", "critical", "c")), memory=(400 * MI, GI), all_pods=None)
    plain = predict.predict(seen, pods, node(), hard({"memory.available": "450Mi"}))
    assert plain.victims == ("default/b",)
    assert plain.pressures[0].victims == (predict.Victim("default/b", kubelet_uid(pods[1]), 100 * MI, True),) and plain.pressures[0].enough
    more = predict.predict(seen, pods, node(), hard({"memory.available": "450Mi"}, evictionMinimumReclaim={"memory.available": "100Mi"}))
    assert more.pressures[0].goal == 550 * MI and more.victims == ("default/b", "default/a")
    assert any("estimate" in note for note in more.notes) and not any("estimate" in note for note in plain.notes)
    every = predict.predict(seen, pods, node(), hard({"memory.available": "1Gi"}))
    assert every.victims == ("default/b", "default/a", "default/c") and not every.pressures[0].enough
    assert [entry.pod for entry in every.pressures[0].order][-1] == "default/critical"
    assert any("would not be enough" in note for note in every.notes)


def test_exactly_enough_is_enough() -> None:
    pods = [pod("a"), pod("b", priority=1)]
    seen = summary(stats("a", memory=100 * MI), stats("b", memory=100 * MI), memory=(400 * MI, GI), all_pods=None)
    assert predict.predict(seen, pods, node(), hard({"memory.available": "500Mi"})).victims == ("default/a",)


def test_for_processes_a_pod_without_usage_is_first_in_its_priority() -> None:
    pods = [pod("many"), pod("new"), pod("low", priority=-1)]
    seen = summary(stats("many", processes=500), stats("low", processes=1))
    assert [entry.pod for entry in predict.rank("pid.available", seen, pods, "one", 36)] == ["default/low", "default/new", "default/many"]
    none_at_all = summary(stats("many", processes=0))
    order = predict.rank("pid.available", none_at_all, pods[:2], "one", 36)
    assert [(entry.pod, entry.tied) for entry in order] == [("default/new", False), ("default/many", False)]


def test_the_first_of_equals_is_not_certain() -> None:
    pods = [pod("a"), pod("b"), pod("c", priority=1)]
    seen = summary(*(stats(name, memory=100 * MI) for name in "abc"), memory=(MI, GI), all_pods=None)
    [first] = predict.predict(seen, pods, node(), hard({"memory.available": "50Mi"})).pressures[0].victims
    assert not first.certain
    pods[0] = pod("a", mirror="f" * 32)
    seen["pods"][0]["podRef"]["uid"] = "f" * 32
    [first] = predict.predict(seen, pods, node(), hard({"memory.available": "50Mi"})).pressures[0].victims
    assert (first.pod, first.certain) == ("default/b", True)


def test_a_pod_without_usage_is_evicted_first() -> None:
    pods = [pod("known", priority=-100), pod("new", priority=100, phase="Pending")]
    seen = summary(stats("known", memory=GI), memory=(MI, GI), all_pods=None)
    found = predict.predict(seen, pods, node(), hard({"memory.available": "100Mi"}))
    assert found.victims == ("default/new", "default/known")
    assert any("the usage of default/new is unknown" in note for note in found.notes)


def test_pods_over_their_own_limits_are_evicted_first() -> None:
    volume = {"name": "v", "emptyDir": {"sizeLimit": "10Mi"}}
    pods = [
        pod("size", volumes=(volume,)), pod("pod", limits={"ephemeral-storage": "20Mi"}), pod("fine", limits={"ephemeral-storage": "20Mi"}),
        pod("critical", limits={"ephemeral-storage": "20Mi"}, priority=2_000_000_000), pod("just", volumes=(volume,)), pod("free", priority=-7),
    ]  # fmt: skip
    seen = summary(
        stats("size", volumes={"v": 10 * MI + 1}),
        stats("pod", ephemeral=20 * MI + 1),
        stats("fine", ephemeral=20 * MI),
        stats("critical", ephemeral=GI),
        stats("just", volumes={"v": 10 * MI}),
        stats("free", ephemeral=GI, memory=GI),
    )
    found = predict.predict(seen, pods, node(), ())
    assert [(entry.pod, entry.limit) for entry in found.local] == [("default/size", 10 * MI), ("default/pod", 20 * MI)]
    assert found.victims == ("default/size", "default/pod") and not found.pressures
    [first] = predict.predict(seen, pods, node(), hard({"memory.available": "4500Mi"})).pressures[0].victims
    assert (first.pod, first.certain) == ("default/free", False)
    del seen["pods"][:2]
    [first] = predict.predict(seen, pods[2:], node(), hard({"memory.available": "4500Mi"})).pressures[0].victims
    assert (first.pod, first.certain) == ("default/free", True)


def test_a_containers_own_limit() -> None:
    one = pod("a", limits={"ephemeral-storage": "20Mi"})
    seen = summary(stats("a", rootfs=15 * MI, logs=6 * MI, ephemeral=0))
    assert [entry.what for entry in predict.predict(seen, [one], node(), ()).local] == ["container app over its limits.ephemeral-storage"]
    assert not predict.predict(seen, [one], node(), (), known_layout=APART).local


def test_the_kubelet_removes_images_and_containers_before_it_evicts() -> None:
    disk = hard({"nodefs.available": "60Gi"})
    assert predict.predict(summary(), [], node(), disk).pressures[0].reclaims_first
    apart = predict.predict(summary(imagefs=filesystem(capacity=200 * GI)), [], node(), disk)
    assert not apart.pressures[0].reclaims_first
    assert not predict.predict(summary(), [], node(), hard({"memory.available": "5Gi"})).pressures[0].reclaims_first


def test_pods_that_may_not_be_readmitted() -> None:
    tolerating = {"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]}
    pods = [
        pod("best", qos="BestEffort"), pod("tolerates", qos="BestEffort", spec=tolerating), pod("burst"),
        pod("critical", priority=2_000_000_000, qos="BestEffort"),
        pod("all", qos="BestEffort", spec={"tolerations": [{"operator": "Exists"}]}),
        pod("other", qos="BestEffort", spec={"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}),
    ]  # fmt: skip
    assert predict.predict(summary(), pods, node(), hard({"memory.available": "5Gi"})).rejected == ("default/best", "default/other")
    every = tuple(f"default/{name}" for name in ("all", "best", "burst", "other", "tolerates"))
    assert predict.predict(summary(), pods, node(), hard({"nodefs.available": "60Gi"})).rejected == every
    assert predict.predict(summary(processes=32000), pods, node(), hard({"pid.available": "10000"})).rejected == every
    assert not predict.predict(summary(), pods, node(), hard({"memory.available": "1Gi"})).rejected


def test_the_pressures_of_new_thresholds() -> None:
    def at(limit: str) -> predict.Prediction:
        return predict.predict(summary(all_pods=None), [], node(), hard({"memory.available": limit, "nodefs.available": "60Gi"}))

    assert not at("5Gi").not_in(at("5Gi")) and not at("5Gi").not_in(at("6Gi"))
    assert [pressure.signal for pressure in at("5Gi").not_in(at("1Gi"))] == ["memory.available"]
    assert [pressure.goal for pressure in at("6Gi").not_in(at("5Gi"))] == [6 * GI]


def test_an_unknown_signal_and_an_unreadable_quantity() -> None:
    with pytest.raises(ValueError, match=r"'memory.free' is not an eviction signal; the signals are memory.available"):
        predict.rank("memory.free", summary(), [], "one", 36)
    with pytest.raises(ValueError, match="lots"):
        predict.rank("memory.available", summary(stats("a")), [pod("a", requests={"memory": "lots"})], "one", 36)
    with pytest.raises(ValueError, match="kubeletVersion"):
        predict.minor_of({"status": {}})


# ---- laws


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    pods, usage = [], []
    for index in range(draw(st.integers(0, 12))):
        name = f"p{index}"
        pods.append(
            pod(
                name,
                priority=draw(st.sampled_from([None, -5, 0, 0, 7, 1999999999, 2000000000])),
                requests=draw(st.sampled_from([{}, {"memory": "50Mi"}, {"memory": "100Mi", "ephemeral-storage": "10Mi"}])),
                volumes=({"name": "v", "emptyDir": {}},),
            )
        )
        if draw(st.integers(0, 9)):
            sizes = st.sampled_from([0, 10 * MI, 50 * MI, 100 * MI, 123 * MI])
            usage.append(
                stats(
                    name,
                    memory=draw(sizes),
                    rootfs=draw(sizes),
                    volumes={"v": draw(sizes)},
                    inodes=draw(st.integers(0, 3)),
                    processes=draw(st.integers(0, 3)),
                )
            )
    return summary(*usage, memory=(draw(st.integers(0, 2)) * GI, 4 * GI)), pods


@given(worlds(), st.sampled_from(sorted(predict.RESOURCES)), st.sampled_from(sorted(predict._PARTS)), st.randoms())
def test_the_order_does_not_depend_on_the_order_of_the_list(world: Any, signal: str, layout: predict.Layout, chance: random.Random) -> None:
    seen, pods = world
    order = predict.rank(signal, seen, pods, layout, 36)
    assert [entry.place for entry in order] == list(range(1, len(pods) + 1))
    assert sorted(entry.pod for entry in order) == sorted(map(full_name, pods))
    chance.shuffle(pods)
    assert predict.rank(signal, seen, pods, layout, 36) == order
    assert all(entry.tied == (sum(other.rank == entry.rank for other in order) > 1) for entry in order)
    if signal != "pid.available":
        groups = [0 if entry.usage is None else 1 if entry.over else 2 for entry in order]
        assert groups == sorted(groups)


@given(worlds(), st.integers(0, 8), st.integers(0, 8))
def test_a_higher_threshold_never_has_fewer_victims(world: Any, one: int, other: int) -> None:
    """And the victims are the first pods that can be evicted, in order, not more than needed."""
    seen, pods = world
    found = [
        predict.predict(seen, pods, node(), [Threshold("memory.available", Amount(fraction=Fraction(part, 10)))])
        for part in sorted((one, other))
    ]
    assert found[1].victims[: len(found[0].victims)] == found[0].victims
    for prediction in found:
        for pressure in prediction.pressures:
            can_go = [entry.pod for entry in pressure.order if not entry.protected]
            names = [victim.pod for victim in pressure.victims]
            assert names == can_go[: len(names)]
            back = [victim.freed for victim in pressure.victims]
            assert pressure.reading.available + sum(back[:-1]) < pressure.goal or not back
            assert pressure.enough == (pressure.reading.available + sum(back) >= pressure.goal)
            assert pressure.enough or names == can_go
