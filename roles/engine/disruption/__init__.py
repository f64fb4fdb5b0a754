"""Disruption: what PodDisruptionBudgets allow now, and how the API server would answer an eviction."""

from roles.engine.disruption.budgets import (
    ALWAYS_ALLOW,
    DELETION_TIMEOUT,
    IF_HEALTHY,
    Budgets,
    BudgetState,
    Numbers,
    Status,
    budget_states,
    budgets_of,
    counts_scales,
    scaled,
)
from roles.engine.disruption.evicting import EvictionAnswer, eviction_answer
from roles.engine.disruption.owners import PDB, Controller, DisruptionObjects, OwnerRef, Scale, Unscaled, owner_ref
from roles.engine.disruption.read import BUDGETS_PATH, KINDS_OF_DISRUPTION, namespaced, read_disruption

__all__ = [
    "ALWAYS_ALLOW",
    "BUDGETS_PATH",
    "DELETION_TIMEOUT",
    "IF_HEALTHY",
    "KINDS_OF_DISRUPTION",
    "PDB",
    "BudgetState",
    "Budgets",
    "Controller",
    "DisruptionObjects",
    "EvictionAnswer",
    "Numbers",
    "OwnerRef",
    "Scale",
    "Status",
    "Unscaled",
    "budget_states",
    "budgets_of",
    "counts_scales",
    "eviction_answer",
    "namespaced",
    "owner_ref",
    "read_disruption",
    "scaled",
]
