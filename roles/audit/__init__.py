"""Audit any cluster: every source of a gate or a kubelet field, the effective values, what is wrong with them, and what blocks drains.
Read-only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.audit import page
from roles.audit.collect import API, collect
from roles.audit.examine import Collected, report
from roles.audit.model import Report
from roles.audit.text import as_text, verdict
from roles.audit.versions import parse_target
from roles.desired import OF_KUBELETS
from roles.engine import bridge
from roles.engine.bridge import Fleet
from roles.engine.inputs import Declared, Frozen
from roles.engine.inputs.registry import desired_state
from roles.engine.inputs.values import Output, TextJsonOrHtml
from roles.engine.runs import Ended, deploying, document, one, show_report
from roles.feature_gates import load


class AuditOptions(Frozen):
    """The data keys of deploys/audit.py. `target_version` is the minor: 37 for v1.37."""

    format: TextJsonOrHtml = "text"
    output: Output = None
    target_version: Annotated[
        int | None,
        BeforeValidator(lambda value: parse_target(value, load())),
        WithJsonSchema({"type": ["string", "number"]}),
        Field(description="also report what an upgrade to this minor removes or locks", examples=["v1.36"]),
    ] = None


@deploying("Audit", one(AuditOptions))
def audit(fleet: Fleet, options: AuditOptions) -> Ended:
    """Show what is wrong on the nodes of the run. Ends pyinfra with exit code 0 (clean) or 2 (findings). If a node could not be read,
    shows the rest and raises DeployError, exit code 1.

    Data keys: `format` (text, json, html), `output` (a file on the operator's machine; without it, standard output has only the
    document) and `target_version` (v1.37: what an upgrade would remove or lock).
    """
    seen = collect(fleet, with_order=options.format != "text")
    found = report(seen, load(), made=datetime.now(UTC).isoformat(timespec="seconds"), target=options.target_version)
    forms = {
        "text": lambda: as_text(found),
        "json": lambda: document(found),
        "html": lambda: page.page(found, seen.orders),
    }
    show_report(forms, options.format, options.output)
    if found.failures:
        raise bridge.refuse("not all nodes could be read:", found.failures)
    return Ended(verdict(found) if options.format == "text" or options.output else "", found.code)


DATA_KEYS = (Declared(AuditOptions, ("audit",), also=desired_state(*OF_KUBELETS)),)
DOCUMENTS = {"audit": Report}

__all__ = ["API", "DATA_KEYS", "DOCUMENTS", "Collected", "Report", "audit", "collect", "page", "report"]
