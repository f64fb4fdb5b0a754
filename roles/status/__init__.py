"""The current state: nodes, versions, processes, the sources of gates and flags, and the effective gates. Changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime

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
    """Show all nodes of the run. Raises DeployError if a node could not be read or is not supported, after it has shown the others.

    Data keys: `format` (text, json) and `output` (a file on the operator's machine; without it, standard output has only the document).
    """
    made = datetime.now(UTC)
    found = reading.report(fleet, reading.read(fleet), made.isoformat(timespec="seconds"), made.timestamp())
    show_report({"text": lambda: as_text(found, made.timestamp()), "json": lambda: document(found)}, options.format, options.output)
    if found.failures:
        raise bridge.refuse("not all nodes could be read:", found.failures)
    line = f"{counted(len({row.host for row in found.components}), 'node')} read, {counted(len(found.warnings), 'warning')}"
    return Ended(line if options.format == "text" or options.output else "")


DATA_KEYS = (Declared(StatusOptions, ("status",)),)
DOCUMENTS = {"status": StatusReport}

__all__ = ["DATA_KEYS", "DOCUMENTS", "status"]
