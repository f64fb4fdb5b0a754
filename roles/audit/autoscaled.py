"""Autoscalers that do not work, or will surprise their owners: the problems of roles/engine/autoscaling as findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roles.audit.model import Finding, Severity
from roles.engine.autoscaling import Judged, JudgedVertical


def findings(autoscalers: Sequence[Judged | JudgedVertical]) -> Iterator[Finding]:
    """One for each problem, for the cluster and not for a node: `value` is `RULE: OBJECTS`."""
    for judged in autoscalers:
        for problem in judged.problems:
            yield Finding(
                severity=Severity(problem.severity),
                kind="autoscaler",
                node=None,
                name=problem.objects[0],
                value=f"{problem.rule}: {', '.join(problem.objects)}",
                rule=problem.why,
                way_out=problem.way_out,
            )
