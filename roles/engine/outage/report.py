"""The plans of drains in lines and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roles.engine import folding, table
from roles.engine.folding import counted, shortened
from roles.engine.harmless import one_line
from roles.engine.outage.mark import OUTAGE
from roles.engine.outage.model import BudgetShare, DrainPlan, NodeFate, PodFate, Purpose, Wanted
from roles.engine.screen import wrapped

_ALWAYS = 30


def plan_text(plan: DrainPlan, answers: Mapping[str, str] | None = None) -> str:
    """The whole plan. `answers`: what the API server said to a dry run of the evictions, by UID, "" if it would evict; None: not asked."""
    parts = [*map(_node, plan.nodes), "", _pods(plan)]
    notes = [wrapped(f"- {one.name}: {note}") for one in plan.pods for note in one.notes if one.leaves]
    parts += ["", *notes] if notes else []
    if plan.budgets:
        parts += ["", table.render(["budget", "leave", "of them", "allows now", "waves", "why"], [_budget(one) for one in plan.budgets])]
    parts += ["", _waves(plan)] if plan.leaving else []
    parts += _answers(plan, answers)
    parts += ["\n" + wrapped(text) for text in (*(f"WARNING: {one}" for one in plan.warnings), *plan.notes)]
    return "\n".join(parts)


def _node(node: NodeFate) -> str:
    if node.cordon == "theirs":
        text = f"cordoned already by {node.by}: that cordon stays, also at the end"
    elif node.cordon == "ours":
        text = f"cordoned already by run {node.by}: this run takes it over and continues"
    else:
        text = f"cordon it, with the mark {OUTAGE}"
    return wrapped(f"Node {node.name}: {text}")


def _pods(plan: DrainPlan) -> str:
    if not plan.pods:
        return "no pod is on these nodes"
    rows = [[one.node, one.name, one.fate, one.place or "-", _why(one)] for one in plan.pods if one.fate != "stays"]
    staying = [one for one in plan.pods if one.fate == "stays"]
    if len(plan.pods) <= _ALWAYS:
        rows += [[one.node, one.name, one.fate, one.place or "-", _why(one)] for one in staying]
        staying = []
    text = table.render(["node", "pod", "what", "replacement", "why"], rows)
    kinds: dict[str, int] = {}
    for one in staying:
        kinds[one.why] = kinds.get(one.why, 0) + 1
    return "\n".join([text, *(wrapped(f"{counted(count, 'pod')} stay: {why}") for why, count in kinds.items())])


def _why(one: PodFate) -> str:
    return one.why + (f"; NOT NOW, the run waits: {one.blocked_now}" if one.blocked_now else "")


def _budget(one: BudgetShare) -> list[str]:
    nodes = ", ".join(f"{count} on {node}" for node, count in one.leaving_by_node.items())
    waves = "+".join(map(str, one.waves)) + (f" ({one.surged} replaced first)" if one.surged else "")
    return [one.key, str(one.leaving), nodes, str(one.allowed), waves.strip() or "-", one.why]


def _waves(plan: DrainPlan) -> str:
    leave = f"{counted(len(plan.leaving), 'pod')} {'leaves' if len(plan.leaving) == 1 else 'leave'}"
    lines = [f"{leave} in {counted(len(plan.waves), 'wave')}; each waits until all replacements are Ready:"]
    if plan.surges:
        lines.append(f"  first, with a second pod before they leave: {_names(plan.surges)}")
    lines += [f"  wave {number}: {_names(wave)}" for number, wave in enumerate(plan.waves, 1)]
    return "\n".join(wrapped(line) for line in lines)


def _names(pods: Sequence[PodFate]) -> str:
    return ", ".join(one.name for one in pods)


def _answers(plan: DrainPlan, answers: Mapping[str, str] | None) -> list[str]:
    if not answers:
        return []
    refused = [wrapped(f"  {one.name}: NOT NOW, the run waits: {answers[one.uid]}") for one in plan.leaving if answers.get(one.uid)]
    asked = len(answers)
    return [f"\nDry run of {counted(asked, 'eviction')} on the API server: {asked - len(refused)} would be evicted now", *refused]


#: Of more pods than this, the plan shows counts and what is unusual.
MANY_PODS = 30


def outage_note(one: Wanted, purpose: Purpose, plan: DrainPlan, nodes: int) -> str:
    """What becomes of the pods of a node: each of them, or how many and what is unusual."""
    heading = wrapped(f"{one.host} is drained for {purpose.text}: {'; '.join(one.why)}")
    if len(plan.pods) <= MANY_PODS and not (folding.folds() and nodes > 1):
        return f"{heading}\n{plan_text(plan)}"
    lines = [summary(plan), *(f"WARNING: {text}" for text in plan.warnings)]
    return "\n".join([heading, *(wrapped(f"  {line}") for line in lines)])


def summary(plan: DrainPlan) -> str:
    """A drain in one line."""
    fates = {fate: [pod.name for pod in plan.pods if pod.fate == fate] for fate in ("surged", "deleted", "stays")}
    parts = [f"{counted(len(plan.leaving), 'pod')} leave in {counted(len(plan.waves), 'wave')}, {len(fates['stays'])} stay"]
    for names, what in (
        (fates["surged"], "replaced first"),
        (fates["deleted"], "deleted past their budget, by consent"),
        ([pod.name for pod in plan.leaving if pod.pending], "replacements stay Pending, by consent"),
        ([pod.name for pod in plan.leaving if pod.blocked_now], "not now, so the run waits"),
    ):
        if names:
            parts.append(f"{what}: {one_line(shortened(names))}")
    return "; ".join(parts)
