"""KubeletConfiguration files: what they set, and featureGates edited in place."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from roles.formats import FormatError, GateChanges, kubelet_config
from tests.unit.formats import laws

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
G = {"G": True}


def edit(text: str, changes: GateChanges) -> str:
    return kubelet_config.edit_gates(text.encode(), changes).decode()


ADDED = [
    ("", "featureGates:\n  G: true\n"),
    ("maxPods: 9 # c\n\n# end\n", "maxPods: 9 # c\n\n# end\nfeatureGates:\n  G: true\n"),
    ("logging:\n  format: |-\n    x\n", "logging:\n  format: |-\n    x\nfeatureGates:\n  G: true\n"),
    ("clusterDNS:\n- 10.0.0.1\n", "clusterDNS:\n- 10.0.0.1\nfeatureGates:\n  G: true\n"),
    ("featureGates:\n  F: false\nmaxPods: 9\n", "featureGates:\n  F: false\n  G: true\nmaxPods: 9\n"),
    (
        "featureGates:\n    # c\n    F: false # d\n\n# e\nmaxPods: 9\n",
        "featureGates:\n    # c\n    F: false # d\n    G: true\n\n# e\nmaxPods: 9\n",
    ),
    ('featureGates:\n  "F": false\n', 'featureGates:\n  "F": false\n  G: true\n'),
    ("featureGates: {}\n", "featureGates: {G: true}\n"),
    ("featureGates: { } # none\nmaxPods: 9\n", "featureGates: { G: true} # none\nmaxPods: 9\n"),
    ("featureGates: {F: false}\n", "featureGates: {F: false, G: true}\n"),
    ("featureGates: {F: false,E: on,}\n", "featureGates: {F: false,E: on,G: true,}\n"),
    ('featureGates: {"F": false}\n', 'featureGates: {"F": false, "G": true}\n'),
    ("featureGates: {\n  F: false,\n  E: off\n}\n", "featureGates: {\n  F: false,\n  E: off,\n  G: true\n}\n"),
    ("x: &a 1\ny: *a\n", "x: &a 1\ny: *a\nfeatureGates:\n  G: true\n"),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
@pytest.mark.parametrize("shape", ["as it is", "CRLF", "no final newline", "byte order mark", "document start"])
def test_add(before: str, after: str, shape: str) -> None:
    old, new = HEAD + before, HEAD + after
    if shape == "CRLF":
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    elif shape == "no final newline":
        old, new = old.removesuffix("\n"), new.removesuffix("\n")
    elif shape == "byte order mark":
        old, new = "\ufeff" + old, "\ufeff" + new
    elif shape == "document start":
        old, new = "# made by hand\n---\n" + old, "# made by hand\n---\n" + new
    assert edit(old, G) == new
    assert edit(new, G) == new
    assert edit(new, {"G": None}) == old


def test_an_indented_document() -> None:
    before = "  kind: KubeletConfiguration\n  maxPods: 9\n"
    assert edit(before, G) == before + "  featureGates:\n    G: true\n"


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("featureGates:\n  G: false # c\n  F: yes\n", {"G": True}, "featureGates:\n  G: true # c\n  F: yes\n"),
        ("featureGates:\n  G: yes\n  F: Off\n", {"G": True, "F": False}, "featureGates:\n  G: yes\n  F: Off\n"),
        ("featureGates:\n  G: on\n  F: n\n", {"G": False, "F": True}, "featureGates:\n  G: false\n  F: true\n"),
        ("featureGates:\n  G: true\n  F: true\nmaxPods: 9\n", {"G": None}, "featureGates:\n  F: true\nmaxPods: 9\n"),
        ("featureGates:\n  F: true\n  G: true # c\n# d\n", {"G": None}, "featureGates:\n  F: true\n# d\n"),
        ("featureGates:\n  G: true\nmaxPods: 9\n", {"G": None}, "maxPods: 9\n"),
        ("featureGates: # c\n  # why\n  G: true\nmaxPods: 9\n", {"G": None}, "  # why\nmaxPods: 9\n"),
        ("featureGates:\n  F: true\n  G: true\n", {"F": None, "G": None}, ""),
        ("featureGates:\n  G: true", {"G": None, "F": True}, "featureGates:\n  F: true"),
        ("featureGates:\n  F: true\n  G: true", {"G": None, "E": False}, "featureGates:\n  F: true\n  E: false"),
        ("featureGates: {G: true, F: true}\n", {"G": None}, "featureGates: {F: true}\n"),
        ("featureGates: {F: true, G: true}\n", {"G": None}, "featureGates: {F: true}\n"),
        ("featureGates: {E: true, F: true, G: true}\n", {"F": None, "G": None}, "featureGates: {E: true}\n"),
        ("featureGates: {E: true, F: true, G: true}\n", {"E": None, "G": None}, "featureGates: {F: true}\n"),
        ("featureGates: {G: true, F: true}\n", {"F": None, "G": None, "E": True}, "featureGates: {E: true}\n"),
        ("featureGates: { G: true, }\n", {"G": None}, "featureGates: {  }\n"),
        ("featureGates:\n  F: true\n", {"G": None}, "featureGates:\n  F: true\n"),
        ("", {"G": None}, ""),
    ],
)
def test_change_and_remove(before: str, changes: GateChanges, after: str) -> None:
    assert edit(HEAD + before, changes) == HEAD + after


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("gates", [None, {}, {"F": False}])
def test_json(indent: int | str | None, gates: dict[str, bool] | None) -> None:
    content: dict[str, Any] = {"kind": "KubeletConfiguration", **({"featureGates": gates} if gates is not None else {}), "maxPods": 9}
    before = json.dumps(content, indent=indent)
    after = edit(before, G)
    assert json.loads(after) == {**content, "featureGates": {**(gates or {}), "G": True}}
    assert edit(after, {"G": None}) == before


@pytest.mark.parametrize(
    ("written", "value"),
    [(word, True) for word in ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y")]
    + [(word, False) for word in ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N")],
)
def test_booleans_of_yaml_1_1(written: str, value: bool) -> None:
    assert kubelet_config.gates(f"{HEAD}featureGates:\n  G: {written}\n".encode()) == {"G": value}


@pytest.mark.parametrize(
    "written", ['"true"', "'false'", "1", "0", "t", "tRUE", "", "~", "null", "[true]", "{a: true}", "!!str true", "|\n    true"]
)
def test_values_that_the_kubelet_does_not_take_as_booleans(written: str) -> None:
    with pytest.raises(FormatError, match="not a boolean"):
        kubelet_config.gates(f"{HEAD}featureGates:\n  G: {written}\n".encode())


@pytest.mark.parametrize("text", ["", "featureGates:\n", "featureGates: ~\n", "featureGates: {}\n"])
def test_no_gates(text: str) -> None:
    assert kubelet_config.gates((HEAD + text).encode()) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kind: Pod\n",
        "[]",
        "just text",
        HEAD + "a: [b\n",
        HEAD + "featureGates:\n",
        HEAD + "featureGates: ~\n",
        HEAD + "featureGates: [A=true]\n",
        HEAD + "featureGates: A=true\n",
        HEAD + "featureGates:\n  A: yes please\n",
        HEAD + "featureGates:\n  A: true\n  A: true\n",
        HEAD + "featureGates:\n  A: true\nfeatureGates:\n  B: true\n",
        HEAD + "x: &a {A: true}\nfeatureGates: *a\n",
        HEAD + "featureGates: &a {A: true}\nx: *a\n",
        HEAD + "x: &a {A: true}\nfeatureGates:\n  <<: *a\n",
        HEAD + "<<: {featureGates: {A: true}}\n",
        HEAD + "...\n",
        # The last field would become another: its line gets an end.
        HEAD + "text: |\n  x",
        "{kind: KubeletConfiguration}",
        HEAD + "---\nkind: KubeletConfiguration\n",
        HEAD + "x: \xff",
        # A line end behind it would become a part of the text.
        HEAD + "x: |\n  text",
    ],
)
def test_configurations_that_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        kubelet_config.edit_gates(text.encode("latin-1"), G)


def test_a_value_behind_an_anchor_is_not_changed() -> None:
    with pytest.raises(FormatError, match="several places"):
        edit(HEAD + "featureGates:\n  G: &f false\n  F: *f\n", G)


def test_dropins_merge_over_the_file() -> None:
    main = b"kind: KubeletConfiguration\nfeatureGates: {A: true, B: true}\nclusterDNS: [a, b]\nmaxPods: 9\n"
    dropin = b"kind: KubeletConfiguration\nfeatureGates: {B: no, C: y}\nclusterDNS: [c]\nmaxPods: null\nlogging: {a: {b: ~}}\n"
    expected = {
        "kind": "KubeletConfiguration",
        "featureGates": {"A": True, "B": False, "C": True},
        "clusterDNS": ["c"],
        "logging": {"a": {}},
    }
    assert kubelet_config.merge(main, [dropin]) == expected
    assert kubelet_config.merge(None, []) == {}
    assert kubelet_config.merge(b"kind: KubeletConfiguration\nfeatureGates: {A: n, B: on}\n", [])["featureGates"] == {"A": False, "B": True}


EDITOR: laws.Editor[bytes] = laws.Editor(
    edit=kubelet_config.edit_gates,
    gates=kubelet_config.gates,
    rest=lambda data: {key: value for key, value in kubelet_config.read(data).items() if key != "featureGates"},
    content=lambda data: {"file": data},
)

_boolean = st.sampled_from(["true", "false", "yes", "Off", "y", "TRUE"])
_gates = st.dictionaries(st.sampled_from([*laws.NAMES, "Other", '"Quoted"']), _boolean, min_size=1)
_others = st.lists(
    st.sampled_from(
        [
            "# comment",
            "",
            "maxPods: 9",
            "clusterDNS:\n- 10.0.0.1",
            "logging:\n  format: json # c",
            'address: "0.0.0.0"',
            "text: |\n  a\n  b",
        ]
    ),
    max_size=3,
    unique=True,
)


@st.composite
def configurations(draw: st.DrawFn) -> bytes:
    gates = draw(_gates)
    indent = draw(st.sampled_from([" ", "  ", "    "]))
    block = "featureGates:" + "".join(
        f"{draw(st.sampled_from(['', '', ' # c']))}\n{indent}{name}: {value}" for name, value in gates.items()
    )
    comma = draw(st.sampled_from([", ", ",", ",\n  "]))
    flow = (
        "featureGates: {"
        + comma.join(f"{name}: {value}" for name, value in gates.items())
        + draw(st.sampled_from(["}", "\n  }", " } # c"]))
    )
    listed = draw(st.sampled_from([[], [block], [flow], ["featureGates: {}"], ["featureGates: { }"]]))
    kind = ["kind: KubeletConfiguration"]
    text = "\n".join([*draw(_others), *kind, *listed, *draw(st.sampled_from([[], ["serializeImagePulls: no"], ["# end"]]))])
    text += draw(st.sampled_from(["\n", "", "\n\n"]))
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text).encode()


@settings(max_examples=80)
@given(configurations(), laws.changes)
def test_laws(data: bytes, changes: dict[str, bool | None]) -> None:
    EDITOR.check(data, changes)


@given(st.dictionaries(st.sampled_from(laws.NAMES), st.booleans()), laws.changes, st.sampled_from([None, 1, 4]), st.booleans())
def test_laws_hold_for_json(gates: dict[str, bool], changes: dict[str, bool | None], indent: int | None, last: bool) -> None:
    content: dict[str, Any] = {"kind": "KubeletConfiguration", "featureGates": gates, "maxPods": 9}
    if last:
        content["featureGates"] = content.pop("featureGates")
    assert EDITOR.check(json.dumps(content, indent=indent).encode(), changes)


@given(st.binary() | st.text(st.sampled_from("ab:-[]{}'\"&*!|>\n #,?%@")).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for content in (data, b"kind: KubeletConfiguration\n" + data, b"kind: KubeletConfiguration\nfeatureGates: " + data):
        with contextlib.suppress(FormatError):
            assert EDITOR.gates(kubelet_config.edit_gates(content, G)) == EDITOR.gates(content) | G
