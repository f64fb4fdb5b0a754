"""Every error of the editors says what an operator can do."""

from __future__ import annotations

import ast
from pathlib import Path

EDITING = Path(__file__).parents[3] / "roles/engine/editing"


def test_every_error_has_a_way_out() -> None:
    errors = [
        (path.name, node)
        for path in sorted(EDITING.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "FormatError"
    ]
    assert len(errors) > 50
    without = [f"{name}:{node.lineno}" for name, node in errors if "way_out" not in {keyword.arg for keyword in node.keywords}]
    assert without == []
