"""The report as one HTML page that loads nothing else: a bar for each container's CPU and memory. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jinja2

from roles.engine.scripts import pages
from roles.right_size.judged import Judged
from roles.right_size.quantities import cpu_text, memory_text
from roles.right_size.recommend import Advice, Present
from roles.right_size.report import advice_text, basis, more_notes, now_of, pair, seen_text, text_of


def page(found: Sequence[Judged], *, made: str, notes: Sequence[str] = (), problems: Sequence[str] = ()) -> str:
    """The containers in the order given. `made` says when they were read."""
    danger = sum(1 for one in found if one.dangers)
    return _template().render(
        rows=[_row(one) for one in found],
        made=made,
        notes=list(notes),
        problems=list(problems),
        danger=danger,
        cpu=cpu_text(sum(one.wasted_cpu for one in found)),
        memory=memory_text(sum(one.wasted_memory for one in found)),
    )


@cache
def _template() -> jinja2.Template:
    return pages().get_template("right_size.html.j2")


def _row(one: Judged) -> dict[str, Any]:
    return {
        "kind": one.workload.kind,
        "namespace": one.workload.namespace,
        "name": one.workload.name,
        "container": one.container,
        "pods": len(one.pods),
        "state": "critical" if one.critical else "danger" if one.dangers else "wasted" if one.wasted_cpu or one.wasted_memory else "fits",
        "words": f"{one.workload} {one.container} {one.cpu.pattern} {one.memory.pattern}".lower(),
        "bars": [_bar(advice, one) for advice in one.advices],
        "basis": basis(one),
        "dangers": list(one.dangers),
        "notes": [*more_notes(one), *one.notes],
    }


def _bar(advice: Advice, one: Judged) -> dict[str, Any]:
    """All lengths are percent of the largest of its amounts."""
    request, limit = now_of(advice, one.now)
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
        "advice": share(advice.request) if advice.decision in ("raise", "lower") else None,
        "over": used is not None and (request is None or used > request),
        "pattern": advice.pattern,
        "decision": advice.decision,
        "text": _says(advice, one.now, used),
        "does": advice_text(advice, one.now),
        "why": advice.why,
    }


def _used(advice: Advice, one: Judged) -> int | None:
    if advice.resource == "memory":
        return one.found.memory_p95
    return None if one.found.cpu_p95 is None else round(one.found.cpu_p95)


def _says(advice: Advice, now: Present, used: int | None) -> str:
    request, limit = now_of(advice, now)
    return (
        f"used {text_of(advice.resource, used)} (95 %), needed {seen_text(advice)}; request/limit {pair(advice.resource, request, limit)}"
    )
