"""The report: a table, JSON, and an HTML page that loads nothing else, with a bar for each container's CPU and memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from roles.engine import scripts, table
from roles.engine.folding import counted
from roles.engine.screen import wrapped
from roles.right_size.document import ContainerReport, RangeReport, RequestAndLimit, ResourceReport, RightSizeReport, WastedReport
from roles.right_size.judged import JudgedContainer
from roles.right_size.quantities import cpu_text, memory_text, pair, span_text, text_of
from roles.right_size.recommend import Advice, Present
from roles.right_size.workloads import RESOURCES

#: The form of the JSON document; it grows when readers have to change.
FORM = 1
HEADERS = ("workload", "container", "", "request/limit", "seen to need", "pattern", "advice", "why")


def seen_text(advice: Advice) -> str:
    """The range of what it was seen to need."""
    if advice.low is None and advice.high is None:
        return "-"
    low, high = text_of(advice.resource, advice.low), text_of(advice.resource, advice.high)
    return low if low == high else f"{low} to {high}"


def advice_text(advice: Advice, now: Present) -> str:
    """`raise to 130m/260m`, `keep`."""
    wanted = (advice.request, advice.limit)
    if advice.decision == "wait":
        return f"keep (later {text_of(advice.resource, advice.target)})"
    return advice.decision + (f" to {pair(advice.resource, wanted)}" if wanted != now.of(advice.resource) else "")


def basis(one: JudgedContainer) -> str:
    """What the advice rests on: `3 d, 412 reads, 2 pods, 1 restart, worst shop-web-1`."""
    found = one.found
    parts = [
        f"CPU over {span_text(found.cpu_seconds)}",
        f"memory over {span_text(found.memory_seconds)}",
        counted(found.reads, "read"),
        counted(len(one.pods), "pod"),
    ]
    if one.restarts:
        parts.append(counted(one.restarts, "restart"))
    if found.images > 1:
        parts.append(f"{found.images} images")
    worst = {pod for pod in (found.cpu_worst, found.memory_worst) if pod}
    if worst and len(one.pods) > 1:
        parts.append(f"most in {' and '.join(sorted(worst))}")
    return ", ".join(parts)


def rows(found: Sequence[JudgedContainer]) -> list[list[str]]:
    """Two lines for each container."""
    lines = []
    for one in found:
        for number, advice in enumerate(one.advices):
            name = [str(one.workload), one.container] if number == 0 else ["", ""]
            lines.append([
                *name, advice.resource, pair(advice.resource, one.now.of(advice.resource)), seen_text(advice), advice.pattern,
                advice_text(advice, one.now), table.short(advice.why),
            ])  # fmt: skip
    return lines


def lines(found: Sequence[JudgedContainer], notes: Sequence[str]) -> Iterator[str]:
    """The whole report for a terminal."""
    if not found:
        yield "\nNo container runs in the chosen namespaces."
        return
    yield "\n" + table.render(HEADERS, rows(found))
    dangers = [wrapped(f"  {one.workload}, {one.container}: {danger}") for one in found for danger in one.dangers]
    if dangers:
        yield "\nIn danger\n" + "\n".join(dangers)
    yield "\nSeen\n" + "\n".join(wrapped(f"  {one.workload}, {one.container}: {basis(one)}") for one in found)
    more = [*(f"{one.workload}, {one.container}: {note}" for one in found for note in notes_of(one)), *notes]
    if more:
        yield "\nNotes\n" + "\n".join(wrapped(f"  {note}") for note in more)
    cpu, memory = sum(one.wasted_cpu for one in found), sum(one.wasted_memory for one in found)
    if cpu or memory:
        yield f"\nRequested and not seen to be needed: {cpu_text(cpu)} of CPU, {memory_text(memory)} of memory."


def notes_of(one: JudgedContainer) -> list[str]:
    return [*_more_notes(one), *one.notes]


def _more_notes(one: JudgedContainer) -> Iterator[str]:
    if one.differ:
        yield "its pods have different requests or limits; those of most of them are shown (deploys/resize_drift.py lists them)"
    if (vpa := one.vpa) is not None:
        texts = (
            "{} {} ({} to {})".format(name, *(text_of(name, side.of_resource(name)) for side in (vpa.target, vpa.low, vpa.high)))
            for name in RESOURCES
        )
        yield f"the VerticalPodAutoscaler {vpa.name} recommends {', '.join(texts)}"


def as_document(
    found: Sequence[JudgedContainer], *, made: str, cluster: str, notes: Sequence[str], problems: Sequence[str]
) -> RightSizeReport:
    return RightSizeReport(
        form=FORM, made=made, cluster=cluster, containers=tuple(map(_container, found)), notes=tuple(notes), problems=tuple(problems)
    )


def _names(one: JudgedContainer) -> dict[str, str]:
    return {"kind": one.workload.kind, "namespace": one.workload.namespace, "name": one.workload.name, "container": one.container}


def _container(one: JudgedContainer) -> ContainerReport:
    return ContainerReport(
        **_names(one),
        pods=one.pods,
        restarts=one.restarts,
        guaranteed=one.now.guaranteed,
        pods_differ=one.differ,
        cpu=_resource(one.cpu, one.now),
        memory=_resource(one.memory, one.now),
        seen=one.found,
        vpa=one.vpa,
        wasted=WastedReport(share=round(one.wasted, 6), cpu=one.wasted_cpu, memory=one.wasted_memory),
        dangers=one.dangers,
        critical=one.critical,
        notes=tuple(notes_of(one)),
    )


def _resource(advice: Advice, now: Present) -> ResourceReport:
    request, limit = now.of(advice.resource)
    return ResourceReport(
        now=RequestAndLimit(request=request, limit=limit),
        range=RangeReport(low=advice.low, high=advice.high),
        pattern=advice.pattern,
        decision=advice.decision,
        advice=RequestAndLimit(request=advice.request, limit=advice.limit),
        target=advice.target,
        why=advice.why,
    )


# ---- the page


def page(found: Sequence[JudgedContainer], *, made: str, notes: Sequence[str] = (), problems: Sequence[str] = ()) -> str:
    """The containers in the order given. `made` says when they were read."""
    return scripts.page(
        "right_size.html.j2",
        rows=[_row(one) for one in found],
        made=made,
        notes=list(notes),
        problems=list(problems),
        danger=sum(1 for one in found if one.dangers),
        cpu=cpu_text(sum(one.wasted_cpu for one in found)),
        memory=memory_text(sum(one.wasted_memory for one in found)),
    )


def _row(one: JudgedContainer) -> dict[str, Any]:
    return {
        **_names(one),
        "pods": len(one.pods),
        "state": "critical" if one.critical else "danger" if one.dangers else "wasted" if one.wasted_cpu or one.wasted_memory else "fits",
        "words": f"{one.workload} {one.container} {one.cpu.pattern} {one.memory.pattern}".lower(),
        "bars": [_bar(advice, one) for advice in one.advices],
        "basis": basis(one),
        "dangers": list(one.dangers),
        "notes": notes_of(one),
    }


def _bar(advice: Advice, one: JudgedContainer) -> dict[str, Any]:
    """All lengths are percent of the largest of its amounts."""
    request, limit = one.now.of(advice.resource)
    used = _used(advice, one)
    whole = max([1, *(amount for amount in (request, limit, used, advice.high, advice.request) if amount is not None)])

    def share(amount: int | None) -> float | None:
        return None if amount is None else round(100 * amount / whole, 2)

    return {
        "title": "CPU" if advice.resource == "cpu" else "memory",
        "used": share(used),
        "peak": share(advice.high),
        "request": share(request),
        "limit": share(limit),
        "advice": share(advice.request) if advice.changes else None,
        "over": used is not None and (request is None or used > request),
        "pattern": advice.pattern,
        "decision": advice.decision,
        "text": f"used {text_of(advice.resource, used)} (95 %), needed {seen_text(advice)}; "
        f"request/limit {pair(advice.resource, (request, limit))}",
        "does": advice_text(advice, one.now),
        "why": advice.why,
    }


def _used(advice: Advice, one: JudgedContainer) -> int | None:
    if advice.resource == "memory":
        return one.found.memory_p95
    return None if one.found.cpu_p95 is None else round(one.found.cpu_p95)
