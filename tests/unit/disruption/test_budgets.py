"""The numbers of a budget, by the cases of disruption.go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from roles.engine.disruption import budgets_of
from roles.engine.disruption.owners import Scale
from roles.engine.kube import OwnerRef
from tests.unit.disruption.world import NOW, budget, deployment, names, numbers, of_status, pod, reference, states, workload


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxUnavailable": 1}, (3, 2, 3, 1)),
        ({"maxUnavailable": 0}, (3, 3, 3, 0)),
        ({"maxUnavailable": 5}, (3, 0, 3, 3)),
        # Both percentages are rounded up: 50% of 3 may be away, and 50% of 3 must stay.
        ({"maxUnavailable": "50%"}, (3, 1, 3, 2)),
        ({"minAvailable": "50%"}, (3, 2, 3, 1)),
        ({"minAvailable": "1%"}, (3, 1, 3, 2)),
        ({"minAvailable": "100%"}, (3, 3, 3, 0)),
        ({"minAvailable": 2}, (3, 2, 3, 1)),
        ({"minAvailable": 4}, (3, 4, 3, 0)),
        ({"minAvailable": 0}, (3, 0, 3, 3)),
        ({}, (0, 0, 3, 0)),
    ],
)
def test_numbers_of_a_deployment(spec: dict[str, object], expected: tuple[int, ...]) -> None:
    assert numbers(states(*deployment(3, 3), budget(**spec))) == expected


def test_a_number_counts_the_pods_that_there_are_and_a_percentage_those_that_there_should_be() -> None:
    """A Deployment of 4 with 2 pods, one of them finished: minAvailable counts both, and its scale is not asked."""
    top, inner, *_ = deployment(4, 0)
    pods = [pod("a", inner), pod("b", inner, phase="Succeeded", ready=False)]
    assert numbers(states(top, inner, *pods, budget(minAvailable=1))) == (2, 1, 1, 0)
    assert numbers(states(top, inner, *pods, budget(minAvailable="25%"))) == (4, 1, 1, 0)
    assert numbers(states(top, inner, *pods, budget(maxUnavailable=3))) == (4, 1, 1, 0)


def test_pods_that_end_or_were_just_evicted_are_not_healthy() -> None:
    inner = workload("ReplicaSet", "web", 4)
    pods = [pod("a", inner), pod("b", inner, ending=True), pod("c", inner), pod("d", inner, ready=False)]
    evicted = {"disruptedPods": {"c": "2026-03-01T11:59:00Z", "gone": "2026-03-01T11:59:00Z", "b": "2026-03-01T11:59:00Z"}}
    found = states(inner, *pods, budget(maxUnavailable=3, status=of_status(4, 1, 1, 0, **evicted)))
    assert numbers(found) == (4, 1, 1, 0)
    assert set(found[0].numbers.disrupted) == {"c"}
    assert "evictions of c are under way" in found[0].why
    # After two minutes to the second it counts again, and is noted still; a moment later it is not even noted. It was never deleted.
    at_its_end = states(inner, *pods, budget(maxUnavailable=3, status=of_status(4, 1, 1, 0, **evicted)), now=NOW + timedelta(seconds=60))
    assert numbers(at_its_end) == (4, 1, 2, 1) and set(at_its_end[0].numbers.disrupted) == {"c"}
    later = states(inner, *pods, budget(maxUnavailable=3, status=of_status(4, 1, 1, 0, **evicted)), now=NOW + timedelta(seconds=61))
    assert numbers(later) == (4, 1, 2, 1)


def test_the_scale_is_that_of_the_deployment_once() -> None:
    """During a roll-out two ReplicaSets of one Deployment have pods."""
    top = workload("Deployment", "web", 5)
    old, new = workload("ReplicaSet", "old", 3, top), workload("ReplicaSet", "new", 4, top)
    assert numbers(states(top, old, new, pod("a", old), pod("b", new), budget(maxUnavailable=1))) == (5, 4, 2, 0)


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController"])
def test_other_owners_with_a_scale(kind: str) -> None:
    owner = workload(kind, "web", 2)
    assert numbers(states(owner, pod("a", owner), pod("b", owner), budget(maxUnavailable=1))) == (2, 1, 2, 1)


def test_a_replicaset_whose_deployment_is_gone_counts_by_itself() -> None:
    inner = workload("ReplicaSet", "web", 2, workload("Deployment", "web", 9))
    assert numbers(states(inner, pod("a", inner), budget(maxUnavailable=1))) == (2, 1, 1, 0)


def test_a_replicaset_of_an_argo_rollout_counts_by_itself() -> None:
    inner = workload("ReplicaSet", "web", 2, workload("Rollout", "web", 9, apiVersion="argoproj.io/v1alpha1"))
    assert numbers(states(inner, pod("a", inner), budget(maxUnavailable=1))) == (2, 1, 1, 0)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("DaemonSet", "daemonsets.apps does not implement the scale subresource"),
        ("Job", "jobs.batch does not implement the scale subresource"),
        ("Node", "nodes does not implement the scale subresource"),
    ],
)
def test_one_pod_without_a_scale_stops_the_whole_budget(kind: str, problem: str) -> None:
    owner = workload(kind)
    status = of_status(3, 2, 3, 1)
    found = states(*deployment(3, 3), owner, pod("x", owner), budget(maxUnavailable=1, status=status))[0]
    assert found.problem == problem
    # kube-controller-manager writes 0, and leaves the other numbers as they were.
    assert (found.numbers.expected_pods, found.disruptions_allowed) == (3, 0)
    assert problem in found.never
    # A number does not ask for scales.
    assert numbers(states(*deployment(3, 3), owner, pod("x", owner), budget(minAvailable=2))) == (4, 2, 4, 2)


def test_an_owner_that_is_gone() -> None:
    found = states(pod("a", workload("ReplicaSet", "web", 1)), budget(maxUnavailable=1))[0]
    assert found.problem == 'found no controllers for pod "a"'
    assert not found.never, "the garbage collector will remove the pod"


def test_the_scale_of_a_custom_resource() -> None:
    owner = workload("Fleet", "f", apiVersion="example.org/v1")
    ref = OwnerRef("example.org/v1", "Fleet", "shop", "f", "uid-Fleet-f")
    pods = [pod("a", owner), pod("b", owner)]
    assert numbers(states(*pods, budget(maxUnavailable=1), scales={ref: Scale("uid-Fleet-f", 3)})) == (3, 2, 2, 0)
    assert states(*pods, budget(maxUnavailable=1), scales={ref: Scale("another")})[0].problem == 'found no controllers for pod "a"'
    no_scale = "fleets.example.org does not implement the scale subresource"
    assert states(*pods, budget(maxUnavailable=1), scales={ref: Scale(problem=no_scale)})[0].problem == no_scale


def test_a_scale_that_daytwo_could_not_read_is_not_judged() -> None:
    owner = workload("Fleet", "f", apiVersion="example.org/v1")
    ref = OwnerRef("example.org/v1", "Fleet", "shop", "f", "uid-Fleet-f")
    for scales in ({}, {ref: Scale(unread="forbidden")}):
        found = states(pod("a", owner), budget(maxUnavailable=1, status=of_status(2, 1, 2, 1)), scales=scales)[0]
        assert (found.problem, found.never, found.differences) == ("", "", [])
        assert "the scale of Fleet shop/f was not read" in found.unread
        assert found.disruptions_allowed == 1


def test_pods_without_a_controller() -> None:
    found = states(pod("a"), pod("b"), budget(maxUnavailable=1))[0]
    assert (found.numbers.expected_pods, found.numbers.current_healthy, found.disruptions_allowed) == (0, 2, 0)
    assert found.unmanaged == ("a", "b")
    assert found.never == "it counts the scales of controllers, and a, b has none"
    assert numbers(states(pod("a"), pod("b"), budget(minAvailable=1))) == (2, 1, 2, 1)
    # Beside controlled pods they count as healthy, and are not expected.
    assert numbers(states(*deployment(2, 2), pod("a"), budget(maxUnavailable=0))) == (2, 2, 3, 1)


@pytest.mark.parametrize(
    ("spec", "replicas", "never"),
    [
        ({"maxUnavailable": 0}, 3, "maxUnavailable 0 allows none"),
        ({"maxUnavailable": "0%"}, 3, "maxUnavailable 0% allows none"),
        ({"minAvailable": "100%"}, 3, "minAvailable 100% allows none"),
        ({"minAvailable": 3}, 3, "it needs 3 healthy pods, and its pods are at most 3"),
        ({"minAvailable": "1%"}, 1, "it needs 1 healthy pods, and its pods are at most 1"),
        ({"minAvailable": 2}, 3, ""),
        ({"maxUnavailable": "1%"}, 3, ""),
        ({}, 3, "it has neither minAvailable nor maxUnavailable"),
    ],
)
def test_budgets_that_can_never_allow_an_eviction(spec: dict[str, object], replicas: int, never: str) -> None:
    for ready in (replicas, 0):
        found = states(*deployment(replicas, replicas, ready=ready), budget(**spec))[0]
        assert found.never == never, "it does not depend on what is Ready now"


def test_never_counts_what_the_workload_wants_not_the_pods_that_there_are() -> None:
    """minAvailable 2 with 2 of 3 pods: the third is on its way."""
    assert not states(*deployment(3, 2), budget(minAvailable=2))[0].never


def test_budgets_of_a_pod() -> None:
    found = states(pod("a"), pod("b", app="db"), budget(), budget("all", selector={}), budget("none", no_selector=True))
    assert [state.key for state in budgets_of(pod("a"), found)] == ["shop/all", "shop/web"]
    assert [state.key for state in budgets_of(pod("new", app="db"), list(found))] == ["shop/all"]
    assert budgets_of(pod("a", namespace="other"), found) == []
    assert {state.name: names(state.pods) for state in found} == {"all": ["a", "b"], "web": ["a"], "none": []}


def test_the_status_against_the_computed_numbers() -> None:
    same = states(*deployment(3, 3), budget(maxUnavailable=1, status=of_status(3, 2, 3, 1)))[0]
    assert (same.differences, same.caught_up) == ([], True)
    other = states(*deployment(3, 3), budget(maxUnavailable=1, status=of_status(3, 2, 2, 0), generation=2))[0]
    assert other.differences == ["currentHealthy 2, not 3", "disruptionsAllowed 0, not 1"]
    assert not other.caught_up


def test_a_sync_failure_that_the_status_does_not_show() -> None:
    owner = workload("Job")
    found = states(owner, pod("a", owner), budget(maxUnavailable=1, status=of_status(0, 0, 0, 0)))[0]
    assert found.differences == ["the condition is x, not SyncFailed"]


def test_a_controller_reference_of_another_object_of_the_same_name() -> None:
    owner = workload("ReplicaSet", "web", 2)
    stranger = pod("a", owner)
    stranger["metadata"]["ownerReferences"] = [{**reference(owner), "uid": "old"}]
    assert states(owner, stranger, budget(maxUnavailable=1))[0].problem == 'found no controllers for pod "a"'
