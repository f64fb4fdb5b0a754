"""YAML and JSON as Kubernetes reads them: what go.yaml.in/yaml/v2 and apimachinery make of the same bytes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from roles.engine.editing import FormatError, yaml_text

# Text behind `a: `, and what Kubernetes makes of it.
VALUES: list[tuple[str, Any]] = [
    ("x", "x"),
    ("yes", True),
    ("Off", False),
    ("y", True),
    ("N", False),
    ("tRUE", "tRUE"),
    ('"yes"', "yes"),
    ("'on'", "on"),
    ("!!str yes", "yes"),
    ("&x yes", True),
    ("", None),
    ("~", None),
    ("Null", None),
    ("nULL", "nULL"),
    ("12", 12),
    ("-0x1F", -31),
    ("010", 8),
    ("0o17", 15),
    ("0b11", 3),
    ("1_000", 1000),
    ("08", 8.0),
    ("1e3", 1000.0),
    (".5", 0.5),
    ("1.", 1.0),
    ("1e999", "1e999"),
    ("18446744073709551615", 2**64 - 1),
    ("18446744073709551616", 18446744073709551616.0),
    ("1:30", "1:30"),
    ("2001-01-01", "2001-01-01"),
    ("2020-13-45", "2020-13-45"),
    ("=", "="),
    ("0x", "0x"),
    ("1.2.3", "1.2.3"),
    ("[a, 1, no]", ["a", 1, False]),
    ("{on: 1, 2: b}", {"true": 1, "2": "b"}),
    ("|\n  x", "x"),
    ("|\n  x\n", "x\n"),
    (">-\n  x\n  y\n", "x y"),
    ('"x\\\n   y"', "xy"),
    ("x\n  y", "x y"),
    # Tabs part words where no indent is.
    ("\tx\t# c", "x"),
    ("[a,\tb\t]\t", ["a", "b"]),
]


@pytest.mark.parametrize(("written", "value"), VALUES)
def test_values(written: str, value: Any) -> None:
    found = yaml_text.load(f"a: {written}".encode())["a"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\ufeffa: 1\n", {"a": 1}),
        ("# c\n---\na: 1\n...\n", {"a": 1}),
        ("%YAML 1.1\n---\na: yes\n", {"a": True}),
        # The end of a document, and documents with nothing in them, are no second one.
        ("a: 1\n...", {"a": 1}),
        ("a: 1\n---\n", {"a": 1}),
        ("a: 1\n---", {"a": 1}),
        ("---\na: 1\n--- # c\n", {"a": 1}),
        ("a: 1\r\n...\r\n---\r\n# c\r\n...\r\n---\r\n", {"a": 1}),
        ("a: 1\r\nb: |\r\n  x\r\n", {"a": 1, "b": "x\n"}),
        ("? a\n: 1\n", {"a": 1}),
        # A later key beats an earlier one, also where it comes from a merge; of merged maps the first wins.
        ("x: &x {a: 1}\nm:\n  a: 2\n  <<: *x\n", {"x": {"a": 1}, "m": {"a": 1}}),
        ("x: &x {a: 1}\nm:\n  <<: *x\n  a: 2\n", {"x": {"a": 1}, "m": {"a": 2}}),
        ("x: &x {a: 1}\nm:\n  <<: [*x, {a: 3, b: 4}]\n", {"x": {"a": 1}, "m": {"a": 1, "b": 4}}),
        # What begins with a bracket is JSON.
        ('{"a": [true, 1.5, null, "\\u00e9\\ud83d\\ude00\\/"]}', {"a": [True, 1.5, None, "é\U0001f600/"]}),
        ('\n\t{\n\t"a":\t1}\n', {"a": 1}),
    ],
)
def test_documents(text: str, content: dict[str, Any]) -> None:
    assert yaml_text.load(text.encode()) == content


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "is empty"),
        ("# c\n", "is empty"),
        ("- a\n", "no mapping at its top"),
        ("a", "no mapping at its top"),
        ("a: [b\n", "is not YAML"),
        ("a:\n\tb: 1\n", "is not YAML"),
        ("a:\n-\tb\n", "is not YAML"),
        ("a: @b\n", "is not YAML"),
        ('a: "\\ud800"\n', "half a Unicode character"),
        ("a: \x01\n", "is not YAML"),
        ("a: 1\n---\nb: 1\n", "several YAML documents"),
        ("---\n---\na: 1\n", "several YAML documents"),
        ("a: 1\n--- ~\n", "several YAML documents"),
        ("a: 1\n--- ''\n", "several YAML documents"),
        ("a: 1\n--- &x\n", "several YAML documents"),
        ("a: 1\n---\n---\nb: 1\n", "several YAML documents"),
        ("a: 1\n...\nb: 1\n", "several YAML documents"),
        ("---\n# c\n", "is empty"),
        ("---\n---\n", "is empty"),
        ("%YAML 1.2\n---\na: 1\n", "directive"),
        ("%TAG ! tag:x,2000:\n---\na: 1\n", "directive"),
        ("a: 1\na: 2\n", "occurs twice"),
        ("on: 1\nyes: 2\n", "occurs twice"),
        ("~: 1\n", "a key is not a string"),
        ("? [a]\n: 1\n", "a key is not a string"),
        ("a: !x b\n", "a YAML tag"),
        ("a: !!int '5'\n", "a YAML tag"),
        ("a: .inf\n", "a number that JSON does not have"),
        ("a: &a [*a]\n", "contains itself"),
        ("a: *b\n", "an anchor that does not exist"),
        ("<<: 1\n", "accepts only mappings"),
        ("a: " + "[" * 200_000, "nested too deeply"),
        ("a: " + "{b: " * 10_000 + "}" * 10_000, "nested too deeply"),
        ("- " * 2000, "nested too deeply"),
        ("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 12)), "too large"),
        # Not even YAML's own flow maps are read where JSON is expected.
        ("{a: 1}", "begins as JSON, but is not JSON"),
        ('{"a": yes}', "begins as JSON, but is not JSON"),
        ('{"a": 1,}', "begins as JSON, but is not JSON"),
        ('{"a": NaN}', "begins as JSON, but is not JSON"),
        ('{"a": "x\ty"}', "begins as JSON, but is not JSON"),
        ('{"a": 1} x', "begins as JSON, but is not JSON"),
        ('{"a": 1, "a": 2}', "occurs twice"),
    ],
)
def test_refused(text: str, rule: str) -> None:
    with pytest.raises(FormatError, match=rule):
        yaml_text.parse(text.encode())


@pytest.mark.parametrize("behind", ["", "...", "...\n", "---", "---\n# c\n", "... # c\n---\n", "--- \n...\n"])
@pytest.mark.parametrize("text", ["a: 1\n", "---\na: |+\n  x\n\n", "\ufeffa:\n- b\n# c\n", "a:\t1\n"])
def test_where_a_document_ends(text: str, behind: str) -> None:
    assert yaml_text.parse((text + behind).encode()).end == len(text)


def test_an_error_names_its_line() -> None:
    with pytest.raises(FormatError) as caught:
        yaml_text.parse(b"a: 1\nb: {c: 1,\nc: 2\n")
    assert caught.value.line == 4


def test_no_word_on_standard_error(recwarn: pytest.WarningsRecorder) -> None:
    yaml_text.parse(b"a: &x 1\nb: &x 2\nc: *x\nd: 1e3\n")
    assert not recwarn.list


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab: #-", max_size=5), st.lists, max_leaves=8))
def test_every_node_has_its_place(value: Any) -> None:
    text = json.dumps({"k": value})
    document = yaml_text.parse(text.encode())
    for node in yaml_text.walk(document.root):
        written = json.loads(document.text[node.start : node.end])
        if node.style:
            assert written == node.text
        assert (node.kind == "map") == isinstance(written, dict) and (node.kind == "list") == isinstance(written, list)
    assert document.text[(top := document.root.pairs[0][1]).start : top.end] == json.dumps(value)


@given(st.binary() | st.text("ab:-[]{}'\"&*!|>\n\t #,?%@<~\r").map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for content in (data, b"a: " + data, b"a:\n- b\n" + data):
        with contextlib.suppress(FormatError):
            assert isinstance(yaml_text.load(content), dict)


def test_what_one_reader_does_with_its_values_no_other_sees() -> None:
    """The same text is composed once for all of them."""
    for data in (b"a: {b: [1]}\n", b'{"a": {"b": [1]}}'):
        yaml_text.load(data)["a"]["b"].append(2)
        assert yaml_text.load(data) == {"a": {"b": [1]}}
