"""The cluster's budgets as a table, with their findings."""

from __future__ import annotations

from roles.disruption_budgets import HEADERS, findings, rows
from roles.engine.disruption import DisruptionRule, budget_states
from tests.unit.disruption.world import NOW, budget, deployment, owned, world


def test_a_row_and_its_findings() -> None:
    live = world(*deployment(3, 3), owned(budget(maxUnavailable=0), "helm"))
    states = budget_states(live, NOW)
    (row,) = rows(states)
    found = dict(zip(HEADERS, row, strict=True))
    assert (found["budget"], found["rule"], found["managers"]) == (states[0].key, "maxUnavailable 0", "helm")
    assert (found["pods"], found["healthy"], found["desired"], found["allows"]) == ("3", "3", "3", "0")
    ((key, problems),) = findings(live, states, NOW)
    assert key == states[0].key and DisruptionRule.ALLOWS_NONE in {one.rule for one in problems}


def test_a_budget_that_lets_go_is_not_called_one_that_allows_none() -> None:
    live = world(*deployment(3, 3), budget(maxUnavailable=1))
    found = dict(findings(live, budget_states(live, NOW), NOW))
    assert DisruptionRule.ALLOWS_NONE not in {one.rule for problems in found.values() for one in problems}
