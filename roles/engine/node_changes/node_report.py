"""The report of a run for the operator: first the plan; at the end the outcome and the next command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roles.engine import folding
from roles.engine.commands import command
from roles.engine.context import ClusterStep, Stage
from roles.engine.folding import counted
from roles.engine.node_changes.run import NodeRun
from roles.engine.node_changes.step import NodeStep
from roles.engine.outage import undo
from roles.engine.screen import wrapped
from roles.engine.transaction import Change, Status
from roles.engine.transaction.by_hand import repair
from roles.engine.transaction.change_script import directory
from roles.engine.transaction.model import STABLE_SECONDS
from roles.engine.voice import show, show_diff, show_lines

APISERVER_OUTAGE = "about 40 s (the old one's grace period is 30 s)"


def show_plan(run: NodeRun, apiservers: int, notes: Sequence[str]) -> None:
    """All changes in order: diff, restarts, what will be proven; then `notes`."""
    number = len({step.change.node for step in run.steps})
    show(f"\nPlan of run {run.info.id}: {counted(len(run.steps), 'change')} on {counted(number, 'node')}{_cluster_objects(run)}")
    _show_cluster_steps("First, before any node", run.first)
    described: dict[object, str] = {}
    for stage, steps in _groups(run.stages):
        first, last, change = steps[0].order, steps[-1].order, steps[0].change
        numbers = str(first) if first == last else f"{first}-{last}"
        nodes = folding.hosts([step.change.node for step in steps])
        name = f"[{numbers}/{len(run.steps)}] {nodes}: {change.component}: {change.summary}"
        if (before := described.setdefault(_shape(steps[0]), nodes)) != nodes and folding.folds():
            pace = f", at most {stage.at_once} at a time" if len(stage.steps) > 1 else ""
            show(f"{name}; the same as for {before}{pace}")
            continue
        show(f"\n{name}")
        for edit in change.files:
            show_diff(edit.diff(1 if folding.folds() else 3).splitlines())
        for line in _description(change, apiservers, steps[0].drain is not None, steps[0].recreates_pods):
            show(f"    {line}")
        for what in steps[0].unseen:
            show(f"    {what}; its value is proven")
        if stage.canary:
            soak = f", watched for {change.soak} s" if change.soak else ""
            show(f"    it is the canary: proven{soak} before another worker is touched")
        elif len(stage.steps) > 1 and last == stage.steps[-1].order:
            show(f"\nThe last {counted(len(stage.steps), 'change')} run at most {stage.at_once} at a time.")
    _show_cluster_steps("Last, once every node is confirmed" if run.steps else "Last", run.last)
    for note in notes:
        (show_lines if "\n" in note else show)(f"\n{note}")
    run.show_left_out("It is not changed; the exit status will be 1.")


def _groups(stages: Sequence[Stage[NodeStep]]) -> list[tuple[Stage[NodeStep], list[NodeStep]]]:
    """The steps, each with its stage. With many hosts, those that follow each other and are the same but for their node are together; the
    canary stays alone, and so does a stage of several at a time."""
    found: list[tuple[Stage[NodeStep], list[NodeStep]]] = []
    for stage in stages:
        for step in stage.steps:
            before, steps = found[-1] if found else (None, [])
            joins = before is stage or (before is not None and not before.canary and len(before.steps) == len(stage.steps) == 1)
            if joins and folding.folds() and _shape(steps[0]) == _shape(step):
                steps.append(step)
            else:
                found.append((stage, [step]))
    return found


def _shape(step: NodeStep) -> tuple[object, ...]:
    """What the plan must show apart: all of a change but its node, and what only the canary has."""
    alike = replace(step.change, id="", node="", pod="", soak=0, old_argv=None, new_argv=None, arguments_sha256=None)
    return alike, step.drain is not None, step.recreates_pods


def _cluster_objects(run: NodeRun) -> str:
    names = ", ".join(step.name for step in run.cluster_steps)
    return f", and {names}" if names else ""


def _show_cluster_steps(when: str, steps: Sequence[ClusterStep]) -> None:
    for step in steps:
        show(f"\n{when}: {step.name}: {step.summary}")
        if folding.folds():
            continue
        show_diff(step.diff.splitlines())
        show("    restarts: nothing; will be proven: read back from the API")


def _description(change: Change, apiservers: int, drained: bool = False, recreates_pods: bool = False) -> list[str]:
    lines = []
    if change.kind == "kubelet":
        reload = "systemctl daemon-reload, then " if change.daemon_reload else ""
        restart = f"{reload}systemctl restart {change.unit}"
        if change.checkpoints:
            paths = " and ".join(change.checkpoints)
            restart = f"systemctl stop {change.unit}, {paths} removed (a revert restores it), {reload}systemctl start {change.unit}"
        if change.runtime:
            restart = (
                f"systemctl stop {change.unit}, all pods of the node end, the files are placed, systemctl restart"
                f" {change.runtime.unit}, {reload}systemctl start {change.unit}"
            )
        pods = "the pods that are left are ended and created again" if recreates_pods else "pods keep running"
        lines.append(f"restarts: {restart}; {pods}")
    else:
        outage = f"; this API server is down for {APISERVER_OUTAGE}" if change.component == "kube-apiserver" else ""
        lines.append(f"restarts: the static pod {change.component}{outage}")
        if change.component == "kube-apiserver" and apiservers == 1:
            lines.append("it is the only one: the API is down meanwhile, and controller-manager and scheduler restart; pods keep running")
    if drained:
        lines.append("before that: cordons the node and drains it; after it, confirmed or reverted: uncordons what it cordoned")
    lines.append(
        f"will be proven: new process with the planned arguments, healthy for {STABLE_SECONDS} s, effective values, workload unharmed;"
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
    for node, why in run.still_cordoned.items():
        show(f"STILL CORDONED: {node}: {why}. Once the node is well: {undo.command([node])}")
    left = [step for step in run.steps if step.outcome == "not started"]
    if left:
        show(f"Not touched: {_names(left)}.")
    done = [step for step in run.steps if step.outcome == "confirmed"]
    if done:
        show(f"Changed and confirmed: {_names(done)}.")
    lost = [step for step in run.cluster_steps if step.outcome != "confirmed"]
    for one in lost:
        show(f"{'Not written' if one.outcome == 'failed' else 'Not started'}: {one.name}: {one.lost}")


def _names(steps: Sequence[NodeStep]) -> str:
    if not folding.folds():
        return ", ".join(f"{step.change.node} {step.change.component}" for step in steps)
    components = dict.fromkeys(step.change.component for step in steps)
    of = {component: [step.change.node for step in steps if step.change.component == component] for component in components}
    return ", ".join(f"{component} of {folding.hosts(nodes)}" for component, nodes in of.items())


def _show_failure(step: NodeStep) -> None:
    change, status = step.change, step.status
    if not step.touched:
        return
    if status is not None and status.evidence_lines:
        show(f"Evidence from {change.node} (the last lines):")
        show_lines("\n".join(wrapped(f"  | {line.expandtabs()}") for line in status.evidence_lines))
    if step.outcome != "refused":
        evidence = "evidence, " if status is not None and status.evidence_lines else ""
        show(f"All details are on {change.node} in {directory(change.id)}/ (log, {evidence}before/, after/).")
    if step.outcome == "unknown":
        show(
            f"The outcome of {change.id} on {change.node} is unknown. The node itself still reverts the change, unless it was confirmed, "
            f"within {change.confirm_timeout} s of its start; {command('changes')} shows how it ended."
        )
    if step.outcome == "revert-failed":
        found = repair(change, status or Status("revert-failed"), blockers=step.blockers)
        show(f"REPAIR BY HAND on {change.node}: {found.why}. As root there:")
        show_lines("\n".join(f"    {command}" for command in found.commands))
        show(
            f"The node retries by itself, too; `sh {directory(change.id)}/change.sh abandon` ends that and leaves everything as it is."
            " docs/by-hand.md has all such states."
        )
