"""What the API answers is taken apart in `roles/engine/kube/` only: elsewhere its accessors are used.

`raw_reads.txt` has the reads that are left, by module. A module may only have fewer of them, and then its line is corrected.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from roles.engine import kube

ROLES = Path(kube.__file__).parents[2]
LEFT = Path(__file__).parent / "raw_reads.txt"
PARTS = ("metadata", "spec", "status")


def raw_reads(tree: ast.Module) -> list[int]:
    """The lines of `x["spec"]` and `x.get("spec")`, but for the `status` of a condition, which is compared with a word."""
    conditions = {id(one.left) for one in ast.walk(tree) if isinstance(one, ast.Compare) and isinstance(one.comparators[0], ast.Constant)}
    return [node.lineno for node in ast.walk(tree) if _part(node) in PARTS and not (_part(node) == "status" and id(node) in conditions)]


def _part(node: ast.AST) -> object:
    """The key that an expression reads; None if it is none."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Store):
        key: ast.expr | None = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        key = next(iter(node.args), None)
    else:
        return None
    return key.value if isinstance(key, ast.Constant) else None


def test_no_other_room_reads_the_parts_of_an_object_raw() -> None:
    texts = {path: path.read_text() for path in sorted(ROLES.rglob("*.py")) if ROLES / "engine/kube" not in path.parents}
    lines = {path: raw_reads(ast.parse(text)) for path, text in texts.items() if any(part in text for part in PARTS)}
    found = {str(path.relative_to(ROLES)): len(there) for path, there in lines.items() if there}
    left = {name: int(count) for name, count in (line.split() for line in LEFT.read_text().splitlines())}
    assert not {name: count for name, count in found.items() if count > left.get(name, 0)}, "use roles.engine.kube.fields"
    assert not {name: count for name, count in left.items() if count > found.get(name, 0)}, f"shrink the list: {LEFT.name}"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('x["spec"]["replicas"]', 1),
        ('x.get("spec")', 1),
        ('(x.get("metadata") or {}).get("name")', 1),
        ('x["metadata"]["labels"] = y', 1),
        ('x["spec"] = y', 0),
        ('one.get("status") == "True"', 0),
        ('one["status"]["phase"] == "Running"', 1),
        ('spec_of(x).get("status")', 1),
        ('x.get(part); x["other"]', 0),
    ],
)
def test_what_a_raw_read_is(source: str, count: int) -> None:
    assert len(raw_reads(ast.parse(source))) == count
