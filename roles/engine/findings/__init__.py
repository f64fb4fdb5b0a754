"""What is wrong, in one shape: a rule is a row of a table, a finding is what it found of one subject."""

from roles.engine.findings.model import SEVERITIES, Finding, Place, Rule, Severity, Subject, Unmet, why_of, worst_first

__all__ = ["SEVERITIES", "Finding", "Place", "Rule", "Severity", "Subject", "Unmet", "why_of", "worst_first"]
