"""Audit any cluster: every source of a gate or a kubelet field, the effective values, what is wrong with them, and what blocks drains.
Read-only."""

from __future__ import annotations

from datetime import UTC, datetime

from roles.audit import page, text
from roles.audit.collect import collect
from roles.audit.examine import report
from roles.audit.model import Report
from roles.audit.options import AuditOptions
from roles.desired import OF_KUBELETS
from roles.engine import bridge
from roles.engine.bridge import Fleet
from roles.engine.files import write_whole
from roles.engine.harmless import as_json, harmless
from roles.engine.inputs import Declared
from roles.engine.inputs.registry import desired_state
from roles.engine.runs import deploying, one
from roles.engine.screen import for_file
from roles.engine.voice import show, show_document, show_lines
from roles.feature_gates import load


@deploying("Audit", one(AuditOptions))
def audit(fleet: Fleet, options: AuditOptions) -> int:
    """Show what is wrong on the nodes of the run. Ends pyinfra with exit code 0 (clean) or 2 (findings). If a node could not be read,
    shows the rest and raises DeployError, exit code 1.

    Data keys: `format` (text, json, html), `output` (a file on the operator's machine; without it, standard output has only the
    document) and `target_version` (v1.37: what an upgrade would remove or lock).
    """
    seen = collect(fleet, with_order=options.format != "text")
    found = report(seen, load(), made=datetime.now(UTC).isoformat(timespec="seconds"), target=options.target_version)
    _write(options, found, page.page(found, seen.orders) if options.format == "html" else "")
    if found.failures:
        raise bridge.refuse("not all nodes could be read:", found.failures)
    return found.code


def _write(options: AuditOptions, found: Report, html: str) -> None:
    formats = {"text": lambda: harmless(text.render(found)), "json": lambda: as_json(found.model_dump(mode="json")), "html": lambda: html}
    if options.output is None:
        (show_lines if options.format == "text" else show_document)(formats[options.format]())
        return
    with for_file():
        document = formats[options.format]()
    with bridge.refusing(OSError, f"output={options.output}: choose another path; the audit cannot be written there: "):
        write_whole(options.output, document + "\n")
    show_lines(text.render(found))
    show(f"\n{options.format}: {options.output}")


DATA_KEYS = (Declared(AuditOptions, ("audit",), also=desired_state(*OF_KUBELETS)),)

__all__ = ["DATA_KEYS", "audit"]
