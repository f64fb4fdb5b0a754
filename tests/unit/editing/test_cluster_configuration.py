"""kubeadm's ClusterConfiguration: the gates of the control plane's components, edited in place, in both of its shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from roles.engine.editing import FormatError, GateChanges, cluster_configuration, yaml_text
from roles.engine.editing.cluster_configuration import SECTIONS
from roles.engine.editing.flags import FEATURE_GATES
from tests.unit.editing import laws

NAME = "kube-apiserver"
HEAD = "apiVersion: kubeadm.k8s.io/v1beta{}\nkind: ClusterConfiguration\n"


def text(section: str, version: int = 4) -> str:
    return f"{HEAD.format(version)}{section}networking:\n  podSubnet: 10.244.0.0/16\nscheduler: {{}}\n"


def gates(data: bytes) -> dict[str, dict[str, bool]]:
    return {component: found.gates for component, found in cluster_configuration.read(data).items()}


def edit_gates(data: bytes, changes: Mapping[str, GateChanges]) -> bytes:
    for component, wanted in changes.items():
        values = cluster_configuration.read(data)[component].with_gates(wanted)
        data = cluster_configuration.edit(data, component, {FEATURE_GATES: values}, {})
    return data


def edit(before: str, changes: GateChanges, component: str = NAME) -> str:
    return edit_gates(before.encode(), {component: changes}).decode()


G = {"G": True}

# The lines of a section before, and after G=true was added.
LISTS = [
    ("", 'apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: "G=true"\n'),
    ("apiServer: {}\n", 'apiServer: {extraArgs: [{name: feature-gates, value: "G=true"}] }\n'),
    (
        "apiServer:\n  certSANs:\n  - a # why\n",
        'apiServer:\n  certSANs:\n  - a # why\n  extraArgs:\n  - name: feature-gates\n    value: "G=true"\n',
    ),
    (
        "apiServer:\n  extraArgs:\n  - name: v\n    value: '2' # why\n  # end\n  certSANs: [a]\n",
        "apiServer:\n  extraArgs:\n  - name: v\n    value: '2' # why\n  - name: feature-gates\n    value: \"G=true\"\n  # end\n  certSANs: [a]\n",
    ),
    (
        "apiServer:\n  extraArgs:\n    -   value: '2'\n        name: v\n",
        "apiServer:\n  extraArgs:\n    -   value: '2'\n        name: v\n    - name: feature-gates\n      value: \"G=true\"\n",
    ),
    (
        "apiServer:\n  extraArgs:\n  - {name: v, value: '2'}\n",
        "apiServer:\n  extraArgs:\n  - {name: v, value: '2'}\n  - name: feature-gates\n    value: \"G=true\"\n",
    ),
    (
        "apiServer:\n  extraArgs: [{name: v, value: '2'}]\n",
        "apiServer:\n  extraArgs: [{name: v, value: '2'}, {name: feature-gates, value: \"G=true\"}]\n",
    ),
    # A list of gates that is there.
    (
        "apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: F=true # why\n  - name: v\n    value: '2'\n",
        "apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: F=true,G=true # why\n  - name: v\n    value: '2'\n",
    ),
    (
        "apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: 'F=true'\n",
        "apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: 'F=true,G=true'\n",
    ),
    (
        "apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: F=true\n  - name: feature_gates\n    value: H=true\n",
        "apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: F=true\n  - name: feature_gates\n    value: H=true,G=true\n",
    ),
]
MAPS = [
    ("", 'apiServer:\n  extraArgs:\n    feature-gates: "G=true"\n'),
    ("apiServer: {}\n", 'apiServer: {extraArgs: {feature-gates: "G=true"} }\n'),
    ("apiServer:\n  extraArgs: {}\n", 'apiServer:\n  extraArgs: {feature-gates: "G=true" }\n'),
    (
        "apiServer:\n  extraArgs:\n    v: '2' # why\n  timeoutForControlPlane: 4m0s\n",
        "apiServer:\n  extraArgs:\n    v: '2' # why\n    feature-gates: \"G=true\"\n  timeoutForControlPlane: 4m0s\n",
    ),
    (
        "apiServer:\n  extraArgs:\n    feature-gates: F=true # why\n    v: '2'\n",
        "apiServer:\n  extraArgs:\n    feature-gates: F=true,G=true # why\n    v: '2'\n",
    ),
    ("apiServer: {extraArgs: {feature-gates: 'F=true'}}\n", "apiServer: {extraArgs: {feature-gates: 'F=true,G=true'}}\n"),
]


@pytest.mark.parametrize(
    ("version", "before", "after"), [*((4, *pair) for pair in LISTS), *((version, *pair) for version in (2, 3) for pair in MAPS)]
)
def test_one_is_added_and_taken_out(version: int, before: str, after: str) -> None:
    # A section that is missing comes to the end.
    wanted = text(after, version) if before else text("", version) + after
    assert edit(text(before, version), G) == wanted
    assert edit(wanted, G) == wanted
    assert edit(wanted, {"G": None}) == text(before, version)
    changed = edit(wanted, {"G": False})
    assert gates(changed.encode())[NAME]["G"] is False
    assert edit(changed, G) == wanted


@pytest.mark.parametrize("before", ["apiServer: {extraArgs: []}\n", "apiServer:\n  extraArgs: []\n"])
def test_an_empty_list_is_not_restored(before: str) -> None:
    """It means the same as none."""
    after = edit(text(before), G)
    assert after == text(before.replace("[]", '[{name: feature-gates, value: "G=true"}]'))
    assert rest(edit(after, {"G": None}).encode()) == rest(text(before).encode())


def test_a_block_of_text_becomes_a_line() -> None:
    args = "apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: "
    assert edit(text(f"{args}|-\n      F=true\n"), G) == text(f'{args}"F=true,G=true"\n')


def test_json_stays_json() -> None:
    content: dict[str, Any] = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "scheduler": {}}
    for section in ({}, {"extraArgs": [{"name": "v", "value": "2"}]}):
        before = json.dumps({**content, "apiServer": section}, indent=1)
        after = edit(before, G)
        assert json.loads(after)["apiServer"]["extraArgs"][-1] == {"name": "feature-gates", "value": "G=true"}
        assert json.loads(edit(after, {"G": None})) == json.loads(before)


def test_each_component_has_its_own() -> None:
    before = text("apiServer: {}\ncontrollerManager: {}\n").encode()
    after = edit_gates(before, {"kube-scheduler": {"A": True}, "kube-controller-manager": {"B": False}, NAME: {}})
    assert gates(after) == {NAME: {}, "kube-scheduler": {"A": True}, "kube-controller-manager": {"B": False}}
    assert edit_gates(after, {"kube-scheduler": {"A": None}, "kube-controller-manager": {"B": None}}) == before
    assert set(SECTIONS) == set(gates(before))


REFUSED = [
    ("apiVersion: v1\nkind: Pod\n", "not a ClusterConfiguration"),
    ("apiVersion: kubeadm.k8s.io/v1\nkind: ClusterConfiguration\n", "of an unknown version"),
    (text("apiServer:\n  extraArgs:\n    v: '2'\n"), "not a list of name and value"),
    (text("apiServer:\n  extraArgs:\n  - name: v\n    value: '2'\n", 3), "not a mapping"),
    (text("apiServer: 5\n"), "apiServer is not a mapping"),
    (text("apiServer:\n  extraArgs:\n  - value: x\n"), "no name"),
    (text("apiServer:\n  extraArgs:\n  - name: feature-gates\n    value: F\n"), "no value"),
    (text("apiServer:\n  extraArgs:\n    feature-gates: 5\n", 3), "a feature gate has no value: '5'"),
    (text("apiServer: &a\n  extraArgs:\n  - name: v\n    value: '2'\ncontrollerManager: *a\n"), "anchor"),
]


@pytest.mark.parametrize(("before", "words"), REFUSED)
def test_what_needs_guessing_is_refused(before: str, words: str) -> None:
    with pytest.raises(FormatError) as error:
        edit(before, G)
    assert words in str(error.value)


VALUES = st.lists(st.sampled_from(["Alpha=true", "Beta=false", "Gamma=true", "Other=1"]), min_size=1, max_size=3, unique=True).map(",".join)


@st.composite
def configurations(draw: st.DrawFn) -> bytes:
    """A ClusterConfiguration in one of its two shapes, with or without a section, arguments and gates."""
    version = draw(st.sampled_from([3, 4]))
    arguments = [("v", "2"), ("bind-address", "0.0.0.0")][: draw(st.integers(0, 2))]
    if draw(st.booleans()):
        arguments.insert(draw(st.integers(0, len(arguments))), ("feature-gates", draw(VALUES)))
    quote = draw(st.sampled_from(["'", '"']))
    style = draw(st.sampled_from(["block", "flow", "none"]))
    comment = draw(st.sampled_from(["", " # a comment"]))
    entries = [(name, f"{quote}{value}{quote}") for name, value in arguments]
    if style == "none":
        section = draw(st.sampled_from(["", "apiServer: {}\n", "apiServer:\n  certSANs: [a]\n"]))
    elif style == "flow":
        items = [f"{{name: {name}, value: {value}}}" if version == 4 else f"{name}: {value}" for name, value in entries]
        inner = ", ".join(items)
        section = f"apiServer:\n  extraArgs: {'[' + inner + ']' if version == 4 else '{' + inner + '}'}{comment}\n"
    else:
        lines = [
            f"  - name: {name}\n    value: {value}{comment}\n" if version == 4 else f"    {name}: {value}{comment}\n"
            for name, value in entries
        ]
        section = f"apiServer:\n  extraArgs:\n{''.join(lines)}" if lines else "apiServer: {}\n"
    return text(section, version).encode()


def rest(data: bytes) -> object:
    """All that is said but for the gates; an empty section is none."""
    content = yaml_text.load(data)
    extra = (content.get("apiServer") or {}).pop("extraArgs", None)
    if isinstance(extra, list):
        extra = [item for item in extra if item["name"] != "feature-gates"]
    elif extra:
        extra.pop("feature-gates", None)
    return {key: value for key, value in content.items() if value}, extra or None


EDITOR = laws.Editor[bytes](
    edit=lambda data, changes: edit_gates(data, {NAME: changes}),
    gates=lambda data: gates(data)[NAME],
    rest=rest,
    content=lambda data: {"ClusterConfiguration": data},
    empty_list=lambda data: b"extraArgs: []" in data,
)


@given(configurations(), laws.changes)
def test_laws(before: bytes, changes: GateChanges) -> None:
    assert EDITOR.check(before, changes), "nothing in these needs guessing"
