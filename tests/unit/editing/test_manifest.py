"""Static pod manifests: the arguments of one container, edited in place."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from roles.engine.editing import FormatError, GateChanges, flags, manifest, manifest_parts, yaml_text
from tests.unit.editing import laws

NAME = "kube-apiserver"
G = {"G": True}
FLAG = "--feature-gates=G=true"


def pod(container: str) -> str:
    """A manifest around the lines of one container, at the indent kubeadm writes."""
    lines = "".join(f"    {line}\n" if line else "\n" for line in container.splitlines())
    head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: kube-apiserver\n  namespace: kube-system\nspec:\n  containers:\n"
    return f"{head}  - name: kube-apiserver\n{lines}  hostNetwork: true\nstatus: {{}}\n"


def edited(data: bytes, changes: GateChanges) -> bytes:
    values = flags.gates_of(manifest.container_argv(data, NAME), changes)
    return manifest_parts.edit(data, NAME, {flags.FEATURE_GATES: values}, {})


def edit(text: str | bytes, changes: GateChanges) -> str:
    return edited(text.encode() if isinstance(text, str) else text, changes).decode()


COMMAND = "command:\n- kube-apiserver\n- --v=2\n"

ADDED = [
    (COMMAND, f"command:\n- kube-apiserver\n- --v=2\n- {FLAG}\n"),
    (COMMAND + "image: x\n", f"command:\n- kube-apiserver\n- --v=2\n- {FLAG}\nimage: x\n"),
    (
        "command:\n  - kube-apiserver\n  - --v=2 # why\n\n  # end\nimage: x\n",
        f"command:\n  - kube-apiserver\n  - --v=2 # why\n  - {FLAG}\n\n  # end\nimage: x\n",
    ),
    ("command:\n-   kube-apiserver\n-   --v=2\n", f"command:\n-   kube-apiserver\n-   --v=2\n-   {FLAG}\n"),
    ('command:\n- kube-apiserver\n- "--a"\n- "--b"\n', f'command:\n- kube-apiserver\n- "--a"\n- "--b"\n- "{FLAG}"\n'),
    ("command:\n- 'kube-apiserver'\n- '--b'\n", f"command:\n- 'kube-apiserver'\n- '--b'\n- '{FLAG}'\n"),
    ('command:\n- kube-apiserver\n- "--b"\n', f'command:\n- kube-apiserver\n- "--b"\n- {FLAG}\n'),
    # args come behind command, and are where operators look.
    ("command:\n- kube-apiserver\nargs:\n- --v=2\n", f"command:\n- kube-apiserver\nargs:\n- --v=2\n- {FLAG}\n"),
    ("args:\n- --v=2\ncommand:\n- kube-apiserver\n", f"args:\n- --v=2\n- {FLAG}\ncommand:\n- kube-apiserver\n"),
    ("args:\n- --v=2\n", f"args:\n- --v=2\n- {FLAG}\n"),
    ("command:\n- kube-apiserver\nargs: []\n", f"command:\n- kube-apiserver\n- {FLAG}\nargs: []\n"),
    ("command: [kube-apiserver, --v=2]\n", f"command: [kube-apiserver, --v=2, {FLAG}]\n"),
    ("command: [kube-apiserver,--v=2]\n", f"command: [kube-apiserver,--v=2,{FLAG}]\n"),
    ('command: ["kube-apiserver"]  # c\n', f'command: ["kube-apiserver", "{FLAG}"]  # c\n'),
    ("command: [\n  'kube-apiserver',\n  '--v=2',\n]\n", f"command: [\n  'kube-apiserver',\n  '--v=2',\n  '{FLAG}',\n]\n"),
    # A list that is there.
    (
        "command:\n- kube-apiserver\n- --feature-gates=F=true # c\n- --v=2\n",
        "command:\n- kube-apiserver\n- --feature-gates=F=true,G=true # c\n- --v=2\n",
    ),
    ('command:\n- kube-apiserver\n- "--feature-gates=F=true"\n', 'command:\n- kube-apiserver\n- "--feature-gates=F=true,G=true"\n'),
    ("command:\n- kube-apiserver\n- --feature-gates\n- 'F=true'\n", "command:\n- kube-apiserver\n- --feature-gates\n- 'F=true,G=true'\n"),
    (
        "command:\n- kube-apiserver\n- --feature-gates=A=1\nargs:\n- --feature_gates=B=1\n",
        "command:\n- kube-apiserver\n- --feature-gates=A=1\nargs:\n- --feature_gates=B=1,G=true\n",
    ),
    ("command: [kube-apiserver, '--feature-gates=F=true']\n", "command: [kube-apiserver, '--feature-gates=F=true,G=true']\n"),
    # An anchor that nothing refers to, and one that only other places refer to.
    ("command: &c\n- kube-apiserver\n- &v --v=2\n", f"command: &c\n- kube-apiserver\n- &v --v=2\n- {FLAG}\n"),
    (
        "image: &i x\ncommand:\n- kube-apiserver\n- --v=2\nworkingDir: *i\n",
        f"image: &i x\ncommand:\n- kube-apiserver\n- --v=2\n- {FLAG}\nworkingDir: *i\n",
    ),
    # Long and strange neighbours.
    ("command:\n- kube-apiserver\n- >-\n  --a\n  b\n- --v=2\n", f"command:\n- kube-apiserver\n- >-\n  --a\n  b\n- --v=2\n- {FLAG}\n"),
    ("command:\n- kube-apiserver\n- |\n  --v=2\nimage: x\n", f"command:\n- kube-apiserver\n- |\n  --v=2\n- {FLAG}\nimage: x\n"),
    ("command:\t# c\n- kube-apiserver\t# c\n- --v=2\t\n", f"command:\t# c\n- kube-apiserver\t# c\n- --v=2\t\n- {FLAG}\n"),
    ("command:\n-\n  kube-apiserver\n- 2020-13-45\n", f"command:\n-\n  kube-apiserver\n- 2020-13-45\n- {FLAG}\n"),
    ("command:\n- kube-apiserver\n- --é=\\x\n", f"command:\n- kube-apiserver\n- --é=\\x\n- {FLAG}\n"),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
@pytest.mark.parametrize("shape", ["as it is", "CRLF", "no final newline", "byte order mark", "document start", "document end"])
def test_add(before: str, after: str, shape: str) -> None:
    old, new = pod(before), pod(after)
    if shape == "CRLF":
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    elif shape == "no final newline":
        old, new = old.removesuffix("\n"), new.removesuffix("\n")
    elif shape == "byte order mark":
        old, new = "\ufeff" + old, "\ufeff" + new
    elif shape == "document start":
        old, new = "# made by hand\n---\n" + old + "...\n", "# made by hand\n---\n" + new + "...\n"
    elif shape == "document end":
        old, new = old + "---\n", new + "---\n"
    assert edit(old, G) == new
    assert edit(new, G) == new
    assert edit(new, {"G": None}) == old


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("command:\n- kube-apiserver\n- --feature-gates=\n- --v=2\n", f"command:\n- kube-apiserver\n- {FLAG}\n- --v=2\n"),
        ('command:\n- kube-apiserver\n- "--feature-gates="\n', f'command:\n- kube-apiserver\n- "{FLAG}"\n'),
        ('command:\n- kube-apiserver\n- --feature-gates\n- ""\n', 'command:\n- kube-apiserver\n- --feature-gates\n- "G=true"\n'),
        (
            "command:\n- kube-apiserver\n- --feature-gates\n- ''\n- --v=2\n",
            "command:\n- kube-apiserver\n- --feature-gates\n- 'G=true'\n- --v=2\n",
        ),
        ("command: [kube-apiserver, --feature-gates=]\n", f"command: [kube-apiserver, {FLAG}]\n"),
        ('command: ["kube-apiserver", "--feature-gates", ""]\n', 'command: ["kube-apiserver", "--feature-gates", "G=true"]\n'),
    ],
)
def test_an_empty_list_is_the_list(before: str, after: str) -> None:
    assert edit(pod(before), G) == pod(after)
    assert edit(pod(after), G) == pod(after) and edit(pod(before), {"G": None}) == pod(before)


def test_the_list_at_the_end_of_a_file_without_a_final_newline() -> None:
    head = "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver"
    after = edit(head, G)
    assert after == head + f"\n    - {FLAG}"
    assert edit(after, {"G": None}) == head


@pytest.mark.parametrize("behind", ["---\n", "...\n", "---", "...\n---\n# c\n"])
def test_the_list_at_the_end_of_a_document(behind: str) -> None:
    head = "kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n"
    after = edit(head + behind, G)
    assert after == f"{head}    - {FLAG}\n{behind}"
    assert edit(after, {"G": None}) == head + behind


def test_the_first_key_behind_the_dash() -> None:
    before = "spec:\n  containers:\n    - command:\n        - kube-apiserver\n      name: kube-apiserver\n"
    after = before.replace("        - kube-apiserver\n", f"        - kube-apiserver\n        - {FLAG}\n")
    assert edit(before, G) == after
    assert edit(after, {"G": None}) == before


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("- k\n- --feature-gates=G=true # on\n# c\n- --v=2\n", {"G": None}, "- k\n# c\n- --v=2\n"),
        ("- k\n- --feature-gates\n- G=true\n- --v=2\n", {"G": None}, "- k\n- --v=2\n"),
        ("- k\n- --feature-gates=G=true\n- --feature-gates=F=true\n", {"G": None, "F": None}, "- k\n"),
        ("- k\n- --feature-gates=G=true,F=true\n- --feature-gates=G=true\n", {"G": None}, "- k\n- --feature-gates=F=true\n"),
        ("- k\n- --feature-gates=G=true\n", {"G": None, "F": True}, "- k\n- --feature-gates=F=true\n"),
    ],
)
def test_change_and_remove(before: str, changes: GateChanges, after: str) -> None:
    assert edit(pod("command:\n" + before), changes) == pod("command:\n" + after)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("[k, --feature-gates=G=true, --v=2]", {"G": None}, "[k, --v=2]"),
        ("[k, --v=2, --feature-gates=G=true]", {"G": None}, "[k, --v=2]"),
        ("[k, --feature-gates, G=true, --v=2]", {"G": None}, "[k, --v=2]"),
        ("[k, --feature-gates=G=true, --feature-gates=F=true]", {"G": None, "F": None}, "[k]"),
        ("[--feature-gates=G=true, --feature-gates=F=true, --v=2]", {"G": None, "F": None}, "[--v=2]"),
        ("[ --feature-gates=G=true, --feature-gates=F=true, ]", {"G": None, "F": None}, "[]"),
        ("[\n  k,\n  --feature-gates=G=true, # c\n]", {"G": None}, "[\n  k, # c\n]"),
    ],
)
def test_remove_from_flow_lists(before: str, changes: GateChanges, after: str) -> None:
    assert edit(pod(f"args: {before}\n"), changes) == pod(f"args: {after}\n")


def test_a_comma_in_a_flow_list_needs_quotes() -> None:
    before, after = (pod(f"command: [kube-apiserver, {item}]\n") for item in ("--feature-gates=F=true", '"--feature-gates=F=true,G=true"'))
    assert edit(before, G) == after


def test_json() -> None:
    content = {"kind": "Pod", "spec": {"containers": [{"name": NAME, "command": [NAME, "--v=2"]}, {"name": "b", "command": ["b"]}]}}
    for indent in (None, 4, "\t"):
        before = json.dumps(content, indent=indent)
        after = edit(before, G)
        expected = json.loads(before)
        expected["spec"]["containers"][0]["command"].append(FLAG)
        assert json.loads(after) == expected
        assert after == json.dumps(expected, indent=indent)
        assert edit(after, {"G": None}) == before


def test_several_containers() -> None:
    both = pod(COMMAND).replace(
        "  hostNetwork", "  - name: other\n    command:\n    - kube-apiserver\n    - --feature-gates=G=false\n  hostNetwork"
    )
    assert edit(both, G) == both.replace("    - --v=2\n", f"    - --v=2\n    - {FLAG}\n")
    assert manifest.container_argv(both.encode(), "other") == ["kube-apiserver", "--feature-gates=G=false"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a\n",
        "just text",
        "a: [b\n",
        "kind: Pod\n\tspec: {}\n",
        "a: 1\na: 2\n",
        pod("image: x\n"),
        pod(COMMAND).replace("name: kube-apiserver\n    ", "name: other\n    "),
        pod(COMMAND) + "---\n" + pod(COMMAND),
        pod(COMMAND + COMMAND),
        pod(COMMAND).replace("  hostNetwork", "  - name: kube-apiserver\n  hostNetwork"),
        # What stands at several places, or is put together.
        pod("command: &c\n- kube-apiserver\nargs: *c\n"),
        pod("command:\n- kube-apiserver\n- &g --feature-gates=F=true\nimage: *g\n"),
        pod("image: &v --v=2\ncommand:\n- kube-apiserver\n- *v\n"),
        pod("<<: {command: [kube-apiserver]}\nimage: x\n"),
        pod(COMMAND).replace("spec:", "spec: &s").replace("status: {}", "status: *s"),
        pod(COMMAND).replace("- name", "- &c\n    name").replace("status: {}", "status: [*c]"),
        # What the kubelet would not take as arguments.
        pod("command:\n- kube-apiserver\n- 1\n"),
        pod("command:\n- kube-apiserver\n- true\n"),
        "---\n" + pod("command:\n- kube-apiserver\n- y\n"),
        pod("command:\n- kube-apiserver\n-\n"),
        pod("command:\n- kube-apiserver\n- [a]\n"),
        pod("command: kube-apiserver\n"),
        pod("command:\n- kube-apiserver\n- y\n"),
        pod("command:\n- kube-apiserver\n- a: b\n"),
        pod(COMMAND).replace("  hostNetwork", "  - name: other\n    command: [a, 1]\n  hostNetwork"),
        # Lists of gates that would not be read, or have no place for one more.
        pod("command:\n- kube-apiserver\n- --feature-gates=F=yes\n"),
        pod("command:\n- kube-apiserver\n- --feature-gates\n"),
        pod("command:\n- kube-apiserver\n- --\n- a\n"),
        pod("command:\n- sh\n- -c\n- exec kube-apiserver\n"),
        pod("command:\n-\n  # why\n  kube-apiserver\n"),
        pod("command:\n- kube-apiserver\n- >-\n  --feature-gates=F=true,\n  H=true\n"),
        pod('command:\n- kube-apiserver\n- "--feature-gates=F=\\x74rue"\n'),
        "[" * 400,
        "? {a: b}\n: c\n",
        "a: !unknown b\n",
        f"{{kind: Pod, spec: {{containers: [{{name: {NAME}, command: [{NAME}]}}]}}}}",
    ],
)
def test_manifests_that_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        edit(text, G)


def test_manifests_that_are_not_utf_8_are_refused() -> None:
    for data in (pod(COMMAND).encode() + b"# \xff\n", pod(COMMAND).encode("utf-16")):
        with pytest.raises(FormatError, match="not UTF-8"):
            edited(data, G)
        with pytest.raises(FormatError, match="not UTF-8"):
            manifest.read(data)


def test_a_refusal_names_the_containers_there_are() -> None:
    with pytest.raises(FormatError) as caught:
        manifest.container_argv(pod(COMMAND).encode(), "kube-scheduler")
    assert str(caught.value) == (
        "has 0 containers of this name (its containers are: kube-apiserver): 'kube-scheduler'; give one of them this name"
    )


def test_read() -> None:
    container = manifest.ManifestContainer("kube-apiserver", ("kube-apiserver", "--v=2"))
    assert manifest.read(pod(COMMAND).encode()) == manifest.ManifestPod("kube-system", "kube-apiserver", (container,))
    assert manifest.read(b"kind: Pod\nmetadata: {name: a}\n") == manifest.ManifestPod("default", "a", ())
    for text, rule in ((b"kind: List\n", "is not a Pod"), (b"a\n", "no map"), (b"[]", "no map"), (b"", "is empty")):
        with pytest.raises(FormatError, match=rule):
            manifest.read(text)


@pytest.mark.parametrize(
    ("words", "program", "wraps"),
    [
        ("command: [/usr/local/bin/kube-apiserver, --v=2]", "kube-apiserver", False),
        ("command: [kube-apiserver]", "kube-apiserver", False),
        ("command: [/bin/sh, -c, 'exec kube-apiserver --v=2']", "sh", True),
        ("command: [/go-runner]\nargs: [--log-file=/x, /usr/bin/kube-apiserver]", "go-runner", True),
        ("args: [kube-apiserver, --v=2]", "", True),
        ("args: [--v=2]", "", False),
        ("image: kube-apiserver:1", "", False),
        ("command: [kube-apiserver-proxy, --to=kube-apiserver, kube-apiserver.sh]", "kube-apiserver-proxy", False),
        ("command: [sh, -c, 'exec my-kube-apiserver kube-apiserver.sh']", "sh", False),
        ("command: ['']", "", False),
        ("command: [1]", "1", False),
    ],
)
def test_the_program_of_a_container(words: str, program: str, wraps: bool) -> None:
    (found,) = manifest.read(pod(words).encode()).containers
    assert (found.program, found.wraps("kube-apiserver")) == (program, wraps)


def _argv(data: bytes) -> list[str]:
    return manifest.container_argv(data, NAME)


def _rest(data: bytes) -> Any:
    content = yaml_text.load(data)
    for container in content["spec"]["containers"]:
        if container.get("name") == NAME:
            argv = flags.without_gates(_argv(data))
            container.pop("command", None), container.pop("args", None)
    return argv, content


EDITOR: laws.Editor[bytes] = laws.Editor(
    edit=edited,
    gates=lambda data: flags.effective_gates(_argv(data)),
    rest=_rest,
    content=lambda data: {"file": data},
    empty_list=lambda data: laws.empty_list(_argv(data)),
)

_items = [
    *(
        "--v=2", '"--a"', "'--b'", '"--c=\\x41"', "--feature-gates=Alpha=true", "'--feature-gates=Beta=0,Other=t'", "--feature_gates=",
        '"--é"',
    ),
    *("--feature-gates", '""', "Gamma=true", '"--feature-gates=Alpha=1,Alpha=F"', "&x --x", "--", '"--feature-gates=Gamma=F,"'),
]  # fmt: skip


@st.composite
def manifests(draw: st.DrawFn) -> bytes:
    def block(key: str, items: list[str]) -> list[str]:
        indent = draw(st.sampled_from(["", "  "]))
        lines = [f"{key}:"]
        for item in items:
            lines += draw(st.sampled_from([[], [], [], ["# comment"], [""]]))
            lines.append(f"{indent}- {item}" + draw(st.sampled_from(["", "", " # note"])))
        return lines

    def flow(key: str, items: list[str]) -> list[str]:
        comma = draw(st.sampled_from([", ", ",", " , "]))
        # A comma needs quotes there.
        items = [f"'{item}'" if item.startswith(("--f", "Gamma")) and item != "--feature-gates" else item for item in items]
        return [f"{key}: [{comma.join(items)}{draw(st.sampled_from(['', ' ', ','])) if items else ''}]"]

    lines: list[str] = []
    for key in draw(st.sampled_from([["command"], ["command", "args"], ["args", "command"], ["args"]])):
        items = draw(st.lists(st.sampled_from(_items), max_size=4))
        items = ["kube-apiserver", *items] if key == "command" else items
        lines += draw(st.sampled_from([block, flow]))(key, items)
        lines += draw(st.sampled_from([[], ["image: x"], ["# comment"], ["env: [{name: A, value: '1'}]"]]))
    text = pod("\n".join(lines))
    if draw(st.booleans()):
        # The container's lists at the very end of the file.
        text = text.removesuffix("  hostNetwork: true\nstatus: {}\n")
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    elif draw(st.booleans()):
        text += draw(st.sampled_from(["---\n", "...\n", "...\n---", "# end\n--- # c\n...\n"]))
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text).encode()


def test_a_plain_value_in_brackets_gets_quotes_with_its_comma() -> None:
    before = pod("command: [kube-apiserver, --feature-gates, Gamma=true] # note").encode()
    assert edited(before, {"Alpha": True}) == before.replace(b"Gamma=true", b'"Gamma=true,Alpha=true"')


@settings(max_examples=60)
@given(manifests(), laws.changes)
def test_laws(data: bytes, changes: dict[str, bool | None]) -> None:
    EDITOR.check(data, changes)


@given(st.binary() | st.text(st.sampled_from("ab:-[]{}'\"&*!|>\n #,?%@")).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for content in (data, b"kind: Pod\nspec:\n  containers:\n  - name: kube-apiserver\n    command: " + data):
        with contextlib.suppress(FormatError):
            assert EDITOR.gates(edited(content, G)) == EDITOR.gates(content) | G
