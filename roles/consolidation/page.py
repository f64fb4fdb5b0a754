"""The plan as one HTML page that loads nothing else: each node as a bar of its pods, before and after. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roles.consolidation.model import ConsolidationReport, NodeReport, PodReport
from roles.consolidation.owners import at
from roles.consolidation.report import amount, number
from roles.engine import scripts
from roles.engine.folding import counted
from roles.engine.kube import amounts

_STATES = {"goes": "could go", "stays": "stays", "wakes": "wakes", "asleep": "asleep"}
_RESOURCES = (("cpu", "CPU"), ("memory", "memory"))


def page(report: ConsolidationReport) -> str:
    """One page with all nodes, sorted as in the tables."""
    coming: dict[str, list[PodReport]] = {}
    for node in report.nodes:
        for pod in node.pods:
            if pod.to is not None:
                coming.setdefault(pod.to, []).append(pod)
    return scripts.page(
        "consolidate.html.j2",
        verdict=report.verdict,
        before=amount(report.unit, report.before),
        after=amount(report.unit, report.after),
        bound=amount(report.unit, report.bound),
        shares=[_percent(value, report.before) for value in (report.after, report.bound)],
        saves=amount(report.unit, report.saves),
        month="" if report.saves_a_month is None else number(report.saves_a_month),
        resources=_RESOURCES,
        rows=[_row(report, node, coming.get(node.node, [])) for node in report.nodes],
        made=report.made,
        spare=counted(report.spare_nodes, "node"),
        notes=report.notes,
    )


def _row(report: ConsolidationReport, node: NodeReport, coming: list[PodReport]) -> dict[str, Any]:
    gone = node.state == "goes"
    stays = [pod for pod in node.pods if pod.to is None]
    leaves = [pod for pod in node.pods if pod.to is not None]
    before = [*(("stays", pod) for pod in stays), *(("leaves", pod) for pod in leaves)]
    after = [] if gone else [*(("stays", pod) for pod in stays), *(("comes", pod) for pod in coming)]
    return {
        "name": node.node,
        "host": node.host if node.host != node.node else None,
        "state": node.state,
        "tag": _STATES[node.state],
        "reclaimable": node.reclaimable,
        "hours": node.hours,
        "must": f"must be free by {at(node.free_by)}" if node.free_by else "must be free" if node.must_go else "",
        "cost": amount(report.unit, node.cost),
        "pods": counted(len(node.pods), "pod"),
        "bars": [
            {
                "resource": key,
                "title": title,
                "when": when,
                "parts": list(_parts(node, key, pods)),
                "says": _says(node, key, pods),
                "off": off,
            }
            for key, title in _RESOURCES
            for when, pods, off in (("now", before, node.state in ("asleep", "wakes")), ("then", after, gone or node.state == "asleep"))
        ],
        "why": node.why,
        "moves": [{"pod": pod.pod, "to": pod.to, "counts": number(pod.disruption)} for pod in leaves],
        "words": " ".join([node.node, node.host or "", _STATES[node.state], *(pod.pod for pod in node.pods), node.why]).lower(),
    }


def _parts(node: NodeReport, resource: str, pods: list[tuple[str, PodReport]]) -> Iterator[Mapping[str, Any]]:
    for kind, pod in pods:
        yield {"kind": f"{kind} of-node" if pod.of_node else kind, "width": _percent(_value(pod, resource), _value(node, resource)),
               "title": f"{pod.pod}: {_shown(resource, _value(pod, resource))}"}  # fmt: skip


def _says(node: NodeReport, resource: str, pods: list[tuple[str, PodReport]]) -> str:
    used = sum(_value(pod, resource) for _, pod in pods)
    has = _value(node, resource)
    return f"{counted(len(pods), 'pod')}, {_shown(resource, used)} of {_shown(resource, has)} requested ({_percent(used, has):.0f} %)"


def _value(one: NodeReport | PodReport, resource: str) -> float:
    return one.cpu if resource == "cpu" else one.memory


def _shown(resource: str, value: float) -> str:
    return amounts.shown(resource, round(value * 1000) if resource == "cpu" else int(value))


def _percent(part: float, whole: float) -> float:
    return round(100 * min(max(part, 0.0), whole) / whole, 2) if whole > 0 else 0.0
