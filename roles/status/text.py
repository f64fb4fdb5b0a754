"""The state for a terminal: tables, and then what needs attention. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from roles.engine import table
from roles.engine.findings.render import not_known, section
from roles.engine.screen import wrapped
from roles.engine.table import brief_age
from roles.status import nodes
from roles.status.model import GateReport, StatusReport


def as_text(report: StatusReport, now: float) -> str:
    """The whole text. `now`: seconds since 1970."""
    return "\n".join(_parts(report, now))


def _parts(report: StatusReport, now: float) -> Iterator[str]:
    yield section("Nodes", nodes.HEADERS, table.folded([nodes.row(one, now) for one in report.nodes], vary=(5,)))
    rows = [
        [one.host, one.kind, one.component, one.version or "unknown", str(one.pid), brief_age(one.age_seconds), one.state, one.reads]
        for one in report.components
    ]
    headers = ["node", "kind", "component", "version", "pid", "running for", "state", "reads"]
    yield section("Components", headers, table.folded(rows, vary=(4, 5)))
    rows = [[one.host, one.component, one.gate, _word(one.set_to), effect(one), one.source or "unknown"] for one in report.gates]
    headers = ["node", "component", "gate", "set to", "in effect", "source"]
    yield section("Feature gates that a file or flag sets", headers, table.folded(rows))
    rows = [[one.host, one.component, one.setting, one.configmap, one.says, one.files, one.process or "-"] for one in report.kubeadm]
    headers = ["node", "component", "setting", "ConfigMap", "says", "files", "process"]
    yield section("What the next `kubeadm upgrade` would change", headers, table.folded(rows), report.kubeadm_note)
    rows = [[one.host, one.path, one.mode or "-", (one.sha256 or "absent")[:16]] for one in report.sources]
    yield section("Sources", ["node", "path", "mode", "sha256"], table.folded(rows))
    yield from (f"\n{wrapped(text)}" for text in (*report.warnings, *report.ignored))
    yield from not_known(report.not_known)


def _word(value: bool) -> str:
    return str(value).lower()


def effect(one: GateReport) -> str:
    if one.in_effect is None:
        return "unknown"
    return _word(one.in_effect) + (" (DIFFERS)" if one.differs else "")
