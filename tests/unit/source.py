"""Python source as tests read it: no more of it than they ask for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def imports(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a file, also those within functions. An import is a statement, and so no expression is looked into: they are most of
    what there is."""
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"), str(path))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            if isinstance(inner, list):
                todo.extend(inner)
