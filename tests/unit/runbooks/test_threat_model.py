"""Every guarantee of the threat model names the tests that show it; they are there, and `make test` runs them unless it says otherwise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/threat-model.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`(\*?)")


def guarantees() -> list[list[str]]:
    """The rows of the page's tables, without their heads: what may happen, what holds, what shows it."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [row for row in rows if not set(row[0]) <= set("-: ") and row[-1] != "shown by"]


def functions(path: str) -> dict[str, bool]:
    """The tests of a module, and whether `make test` leaves them to `make test-full` (their marker, or the module's)."""
    tree = ast.parse((ROOT / path).read_text())
    whole = any(isinstance(node, ast.Assign) and "slow" in ast.unparse(node) and "pytestmark" in ast.unparse(node) for node in tree.body)
    return {
        node.name: whole or any("slow" in ast.unparse(decorator) for decorator in node.decorator_list)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_there_are_guarantees() -> None:
    assert len(guarantees()) > 20


@pytest.mark.parametrize("row", guarantees(), ids=lambda row: row[0][:60])
def test_each_guarantee_names_tests_that_are_there(row: list[str]) -> None:
    named = NAMED.findall(row[-1])
    assert named, f"no test shows: {row}"
    for path, name, star in named:
        assert (ROOT / path).exists(), path
        there = functions(path)
        assert there, f"{path} has no tests"
        if name:
            assert name in there, f"{path} has no {name}"
            assert there[name] == bool(star), f"{name}: a star is for tests that only `make test-full` runs"
