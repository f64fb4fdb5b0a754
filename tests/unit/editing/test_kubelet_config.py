"""KubeletConfiguration files: what they set, and fields edited in place."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from roles.engine.editing import ABSENT, FormatError, GateChanges, kubelet_config, yaml_text
from tests.unit.editing import laws

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
    ("featureGates: {}\n", "featureGates: {G: true }\n"),
    ("featureGates: { } # none\nmaxPods: 9\n", "featureGates: {G: true  } # none\nmaxPods: 9\n"),
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
        ("featureGates: { G: true, }\n", {"G": None}, ""),
        ("featureGates: {G: true }\n", {"G": None}, "featureGates: {}\n"),
        ("featureGates:\n  F: true\n", {"G": None}, "featureGates:\n  F: true\n"),
        ("", {"G": None}, ""),
    ],
)
def test_change_and_remove(before: str, changes: GateChanges, after: str) -> None:
    assert edit(HEAD + before, changes) == HEAD + after


@pytest.mark.parametrize("null", ["null", "~", "", "Null", "NULL", "  ", "~ # c", " # c", '""'])
@pytest.mark.parametrize("behind", ["", "\n", "\nmaxPods: 9\n", "\n...\n", "\n---", "\n# end\n--- # c\n...\n"])
def test_a_null_is_a_map_without_gates(null: str, behind: str) -> None:
    """What stood there comes back with the last gate that goes, whichever was the first to come."""
    old = f"{HEAD}featureGates: {null}{behind}"
    if null == '""':
        with pytest.raises(FormatError, match="not a mapping"):
            edit(old, G)
        return
    new = edit(old, G)
    assert kubelet_config.read(new.encode())["featureGates"] == G
    assert edit(new, G) == new
    assert edit(new, {"G": None}) == old
    more = edit(edit(new, {"F": False, "E": True}), {"G": None, "E": False})
    assert kubelet_config.gates(more.encode()) == {"F": False, "E": False}
    assert edit(more, {"E": None, "F": None}) == old
    assert edit(old, {"G": None}) == old


@pytest.mark.parametrize("marker", ["...", "---", "... # c", "--- # c\n...\n---"])
def test_what_is_new_stands_before_the_end_of_the_document(marker: str) -> None:
    for text in ("maxPods: 9\n", "maxPods: 9\n\n# end\n", "text: |\n  a\n", "a:\n  b:\n"):
        for end in ("", "\n"):
            old = f"{HEAD}{text}{marker}{end}"
            new = edit(old, G)
            assert new == f"{HEAD}{text}featureGates:\n  G: true\n{marker}{end}"
            assert edit(new, {"G": None}) == old


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("given", [{}, {"featureGates": None}, {"featureGates": {}}, {"featureGates": {"F": False}}])
def test_json(indent: int | str | None, given: dict[str, dict[str, bool] | None]) -> None:
    gates = given.get("featureGates")
    content: dict[str, Any] = {"kind": "KubeletConfiguration", **given, "maxPods": 9}
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
        HEAD + "featureGates: [A=true]\n",
        HEAD + "featureGates: A=true\n",
        HEAD + "featureGates:\n  A: yes please\n",
        HEAD + "featureGates:\n  A: true\n  A: true\n",
        HEAD + "featureGates:\n  A: true\nfeatureGates:\n  B: true\n",
        HEAD + "x: &a {A: true}\nfeatureGates: *a\n",
        HEAD + "featureGates: &a {A: true}\nx: *a\n",
        HEAD + "x: &a {A: true}\nfeatureGates:\n  <<: *a\n",
        HEAD + "<<: {featureGates: {A: true}}\n",
        HEAD + "...\na: 1\n",
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
            "# comment", "", "maxPods: 9", "clusterDNS:\n- 10.0.0.1", "logging:\n  format: json # c", 'address: "0.0.0.0"',
            "text: |\n  a\n  b",
        ]
    ),
    max_size=3,
    unique=True,
)  # fmt: skip


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


# ---- any field

SIGNAL = ("evictionHard", "memory.available")
ANONYMOUS = ("authentication", "anonymous", "enabled")


def fields(text: str, changes: Mapping[tuple[str, ...], object]) -> str:
    return kubelet_config.edit_fields((HEAD + text).encode(), changes).decode().removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("", ("maxPods",), 200, "maxPods: 200\n"),
        ("a: 1\n", SIGNAL, "500Mi", "a: 1\nevictionHard:\n  memory.available: 500Mi\n"),
        ("", ANONYMOUS, False, "authentication:\n  anonymous:\n    enabled: false\n"),
        (
            "authentication:\n    webhook:\n        enabled: true\n\n# c\nmaxPods: 9\n",
            ANONYMOUS,
            False,
            "authentication:\n    webhook:\n        enabled: true\n    anonymous:\n      enabled: false\n\n# c\nmaxPods: 9\n",
        ),
        ("authentication: {webhook: {}}\n", ANONYMOUS, True, "authentication: {webhook: {}, anonymous: {enabled: true}}\n"),
        (
            "authentication: {webhook: {}}\n",
            ("authentication", "webhook", "enabled"),
            True,
            "authentication: {webhook: {enabled: true }}\n",
        ),
        ("", ("clusterDNS",), ["10.0.0.1", "::1"], 'clusterDNS:\n- "10.0.0.1"\n- "::1"\n'),
        ("", ("clusterDNS",), [], "clusterDNS: []\n"),
        ("", ("systemReserved",), {"cpu": "100m", "memory": "1.5Gi"}, 'systemReserved:\n  cpu: 100m\n  memory: "1.5Gi"\n'),
        ("", ("systemReserved",), {}, "systemReserved: {}\n"),
        ("", ("maxPods",), None, "maxPods: null\n"),
        (
            "",
            ("registerWithTaints",),
            [{"key": "a", "effect": "NoSchedule"}, {}, [1]],
            "registerWithTaints:\n- key: a\n  effect: NoSchedule\n- {}\n- [1]\n",
        ),
        ("", ("shutdownGracePeriodByPodPriority",), [{"a": {"b": [1]}}], "shutdownGracePeriodByPodPriority:\n- a:\n    b:\n    - 1\n"),
        ("", ("memoryThrottlingFactor",), 0.9, "memoryThrottlingFactor: 0.9\n"),
        ("a: {x: 1}\n", ("a", "z"), [{"k": "v:w"}], 'a: {x: 1, z: [{k: "v:w"}]}\n'),
        # A null is a map without fields.
        ("evictionHard: ~\n", SIGNAL, "5%", 'evictionHard: {   memory.available: "5%"}\n'),
        ("evictionHard:\n# c\nmaxPods: 9\n", SIGNAL, "5%", 'evictionHard: {    memory.available: "5%"}\n# c\nmaxPods: 9\n'),
        ("authentication: null # c\n", ANONYMOUS, False, "authentication: {  anonymous: {enabled: false}} # c\n"),
        ("text: |\n  a\n", ("maxPods",), 9, "text: |\n  a\nmaxPods: 9\n"),
        ("a:\n  text: |\n    a\nb: 1\n", ("a", "c"), 9, "a:\n  text: |\n    a\n  c: 9\nb: 1\n"),
        ("x: &x 1\na:\n  b: *x # c\nb: 1\n", ("a", "c"), 9, "x: &x 1\na:\n  b: *x # c\n  c: 9\nb: 1\n"),
        ("x: &x 1\na: {b: *x}\n", ("a", "c"), 9, "x: &x 1\na: {b: *x, c: 9}\n"),
    ],
)
def test_set_a_field_that_was_not_there(before: str, path: tuple[str, ...], value: object, after: str) -> None:
    assert fields(before, {path: value}) == after
    assert fields(after, {path: value}) == after
    assert fields(after, {path: ABSENT}) == before
    unended, made = before.removesuffix("\n"), after.removesuffix("\n")
    if unended and not unended.endswith("|\n  a"):
        assert fields(unended, {path: value}) == made
        assert fields(made, {path: ABSENT}) == unended


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("maxPods: 9 # c\n", ("maxPods",), 10, "maxPods: 10 # c\n"),
        ("maxPods: # c\n", ("maxPods",), 10, "maxPods: 10 # c\n"),
        ("a:\n\n# c\n", ("a",), ABSENT, "\n# c\n"),
        ("a:\n  b:\n\n# c\nd: 1\n", ("a", "c"), 2, "a:\n  b:\n  c: 2\n\n# c\nd: 1\n"),
        ("a: {b: , c: 1}\n", ("a", "b"), 2, "a: {b: 2 , c: 1}\n"),
        ("a:\n\n  # d\n  - b\n  # e\n  - c\n\n# f\n", ("a",), ABSENT, "\n  # d\n  # e\n\n# f\n"),
        ("maxPods: ~\n", ("maxPods",), 10, "maxPods: 10\n"),
        ("maxPods:\n", ("maxPods",), 10, "maxPods: 10\n"),
        ("maxPods:\n  9\n", ("maxPods",), 10, "maxPods:\n  10\n"),
        ("maxPods: 9\n", ("maxPods",), None, "maxPods: null\n"),
        ('maxPods: "9"\n', ("maxPods",), 9, "maxPods: 9\n"),
        ('evictionHard:\n  memory.available: "100Mi"\n', SIGNAL, "500Mi", 'evictionHard:\n  memory.available: "500Mi"\n'),
        ("evictionHard:\n  memory.available: '100Mi'\n", SIGNAL, "5%", "evictionHard:\n  memory.available: '5%'\n"),
        ("evictionHard:\n  memory.available: '100Mi'\n", SIGNAL, "it's", 'evictionHard:\n  memory.available: "it\'s"\n'),
        ("evictionHard: {memory.available: 100Mi}\n", SIGNAL, "5%", 'evictionHard: {memory.available: "5%"}\n'),
        # A whole map or list is compared with the one before, so that what stays is not touched.
        (
            "systemReserved:\n  # c\n  cpu: 100m # d\n  pid: '5'\n",
            ("systemReserved",),
            {"cpu": "100m", "memory": "1Gi"},
            "systemReserved:\n  # c\n  cpu: 100m # d\n  memory: 1Gi\n",
        ),
        ("a: # c\n  b: 1\nc: 2\n", ("a",), {}, "a: {} # c\nc: 2\n"),
        ("a: # c\n  b: 1\nc: 2\n", ("a",), "x", "a: x # c\nc: 2\n"),
        ("a: # c\n  b: 1\nc: 2\n", ("a",), ["x"], "a: # c\n- x\nc: 2\n"),
        ("clusterDNS: # c\n  # d\n  - a\n  - b\nc: 2\n", ("clusterDNS",), ["a", "z"], "clusterDNS: # c\n  # d\n- a\n- z\nc: 2\n"),
        ("clusterDNS:\n- a: 1\n  b: 2\n- c: 3", ("clusterDNS",), ["z"], "clusterDNS:\n- z"),
        ("clusterDNS: [a, b] # c\n", ("clusterDNS",), ["z"], "clusterDNS: [z] # c\n"),
        ("a: {b: 1}\n", ("a",), {"c": 2}, "a: {c: 2}\n"),
        ("a: {b: 1}\n", ("a",), {}, "a: {}\n"),
        ("a: {b: 1 }\n", ("a",), {}, "a: {}\n"),
        ("a: x\n", ("a",), {"c": 2}, "a: {c: 2}\n"),
        ("a: |\n  x\nb: 1\n", ("a",), "z", "a: z\nb: 1\n"),
        ("a: x\n  w\nb: 1\n", ("a",), "z", "a: z\nb: 1\n"),
        ("a: b\nc: 2\n", ("a",), ABSENT, "c: 2\n"),
        ("a:\n  b:\n    c: 1\n  d: 2\n", ("a", "b", "c"), ABSENT, "a:\n  d: 2\n"),
        ("a:\n  b:\n    # why\n    c: 1\ne: 2\n", ("a", "b", "c"), ABSENT, "    # why\ne: 2\n"),
        ("a: {b: {c: 1}, d: 2}\n", ("a", "b", "c"), ABSENT, "a: {d: 2}\n"),
        ("a: {b: {c: 1}}\nd: 2\n", ("a", "b", "c"), ABSENT, "d: 2\n"),
        ("a: {b: {c: 1 }}\nd: 2\n", ("a", "b", "c"), ABSENT, "a: {b: {}}\nd: 2\n"),
        ("a:\n- b: 1\n  c: 2\n- d\ne: 2\n", ("a",), ABSENT, "e: 2\n"),
        ("a: {}\n", ("a", "b"), ABSENT, "a: {}\n"),
        ("a: 1\n", ("a", "b"), ABSENT, "a: 1\n"),
        ("a:\n", ("a", "b"), ABSENT, "a:\n"),
    ],
)
def test_change_and_remove_a_field(before: str, path: tuple[str, ...], value: object, after: str) -> None:
    assert fields(before, {path: value}) == after
    assert fields(after, {path: value}) == after


def test_several_fields_at_once() -> None:
    before = "maxPods: 9\nevictionHard:\n  memory.available: 100Mi\n  nodefs.available: 10%"
    changes: dict[tuple[str, ...], object] = {
        ("evictionHard", "nodefs.available"): ABSENT,
        ("evictionHard", "pid.available"): "5%",
        SIGNAL: "1Gi",
        ("maxPods",): ABSENT,
        ("podPidsLimit",): 100,
        ("evictionSoft", "memory.available"): "2Gi",
    }
    after = 'evictionHard:\n  memory.available: 1Gi\n  pid.available: "5%"\npodPidsLimit: 100\nevictionSoft:\n  memory.available: 2Gi'
    assert fields(before, changes) == after


def test_the_last_field_of_a_map_goes_where_another_comes_and_the_next_map_goes() -> None:
    before = HEAD + "evictionHard:\n  a: 1%\nfeatureGates:\n  A: true\nmaxPods: 9\n"
    changes = {("evictionHard", "a"): ABSENT, ("evictionHard", "b"): "2%", ("featureGates", "A"): ABSENT}
    assert kubelet_config.edit_fields(before.encode(), changes).decode() == HEAD + 'evictionHard:\n  b: "2%"\nmaxPods: 9\n'


STRINGS = [
    *["100", "1e3", "10:20", "on", "off", "Yes", "y", "N", "true", "null", "~", "", "0x1F", "0o7", "010", "1_000", "12e03", ".5", ".inf"],
    *["5%", "-1", "+1", "=", "<<", "- a", "a: b", "a #b", " a", "a ", "#a", "*a", "&a", "!a", "|", ">", "%a", "@a", "`a`", "{", "]", "a,b"],
    *["2001-12-14", "a\nb", "a\tb", "\u0085", "\u2028", "\ufeff", "\x00", "\x7f", "é", "😀", "it's", '"', "\\", "\\n", "1Gi", "10s", "1.5"],
]


@pytest.mark.parametrize("value", STRINGS)
@pytest.mark.parametrize(
    "text", ["kind: KubeletConfiguration\n", '{"kind": "KubeletConfiguration"}', 'kind: KubeletConfiguration\na: {"b": 1}']
)
def test_strings_stay_strings(text: str, value: str) -> None:
    after = kubelet_config.edit_fields(text.encode(), {("a", "x"): value, ("l",): [value], ("m", value): value})
    found = kubelet_config.read(after)
    assert (found["a"]["x"], found["l"], found["m"]) == (value, [value], {value: value})


@pytest.mark.parametrize("value", ["100", "1e3", "10:20", "on", "5%", "0x1F", "1_000", "12e03"])
def test_what_would_be_read_as_another_type_is_quoted(value: str) -> None:
    assert fields("", {("a",): value}) == f'a: "{value}"\n'


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("a: 1\n", {("a", "b"): 1}, "a is not a mapping"),
        ("", {("a",): {}, ("a", "b"): 1}, "two changes"),
        ("", {(): 1}, "no field"),
        ("", {("a",): float("nan")}, "number"),
        ("", {("a",): {1: 2}}, "a configuration file cannot have"),
        ("", {("a",): {"x"}}, "a configuration file cannot have"),
        ("", {("a",): "\ud800"}, "not Unicode"),
        ("x: &a {b: 1}\nz: *a\n", {("z", "b"): 2}, "several places"),
        ("x: &a {b: 1}\nz: *a\n", {("x", "b"): 2}, "several places"),
        ("x: &a {b: 1}\nz: *a\n", {("z",): ABSENT}, "several places"),
        ("x: &a {b: 1}\nz: *a\n", {("x",): ABSENT}, "several places"),
        ("x:\n  c: &a {b: 1}\nz: *a\n", {("x",): ABSENT}, "several places"),
        ("x:\n  c: &a {b: 1}\nz: *a\n", {("x",): 1}, "several places"),
        ("x: &a {b: 1}\nz:\n  <<: *a\n", {("z", "b"): 2}, "<<"),
        ("<<: {b: 1}\n", {("b",): 2}, "<<"),
        ("a: 1\na: 2\n", {("b",): 2}, "twice"),
        ("a: 1\n---\nb: 1\n", {("b",): 2}, "several YAML documents"),
        ("a: 1\n...\nb: 1\n", {("b",): 2}, "several YAML documents"),
        ("a: {b: 1, # c\n  d: 2}\n", {("a", "b"): ABSENT}, "comment"),
        ("a: {b: 1 # c\n  }\n", {("a", "b"): ABSENT, ("a", "c"): 1}, "comment"),
        ("a:\n- \n- b\n", {("a",): ABSENT}, "no value"),
        ("a:\n- b\n-\n", {("a",): 1}, "no value"),
        ("a:\n- - b\n", {("a",): 1}, "shares its line"),
        ("? a\n: 1\n", {("a",): ABSENT}, "shares its line"),
    ],
)
def test_fields_that_are_not_edited(text: str, changes: dict[tuple[str, ...], object], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        fields(text, changes)


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(FormatError) as caught:
        fields("a:\n  b: text\n", {("a", "b", "c"): 1})
    assert str(caught.value) == "line 4: a.b is not a mapping: 'text'; write it as a mapping"


_names = st.sampled_from(["alpha", "beta", "memory.available", "on", "a b", "9"])
_scalars = st.sampled_from([1, 0, -5, 0.5, True, False, None, "500Mi", "5%", "on", "it's", "a: b", "é", ""])
_values: st.SearchStrategy[Any] = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3), max_leaves=6
)
_contents = st.dictionaries(_names, _values, max_size=4)


@st.composite
def written(draw: st.DrawFn, content: dict[str, Any]) -> bytes:
    """A configuration in one of the many ways it can be written, with comments on lines of their own and behind fields."""
    if draw(st.booleans()):
        return json.dumps({"kind": "KubeletConfiguration", **content}, indent=draw(st.sampled_from([None, 2, "\t"]))).encode()
    comment = st.sampled_from(["", "", " # c"])

    def inline(value: Any) -> str:
        if isinstance(value, dict):
            blank = draw(st.sampled_from(["", " "])) if value else ""
            return "{" + blank + ", ".join(f"{json.dumps(key)}: {inline(inner)}" for key, inner in value.items()) + blank + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(inline, value)) + "]"
        if isinstance(value, str) and draw(st.booleans()):
            return "'" + value.replace("'", "''") + "'"
        if value is None:
            return draw(st.sampled_from(["null", "~"]))
        return json.dumps(value, ensure_ascii=False)

    def block(fields: dict[str, Any], column: int) -> list[str]:
        lines = []
        for key, value in fields.items():
            lead = " " * column + json.dumps(key) + ":"
            if draw(st.integers(0, 4)) == 0:
                lines.append(" " * column + "# why")
            if isinstance(value, dict) and value and draw(st.booleans()):
                lines += [lead + draw(comment), *block(value, column + draw(st.integers(1, 4)))]
            elif isinstance(value, list) and value and draw(st.booleans()):
                dash = " " * (column + draw(st.integers(0, 2))) + "- "
                lines += [lead + draw(comment), *(dash + inline(item) + draw(comment) for item in value)]
            else:
                lines.append(f"{lead} {'' if value is None and draw(st.booleans()) else inline(value)}{draw(comment)}")
        return lines

    before, behind = draw(
        st.sampled_from([([], []), (["# head", "---"], []), ([], ["", "# end"]), ([], ["..."]), ([], ["# end", "---", "..."])])
    )
    text = "\n".join([*before, "kind: KubeletConfiguration", *block(content, 0), *behind]) + draw(st.sampled_from(["", "\n"]))
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text).encode()


def _comments(data: bytes) -> int:
    return data.count(b"# why") + data.count(b"# head") + data.count(b"# end")


def _applied(content: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any] | None:
    """The rule once more, for one field: None where something on the way is no map."""
    result: dict[str, Any] = copy.deepcopy(content)
    inner: Any = result
    for name in path[:-1]:
        if inner.get(name) is None:
            inner[name] = {}
        inner = inner[name]
        if not isinstance(inner, dict):
            return None
    inner[path[-1]] = value
    return result


_paths = st.lists(_names, min_size=1, max_size=3).map(tuple)


@settings(max_examples=300)
@given(st.data(), _contents, _paths, _values)
def test_laws_of_setting(data: st.DataObject, content: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    before = data.draw(written(content))
    full = kubelet_config.read(before)
    assert yaml_text.same(full, {"kind": "KubeletConfiguration", **content})
    meant = _applied(full, path, value)
    if meant is None:
        with pytest.raises(FormatError):
            kubelet_config.edit_fields(before, {path: value})
        return
    after = kubelet_config.edit_fields(before, {path: value})
    assert yaml_text.same(kubelet_config.read(after), meant), "reading back gives what was meant, and nothing else changed"
    assert kubelet_config.edit_fields(after, {path: value}) == after, "editing twice is editing once"
    assert _comments(after) == _comments(before), "comments stay"
    if yaml_text.same(meant, full):
        assert after == before, "already as wanted: the same bytes"
    inner: Any = full
    empty = False  # a map on the way is there as `null`, and makes room for what comes into it
    for name in path[:-1]:
        empty = empty or (name in inner and inner[name] is None)
        inner = inner.get(name) or {}
    if path[-1] not in inner:
        if not empty:
            laws.assert_only_added({"": before}, {"": after})
        assert kubelet_config.edit_fields(after, {path: ABSENT}) == before, "what was added can be taken out again"


@settings(max_examples=200)
@given(st.data(), _contents.filter(bool))
def test_laws_of_removing(data: st.DataObject, content: dict[str, Any]) -> None:
    before = data.draw(written(content))
    path: tuple[str, ...] = ()
    found: Any = content
    while isinstance(found, dict) and found and (not path or data.draw(st.booleans())):
        path = (*path, data.draw(st.sampled_from(sorted(found))))
        found = found[path[-1]]
    after = kubelet_config.edit_fields(before, {path: ABSENT})
    old, new = kubelet_config.read(before), kubelet_config.read(after)
    assert _comments(after) == _comments(before)
    assert kubelet_config.edit_fields(after, {path: ABSENT}) == after
    # The field goes, and with it the maps that hold nothing else.
    assert _without(old, path) == new
    position = 0
    for byte in after.translate(None, b"\r\n ,"):
        position = before.index(byte, position) + 1


def _without(content: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    result = dict(content)
    if len(path) > 1 and (inner := _without(result[path[0]], path[1:])):
        result[path[0]] = inner
    else:
        del result[path[0]]
    return result


@settings(max_examples=200)
@given(st.data(), _contents, st.dictionaries(_paths, st.just(ABSENT) | _values, max_size=4))
def test_many_changes_are_made_or_refused(data: st.DataObject, content: dict[str, Any], changes: dict[tuple[str, ...], Any]) -> None:
    before = data.draw(written(content))
    try:
        after = kubelet_config.edit_fields(before, changes)
    except FormatError as error:
        assert "by hand" not in str(error), "no edit fails for the way that the file is written"
        return
    assert _comments(after) == _comments(before)
    assert kubelet_config.edit_fields(after, changes) == after


@given(st.text(st.sampled_from("ab:-[]{}'\"&*!|>\n #,?%@")).map(str.encode), st.sampled_from([1, "a", {"b": 1}, [1], ABSENT]))
def test_any_text_is_edited_or_refused(data: bytes, value: object) -> None:
    for content in (b"kind: KubeletConfiguration\n" + data, b"kind: KubeletConfiguration\na: " + data):
        with contextlib.suppress(FormatError):
            after = kubelet_config.edit_fields(content, {("a",): value})
            assert kubelet_config.read(after).get("a") == (None if value is ABSENT else value)
