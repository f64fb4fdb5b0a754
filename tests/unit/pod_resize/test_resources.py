"""What pods ask for and have, their QoS class, and how far a resize is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.pod_resize import resources as facts
from roles.pod_resize.resources import Identity, ResizeProgress
from tests.unit.pod_resize.world import ID, SMALL, container, pod, state

quantities = st.one_of(
    st.integers(1, 10**6).map(lambda n: f"{n}m"), st.integers(1, 10**4).map(lambda n: f"{n}Mi"), st.integers(1, 10**4).map(str)
)
amounts = st.dictionaries(st.sampled_from(facts.RESOURCES), quantities)
resources = st.fixed_dictionaries({}, optional=dict.fromkeys(facts.KINDS, amounts))


def test_quantities_are_compared_by_what_they_mean() -> None:
    assert facts.same("1", "1000m") and facts.same("1Gi", "1024Mi") and facts.same(None, None)
    assert not facts.same("1", None) and not facts.same("1Mi", "1M")
    assert facts.alike({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}, "limits": {}})
    assert facts.differences({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}) == ["limits.memory 1Gi, not 2Gi"]


@given(resources, resources)
def test_what_is_merged_in_is_there_and_the_rest_stays(before: Any, changes: Any) -> None:
    after = facts.merged(before, changes)
    for kind in facts.KINDS:
        for name in facts.RESOURCES:
            wanted = (changes.get(kind) or {}).get(name) or (before.get(kind) or {}).get(name)
            assert after.get(kind, {}).get(name) == wanted
    assert set(facts.changed(before, after)) <= {name for kind in facts.KINDS for name in changes.get(kind) or {}}
    assert facts.alike(facts.merged(after, changes), after)


@given(resources)
def test_nothing_differs_from_itself(one: Any) -> None:
    assert facts.alike(one, one) and facts.changed(one, one) == [] and not facts.restarts(container(policy="RestartContainer"), one, one)


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
    assert facts.qos(containers) == qos
    made = [container(f"c{number}", one) for number, one in enumerate(containers)]
    assert facts.qos_of(pod("web-1", *made)) == qos


def test_init_containers_count_for_the_class() -> None:
    whole = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert facts.qos_of(pod("p", container("app", whole))) == "Guaranteed"
    assert facts.qos_of(pod("p", container("app", whole), spec={"initContainers": [container("init", {})]})) == "Burstable"


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
def test_how_far_a_resize_is(status: Any, progress: ResizeProgress) -> None:
    assert facts.progress(pod(status=status)) == progress


def test_what_is_pending_counts_before_what_is_under_way() -> None:
    both = [*condition("PodResizeInProgress")["conditions"], *condition("PodResizePending", "Infeasible")["conditions"]]
    assert facts.progress(pod(status={"conditions": both})).state == "Infeasible"


def test_the_kubelet_has_seen_the_spec() -> None:
    assert facts.seen_by_kubelet(pod()), "older ones tell no generation"
    assert facts.seen_by_kubelet(pod(status={"observedGeneration": 1}))
    assert not facts.seen_by_kubelet(pod(metadata={"generation": 2}, status={"observedGeneration": 1}))


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
def test_what_spec_a_pending_resize_is_of(generations: dict[str, int], current: bool | None) -> None:
    status = condition("PodResizePending", "Infeasible")
    if "condition" in generations:
        status["conditions"][0]["observedGeneration"] = generations["condition"]
    if "status" in generations:
        status["observedGeneration"] = generations["status"]
    assert facts.is_of_this_spec(pod(metadata={"generation": 2}, status=status)) is current


def test_what_the_status_still_lacks() -> None:
    wanted = {"app": {"requests": {"cpu": "300m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}}
    assert facts.unlike(pod(), {"app": SMALL}) == []
    assert facts.unlike(pod(), wanted) == ["app: requests.cpu 100m, not 300m", "app: allocated requests.cpu 100m, not 300m"]
    allocated = state(resources=SMALL) | {"allocatedResources": {"cpu": "300m", "memory": "200Mi"}}
    assert facts.unlike(pod(status={"containerStatuses": [allocated]}), wanted) == ["app: requests.cpu 100m, not 300m"]
    assert facts.unlike(pod(status={"containerStatuses": []}), wanted), "no status is no proof"


def test_what_a_restart_changes() -> None:
    assert facts.identity(pod(), "app") == Identity(f"containerd://{ID}", 0, "2026-01-02T03:04:05Z")
    assert facts.identity(pod(), "other") == Identity("", 0, "")
    assert str(facts.identity(pod(), "app")).startswith("aaaaaaaaaaaa, 0 restarts")


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
    assert facts.is_windows(pod(**more), ["win1"]) is windows
