"""Manifests directories of every kind: a plan or a refusal, never an edit of a file that is not a component's, nothing twice, and back."""

from __future__ import annotations

import json
import posixpath
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from roles.engine import control_plane, kubelet
from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import FormatError, yaml_text
from roles.engine.node.parse import parse
from roles.engine.transaction import Refusal
from roles.feature_gates import DesiredGates, plan
from tests.unit.control_plane.company import COMPANY, FOLDER, pod
from tests.unit.node import node
from tests.unit.node.surveyed import surveyed

Files = dict[str, bytes]
Running = dict[str, tuple[str, ...]]
ON = DesiredGates(feature_gates={"Alpha": True}, all_components=True)
ABSENT = DesiredGates(feature_gates={"Alpha": "absent"}, all_components=True)

_components = st.sampled_from(COMPONENTS)
_names = st.sampled_from(
    [f"{name}{end}" for name in COMPONENTS for end in (".yaml", ".yaml~", ".yaml.bak", ".json", "")]
    + ["README", "x.yaml", ".hidden", "é\n"]
)
_flags = st.lists(
    st.sampled_from(["--v=2", "--feature-gates=Beta=true", "--feature-gates=Alpha=false", "--config=/x", "--a b"]), max_size=3
)


@st.composite
def _manifest(draw: st.DrawFn) -> bytes:
    """A static pod that runs a component, in one way or another, and not always whole."""
    name = draw(_components)
    program = draw(st.sampled_from([name, f"/usr/local/bin/{name}"]))
    flags = draw(_flags)
    shape = draw(st.sampled_from(["command", "command", "command and args", "args", "shell", "runner"]))
    command = {
        "command": [program, *flags],
        "command and args": [program],
        "shell": ["/bin/sh", "-c", f"exec {program}"],
        "runner": ["/go-runner"],
    }
    args = {"command and args": flags, "args": [program, *flags], "runner": [program, *flags]}
    called = draw(st.sampled_from([name, name, name, "other"]))
    container = draw(st.sampled_from([name, "main"]))
    data = pod(called, *command.get(shape, []), container=container, args=args.get(shape, []))
    if draw(st.integers(0, 4)) == 0:
        data = json.dumps(yaml_text.load(data), indent=draw(st.sampled_from([None, 2]))).encode()
    data += draw(st.sampled_from([b""] * 4 + [b"---\n", b"...\n", b"...", b"# end\n--- # c\n", b"---\n# c\n---\n", b"---\na: 1\n"]))
    if draw(st.integers(0, 4)) == 0:
        data = data.replace(b"\n", b"\r\n")
    if draw(st.integers(0, 9)) == 0:
        start = draw(st.integers(0, len(data)))
        data = data[:start] + draw(st.binary(max_size=6)) + data[start + draw(st.integers(0, 6)) :]
    return data


_directories = st.dictionaries(
    _names, _manifest() | _manifest() | st.sampled_from(list(COMPANY.values())) | st.binary(max_size=60), max_size=6
)
_usual: st.SearchStrategy[Files] = st.just({f"{name}.yaml": node.manifest(name, "--v=2") for name in COMPONENTS})


def _makes(data: bytes, name: str) -> list[tuple[str, ...]]:
    """The words of the containers that run a component."""
    try:
        found = yaml_text.load(data)["spec"]["containers"]
        return [
            (*item["command"], *(item.get("args") or ()))
            for item in found
            if item.get("command") and posixpath.basename(item["command"][0]) == name
        ]
    except (FormatError, KeyError, TypeError):
        return []


def _look(files: Files, running: Running) -> Any:
    hidden = [f"hidden {node.b64(f'{FOLDER}/{name}')}" for name in files if name.startswith(".")]
    shown = {name: data for name, data in files.items() if not name.startswith(".")}
    return parse("n1", node.answer(manifests=shown, components=running, extra=hidden))


def _edits(made: plan.NodeGates) -> dict[str, tuple[str, bytes]]:
    """Component by file."""
    return {
        posixpath.basename(edit.path): (planned.component, edit.after or b"")
        for planned in made.planned
        if planned.change and planned.component != "kubelet"
        for edit in planned.change.files
    }


@settings(max_examples=150)
@given(st.data(), st.builds(lambda usual, more: {**usual, **more}, _usual | st.just({}), _directories))
def test_any_directory(data: st.DataObject, files: Files) -> None:
    running: Running = {}
    for name in COMPONENTS:
        words = [argv for content in files.values() for argv in _makes(content, name)]
        chosen = data.draw(st.sampled_from([*words, *words, *words, (name,), None]))
        if chosen:
            running[name] = chosen
    seen = _look(files, running)
    found = control_plane.look(kubelet.find(seen))
    assert found.components.keys() == running.keys(), "what runs is known, whatever its file is like"
    assert all(len(warning) < 1500 and warning.isascii() and warning.isprintable() for warning in found.warnings)
    # What is not clear keeps nobody from changing the kubelet alone.
    alone = DesiredGates(feature_gates={"Alpha": True}, all_components=True, components=("kubelet",))
    assert _edits(plan.plan_gates("r1", surveyed(seen), alone)) == {}
    for name in COMPONENTS:
        _check(files, running, name, DesiredGates(feature_gates={"Alpha": True}, all_components=True, components=(name,)))


def _check(files: Files, running: Running, name: str, wanted: DesiredGates) -> None:
    try:
        edits = _edits(plan.plan_gates("r1", surveyed(_look(files, running)), wanted))
    except Refusal as refusal:
        assert len(str(refusal)) < 2000
        return
    assert len(edits) <= 1
    for path, (component, after) in edits.items():
        assert component == name and _makes(files[path], name) and not path.startswith("."), "only a component's own file is edited"
        changed = {**files, path: after}
        (argv,) = _makes(after, name)
        now = {**running, name: argv}
        assert _edits(plan.plan_gates("r2", surveyed(_look(changed, now)), wanted)) == {}, "a second plan writes nothing"
        if b"Alpha" not in files[path]:
            absent = wanted.model_copy(update={"feature_gates": ABSENT.feature_gates})
            back = _edits(plan.plan_gates("r3", surveyed(_look(changed, now)), absent))
            assert back == {path: (name, files[path])}, "what was added can be taken out again"
