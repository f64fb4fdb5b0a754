"""An audit of any cluster: every place that sets a gate or a kubelet's field, what is in effect, and what is wrong with it. Read-only."""

from __future__ import annotations

from datetime import UTC, datetime

from roles.audit import page, text
from roles.audit.collect import collect
from roles.audit.examine import report
from roles.audit.model import Report
from roles.audit.options import AuditOptions
from roles.engine import bridge
from roles.engine.bridge import Fleet, show, show_lines
from roles.engine.files import write_whole
from roles.engine.harmless import as_json, harmless
from roles.engine.rollout import deploying, one
from roles.feature_gates import load


@deploying("Audit", one(AuditOptions))
def audit(fleet: Fleet, wish: AuditOptions) -> int:
    """Show what is wrong on the nodes of the run. Ends pyinfra with exit code 0 (clean) or 2 (findings); raises DeployError, exit
    code 1, where not all nodes could be looked at, after what could be was shown.

    Data keys: `format` (text, json, html), `output` (a file on the operator's machine; without it the document goes to standard
    output, alone) and `target_version` (v1.37: what an upgrade would remove or lock).
    """
    catalogue = load()
    seen = collect(fleet, with_order=wish.format != "text")
    found = report(
        seen.views,
        seen.wishes,
        seen.lasting,
        catalogue,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        target=wish.target_version,
        drifts=seen.resized,
        orders=seen.orders,
        not_known=seen.not_known,
        failures=seen.failures,
    )
    _write(wish, found, page.page(found, seen.orders) if wish.format == "html" else "")
    if found.failures:
        raise bridge.refuse("not all nodes could be looked at:", found.failures)
    return found.code


def _write(wish: AuditOptions, found: Report, html: str) -> None:
    made = {"text": lambda: harmless(text.render(found)), "json": lambda: as_json(found.model_dump(mode="json")), "html": lambda: html}
    document = made[wish.format]()
    if wish.output is None:
        show_lines(document)
        return
    try:
        write_whole(wish.output, document + "\n")
    except OSError as error:
        raise bridge.refuse(f"{wish.output}: the audit could not be written: {error.strerror or error}") from None
    show_lines(text.render(found))
    show(f"\n{wish.format}: {wish.output}")


__all__ = ["audit"]
