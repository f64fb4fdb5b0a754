"""The report of a run for the operator: first the plan; at the end the outcome and the next command."""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine.bridge import show, show_lines
from roles.engine.node_changes.run import NodeRun, NodeStep
from roles.engine.rollout import ClusterStep, counted
from roles.engine.transaction import STABLE_SECONDS, Change, directory

APISERVER_OUTAGE = "about 40 s (the old one's grace period is 30 s)"


def show_plan(run: NodeRun, apiservers: int, notes: Sequence[str]) -> None:
    """All changes in order: diff, restarts, what will be proven; then `notes`."""
    nodes = {step.change.node for step in run.steps}
    show(f"\nPlan of run {run.info.id}: {counted(len(run.steps), 'change')} on {counted(len(nodes), 'node')}{_cluster_objects(run)}")
    _show_cluster_steps("First, before any node", run.first)
    for stage in run.stages:
        for step in stage.steps:
            show(f"\n[{step.order}/{len(run.steps)}] {step.change.node}: {step.change.component}: {step.change.summary}")
            show_lines("\n".join(_description(step.change, apiservers)))
        if stage.canary:
            soak = f", watched for {stage.steps[0].change.soak} s" if stage.steps[0].change.soak else ""
            show(f"    it is the canary: proven{soak} before another worker is touched")
        elif len(stage.steps) > 1:
            show(f"\nThe last {len(stage.steps)} changes run at most {stage.at_once} at a time.")
    _show_cluster_steps("Last, once every node is confirmed" if run.steps else "Last", run.last)
    for note in notes:
        show_lines(f"\n{note}")
    run.show_left_out("It is not changed; the exit status will be 1.")


def _cluster_objects(run: NodeRun) -> str:
    names = ", ".join(step.name for step in run.cluster_steps)
    return f", and {names}" if names else ""


def _show_cluster_steps(when: str, steps: Sequence[ClusterStep]) -> None:
    for step in steps:
        show(f"\n{when}: {step.name}: {step.summary}")
        lines = [*step.diff.splitlines(), "restarts: nothing; will be proven: read back from the API"]
        show_lines("\n".join(f"    {line}" for line in lines))


def _description(change: Change, apiservers: int) -> list[str]:
    lines = [f"    {line}" for edit in change.files for line in edit.diff().splitlines()]
    if change.kind == "kubelet":
        reload = "systemctl daemon-reload, then " if change.daemon_reload else ""
        lines.append(f"    restarts: {reload}systemctl restart {change.unit}; pods keep running")
    else:
        outage = f"; this API server is down for {APISERVER_OUTAGE}" if change.component == "kube-apiserver" else ""
        lines.append(f"    restarts: the static pod {change.component}{outage}")
        if change.component == "kube-apiserver" and apiservers == 1:
            lines.append(
                "    it is the only one: the API is down meanwhile, and controller-manager and scheduler restart; pods keep running"
            )
    lines.append(
        f"    will be proven: new process with the planned arguments, healthy for {STABLE_SECONDS} s, effective values, workload unharmed;"
        f" the node itself reverts what is not confirmed within {change.confirm_timeout} s"
    )
    return lines


def show_end(run: NodeRun) -> None:
    """Where and why a run halted, the evidence, and the next command."""
    show(f"\nRecord of the run: {run.record.path}")
    if not run.halted:
        return
    show(f"\nHALTED: {run.halted}")
    for step in run.failed:
        _show_failure(step)
    left = [step for step in run.steps if step.outcome == "not started"]
    if left:
        show(f"Not touched: {', '.join(f'{step.change.node} {step.change.component}' for step in left)}.")
    done = [step for step in run.steps if step.outcome == "confirmed"]
    if done:
        show(
            f"Changed and confirmed: {', '.join(f'{step.change.node} {step.change.component}' for step in done)}. "
            f"To undo them: deploys/rollback.py --data run={run.info.id}"
        )
    lost = [step for step in run.cluster_steps if step.outcome != "confirmed"]
    for one in lost:
        show(f"{'Not written' if one.outcome == 'failed' else 'Not started'}: {one.name}: {one.lost}")
    if left or run.failed or lost:
        show("Fix the cause, then run the same command again: it keeps what is done and continues from there.")


def _show_failure(step: NodeStep) -> None:
    change, status = step.change, step.status
    if not step.touched:
        return
    if status is not None and status.evidence_lines:
        show(f"Evidence from {change.node} (the last lines):")
        show_lines("\n".join(f"  | {line}" for line in status.evidence_lines))
    if step.outcome != "refused":
        evidence = "evidence, " if status is not None and status.evidence_lines else ""
        show(f"All details are on {change.node} in {directory(change.id)}/ (log, {evidence}before/, after/).")
    if step.outcome == "unknown":
        show(
            f"The outcome of {change.id} on {change.node} is unknown. The node itself still reverts the change, unless it was confirmed, "
            f"within {change.confirm_timeout} s of its start; deploys/changes.py shows how it ended."
        )
    if step.outcome == "revert-failed":
        here = directory(change.id)
        show(
            f"REPAIR BY HAND on {change.node}: read {here}/log; the old files are in {here}/before/ (with SHA256SUMS). "
            f"The node retries by itself; `sh {here}/change.sh revert` retries at once, and `sh {here}/change.sh abandon` ends the retries "
            "and leaves everything as it is."
        )
