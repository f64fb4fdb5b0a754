"""The audit for a terminal: findings, the worst first, then the nodes and their settings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roles.audit.matrix import Cell, Matrix, matrix
from roles.audit.model import FindingReport, Report
from roles.engine import folding, table
from roles.engine.findings import SEVERITIES, Severity, render
from roles.engine.harmless import one_line
from roles.engine.screen import wrapped

_TITLE = "Effective gates and settings: not the default, or not the same on all nodes (set by f: file, d: drop-in, F: flag, m: manifest)"
# A terminal does not fit more columns.
_COLUMNS = 6
_HEADS = {Severity.critical: "CRITICAL", Severity.warning: "WARNING", Severity.note: "NOTE"}


def as_text(report: Report) -> str:
    """The whole text."""
    parts = (_findings(report), _nodes(report), _settings(matrix(report)), _certificates(report), render.not_known(report.not_known))
    return "\n".join(line for part in parts for line in part)


def verdict(report: Report) -> str:
    """One sentence: how many findings of which severity, on how many nodes."""
    nodes = len(report.nodes)
    what = f"{nodes} node{'s' if nodes != 1 else ''}"
    if report.target_version:
        what += f", checked for an upgrade to {report.target_version}"
    if not report.findings:
        return f"nothing found on {what}"
    hit = len({finding.node for finding in report.findings if finding.node})
    return (
        f"{render.tally([one.severity for one in report.findings])}; {f'on {hit} of' if hit else 'of the cluster itself, none on'} {what}"
    )


def by_node(report: Report) -> dict[str, list[Severity]]:
    """The severities of each node's findings; "": of the cluster's."""
    found: dict[str, list[Severity]] = {}
    for one in report.findings:
        found.setdefault(one.node or "", []).append(one.severity)
    return found


def together(findings: Sequence[FindingReport]) -> list[tuple[FindingReport, list[str]]]:
    """Merge findings that differ only in the node: each with its nodes, in the order of `findings`."""
    found: dict[FindingReport, list[str]] = {}
    for finding in findings:
        found.setdefault(finding.model_copy(update={"node": None}), []).append(finding.node or "the cluster")
    return list(found.items())


def _findings(report: Report) -> Iterator[str]:
    yield f"Audit: {verdict(report)}"
    for severity in SEVERITIES:
        merged = together([finding for finding in report.findings if finding.severity == severity])
        if merged:
            yield f"\n{_HEADS[severity]}"
        for finding, nodes in merged:
            about = (_names(nodes), finding.component or "", finding.place)
            yield from render.block(about, finding.kind.heading, finding.value, finding.rule, finding.way_out)


def _names(nodes: Sequence[str]) -> str:
    return ", ".join(nodes) if len(nodes) <= folding.FEW else folding.hosts(nodes)


def _nodes(report: Report) -> Iterator[str]:
    found = by_node(report)
    rows = []
    for node in report.nodes:
        runs = ", ".join(one.name for one in node.components) or node.why or "-"
        rows.append([node.name, node.kind, node.version or "-", runs, render.tally(found.get(node.name, [])) or "-"])
    yield render.section("Nodes", ["node", "kind", "version", "runs", "findings"], table.folded(rows))


def _settings(found: Matrix) -> Iterator[str]:
    """Identical nodes share a column."""
    yield "\n" + wrapped(_TITLE)
    rows = found.rows
    if not rows:
        yield "none"
        return
    for start in range(0, len(found.groups), _COLUMNS):
        groups = found.groups[start : start + _COLUMNS]
        lines = []
        for row in rows:
            cells = row.cells[start : start + _COLUMNS]
            if any(cell is not None and (cell.source != "default" or cell.unlike) for cell in cells):
                lines.append([row.section, row.name, *(_cell(cell) for cell in cells)])
        yield table.render(["section", "name", *(one.title for one in groups)], lines) + "\n"
    for one in found.groups:
        if len(one.nodes) > 1:
            yield wrapped(f"identical: {_names([node.name for node in one.nodes])}")


def _certificates(report: Report) -> Iterator[str]:
    """When certificates end: one line for those that end on the same day."""
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for node in report.nodes:
        for one in node.certificates:
            key = (one.until[:10], one.component, one.use, "by the kubelet itself" if one.renews else "-")
            rows.setdefault(key, []).append(node.name)
    if rows:
        yield "Certificates, the first to end first"
        lines = [
            [until, component, one_line(use), renewed, _names(nodes)] for (until, component, use, renewed), nodes in sorted(rows.items())
        ]
        yield table.render(["until", "component", "what", "renewed", "nodes"], lines)


_LETTERS = {"default": "", "file": "f", "drop-in": "d", "flag": "F", "manifest": "m"}


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    value = cell.value if len(cell.value) <= 40 else cell.value[:37] + "..."
    letter = _LETTERS[cell.source]
    return value + (f" [{letter}]" if letter else "") + (f" (file: {cell.pending})" if cell.pending else "")
