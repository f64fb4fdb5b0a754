"""The second consent to delete pods past their budgets: for exactly the pods of a plan."""

from __future__ import annotations

import re
from typing import Any

from roles.engine.outage import DrainConsents, ask_again
from tests.unit.disruption.world import budget, deployment, of_status, pod, workload
from tests.unit.outage.world import plan, spread

FIRST = DrainConsents(ignore_budgets=("shop/web",))


def frozen(count: int = 2) -> list[dict[str, Any]]:
    return [*deployment(count, count), budget(maxUnavailable=0, status=of_status(count, count, count, 0))]


def code_of(refusals: list[str]) -> str:
    found = re.search(r"add --data confirm_ignore=(pods-[0-9a-f]{8})", refusals[-1])
    assert found, refusals
    return found[1]


def test_the_second_ask_names_the_pods_the_budget_and_what_is_left() -> None:
    items = spread(frozen(3), "w1", "w1", "w2")
    found = plan(*items, consents=FIRST)
    asked = ask_again([found], FIRST)
    assert len(asked) == 2 and asked[0] == (
        "budget shop/web (maxUnavailable 0: needs 3 healthy pods of 3, has 3): on w1, shop/web-1-0, shop/web-1-1 would be deleted. "
        "It has 3 healthy pods, at worst 1 until the replacements are Ready"
    )
    assert asked[1].startswith("ignore_budgets needs a second consent, for exactly these 2 pods: ") and not found.refusals
    assert ask_again([found], FIRST.model_copy(update={"confirm_ignore": code_of(asked)})) == []


def test_it_is_for_no_other_pods_and_no_other_budgets() -> None:
    first = code_of(ask_again([plan(*frozen(), consents=FIRST)], FIRST))
    given = FIRST.model_copy(update={"confirm_ignore": first})
    more = ask_again([plan(*frozen(3), consents=given)], given)
    assert code_of(more) != first and f"confirm_ignore={first} is for other pods" in more[-1]
    recreated = frozen()
    recreated[2]["metadata"]["uid"] = "another"
    assert code_of(ask_again([plan(*recreated, consents=given)], given)) != first
    both = given.model_copy(update={"ignore_budgets": ("shop/web", "shop/other")})
    two = plan(*frozen(), budget("other", maxUnavailable=1, status=of_status(2, 1, 2, 1)), consents=both)
    asked = ask_again([two], both)
    assert code_of(asked) != first and len(asked) == 3 and "budget shop/other (" in asked[0] and "budget shop/web (" in asked[1]


def test_pods_that_may_be_refused_in_their_turn_are_in_it() -> None:
    items = [*deployment(2, 2), budget(maxUnavailable=1, status=of_status(2, 1, 2, 1))]
    asked = ask_again([plan(*items, consents=FIRST)], FIRST)
    assert "shop/web-1-0, shop/web-1-1 would be evicted, or deleted if still refused after 600 s" in asked[0]


def test_the_plans_of_several_nodes_have_one_second_consent() -> None:
    items = spread(frozen(), "w1", "w2")
    plans = [plan(*items, on=(name,), consents=FIRST) for name in ("w1", "w2")]
    asked = ask_again(plans, FIRST)
    assert "for exactly these 2 pods" in asked[-1] and len(asked) == 3
    assert code_of(asked) == code_of(ask_again([plan(*items, on=("w2", "w1"), consents=FIRST)], FIRST))


def test_nothing_is_asked_if_no_pod_can_be_deleted() -> None:
    daemons = workload("DaemonSet", "logs")
    items = [*frozen(), daemons, pod("logs-1", daemons, node="w3"), *deployment(1, 1, "api")]
    items[-1]["spec"]["nodeName"] = "w2"
    assert ask_again([plan(*items, on=("w2",), consents=FIRST)], FIRST) == []
    assert ask_again([plan(*deployment(1, 1))], DrainConsents()) == []
