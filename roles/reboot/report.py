"""The plan and the end of a run, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from roles.engine.context import Stage
from roles.engine.folding import counted
from roles.engine.harmless import one_line
from roles.engine.object_runs import ObjectRun
from roles.engine.voice import show, show_lines
from roles.reboot.model import RebootOptions
from roles.reboot.plan import RebootPlan
from roles.reboot.rebooting import RUNBOOK

#: What daytwo does not check, and what can keep a node away.
NOT_CHECKED = "not checked: firmware, boot loader, network and disks of the nodes; keep a console in reach"


def show_plan(
    run: ObjectRun, stages: Sequence[Stage[RebootPlan]], plans: Sequence[RebootPlan], notes: Iterable[str], draining: Iterable[str]
) -> None:
    """`notes` are about the cluster, `draining` about the pods."""
    rebooting = [plan for plan in plans if plan.what == "reboot"]
    show(f"\nPlan of run {run.info.id}: {counted(len(rebooting), 'node')} to reboot, of {len(plans)}")
    number = 0
    for stage in stages:
        for plan in stage.steps:
            number += 1
            show(f"\n[{number}] {plan.host}: {_verb(plan)}{_pace(stage)}: {plan.why}")
            for line in (*_effects(plan, plans), *(f"WARNING {warning}" for warning in plan.warnings)):
                show(f"    {line}")
    left = [plan for plan in plans if plan.what == "none"]
    if left:
        show("\nNot rebooted:")
        for plan in left:
            show(f"    {plan.host}: {plan.why}")
    if rebooting:
        for text in draining:
            show_lines(text)
        for note in (*notes, NOT_CHECKED, "a reboot cannot be undone; a cordon that a halted run leaves can"):
            show(f"- {note}")
    if not run.steps:
        run.show_objects(rows(plans))


def _verb(plan: RebootPlan) -> str:
    return {"reboot": "drain, reboot, prove, uncordon", "finish": "prove, uncordon", "release": "uncordon", "none": ""}[plan.what]


def _pace(stage: Stage[RebootPlan]) -> str:
    if stage.canary:
        return " (the canary)"
    return f" (at most {stage.at_once} at a time)" if stage.at_once > 1 else ""


def _effects(plan: RebootPlan, plans: Sequence[RebootPlan]) -> Iterator[str]:
    if plan.what != "reboot":
        return
    took = plan.candidate.facts.took
    took_text = f"its last boot took {took:.0f} s, and its shutdown comes on top" if took else "it is not known how long its last boot took"
    if plan.candidate.has_apiserver and sum(other.candidate.has_apiserver for other in plans) == 1:
        yield f"the API is down while it reboots: it is the only control-plane node of this run; {took_text}"
    else:
        yield took_text
    if plan.candidate.has_apiserver and plan.candidate.facts.ends_pods:
        yield "its kubelet ends the pods itself, its control plane too, within its shutdownGracePeriod"
    elif plan.candidate.has_apiserver:
        yield "before it reboots, its kubelet stops, and its control plane ends in order: the API server while its etcd still runs"
    if plan.mark is not None:
        yield f"run {plan.mark.run} was to reboot it, and ended before"
    if plan.cordon.cordon == "theirs":
        yield "it was cordoned before, and stays cordoned"


def rows(plans: Sequence[RebootPlan]) -> list[list[str]]:
    """The rows of nodes that the run leaves as they are."""
    return [
        [plan.host, "none", "no change" if plan.known else "not known", "-", one_line(plan.why)] for plan in plans if plan.what == "none"
    ]


def show_end(run: ObjectRun, plans: Sequence[RebootPlan], wanted: RebootOptions) -> None:
    """The table, and what to do after a halt."""
    run.show_objects(rows(plans))
    show(f"\nRecord of the run: {run.record.path}")
    if not run.halted:
        return
    show(f"\nHALTED: {run.halted}")
    if untouched := [step.name for step in run.steps if step.outcome == "not started"]:
        show(f"Not touched: {', '.join(untouched)}.")
    if away := [step.name for step in run.steps if step.outcome == "failed"]:
        show(
            f"Not proven: {', '.join(away)}. See {RUNBOOK}, When a node does not come back (reboot_timeout was {wanted.reboot_timeout} s)."
        )
        show(f"A cordon that this run left: {run.undo} uncordons the node without a proof.")
