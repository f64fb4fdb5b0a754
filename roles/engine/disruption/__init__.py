"""Disruption: what PodDisruptionBudgets allow now, how the API server would answer an eviction, and what is wrong with them."""

from roles.engine.disruption import budgets, problem, strays
from roles.engine.disruption.budgets import BudgetState, budget_states, budgets_of
from roles.engine.disruption.evicting import eviction_answer
from roles.engine.disruption.lint import lint, lint_budget
from roles.engine.disruption.lint_budgets import lifted_by, overlaps, pods_per_node
from roles.engine.disruption.owners import PDB, Controller, DisruptionObjects
from roles.engine.disruption.read import (
    BUDGETS_PATH,
    KINDS_OF_DISRUPTION,
    KINDS_OF_LINT,
    cluster_time,
    read_disruption,
    read_lint,
)
from roles.engine.disruption.rules import DisruptionRule
from roles.engine.disruption.webhooks import webhooks

__all__ = [
    "BUDGETS_PATH",
    "KINDS_OF_DISRUPTION",
    "KINDS_OF_LINT",
    "PDB",
    "BudgetState",
    "Controller",
    "DisruptionObjects",
    "DisruptionRule",
    "budget_states",
    "budgets",
    "budgets_of",
    "cluster_time",
    "eviction_answer",
    "lifted_by",
    "lint",
    "lint_budget",
    "overlaps",
    "pods_per_node",
    "problem",
    "read_disruption",
    "read_lint",
    "strays",
    "webhooks",
]
