"""Budgets and workloads that block drains, or that a drain would hurt: the rules of roles/engine/disruption as findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roles.audit.model import Finding, Severity
from roles.engine.disruption import Problem


def findings(problems: Sequence[Problem]) -> Iterator[Finding]:
    """One for each problem, for the cluster and not for a node: `value` is `RULE: OBJECTS`."""
    for problem in problems:
        yield Finding(
            severity=Severity(problem.severity),
            kind="disruption",
            node=None,
            name=problem.objects[0],
            value=f"{problem.rule}: {', '.join(problem.objects)}",
            rule=problem.why,
            way_out=problem.way_out,
        )
