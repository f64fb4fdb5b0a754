"""What is wrong, in one shape: a rule is a row of a table, a finding is what it found of one subject. `render` shows findings."""

from roles.engine.findings import render
from roles.engine.findings.model import (
    SEVERITIES,
    CheckOutcome,
    Finding,
    Place,
    Result,
    Rule,
    Severity,
    Subject,
    Unmet,
    why_of,
    worst_first,
)

__all__ = [
    "SEVERITIES",
    "CheckOutcome",
    "Finding",
    "Place",
    "Result",
    "Rule",
    "Severity",
    "Subject",
    "Unmet",
    "render",
    "why_of",
    "worst_first",
]
