"""`python -m roles.engine.findings`: generates the tables of rules in docs/ from the rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from roles.engine.findings.model import Rule

DOCS = Path(__file__).resolve().parents[3] / "docs"
#: The package and the name of the rules of each page, and the head of their table.
PAGES = {
    "audit.md": ("roles.audit.rules", "AuditRule", "kind | what it is"),
    "disruption.md": ("roles.engine.disruption", "DisruptionRule", "rule | what it is | what to do"),
    "autoscaling.md": ("roles.engine.autoscaling", "ScalingRule", "rule | what it is | what to do"),
}


def page(name: str) -> str:
    """The page with its table as the rules are now."""
    package, table, head = PAGES[name]
    rules: Iterable[Rule] = getattr(import_module(package), table)
    rows = (" | ".join((f"`{one}`", one.about, one.way_out)[: head.count("|") + 1]) for one in rules)
    lines = [head, re.sub("[^|]+", "---", head), *rows]
    text = "".join(f"| {line} |\n" if "-" not in line[:1] else f"|{line}|\n" for line in lines)
    return re.sub(rf"\| {re.escape(head)} \|\n(\|.*\n)*", lambda _: text, (DOCS / name).read_text(encoding="utf-8"), count=1)


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
