"""The report as a table and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.rollout import table
from roles.right_size.judged import Judged
from roles.right_size.quantities import cpu_text, memory_text, span_text
from roles.right_size.recommend import Advice, Present
from roles.right_size.workloads import Amounts

#: The form of the JSON document; it grows when readers have to change.
FORM = 1
HEADERS = ("workload", "container", "", "request/limit", "seen to need", "pattern", "advice", "why")


def text_of(resource: str, amount: int | None) -> str:
    if amount is None:
        return "-"
    return cpu_text(amount) if resource == "cpu" else memory_text(amount)


def pair(resource: str, request: int | None, limit: int | None) -> str:
    return f"{text_of(resource, request)}/{text_of(resource, limit)}"


def seen_text(advice: Advice) -> str:
    """The range of what it was seen to need."""
    if advice.low is None and advice.high is None:
        return "-"
    low, high = text_of(advice.resource, advice.low), text_of(advice.resource, advice.high)
    return low if low == high else f"{low} to {high}"


def now_of(advice: Advice, now: Present) -> tuple[int | None, int | None]:
    return getattr(now.requests, advice.resource), getattr(now.limits, advice.resource)


def advice_text(advice: Advice, now: Present) -> str:
    """`raise to 130m/260m`, `keep`."""
    has = now_of(advice, now)
    changes = (advice.request, advice.limit) != has
    wanted = f" to {pair(advice.resource, advice.request, advice.limit)}" if changes else ""
    if advice.decision == "wait":
        return f"keep (later {text_of(advice.resource, advice.target)})"
    return f"{advice.decision}{wanted}"


def basis(one: Judged) -> str:
    """What the advice rests on: `3 d, 412 reads, 2 pods, 1 restart, worst shop-web-1`."""
    found = one.found
    parts = [
        f"CPU over {span_text(found.cpu_seconds)}",
        f"memory over {span_text(found.memory_seconds)}",
        table.counted(found.reads, "read"),
        table.counted(len(one.pods), "pod"),
    ]
    if one.restarts:
        parts.append(table.counted(one.restarts, "restart"))
    if found.images > 1:
        parts.append(f"{found.images} images")
    worst = {pod for pod in (found.cpu_worst, found.memory_worst) if pod}
    if worst and len(one.pods) > 1:
        parts.append(f"most in {' and '.join(sorted(worst))}")
    return ", ".join(parts)


def rows(found: Sequence[Judged]) -> list[list[str]]:
    """Two lines for each container."""
    lines = []
    for one in found:
        for number, advice in enumerate(one.advices):
            name = [str(one.workload), one.container] if number == 0 else ["", ""]
            lines.append([
                *name, advice.resource, pair(advice.resource, *now_of(advice, one.now)), seen_text(advice), advice.pattern,
                advice_text(advice, one.now), table.short(advice.why),
            ])  # fmt: skip
    return lines


def lines(found: Sequence[Judged], notes: Sequence[str]) -> Iterator[str]:
    """The whole report for a terminal."""
    if not found:
        yield "\nNo container runs in the chosen namespaces."
        return
    yield "\n" + table.render(HEADERS, rows(found))
    dangers = [f"  {one.workload}, {one.container}: {danger}" for one in found for danger in one.dangers]
    if dangers:
        yield "\nIn danger\n" + "\n".join(dangers)
    yield "\nSeen\n" + "\n".join(f"  {one.workload}, {one.container}: {basis(one)}" for one in found)
    more = [f"  {one.workload}, {one.container}: {note}" for one in found for note in (*more_notes(one), *one.notes)]
    if more or notes:
        yield "\nNotes\n" + "\n".join([*more, *(f"  {one_line(note)}" for note in notes)])
    cpu, memory = sum(one.wasted_cpu for one in found), sum(one.wasted_memory for one in found)
    if cpu or memory:
        yield f"\nRequested and not seen to be needed: {cpu_text(cpu)} of CPU, {memory_text(memory)} of memory."


def more_notes(one: Judged) -> Iterator[str]:
    if one.differ:
        yield "its pods have different requests or limits; those of most of them are shown (deploys/resize_drift.py lists them)"
    if one.vpa is not None:
        yield (
            f"the VerticalPodAutoscaler {one.vpa.name} recommends cpu {_amounts(one.vpa.target, 'cpu')} "
            f"({_amounts(one.vpa.low, 'cpu')} to {_amounts(one.vpa.high, 'cpu')}), memory {_amounts(one.vpa.target, 'memory')} "
            f"({_amounts(one.vpa.low, 'memory')} to {_amounts(one.vpa.high, 'memory')})"
        )


def _amounts(found: Amounts, resource: str) -> str:
    return text_of(resource, getattr(found, resource))


def as_json(found: Sequence[Judged], *, made: str, cluster: str, notes: Sequence[str], problems: Sequence[str]) -> dict[str, Any]:
    """CPU in thousandths of a core, memory in bytes, times in seconds."""
    return {
        "form": FORM,
        "made": made,
        "cluster": cluster,
        "containers": [_container(one) for one in found],
        "notes": list(notes),
        "problems": list(problems),
    }


def _container(one: Judged) -> dict[str, Any]:
    return {
        "kind": one.workload.kind,
        "namespace": one.workload.namespace,
        "name": one.workload.name,
        "container": one.container,
        "pods": list(one.pods),
        "restarts": one.restarts,
        "guaranteed": one.now.guaranteed,
        "pods_differ": one.differ,
        "cpu": _resource(one.cpu, one.now),
        "memory": _resource(one.memory, one.now),
        "seen": asdict(one.found),
        "vpa": None if one.vpa is None else asdict(one.vpa),
        "wasted": {"share": round(one.wasted, 6), "cpu": one.wasted_cpu, "memory": one.wasted_memory},
        "dangers": list(one.dangers),
        "critical": one.critical,
        "notes": [*more_notes(one), *one.notes],
    }


def _resource(advice: Advice, now: Present) -> Mapping[str, Any]:
    request, limit = now_of(advice, now)
    return {
        "now": {"request": request, "limit": limit},
        "range": {"low": advice.low, "high": advice.high},
        "pattern": advice.pattern,
        "decision": advice.decision,
        "advice": {"request": advice.request, "limit": advice.limit},
        "target": advice.target,
        "why": advice.why,
    }
