"""Answers of the APIs, the controller's flags, and what its status shows of its memory."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.api import Forbidden, NoApi
from roles.engine.autoscaling import Autoscaler, MetricSpec, ScalingController
from roles.engine.autoscaling.controller import LEASE, Leadership, leader, left_out, read_controller, see_leader, tuned
from roles.engine.autoscaling.model import LiveScale, NoReading, PodSamples, Total, approximate, milli
from roles.engine.autoscaling.parse import custom_samples, custom_total, external_total, resource_samples
from roles.engine.autoscaling.past import history_of
from tests.unit.autoscaling.world import NOW, ago, hpa, text, utilization
from tests.unit.clock import Clock

AT = "2026-03-01T11:59:50Z"


def pod_metrics(name: str, **usages: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": container, "usage": usage} for container, usage in usages.items()]
    return {"metadata": {"name": name, "namespace": "shop"}, "timestamp": AT, "window": "20.5s", "containers": containers}


def test_usages_of_all_containers_are_added_each_rounded_up() -> None:
    found = resource_samples(MetricSpec.of(utilization()), {"items": [pod_metrics("web-0", app={"cpu": "1500001n"}, b={"cpu": "1u"})]}, 36)
    assert isinstance(found, PodSamples)
    one = found.samples["web-0"]
    assert (one.value, one.window, one.at) == (3, 20.5, NOW - timedelta(seconds=10))


def test_a_pod_without_all_usages_has_no_sample() -> None:
    items = [pod_metrics("web-0", app={"cpu": "1"}, b={"memory": "1Mi"}), pod_metrics("web-1"), pod_metrics("web-2", app={"cpu": "1"})]
    found = resource_samples(MetricSpec.of(utilization()), {"items": items}, 36)
    assert isinstance(found, PodSamples) and set(found.samples) == {"web-2"}
    assert isinstance(resource_samples(MetricSpec.of(utilization()), {"items": []}, 36), NoReading)


def test_before_1_33_one_pod_without_the_container_is_an_error() -> None:
    metric = MetricSpec.of(utilization(container="app"))
    items = {"items": [pod_metrics("web-0", app={"cpu": "1"}), pod_metrics("web-1", other={"cpu": "1"})]}
    found = resource_samples(metric, items, 33)
    assert isinstance(found, PodSamples) and set(found.samples) == {"web-0"}
    older = resource_samples(metric, items, 32)
    assert older == NoReading("failed to get container metrics: container app not present in metrics for pod shop/web-1")


@pytest.mark.parametrize(("more", "window"), [({"windowSeconds": 30}, 30), ({"window": 20}, 20), ({}, 60)])
def test_both_versions_of_custom_metrics(more: dict[str, int], window: int) -> None:
    item = {"describedObject": {"name": "web-0"}, "timestamp": AT, "value": "1500m", **more}
    found = custom_samples({"items": [item]})
    assert isinstance(found, PodSamples) and (found.samples["web-0"].value, found.samples["web-0"].window) == (1500, window)


def test_totals() -> None:
    assert custom_total({"items": [{"value": "3", "timestamp": AT}]}) == Total((3000,), NOW - timedelta(seconds=10))
    assert isinstance(custom_total({"items": []}), NoReading)
    two = {"items": [{"value": "1", "timestamp": AT}, {"value": "500m", "timestamp": AT}]}
    assert external_total(two) == Total((1000, 500), NOW - timedelta(seconds=10))


def test_quantities_are_rounded_up_to_thousandths() -> None:
    assert (milli("100m"), milli("1u"), milli("0"), milli("2")) == (100, 1, 0, 2000)
    assert (approximate("50m"), approximate("0.05"), approximate("1"), approximate("0")) == (0.05, 0.05, 1.0, 0.0)


def test_flags_of_the_running_process() -> None:
    argv = (
        "kube-controller-manager",
        "--horizontal-pod-autoscaler-downscale-stabilization=2m",
        "--horizontal-pod-autoscaler-tolerance=0.05",
        "--horizontal-pod-autoscaler-sync-period=30s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=1m30s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
    )
    found = tuned(ScalingController(36), argv)
    assert (found.downscale_stabilization, found.tolerance, found.sync_period) == (120, 0.05, 30)
    assert (found.cpu_initialization, found.readiness_delay) == (90, 0)
    assert tuned(ScalingController(36), ("kube-controller-manager",)) == ScalingController(36)


def lease(acquired: float, renewed: float, holder: str = "cp1_0b6c", lasts: int = 15) -> dict[str, Any]:
    times = {"acquireTime": text(ago(acquired)), "renewTime": text(ago(renewed))}
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": lasts, **times}}


class Leases:
    """An API server whose clock says NOW, and the lease of the controller-manager as it is at each look."""

    def __init__(self, *found: dict[str, Any] | Exception) -> None:
        self.found = list(found)

    def create(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        assert manifest["kind"] == "SelfSubjectReview"
        return {"metadata": {"creationTimestamp": text(NOW)}}

    def get_json(self, path: str, timeout: float = 0.0, *, wait: float = 0.0) -> dict[str, Any]:
        assert path == LEASE
        answer = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def led(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any] | Exception) -> Leadership:
    monkeypatch.setattr("roles.engine.timeouts.time", Clock())
    return see_leader(Leases(*found))  # type: ignore[arg-type]


def test_the_leader_and_the_time_of_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leader(lease(100, 1)) == ("cp1", ago(100), ago(1))
    assert leader(None) == ("", None, None)
    seen = led(monkeypatch, lease(100, 1))
    assert (seen.now, seen.age, seen.stopped) == (NOW, 1, None)
    # Another process may have it in the next seconds.
    assert led(monkeypatch, lease(100, 24)).stopped is None
    # It is renewed, with another clock than the API server's: by that clock it decides.
    for off in (400, -90):
        seen = led(monkeypatch, lease(1000, off), lease(1000, off), lease(1000, off - 2))
        assert (seen.now, seen.age, seen.stopped) == (ago(off - 2), 0, None)


def test_a_lease_that_nobody_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = led(monkeypatch, lease(9000, 3600))
    assert seen.now == NOW and seen.stopped is not None
    assert "2026-03-01T11:00:00" in seen.stopped.why and "3600 s ago" in seen.stopped.why and "of cp1" in seen.stopped.why
    assert "is for 15 s" in seen.stopped.why and "crictl ps -a --name kube-controller-manager" in seen.stopped.way_out
    # Longer leases are waited for; one that was given back has no holder; in the future it is not renewed either.
    assert led(monkeypatch, lease(9000, 60, lasts=60)).stopped is None
    assert led(monkeypatch, lease(9000, 30, holder="", lasts=1)).stopped is not None
    assert led(monkeypatch, lease(9000, -500)).stopped is not None
    never = led(monkeypatch, {"metadata": {}}).stopped
    assert never is not None and "never renewed" in never.why


@pytest.mark.parametrize("lost", [Forbidden("cp1", LEASE, "403", "grant it"), {"spec": {"renewTime": "soon"}}, {"spec": "x"}])
def test_a_lease_that_cannot_be_read_says_nothing(monkeypatch: pytest.MonkeyPatch, lost: Any) -> None:
    seen = led(monkeypatch, lost)
    assert (seen.now, seen.stopped, seen.age) == (NOW, None, None)
    # It was overdue, and then it could not be read again.
    assert led(monkeypatch, lease(9000, 3600), lost).stopped is None


@pytest.mark.parametrize(
    ("values", "out"),
    [
        ((), False),
        (("*",), False),
        (("*,bootstrapsigner,tokencleaner",), False),
        (("*,-horizontal-pod-autoscaler-controller",), True),
        (("*", "-horizontalpodautoscaling"), True),
        (("bootstrapsigner,tokencleaner",), True),
        (("horizontalpodautoscaling,-horizontal-pod-autoscaler-controller",), False),
        (("-horizontal-pod-autoscaler-controller,horizontalpodautoscaling,*",), True),
        (("*,-horizontal-pod",), False),
    ],
)
def test_whether_the_flag_leaves_the_controller_out(values: tuple[str, ...], out: bool) -> None:
    found = left_out(("kube-controller-manager", *(f"--controllers={one}" for one in values)))
    assert (found is not None) == out
    if found is not None:
        assert "--controllers" in found.why and "deploys/control_plane_flags.py" in found.way_out


class NoGates:
    def effective(self, *_: str) -> Any:
        raise NoApi("cp1", "-", "not reached")


@pytest.mark.parametrize(("leads", "idle"), [("cp1", True), ("cp2", False)])
def test_only_the_flag_of_the_one_that_leads_counts(leads: str, idle: bool) -> None:
    process = {"cp1": ("kube-controller-manager", "--controllers=*,-horizontalpodautoscaling"), "cp2": ("kube-controller-manager",)}
    components = {
        host: SimpleNamespace(host=host, node_name=host, running_gates={}, process=SimpleNamespace(minor=36, argv=argv))
        for host, argv in process.items()
    }
    found = read_controller(NoGates().effective, components, lease(100, 1, f"{leads}_0b6c"), "v1.36.0")  # type: ignore[arg-type]
    assert (found.idle is not None) == idle


# ---- the memory


def item(current: int, **status: Any) -> Autoscaler:
    return Autoscaler.of(hpa(status={"desiredReplicas": current, "currentReplicas": current, **status}))


def event(size: int, seconds: float, reason: str = "cpu resource utilization (percentage of request) above target") -> dict[str, Any]:
    return {"message": f"New size: {size}; reason: {reason}", "lastTimestamp": text(ago(seconds))}


def remembered(found: Autoscaler, current: int, events: tuple[dict[str, Any], ...] = (), leads: float | None = 10000) -> Any:
    controller = ScalingController(36, leads_since=None if leads is None else ago(leads))
    return history_of(found, LiveScale(current, current, "app=web"), controller, events)


def test_a_new_leader_remembers_the_count_that_it_found() -> None:
    found = remembered(item(4), 4, leads=60)
    assert [(one.at, one.number) for one in found.recommendations] == [(ago(60), 4)]
    assert found.has_changes(NOW, 1800) and not found.has_recommendations(NOW, 300) and found.ceiling == 4
    # Somebody changed the count since: nothing is known of what was there.
    assert remembered(item(4), 6, leads=60).recommendations == ()
    assert remembered(item(4), 6, leads=60).ceiling is None


def test_a_change_that_the_status_does_not_have_yet_may_count_for_a_policy() -> None:
    """The controller writes the scale, and its status after that."""
    assert remembered(item(3, lastScaleTime=text(ago(100))), 3).has_changes(NOW, 60)
    assert not remembered(item(3, lastScaleTime=text(ago(100))), 4).has_changes(NOW, 60)


def test_the_last_rise_is_a_recommendation() -> None:
    scaled = item(4, lastScaleTime=text(ago(100)))
    assert [one.number for one in remembered(scaled, 4, (event(4, 100),)).recommendations] == [4]
    for other in (
        event(3, 100),
        event(4, 200),
        event(4, 100, "All metrics below target"),
        event(4, 100, "Current number of replicas below Spec.MinReplicas"),
    ):
        assert remembered(scaled, 4, (other,)).recommendations == ()
    assert not remembered(scaled, 4).has_changes(NOW, 120)
    assert remembered(scaled, 4).has_changes(NOW, 90)


def test_a_limit_or_a_window_up_hides_higher_recommendations() -> None:
    limited = [{"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}]
    assert remembered(item(4, conditions=limited), 4).ceiling is None
    limited[0]["reason"] = "TooFewReplicas"
    assert remembered(item(4, conditions=limited), 4).ceiling == 4
    raw = hpa(status={"desiredReplicas": 4}, behavior={"scaleUp": {"stabilizationWindowSeconds": 60}})
    assert remembered(Autoscaler.of(raw), 4).ceiling is None


def test_without_a_leader_nothing_is_known() -> None:
    assert remembered(item(4), 4, leads=None).recommendations == ()
