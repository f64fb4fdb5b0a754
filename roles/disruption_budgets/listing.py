"""The cluster's budgets as a table, with what the lint finds of each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from roles.disruption_budgets.model import BUDGET, MAX, MIN
from roles.engine.disruption import PDB, DisruptionObjects, lint_budget, overlaps
from roles.engine.disruption.budgets import Budgets
from roles.engine.findings import Finding

HEADERS = ("budget", "rule", "selects", "pods", "healthy", "desired", "allows", "managers")


def rows(states: Budgets) -> list[list[str]]:
    """One for each budget; `managers`: who owns its rule."""
    return [
        [
            one.key,
            one.rule,
            str(one.selector),
            *map(str, (len(one.pods), one.numbers.current_healthy, one.numbers.desired_healthy, one.disruptions_allowed)),
            ", ".join(dict.fromkeys(owner for path in (MAX, MIN) for owner in BUDGET.owners(one.budget, path))) or "-",
        ]
        for one in states
    ]


def findings(live: DisruptionObjects, states: Budgets, now: datetime) -> Iterator[tuple[str, list[Finding]]]:
    """The findings of each budget that has some, by NAMESPACE/NAME. One of two budgets stands with the first. `live`: from `read_lint`."""
    both = list(overlaps(states))
    for one in states:
        found = [*lint_budget(live, one, now), *(each for each in both if each.objects[0] == f"{PDB} {one.key}")]
        if found:
            yield one.key, found
