"""Disruption: what PodDisruptionBudgets allow now, how the API server would answer an eviction, and what is wrong with them."""

from roles.engine.disruption.budgets import ALWAYS_ALLOW, IF_HEALTHY, Budgets, BudgetState, budget_states, budgets_of
from roles.engine.disruption.evicting import eviction_answer
from roles.engine.disruption.lint import lint, lint_budget
from roles.engine.disruption.lint_budgets import lifted_by, overlaps, pods_per_node
from roles.engine.disruption.owners import PDB, Controller, DisruptionObjects
from roles.engine.disruption.problem import HPA, autoscaler
from roles.engine.disruption.read import (
    BUDGETS_PATH,
    KINDS_OF_DISRUPTION,
    KINDS_OF_LINT,
    cluster_time,
    namespaced,
    read_disruption,
    read_lint,
)
from roles.engine.disruption.rules import DisruptionRule
from roles.engine.disruption.strays import Stray, by_owner, strays_of, strays_text
from roles.engine.disruption.webhooks import webhooks

__all__ = [
    "ALWAYS_ALLOW",
    "BUDGETS_PATH",
    "HPA",
    "IF_HEALTHY",
    "KINDS_OF_DISRUPTION",
    "KINDS_OF_LINT",
    "PDB",
    "BudgetState",
    "Budgets",
    "Controller",
    "DisruptionObjects",
    "DisruptionRule",
    "Stray",
    "autoscaler",
    "budget_states",
    "budgets_of",
    "by_owner",
    "cluster_time",
    "eviction_answer",
    "lifted_by",
    "lint",
    "lint_budget",
    "namespaced",
    "overlaps",
    "pods_per_node",
    "read_disruption",
    "read_lint",
    "strays_of",
    "strays_text",
    "webhooks",
]
