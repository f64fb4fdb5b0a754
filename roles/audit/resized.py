"""Workloads whose pods were resized and whose template was not: a recreated pod gets other values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roles.audit.rules import AuditRule
from roles.engine.findings import Finding, Place
from roles.pod_resize import Drift, resources_text


def findings(drifts: Sequence[Drift]) -> Iterator[Finding]:
    """One for each container of a workload, for the cluster and not for a node: the pods can be on any node."""
    for drift in drifts:
        has = dict.fromkeys(resources_text(resources) for _, resources in drift.pods)
        many = f"{len(drift.pods)} pods have" if len(drift.pods) != 1 else "1 pod has"
        yield AuditRule.RESIZE.found(
            Place(
                None,
                name=drift.workload,
                value=f"{drift.workload}, container {drift.container}: {many} {'; or '.join(has)} (request/limit)",
            ),
            f"its template says {resources_text(drift.template)}: a pod that a drain or a roll-out recreates gets that",
        )
