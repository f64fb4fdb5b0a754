"""The current state: nodes, versions, processes, the sources of gates and flags, and the effective gates. Changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module

from roles.engine import bridge
from roles.engine.bridge import Fleet
from roles.engine.folding import counted
from roles.engine.inputs import Declared
from roles.engine.runs import Ended, deploying, document, one, show_report
from roles.status import reading
from roles.status.model import StatusOptions, StatusReport
from roles.status.text import as_text


@deploying("Status", one(StatusOptions))
def status(fleet: Fleet, options: StatusOptions) -> Ended:
    """Show all nodes of the run. Raises DeployError if a node, or a part of the page, could not be read, after it has shown the others.

    Data keys: `format` (text, json, html) and `output` (a file on the operator's machine; without it, standard output has only the
    document).
    """
    made = datetime.now(UTC)
    now, stamp = made.timestamp(), made.isoformat(timespec="seconds")
    if options.format == "text":
        found = reading.report(fleet, reading.read(fleet), stamp, now)
        forms = {"text": lambda: as_text(found, now)}
    else:
        # The rooms that judge the whole cluster cost a third of what the text costs.
        whole = import_module("roles.status.whole").read(fleet, stamp, now)
        found = whole.report
        forms = {"text": lambda: as_text(found, now), "json": lambda: document(found), "html": whole.page}
    show_report(forms, options.format, options.output)
    if found.unread:
        raise bridge.refuse("not everything could be read:" if found.whole else "not all nodes could be read:", found.unread)
    line = f"{counted(len({row.host for row in found.components}), 'node')} read, {counted(len(found.warnings), 'warning')}"
    return Ended(line if options.format == "text" or options.output else "")


DATA_KEYS = (Declared(StatusOptions, ("status",)),)
DOCUMENTS = {"status": StatusReport}

__all__ = ["DATA_KEYS", "DOCUMENTS", "status"]
