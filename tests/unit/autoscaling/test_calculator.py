"""How many pods each metric asks for: every rule of the replica calculator, by cases of our own."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.autoscaling import MetricResult, ScalingController
from roles.engine.autoscaling.model import NoReading, PodSamples, Sample, Total
from tests.unit.autoscaling.world import (
    EACH,
    IN_ALL,
    KCM,
    OLDER,
    ago,
    average,
    container,
    decided,
    external,
    hpa,
    object_metric,
    pod,
    pods,
    pods_metric,
    samples,
    utilization,
)


def result(*args: object, **more: object) -> MetricResult:
    return decided(*args, **more).rows[0]  # type: ignore[arg-type]


def test_utilization_is_the_sum_of_usage_by_the_sum_of_requests_cut_to_whole_percent() -> None:
    # 299 of 400 are 74.75 %: the controller counts 74 %, and 74/50 of 4 pods are 5.92.
    found = result(hpa(), 4, samples(100, 99, 50, 50))
    assert (found.utilization, found.current, found.proposal) == (74, 74, 6)
    assert found.ratio == 74 / 50


@pytest.mark.parametrize(("used", "wanted"), [(45, 4), (55, 4), (56, 5), (44, 4), (40, 4), (37, 3)])
def test_a_change_within_the_tolerance_is_none(used: int, wanted: int) -> None:
    assert result(hpa(), 4, samples(used, used, used, used)).proposal == wanted


def test_just_at_the_tolerance_the_older_controller_differs() -> None:
    # 55/50 is 1.1, and 1.0 - 1.1 is a little more than 0.1 as a float.
    assert result(hpa(), 10, samples(*[55] * 10)).proposal == 10
    assert result(hpa(), 10, samples(*[55] * 10), controller=OLDER).proposal == 11


def test_the_flag_and_the_autoscaler_set_the_tolerance() -> None:
    asked = hpa(behavior={"scaleUp": {"tolerance": "20m"}, "scaleDown": {"tolerance": "300m"}})
    up, down = samples(*[52] * 10), samples(*[40] * 10)
    assert result(asked, 10, up).proposal == 11
    assert result(asked, 10, down).proposal == 10
    # The gate is off by default before 1.35: the flag counts, and daytwo must not believe the field.
    for controller in (ScalingController(34), OLDER, replace(KCM, gates={"HPAConfigurableTolerance": False})):
        assert result(asked, 10, up, controller=controller).proposal == 10
        assert result(asked, 10, down, controller=controller).proposal == 8
    assert result(asked, 10, up, controller=ScalingController(34, gates={"HPAConfigurableTolerance": True})).proposal == 11
    assert result(hpa(), 10, up, controller=replace(KCM, tolerance=0.01)).proposal == 11


def test_pods_that_are_ending_or_failed_are_ignored_but_their_requests_must_exist() -> None:
    group = [*pods(2), pod("web-2", ending=True), pod("web-3", phase="Failed")]
    found = result(hpa(), 2, samples(100, 100, 900, 900), group)
    assert found.groups.ignored == ("web-2", "web-3")
    assert (found.utilization, found.proposal) == (100, 4)
    group[2] = pod("web-2", container(cpu=None), ending=True)
    found = result(hpa(), 2, samples(100, 100), group)
    assert found.message.endswith("missing request for cpu in container app of Pod web-2")


def test_a_pending_pod_counts_as_idle_when_scaling_up_and_not_at_all_when_scaling_down() -> None:
    group = [*pods(2), pod("web-2", phase="Pending", ready=None, started=None)]
    # 200 of 200: ratio 2; with the third at 0 it is 200/300 = 66 %, 66/50 x 3 = 3.96.
    found = result(hpa(), 3, samples(100, 100), group)
    assert (found.groups.unready, found.ratio, found.proposal) == (("web-2",), 2.0, 4)
    # Ten pods ask for 12; with the eleventh at 0 it is 54/50: within the tolerance.
    eleven = [*pods(10), pod("web-10", phase="Pending")]
    assert result(hpa(maximum=20), 11, samples(*[60] * 10), eleven).proposal == 11
    # Scaling down, its place is not counted: 20/50 of 2 pods.
    assert result(hpa(), 3, samples(20, 20), group).proposal == 1


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        (100, 4),  # with the third at 0 it is 66/50 of 3
        (20, 3),  # with the third at 100 % it is 46/50: within the tolerance
        (5, 3),  # 36/50 of 3 are 2.16
        (0, 2),  # 33/50 of 3 are 1.98
    ],
)
def test_a_missing_sample_counts_as_idle_up_and_as_all_of_its_request_down(used: int, wanted: int) -> None:
    found = result(hpa(), 3, samples(used, used))
    assert found.groups.missing == ("web-2",)
    assert found.proposal == wanted


def test_a_target_above_100_counts_for_a_missing_sample_when_scaling_down() -> None:
    # Four pods, target 200 %: three at 100, and the missing one at 200: 500/400 = 125/200 of 4 are 2.5. At 100 it would be 2.
    assert result(hpa(utilization(percent=200)), 4, samples(100, 100, 100)).proposal == 3


def test_a_missing_sample_of_an_average_counts_as_the_target_down() -> None:
    # 40 of 100, and the missing one at 100: (40+40+100)/3 = 60, 0.6 x 3 = 1.8.
    found = result(hpa(average(value="100m")), 3, samples(40, 40))
    assert (found.current, found.proposal) == (40, 2)


def test_a_result_that_turns_the_direction_is_no_change() -> None:
    # 60/50 up; with the missing pod at 0 it would be 40/50, down.
    assert result(hpa(), 3, samples(60, 60)).proposal == 3
    # 140/400 are 0.7 of the target, which of 4 pods are 3; but with two samples it was more than the target.
    assert result(hpa(), 4, samples(70, 70)).proposal == 4
    # Up, and the unready pods make the count lower than now: 4 wanted, 2 known.
    group = [*pods(2), pod("web-2", phase="Pending")]
    assert result(hpa(), 5, samples(100, 100), group).proposal == 5


def test_more_samples_than_wanted_pods_cannot_turn_a_scale_down() -> None:
    # 4 pods exist and 2 are wanted. With the missing one at 100 % it is 160/400: 0.8 of 4 are 3.2, which is not fewer than 2.
    assert result(hpa(), 2, samples(20, 20, 20), pods(4)).proposal == 2


def test_the_first_minutes_of_a_pod_count_only_once_a_whole_window_is_after_it_became_ready() -> None:
    started = 60

    def unready(changed: float, age: float, window: float, ready: str = "True") -> bool:
        group = [pod("web-0", started=started, changed=changed, ready=ready), pod("web-1")]
        found = result(hpa(), 2, PodSamples({"web-0": Sample(100, ago(age), window), "web-1": Sample(50, ago(age), window)}), group)
        return found.groups.unready == ("web-0",)

    assert unready(changed=30, age=10, window=30)
    assert not unready(changed=50, age=10, window=30)
    assert unready(changed=40, age=11, window=30)
    assert not unready(changed=40, age=10, window=30)
    assert unready(changed=50, age=10, window=30, ready="False")


def test_later_a_pod_is_left_out_only_if_it_was_never_ready() -> None:
    def unready(started: float, changed: float, ready: str, controller: ScalingController = KCM) -> bool:
        group = [pod("web-0", started=started, changed=changed, ready=ready), pod("web-1")]
        return result(hpa(), 2, samples(100, 50), group, controller=controller).groups.unready == ("web-0",)

    assert unready(started=301, changed=280, ready="False")
    assert not unready(started=301, changed=271, ready="False")
    assert not unready(started=400, changed=1, ready="False")
    assert not unready(started=301, changed=300, ready="True")
    assert not unready(started=300, changed=100, ready="False")
    assert unready(started=299, changed=100, ready="False")
    assert not unready(started=299, changed=100, ready="False", controller=replace(KCM, cpu_initialization=120))
    assert unready(started=400, changed=330, ready="False", controller=replace(KCM, readiness_delay=90))


def test_a_pod_without_condition_or_start_is_not_ready_for_cpu_but_counts_for_memory() -> None:
    for odd in (pod("web-0", ready=None), pod("web-0", started=None)):
        assert result(hpa(), 2, samples(100, 50), [odd, pod("web-1")]).groups.unready == ("web-0",)
        memory = hpa(utilization("memory"))
        bytes_used = 50 * 2**20 * 1000
        assert result(memory, 2, samples(bytes_used, bytes_used), [odd, pod("web-1")]).groups.ready == 2


def test_without_one_sample_that_counts_there_is_no_count() -> None:
    found = result(hpa(), 1, samples(100), [pod("web-0", phase="Pending")])
    assert (found.proposal, found.reason) == (None, "FailedGetResourceMetric")
    assert found.message == (
        "the HPA was unable to compute the replica count: failed to get cpu utilization: "
        "did not receive metrics for targeted pods (pods might be unready)"
    )
    assert "no pods returned by selector" in result(hpa(), 1, samples(100), []).message


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ([container(), container("proxy", cpu=None)], "missing request for cpu in container proxy of Pod web-0"),
        ([container(cpu=None)], "missing request for cpu in container app of Pod web-0"),
    ],
)
def test_any_container_without_the_request_stops_a_utilization(group: list[dict[str, object]], message: str) -> None:
    assert result(hpa(), 1, samples(50), [pod("web-0", *group)]).message.endswith(message)
    # An average needs no request, and memory has its own.
    assert result(hpa(average()), 1, samples(50), [pod("web-0", *group)]).valid
    assert result(hpa(utilization("memory")), 1, samples(1000), [pod("web-0", *group)]).valid


def test_sidecars_count_and_init_containers_that_end_do_not() -> None:
    sidecar = container("mesh", cpu="100m", restartPolicy="Always")
    one = pod("web-0", init=[container("setup", cpu=None), sidecar])
    assert result(hpa(), 1, samples(100), [one]).utilization == 50
    one = pod("web-0", init=[container("mesh", cpu=None, restartPolicy="Always")])
    assert "missing request for cpu in container mesh" in result(hpa(), 1, samples(100), [one]).message


def test_pod_level_requests_count_from_1_34_on() -> None:
    one = pod("web-0", container(cpu=None), resources={"requests": {"cpu": "400m"}})
    assert result(hpa(), 1, samples(100), [one]).utilization == 25
    assert not result(hpa(), 1, samples(100), [one], controller=ScalingController(33)).valid
    assert not result(hpa(), 1, samples(100), [one], controller=replace(KCM, gates={"PodLevelResources": False})).valid
    # Only memory for the pod: then the containers' cpu counts, if they have some.
    one = pod("web-0", container(cpu=None), resources={"requests": {"memory": "1Gi"}})
    assert result(hpa(), 1, samples(100), [one]).message.endswith("missing pod-level request for cpu in Pod web-0")
    one = pod("web-0", container(cpu="200m"), container("b", cpu=None), resources={"requests": {"memory": "1Gi"}})
    assert result(hpa(), 1, samples(100), [one]).utilization == 50
    # With the overhead of a runtime class.
    one = pod("web-0", resources={"requests": {"cpu": "400m"}}, overhead={"cpu": "100m"})
    assert result(hpa(), 1, samples(100), [one]).utilization == 20


def test_a_container_resource_looks_at_one_container_only() -> None:
    group = [pod("web-0", container(), container("proxy", cpu=None), resources={"requests": {"cpu": "4"}})]
    found = result(hpa(utilization(container="app")), 1, samples(80), group)
    assert (found.utilization, found.proposal) == (80, 2)
    asked = hpa(utilization(container="gone"))
    found = result(asked, 1, samples(80), group)
    assert (found.reason, found.message.rpartition(": ")[2]) == (
        "FailedGetContainerResourceMetric",
        "container gone not found in Pod web-0",
    )
    # Before 1.35 it was no request.
    assert result(asked, 1, samples(80), group, controller=ScalingController(34)).message.endswith("no metrics returned matched known pods")


def test_requests_of_zero_give_no_utilization() -> None:
    found = result(hpa(), 1, samples(80), [pod("web-0", container(cpu="0"))])
    assert found.message.endswith("no metrics returned matched known pods")


def test_an_average_is_cut_to_a_whole_number_of_thousandths() -> None:
    found = result(hpa(average(value="100m")), 3, samples(100, 150, 101))
    assert (found.current, found.proposal) == (117, 4)


def test_a_pods_metric_counts_pods_that_are_not_ready() -> None:
    group = [pod("web-0", ready="False", started=10, changed=10), pod("web-1")]
    found = result(hpa(pods_metric("10")), 2, samples(30000, 10000), group)
    assert (found.groups.ready, found.current, found.proposal) == (2, 20000, 4)
    assert result(hpa(pods_metric()), 2, NoReading("no metrics returned from custom metrics API")).message == (
        "the HPA was unable to compute the replica count: unable to get metric hits: no metrics returned from custom metrics API"
    )


def test_a_total_is_compared_with_running_ready_pods() -> None:
    group = [*pods(2), pod("web-2", ready="False"), pod("web-3", phase="Pending")]
    for asked, kind in ((hpa(object_metric(IN_ALL)), "Object"), (hpa(external(IN_ALL)), "External")):
        found = result(asked, 4, Total((250000,)), group)
        assert (found.metric.type, found.ratio, found.proposal, found.current) == (kind, 2.5, 5, 250000)
        assert result(asked, 4, Total((105000,)), group).proposal == 4
        assert result(asked, 4, Total((50000,)), group).proposal == 1
        assert "unable to calculate ready pods" in result(asked, 4, Total((250000,)), []).message


def test_a_total_may_be_a_sum_of_series() -> None:
    assert result(hpa(external(IN_ALL)), 2, Total((100000, 150000))).proposal == 5


def test_a_shared_total_is_divided_by_existing_pods() -> None:
    for asked in (hpa(object_metric(EACH)), hpa(external(EACH))):
        found = result(asked, 4, Total((61000,)), existing=5)
        # 61 for 5 pods are 12.2 a pod; 61/10 are 6.1 pods.
        assert (found.current, found.proposal) == (12200, 7)
        assert result(asked, 4, Total((52000,)), existing=5).proposal == 5
        for controller in (KCM, OLDER):
            assert result(asked, 4, Total((0,)), [], existing=0, controller=controller).proposal == 0
            assert result(asked, 4, Total((61000,)), [], existing=0, controller=controller).proposal == 7


def test_a_total_that_is_not_there_names_the_metric() -> None:
    why = NoReading("no metrics returned from external metrics API")
    for target in (IN_ALL, EACH):
        found = result(hpa(external(target)), 2, why)
        assert found.reason == "FailedGetExternalMetric"
        assert found.message.endswith("count: unable to get external metric shop/queue/nil: no metrics returned from external metrics API")
    why = NoReading("unable to fetch metrics from custom metrics API: x")
    found = result(hpa(object_metric(IN_ALL)), 2, why)
    assert found.message.endswith("unable to get metric hits: Ingress on shop main/unable to fetch metrics from custom metrics API: x")
    found = result(hpa(object_metric(IN_ALL)), 2, why, controller=ScalingController(37))
    assert found.message.endswith("unable to get metric hits on Ingress shop/main: unable to fetch metrics from custom metrics API: x")
    assert result(hpa(object_metric({"type": "Value"})), 2, Total((1,))).message.endswith("nor an average value target was set")


def test_more_pods_than_a_number_of_32_bits_are_cut() -> None:
    huge = result(hpa(external({"type": "Value", "value": "1m"})), 2, Total((2**62,)))
    assert huge.proposal == 2**31 - 1


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (utilization(), "FailedGetResourceMetric"),
        (utilization(container="app"), "FailedGetContainerResourceMetric"),
        (pods_metric(), "FailedGetPodsMetric"),
        (object_metric(IN_ALL), "FailedGetObjectMetric"),
        (external(EACH), "FailedGetExternalMetric"),
        ({"type": "Moon"}, "InvalidMetricSourceType"),
    ],
)
def test_each_kind_of_metric_has_its_reason(metric: dict[str, object], reason: str) -> None:
    found = result(hpa(metric), 1, NoReading("x"))
    assert (found.proposal, found.reason) == (None, reason)


def test_one_that_has_succeeded_is_a_pod_without_a_sample() -> None:
    """The controller leaves out only pods that are ending or Failed."""
    group = [*pods(2), pod("web-2", phase="Succeeded")]
    assert result(hpa(), 3, samples(100, 100), group).groups.missing == ("web-2",)


AMOUNTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 49, 50, 51, 100])


@given(st.lists(AMOUNTS | st.none(), min_size=1, max_size=6), st.integers(1, 12), st.sampled_from(["Running", "Pending", "Failed"]))
def test_no_number_of_a_metric_stops_the_computation(values: list[int | None], current: int, phase: str) -> None:
    """Whatever a metrics API or a pod says: a count within the bounds, or a reason for none."""
    group = [*pods(len(values)), pod("last", phase=phase)]
    totals = Total(tuple(one for one in values if one is not None))
    each = samples(*values)
    for metric, reading in (
        (utilization(), each),
        (average(), each),
        (utilization("memory", 80), each),
        (pods_metric(), each),
        (object_metric(IN_ALL), totals),
        (external(IN_ALL), totals),
        (external(EACH), totals),
    ):
        for behavior in ({}, {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}):
            found = decided(hpa(metric, minimum=2, maximum=9, **behavior), current, reading, group)
            assert found.failed or 2 <= found.lowest <= found.highest <= 9
            assert all((row.proposal or 0) <= 2**31 - 1 for row in found.rows)
            assert found.text and all(row.now for row in found.rows)


@given(st.integers(1, 500), st.integers(1, 20), st.integers(1, 100))
def test_when_all_use_the_same_the_count_is_the_rule_s_own(used: int, current: int, percent: int) -> None:
    """ceil(ratio x pods), and none within the tolerance (horizontal pod autoscaling: algorithm details)."""
    found = result(hpa(utilization(percent=percent), maximum=10**6), current, samples(*[used] * current))
    ratio = Fraction(used, percent)
    if abs(ratio - 1) < Fraction(99, 1000):
        assert found.proposal == current
    elif abs(ratio - 1) > Fraction(101, 1000):
        assert found.proposal == math.ceil(ratio * current) or abs(math.ceil(ratio * current) - float(ratio * current)) < 1e-9


def test_the_current_value_is_shown_with_its_target() -> None:
    assert result(hpa(), 2, samples(80, 90)).now == "85%/50%"
    assert result(hpa(average()), 2, samples(80, 90)).now == "85m/100m a pod"
    assert result(hpa(external(IN_ALL)), 2, Total((12500,))).now == "12.5/100 in all"
    assert result(hpa(), 2, NoReading("x")).now == "<unknown>/50%"
