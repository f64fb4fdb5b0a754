"""docs/threat-model.md names a test for each guarantee: every one of them is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODEL = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[^`]+)::([^`]+)`", MODEL)))
WHO = [
    "A pod",
    "A pod on the host's network",
    "The root of one node",
    "The network",
    "Configuration management",
    "A second operator",
    "A clock",
]


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_guarantee_is_shown_by_a_test_that_is_there(path: str, name: str) -> None:
    assert name in functions(path)


def test_each_kind_of_foe_has_its_guarantees() -> None:
    parts = {part.partition("\n")[0]: part for part in MODEL.split("\n## ")[1:]}
    for who in [*WHO, "A full, slow or late disk"]:
        (title,) = [title for title in parts if title == who or title.startswith(f"{who},")]
        assert "daytwo guarantees" in parts[title] and "::test_" in parts[title]


def test_what_else_promises_something_leads_to_it() -> None:
    for name in ("README.md", "SECURITY.md"):
        assert "docs/threat-model.md" in (ROOT / name).read_text(encoding="utf-8")
