"""Gate lists, command lines and configuration files as the node's own kubelet reads them. Starts and changes nothing on the node."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from roles.engine.editing import FormatError, flags, kubelet_config
from tests.lab import Lab

pytestmark = pytest.mark.lab

# Gates of every release since 1.24 that no other depends on.
NAMES = ("LoggingAlphaOptions", "LoggingBetaOptions", "ContextualLogging")
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

# Words behind `kubelet`. A, B and C stand for NAMES.
COMMAND_LINES: list[list[str]] = [
    [],
    ["--feature-gates=A=true"],
    ["--feature-gates=A=true,B=false,C=T"],
    ["--feature-gates", "A=1,B=0"],
    ["--feature_gates=A=t"],
    ["--feature_gates", "A=TRUE"],
    ["--feature-gates=A=true", "--feature-gates=B=True"],
    ["--feature-gates=A=true", "--feature_gates", "A=false,B=f"],
    ["--feature-gates=A=true,A=false"],
    ["--feature-gates="],
    ["--feature-gates", ""],
    ["--feature-gates=,"],
    ["--feature-gates=,A=true,,B=F,"],
    ["--feature-gates= A = true ,\tB=FALSE "],
    ["--feature-gates=A=true, "],
    ["--feature-gates= "],
    ["--feature-gates=A=true B=true"],
    ["--feature-gates=A"],
    ["--feature-gates=A="],
    ["--feature-gates=A==true"],
    ["--feature-gates=A=yes"],
    ["--feature-gates=A=on"],
    ["--feature-gates=A=tRUE"],
    ["--feature-gates=A=2"],
    ["--feature-gates=A:true"],
    ["--feature-gates=A=true;B=true"],
    ['--feature-gates="A=true"'],
    ["--feature-gates='A=true'"],
    ["--feature-gates=A=true\n,B=true\r"],
    ["--feature-gates=A=true\x1f"],
    ["--feature-gates=A=true\u200b"],
    ["--v=0", "--feature-gates=A=true", "--v", "1"],
    ["--node-ip=--feature-gates=A=true"],
    ["--feature-gates", "--feature-gates=A=true"],
    ["--feature-gates"],
]

# Text behind HEAD.
CONFIGURATIONS: list[str] = [
    "",
    "featureGates:\n",
    "featureGates: {}\n",
    "featureGates: null\n",
    "featureGates:\n  A: true\n  B: false\n",
    "featureGates: {A: true, 'B': false, \"C\": yes}\n",
    *(
        f"featureGates:\n  A: {word}\n"
        for word in [
            "yes", "Yes", "YES", "on", "On", "ON", "y", "Y", "True", "TRUE", "no", "No", "NO", "off", "Off", "OFF", "n", "N", "False",
            "FALSE",
        ]
    ),
    *(f"featureGates:\n  A: {word}\n" for word in ("'true'", '"yes"', "1", "0", "t", "tRUE", "yEs", "!!str true", "[true]", "|\n    true")),
    "featureGates: [A=true]\n",
    "featureGates: A=true\n",
    "featureGates:\tA: true\n",
    "featureGates:\n  A:\ttrue\t# c\n",
    "featureGates:\n\tA: true\n",
    "x: &x {A: true}\nfeatureGates: *x\n",
    "featureGates: {A: &t true, B: *t}\n",
    "x: &x {A: true}\nfeatureGates:\n  <<: *x\n  B: false\n",
    "x: &x {A: true}\nfeatureGates:\n  B: false\n  <<: *x\n",
    "...\n",
]  # fmt: skip

# Whole files.
FILES: list[str] = [
    "",
    "# nothing\n",
    "featureGates: {A: true}\n",
    f"---\n# c\n{HEAD}featureGates: {{A: true}}\n",
    f"\ufeff{HEAD}featureGates: {{A: true}}\n",
    f"%YAML 1.1\n---\n{HEAD}featureGates: {{A: yes}}\n",
    f"%YAML 1.2\n---\n{HEAD}featureGates: {{A: true}}\n",
    f"{HEAD}featureGates:\n  A: true\n".replace("\n", "\r\n"),
    json.dumps({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "featureGates": {"A": True}}),
    json.dumps({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "featureGates": {"A": True}}, indent="\t"),
    "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, featureGates: {A: true}}",
    '{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "featureGates": {"A": yes}}',
    '{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "featureGates": {"A": true},}',
    f"{HEAD}a: [\n",
    f"{HEAD}a: \x01\n",
]


def named(text: str) -> str:
    """The gates by their real names."""
    for letter, name in zip("ABC", NAMES, strict=True):
        text = re.sub(rf"(?<![A-Za-z]){letter}(?=[\W]|$)", name, text)
    return text


def ask(lab: Lab, node: str, cases: list[tuple[list[str], str]]) -> list[dict[str, bool] | None]:
    """What the kubelet of a node makes of command lines and configuration files, all in one go: the gates among NAMES that it set,
    None where it refused them."""
    lines = ["cd $(mktemp -d) || exit 1", "trap 'rm -rf \"$PWD\"' EXIT", "PATH=$PATH:/usr/local/bin"]
    for words, content in cases:
        lines.append(f"echo {base64.b64encode(content.encode()).decode()} | base64 -d >config")
        # The number of pods is what it must stumble over, having read all else; at this verbosity it tells its gates.
        command = ["kubelet", "--config=config", "--v=1", "--max-pods=-1", *words]
        lines.append(f"timeout 120 {shlex.join(command)} 2>&1 </dev/null | base64 -w 0; echo")
    answers = lab.run(node, "sh -s", input="\n".join(lines) + "\n", timeout=1800).stdout.splitlines()
    assert len(answers) == len(cases)
    return [_gates(base64.b64decode(answer).decode(errors="replace")) for answer in answers]


def _gates(said: str) -> dict[str, bool] | None:
    if not re.search(r"maxPods \(--max-pods\) -1 must not be a negative number", said):
        assert re.search(
            r"failed to (parse kubelet flag|load kubelet config file)|unknown (shorthand )?flag|unrecognized feature gate", said
        ), said
        return None
    told = re.findall(r'"Updated" featureGates=(\{.*\})', said)
    found: dict[str, Any] = json.loads(told[-1]) if told else {}
    return {name: value for name, value in found.items() if name in NAMES}


def ours(read: Callable[[], dict[str, bool]]) -> dict[str, bool] | None:
    try:
        return read()
    except FormatError:
        return None


@pytest.mark.parametrize("node", ["w1", "w2"])
def test_command_lines(lab: Lab, node: str) -> None:
    lines = [[named(word) for word in words] for words in COMMAND_LINES]
    asked = ask(lab, node, [(words, HEAD) for words in lines])
    read = [ours(lambda words=words: flags.effective_gates(["kubelet", *words])) for words in lines]
    assert list(zip(lines, read, strict=True)) == list(zip(lines, asked, strict=True))
    assert read.count(None) > 10 and len([found for found in read if found]) > 10


def test_configuration_files(lab: Lab) -> None:
    files = [named(text) for text in (*(HEAD + text for text in CONFIGURATIONS), *FILES)]
    asked = ask(lab, "w1", [([], text) for text in files])
    read = [ours(lambda text=text: kubelet_config.gates(text.encode())) for text in files]
    assert list(zip(files, read, strict=True)) == list(zip(files, asked, strict=True))
    assert read.count(None) > 10 and len([found for found in read if found]) > 10


def test_edited_configuration_files(lab: Lab) -> None:
    """Each file that can be edited, with one gate more and with all of them gone."""
    cases: list[tuple[str, dict[str, bool]]] = []
    for text in (*(HEAD + text for text in CONFIGURATIONS), *FILES):
        for changes in ({NAMES[0]: True}, {NAMES[1]: False, NAMES[2]: True}, dict.fromkeys(NAMES)):
            with contextlib.suppress(FormatError):
                before = kubelet_config.gates(named(text).encode())
                after = kubelet_config.edit_gates(named(text).encode(), changes).decode()
                wanted = {name: value for name, value in (before | changes).items() if value is not None}
                cases.append((after, wanted))
    asked = ask(lab, "w2", [([], text) for text, _ in cases])
    assert len(cases) > 50
    assert [(text, found) for (text, _), found in zip(cases, asked, strict=True)] == list(cases)


def test_a_flag_beats_the_file_gate_by_gate(lab: Lab) -> None:
    """As roles/engine/kubelet counts on it."""
    text = named(HEAD + "featureGates: {A: true, B: true}\n")
    words = [named("--feature-gates=B=false")]
    expected = kubelet_config.gates(text.encode()) | flags.effective_gates(["kubelet", *words])
    assert ask(lab, "w1", [(words, text)]) == [expected]


def test_gate_lists_of_the_control_plane(lab: Lab) -> None:
    """kube-apiserver, kube-controller-manager and kube-scheduler take and refuse the same lists, and some with a prefix."""
    lists = [word.partition("=")[2] for words in COMMAND_LINES for word in words if word.startswith("--feature-gates=")]
    # Blank items are taken here, and refused by the kubelet and daytwo.
    lists = [named(text) for text in [*lists, "kube:A=true,kube:B=false", "kube:A=true,B=false", "kube:A=yes"] if text[-1:] != " "]
    lines = ["for name in kube-apiserver kube-controller-manager kube-scheduler; do pid=$(pgrep -xo $(echo $name | cut -c1-15)) || exit 1"]
    for text in lists:
        words = shlex.join([f"--feature-gates={text}", "--version"])
        lines.append(f"nsenter --target $pid --mount -- $name {words} >/dev/null 2>&1 </dev/null; echo $name $?")
    answers = lab.run("cp1", "sh -s", input="\n".join([*lines, "done", ""]), timeout=1800).stdout.splitlines()
    taken = [ours(lambda text=text: flags.effective_gates([f"--feature-gates={text}"])) is not None for text in lists]
    assert len(answers) == 3 * len(lists) and False in taken and True in taken
    for number, answer in enumerate(answers):
        name, code = answer.split()
        text = lists[number % len(lists)]
        assert (code == "0") == taken[number % len(lists)], f"{name} ended with {code} for {text!r}"
