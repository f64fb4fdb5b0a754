"""`python -m roles.engine.findings`: generates the tables of rules in docs/ from the rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from itertools import groupby
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"
#: The module and the name of the rules of each page, or of what they mean by name; and the head of their table.
PAGES = {
    "audit.md": ("roles.audit.rules", "AuditRule", "kind | what it is"),
    "autoscaling.md": ("roles.engine.autoscaling.rules", "ScalingRule", "rule | what it is | what to do"),
    "checks.md": ("roles.checks.judge", "MEANINGS", "check | what a pass means"),
    "power.md": ("roles.sleeping.rules", "SleepRule", "due date | what it is | what to do"),
    "disruption.md": ("roles.engine.disruption.rules", "DisruptionRule", "rule | what it is | what to do"),
}


def page(name: str) -> str:
    """The page with its table as the rules are now. Rules of one meaning share a row."""
    module, table, head = PAGES[name]
    rules = getattr(import_module(module), table)
    listed = list(rules.items()) if isinstance(rules, Mapping) else [(one, one.about, one.way_out) for one in rules]
    columns = head.count("|") + 1
    lines = [f"| {head} |", "|---" * columns + "|"]
    for said, same in groupby(listed, key=lambda row: row[1:columns]):
        lines.append(f"| {' | '.join((', '.join(f'`{row[0]}`' for row in same), *said))} |")
    text = "".join(f"{line}\n" for line in lines)
    return re.sub(rf"\| {re.escape(head)} \|\n(\|.*\n)*", lambda _: text, (DOCS / name).read_text(encoding="utf-8"), count=1)


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
