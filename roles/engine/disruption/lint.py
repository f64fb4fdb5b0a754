"""The lint of disruption: every rule, on live numbers. Pure. The table is rules.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from roles.engine.disruption.budgets import BudgetState
from roles.engine.disruption.lint_budgets import budget_problems, overlaps
from roles.engine.disruption.lint_workloads import workload_problems
from roles.engine.disruption.owners import DisruptionObjects
from roles.engine.disruption.problem import Scene
from roles.engine.findings import Finding

#: Seconds that a drain waits for a pod, unless the operator says otherwise.
DRAIN_TIMEOUT = 600


def lint(live: DisruptionObjects, states: Sequence[BudgetState], now: datetime, drain_timeout: int = DRAIN_TIMEOUT) -> list[Finding]:
    """All problems, those of budgets first. `states`: from `budget_states` with the same objects; `live`: from `read_lint`."""
    scene = Scene(live, states, now, drain_timeout)
    found = [problem for state in states for problem in budget_problems(state, scene)]
    return [*found, *overlaps(states), *workload_problems(scene)]


def lint_budget(live: DisruptionObjects, state: BudgetState, now: datetime) -> list[Finding]:
    """The problems of one budget, without overlaps."""
    return list(budget_problems(state, Scene(live, (state,), now, DRAIN_TIMEOUT)))
