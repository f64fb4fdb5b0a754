"""Workloads whose pods were resized and whose template was not: a pod that is made anew is another one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roles.audit.model import Finding, Severity
from roles.pod_resize import Drift, resources_text


def findings(drifts: Sequence[Drift]) -> Iterator[Finding]:
    """One for each container of a workload; they are the cluster's, since its pods may be anywhere."""
    for drift in drifts:
        has = dict.fromkeys(resources_text(resources) for _, resources in drift.pods)
        many = f"{len(drift.pods)} pods have" if len(drift.pods) != 1 else "1 pod has"
        yield Finding(
            severity=Severity.warning,
            kind="resize",
            node=None,
            name=drift.workload,
            value=f"{drift.workload}, container {drift.container}: {many} {'; or '.join(has)} (request/limit)",
            rule=f"its template says {resources_text(drift.template)}: a pod that is made anew gets that, by a drain or a roll-out",
            way_out="deploys/resize_drift.py names the pods; deploys/resize.py with template=update takes it over, or resizes them back",
        )
