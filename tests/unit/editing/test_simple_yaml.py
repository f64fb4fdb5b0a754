"""What is read as simple YAML has the content that all of YAML gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from roles.engine.editing import yaml_text
from roles.engine.editing.errors import FormatError

ROOT = Path(__file__).parents[3]
KEYS = ["a", "b.c", "kubeadm.io/d-e", "yes", "Off", "null", "<<", "1", ""]
VALUES = ["", "x", "1", "010", "1_0", "1e3", ".5", ".inf", "yes", "~", "null", "--f=v,w", "-", "-1", "---", "a:b", "a:", ":a", "a#b", "#", "1%", "%1",
          "{}", "[]", "&x", "*x", "!x", "|", ">", "@a", "`a", "?", "? a", "=", "a b", "a #b", "'a'", '"a b"', '"1"', '"\\n"', '"a', "\t", "ä", "<<",
          "10.0.0.1:6443", "$(A)", "a,b", "{a: b}", "a\n  b", "..."]  # fmt: skip


def simple(text: str) -> dict[str, Any] | None:
    return yaml_text._simple(text)


def whole(text: str) -> dict[str, Any] | None:
    """By all of YAML; None where it refuses the text."""
    try:
        root, _ = yaml_text._composed(text)
        return yaml_text._map(root) if root.kind == "map" else None
    except FormatError:
        return None


lines = st.builds(
    lambda indent, dash, key, value: " " * indent + "- " * dash + (f"{key}: {value}".rstrip(" ") if key else value),
    st.integers(0, 5), st.sampled_from([0, 0, 1, 1, 2]), st.sampled_from(KEYS), st.sampled_from(VALUES),
)  # fmt: skip


@given(st.lists(lines, max_size=6).map(lambda some: "".join(f"{one}\n" for one in some)))
@example("a:\n- b\nc:\n  - d: 1\n    e:\n    - f\n  - g\nh:\n")
@example("- a\n")
@example("a: b\n  c\n")
@example("a: b\na: c\n")
@example("a:\n  - b\n  c: d\n")
@example(f"{'a' * 1025}: b\n")
def test_it_reads_what_all_of_yaml_reads_or_nothing(text: str) -> None:
    found = simple(text)
    assert found is None or repr(found) == repr(whole(text))


scalars = st.sampled_from(
    ["x", "--feature-gates=A=true,B=false", "10.0.0.1:6443", "0640", "yes", "1.5", '"0"', "{}", "/etc/kubernetes/pki"]
)
names = st.lists(st.sampled_from(["apiVersion", "kind", "metadata", "spec", "memory.available", "app.io/name"]), min_size=1, unique=True)
trees = st.recursive(scalars, lambda inner: st.lists(inner, min_size=1, max_size=3) | st.builds(dict, names.map(lambda some: [(one, "x") for one in some]))
                     | st.dictionaries(st.sampled_from(["a", "b", "c-d"]), inner, min_size=1, max_size=3), max_leaves=12)  # fmt: skip


def written(tree: Any, indent: int = 0) -> str:
    """As kubeadm writes it: lists at the indent of their key."""
    if isinstance(tree, list):
        # A list in a list is not written so.
        return "".join(f"{' ' * indent}- {written(item, indent + 2).lstrip(' ')}" for item in tree if not isinstance(item, list))
    if isinstance(tree, str):
        return f"{tree}\n"
    made = ""
    for key, value in tree.items():
        below = written(value, indent if isinstance(value, list) else indent + 2)
        made += " " * indent + (f"{key}: {below}" if isinstance(value, str) else f"{key}:\n{below}")
    return made


@given(st.dictionaries(st.sampled_from(["kind", "spec", "status"]), trees, min_size=1))
def test_what_kubeadm_writes_is_simple(tree: Any) -> None:
    text = written(tree)
    assert simple(text) is not None and repr(simple(text)) == repr(whole(text))


@pytest.mark.parametrize("path", sorted((ROOT / "tests/benchmarks/node").glob("**/*.yaml")), ids=lambda path: path.name)
def test_the_files_of_a_node_are_simple(path: Path) -> None:
    data = path.read_text().replace("@ADDRESS@", "10.0.0.1").replace("@NAME@", "cp1")
    yaml_text._composed.cache_clear()
    assert yaml_text.load(data.encode()) == whole(data) and simple(data) is not None


def test_a_place_in_a_simple_text_is_found_when_it_is_asked_for() -> None:
    document = yaml_text.parse(b"kind: Pod\nspec:\n  a: 1\n")
    assert document.content == {"kind": "Pod", "spec": {"a": 1}}
    assert [(key.text, key.line) for key, _ in document.root.pairs] == [("kind", 1), ("spec", 2)] and document.end == 23


@pytest.mark.parametrize("text", ["a: .nan\n", "a: b\na: c\n", "- a\n", "a: b: c\n"])
def test_what_is_wrong_is_said_as_before(text: str) -> None:
    with pytest.raises(FormatError):
        yaml_text.parse(text.encode())
