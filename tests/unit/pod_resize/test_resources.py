"""Requested and actual resources of pods, their QoS class, and the progress of a resize."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.pod_resize import pod_resources
from roles.pod_resize.pod_resources import Identity, ResizeProgress
from tests.unit.pod_resize.world import ID, SMALL, container, pod, state

quantities = st.one_of(
    st.integers(1, 10**6).map(lambda n: f"{n}m"), st.integers(1, 10**4).map(lambda n: f"{n}Mi"), st.integers(1, 10**4).map(str)
)
amounts = st.dictionaries(st.sampled_from(pod_resources.RESOURCES), quantities)
resources = st.fixed_dictionaries({}, optional=dict.fromkeys(pod_resources.KINDS, amounts))


def test_quantities_are_compared_by_value() -> None:
    assert pod_resources.same("1", "1000m") and pod_resources.same("1Gi", "1024Mi") and pod_resources.same(None, None)
    assert not pod_resources.same("1", None) and not pod_resources.same("1Mi", "1M")
    assert pod_resources.alike({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}, "limits": {}})
    assert pod_resources.differences({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}) == ["limits.memory 1Gi, not 2Gi"]


@given(resources, resources)
def test_merged_values_are_set_and_the_rest_stays(before: Any, changes: Any) -> None:
    after = pod_resources.merged(before, changes)
    for kind in pod_resources.KINDS:
        for name in pod_resources.RESOURCES:
            wanted = (changes.get(kind) or {}).get(name) or (before.get(kind) or {}).get(name)
            assert after.get(kind, {}).get(name) == wanted
    assert set(pod_resources.changed(before, after)) <= {name for kind in pod_resources.KINDS for name in changes.get(kind) or {}}
    assert pod_resources.alike(pod_resources.merged(after, changes), after)


@given(resources)
def test_nothing_differs_from_itself(one: Any) -> None:
    assert (
        pod_resources.alike(one, one)
        and pod_resources.changed(one, one) == []
        and not pod_resources.restarts(container(policy="RestartContainer"), one, one)
    )


@pytest.mark.parametrize(
    ("containers", "qos"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([SMALL], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}], "Burstable"),
        ([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{}, {"limits": {"memory": "1Gi"}}], "Burstable"),
    ],
)
def test_the_class_of_a_pod(containers: list[Any], qos: str) -> None:
    assert pod_resources.qos(containers) == qos
    made = [container(f"c{number}", one) for number, one in enumerate(containers)]
    assert pod_resources.qos_of(pod("web-1", *made)) == qos


def test_init_containers_count_for_the_class() -> None:
    whole = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert pod_resources.qos_of(pod("p", container("app", whole))) == "Guaranteed"
    assert pod_resources.qos_of(pod("p", container("app", whole), spec={"initContainers": [container("init", {})]})) == "Burstable"


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "reason": reason, "message": message, "status": status}]}


@pytest.mark.parametrize(
    ("status", "progress"),
    [
        ({}, ResizeProgress("")),
        ({"resize": ""}, ResizeProgress("")),
        ({"resize": "Proposed"}, ResizeProgress("Proposed")),
        ({"resize": "InProgress"}, ResizeProgress("InProgress")),
        ({"resize": "Infeasible"}, ResizeProgress("Infeasible")),
        ({"resize": "SomethingNew"}, ResizeProgress("Deferred")),
        (condition("PodResizePending", "Deferred", "no room"), ResizeProgress("Deferred", "no room")),
        (condition("PodResizePending", "Infeasible", "too big"), ResizeProgress("Infeasible", "too big")),
        (condition("PodResizePending", "Later"), ResizeProgress("Deferred")),
        (condition("PodResizePending", "Deferred", status="False"), ResizeProgress("")),
        (condition("PodResizeInProgress"), ResizeProgress("InProgress")),
        (condition("PodResizeInProgress", "Error", "below usage"), ResizeProgress("Error", "below usage")),
    ],
)
def test_the_progress_of_a_resize(status: Any, progress: ResizeProgress) -> None:
    assert pod_resources.progress(pod(status=status)) == progress


def test_pending_has_priority_over_in_progress() -> None:
    both = [*condition("PodResizeInProgress")["conditions"], *condition("PodResizePending", "Infeasible")["conditions"]]
    assert pod_resources.progress(pod(status={"conditions": both})).state == "Infeasible"


def test_the_kubelet_has_seen_the_spec() -> None:
    assert pod_resources.seen_by_kubelet(pod()), "older kubelets report no generation"
    assert pod_resources.seen_by_kubelet(pod(status={"observedGeneration": 1}))
    assert not pod_resources.seen_by_kubelet(pod(metadata={"generation": 2}, status={"observedGeneration": 1}))


@pytest.mark.parametrize(
    ("generations", "current"),
    [
        ({}, None),
        ({"status": 2}, True),
        ({"status": 1}, False),
        ({"condition": 2, "status": 1}, True),
        ({"condition": 1, "status": 2}, False),
    ],
)
def test_the_spec_of_a_pending_resize(generations: dict[str, int], current: bool | None) -> None:
    status = condition("PodResizePending", "Infeasible")
    if "condition" in generations:
        status["conditions"][0]["observedGeneration"] = generations["condition"]
    if "status" in generations:
        status["observedGeneration"] = generations["status"]
    assert pod_resources.is_of_this_spec(pod(metadata={"generation": 2}, status=status)) is current


def test_differences_in_the_status() -> None:
    wanted = {"app": {"requests": {"cpu": "300m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}}
    assert pod_resources.unlike(pod(), {"app": SMALL}) == []
    assert pod_resources.unlike(pod(), wanted) == ["app: requests.cpu 100m, not 300m", "app: allocated requests.cpu 100m, not 300m"]
    allocated = state(resources=SMALL) | {"allocatedResources": {"cpu": "300m", "memory": "200Mi"}}
    assert pod_resources.unlike(pod(status={"containerStatuses": [allocated]}), wanted) == ["app: requests.cpu 100m, not 300m"]
    assert pod_resources.unlike(pod(status={"containerStatuses": []}), wanted), "no status is no proof"


def test_what_a_restart_changes() -> None:
    assert pod_resources.identity(pod(), "app") == Identity(f"containerd://{ID}", 0, "2026-01-02T03:04:05Z")
    assert pod_resources.identity(pod(), "other") == Identity("", 0, "")
    assert str(pod_resources.identity(pod(), "app")).startswith("aaaaaaaaaaaa, 0 restarts")


@pytest.mark.parametrize(
    ("more", "windows"),
    [
        ({}, False),
        ({"spec": {"os": {"name": "windows"}}}, True),
        ({"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}}, True),
        ({"spec": {"nodeName": "win1"}}, True),
    ],
)
def test_windows(more: Any, windows: bool) -> None:
    assert pod_resources.is_windows(pod(**more), ["win1"]) is windows
