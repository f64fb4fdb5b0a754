"""The API server's answers to an eviction, by the cases of eviction.go."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.disruption import eviction_answer
from roles.engine.disruption.evicting import EvictionAnswer
from tests.unit.disruption.world import budget, deployment, of_status, pod, states, workload


def answer(one: dict[str, Any], *budgets: dict[str, Any], more: list[dict[str, Any]] | None = None) -> EvictionAnswer:
    return eviction_answer(one, states(one, *budgets, *(more or [])))


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (pod("a", phase="Pending", ready=False), "Pending"),
        (pod("a", phase="Succeeded", ready=False), "Succeeded"),
        (pod("a", phase="Failed", ready=False), "Failed"),
        (pod("a", ending=True), "ending already"),
    ],
)
def test_pods_for_which_no_budget_is_asked(one: dict[str, Any], what: str) -> None:
    """Also not two of them."""
    found = answer(one, budget("one", maxUnavailable=0), budget("two", maxUnavailable=0))
    assert (found.code, found.budget, found.takes) == (201, "", False)
    assert what in found.why


def test_no_budget() -> None:
    assert answer(pod("a", app="db"), budget(maxUnavailable=0)).why == "no budget selects it"


def test_two_budgets() -> None:
    found = answer(pod("a"), budget("one", status=of_status(9, 1, 9, 8)), budget("two", status=of_status(9, 1, 9, 8)))
    assert (found.code, found.never) == (500, "2 budgets select it: shop/one, shop/two")


def test_two_budgets_also_if_the_pod_is_not_ready_and_both_always_allow() -> None:
    spec = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    assert answer(pod("a", ready=False), budget("one", **spec), budget("two", **spec)).code == 500


def test_allowed_takes_one() -> None:
    found = answer(pod("a"), budget(minAvailable=1, status=of_status(2, 1, 2, 1)))
    assert (found.code, found.budget, found.takes, found.allowed) == (201, "shop/web", True, True)


def test_none_left_names_the_numbers() -> None:
    found = answer(pod("a"), budget(minAvailable=1, status=of_status(1, 1, 1, 0)))
    assert (found.code, found.takes, found.retry_after) == (429, False, 0)
    assert found.why == "The disruption budget web needs 1 healthy pods and has 1 currently"
    assert found.never == "it needs 1 healthy pods, and its pods are at most 1"


def test_none_left_for_now() -> None:
    items = deployment(3, 3, ready=2)
    found = answer(items[2], budget(maxUnavailable=1, status=of_status(3, 2, 2, 0)), more=[*items[:2], *items[3:]])
    assert (found.code, found.never) == (429, "")


def test_a_stale_status_is_asked_again_later() -> None:
    found = answer(pod("a"), budget(minAvailable=0, generation=2, status=of_status(1, 0, 1, 1)))
    assert (found.code, found.retry_after) == (429, 10)
    assert found.why == "The disruption budget web is still being processed by the server."


def test_a_sync_failure_says_its_cause() -> None:
    owner = workload("Job")
    cause = "jobs.batch does not implement the scale subresource"
    condition = [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": cause}]
    status = of_status(2, 1, 2, 0) | {"conditions": condition}
    found = answer(pod("a", owner), budget(maxUnavailable=1, status=status), more=[owner])
    assert (found.code, cause in found.why, cause in found.never) == (429, True, True)
    # A new budget never had a status that caught up, and never gets one.
    new = answer(pod("a", owner), budget(maxUnavailable=1), more=[owner])
    assert (new.code, new.retry_after, cause in new.never) == (429, 10, True)


@pytest.mark.parametrize(
    ("policy", "status", "code", "takes"),
    [
        ("AlwaysAllow", of_status(3, 2, 0, 0), 201, False),
        # Also with a stale status.
        ("AlwaysAllow", of_status(3, 2, 0, 0, observed=0), 201, False),
        ("IfHealthyBudget", of_status(3, 2, 2, 0), 201, False),
        ("IfHealthyBudget", of_status(3, 2, 1, 0), 429, False),
        # With nothing to protect, the numbers decide: one is taken.
        ("IfHealthyBudget", of_status(3, 0, 1, 1), 201, True),
        ("IfHealthyBudget", of_status(3, 0, 0, 0), 429, False),
        (None, of_status(3, 2, 2, 0), 201, False),
        (None, of_status(3, 2, 1, 0), 429, False),
    ],
)
def test_pods_that_are_not_ready(policy: str | None, status: dict[str, Any], code: int, takes: bool) -> None:
    spec = {"minAvailable": 2, **({"unhealthyPodEvictionPolicy": policy} if policy else {})}
    found = answer(pod("a", ready=False), budget(status=status, **spec))
    assert (found.code, found.takes) == (code, takes)


def test_too_many_evictions_under_way() -> None:
    many = {f"p{i}": "2026-03-01T11:59:59Z" for i in range(2001)}
    assert answer(pod("a"), budget(status=of_status(1, 0, 1, 1, disruptedPods=many))).code == 403
