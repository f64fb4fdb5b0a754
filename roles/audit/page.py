"""The audit as one HTML page that loads nothing else: no font, no server, no network. Pure.

Identical nodes share a column, identical findings share an entry, and each node shows only the pods that are evicted first. So the page
of five hundred nodes opens at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from roles.audit.matrix import Cell, Group, Matrix, MatrixRow, matrix
from roles.audit.model import FindingReport, NodeReport, Report
from roles.audit.text import by_node, together, verdict
from roles.engine import scripts
from roles.engine.bounds import EARLIEST, moment
from roles.engine.findings import SEVERITIES, Severity, render
from roles.engine.kubelet.thresholds import MEMORY
from roles.eviction import SIGNAL_TITLES, NodeOrder, OrderRow, amount, gauges, reason

# Pods of a node that are shown, in eviction order.
_FIRST = 4
# Node names that a finding shows; a click shows the others.
_NAMES = 6
_GAUGES = ("memory", "disk", "processes")


def page(report: Report, orders: Sequence[NodeOrder] = ()) -> str:
    """The whole page."""
    return scripts.page("audit.html.j2", **parts(report, orders))


def parts(report: Report, orders: Sequence[NodeOrder] = ()) -> dict[str, Any]:
    """What templates/audit.html.j2 shows, also as a part of another page."""
    found = matrix(report)
    return {
        "verdict": verdict(report),
        "code": report.code,
        "made": (moment(report.made) or EARLIEST).strftime("%Y-%m-%d %H:%M %Z"),
        "target": report.target_version or "",
        "counts": [
            {"name": one.value, "count": report.count(one), "title": render.counted(report.count(one), one).partition(" ")[2]}
            for one in SEVERITIES
        ],
        "fleet": list(_fleet(report)),
        "findings": [_finding(one, nodes) for one, nodes in together(report.findings)],
        "groups": [_group(one, number) for number, one in enumerate(found.groups)],
        "sections": list(_sections(found)),
        "alike": [{"title": section, "names": names} for section, names in found.alike.items()],
        "configmaps": report.configmaps,
        "orders": [_order(order) for order in orders],
        "gauge_titles": _GAUGES,
        "sources": [_sources(one) for one in found.groups],
        "not_known": report.not_known,
        "failures": report.failures,
    }


def _fleet(report: Report) -> Iterator[dict[str, Any]]:
    """Every node with its worst severity, by the groups of the inventory."""
    found = by_node(report)
    everywhere = set.intersection(*(set(node.groups) for node in report.nodes)) if report.nodes else set()
    order = {node.groups: number for number, node in reversed(list(enumerate(report.nodes)))}
    for groups, nodes in groupby(sorted(report.nodes, key=lambda node: order[node.groups]), key=lambda node: node.groups):
        listed = [_chip(node, found.get(node.name, [])) for node in nodes]
        yield {
            "title": ", ".join(group for group in groups if group not in everywhere) or "nodes",
            "nodes": listed,
            "dense": len(listed) > 60,
        }


def _chip(node: NodeReport, found: Sequence[Severity]) -> dict[str, str]:
    severity = next((one.value for one in SEVERITIES if one in found), "clean")
    about = " ".join(filter(None, (node.kind, node.version)))
    title = f"{node.name}: {about}; {render.tally(found) or 'nothing found'}"
    return {"name": node.name, "severity": "other" if node.kind == "unsupported" else severity, "title": title}


def _finding(finding: FindingReport, nodes: Sequence[str]) -> dict[str, Any]:
    words = [finding.kind, finding.component, finding.name, finding.file, finding.value, finding.rule, *nodes]
    return {
        "severity": finding.severity.value,
        "kind": finding.kind.heading,
        "component": finding.component or "",
        "value": finding.value or "",
        "place": finding.place,
        "rule": finding.rule,
        "way_out": finding.way_out,
        "nodes": nodes[:_NAMES],
        "more": nodes[_NAMES:],
        "words": " ".join(filter(None, words)).lower(),
    }


def _group(one: Group, number: int) -> dict[str, Any]:
    names = [node.name for node in one.nodes]
    return {
        "number": number,
        "title": one.title,
        "about": one.about,
        "names": ", ".join(names),
        "words": " ".join((*names, one.about)).lower(),
        "role": "control plane" if len(one.first.components) > 1 else "worker",
    }


def _sections(found: Matrix) -> Iterator[dict[str, Any]]:
    for title, rows in groupby(found.rows, key=lambda row: row.section):
        yield {"title": title, "rows": [_row(row) for row in rows]}


def _row(row: MatrixRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "words": f"{row.section} {row.name}".lower(),
        "differs": row.differs,
        "cells": [_cell(cell) for cell in row.cells],
    }


def _cell(cell: Cell | None) -> dict[str, str] | None:
    if cell is None:
        return None
    how = f"{cell.source}: {cell.place}" if cell.place else "default" if cell.source == "default" else cell.source
    classes = [cell.source]
    if cell.value in ("true", "false"):
        classes.append("on" if cell.value == "true" else "off")
    if cell.unlike:
        classes.append("unlike")
    if cell.pending:
        how += f"; the file says {cell.pending}, the process has {cell.value}"
        classes.append("pending")
    return {"value": cell.value, "class": " ".join(classes), "title": f"{cell.value} ({how})", "pending": cell.pending}


def _order(order: NodeOrder) -> dict[str, Any]:
    shown = gauges(order)
    evictable = [row for row in order.rows if not row.protected]
    by_memory = sorted(evictable, key=lambda row: row.uses[MEMORY].place if MEMORY in row.uses else 0)
    return {
        "name": order.node,
        "words": order.node.lower(),
        "gauges": [next((gauge for gauge in shown if gauge["title"] == title), None) for title in _GAUGES],
        "pods": [_pod(row) for row in by_memory[:_FIRST]],
        "more": len(evictable) - _FIRST,
        "kept": len(order.rows) - len(evictable),
    }


def _pod(row: OrderRow) -> dict[str, Any]:
    namespace, _, name = row.pod.partition("/")
    use = row.uses.get(MEMORY)
    used = "?" if use is None or use.used is None else amount(MEMORY, use.used)
    return {
        "namespace": namespace,
        "name": name,
        "used": used,
        "over": use is not None and (use.over or use.used is None),
        "title": f"{row.pod}, priority {row.priority}, {row.qos}; {SIGNAL_TITLES[MEMORY]}: {reason(MEMORY, row)}",
    }


def _sources(one: Group) -> dict[str, Any]:
    return {"title": one.title, "names": ", ".join(node.name for node in one.nodes), "sources": one.first.sources}
