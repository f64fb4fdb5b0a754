"""The table of fields against the node's own kubelet: whatever the table says of a type, the kubelet's strict decoder says too.

Starts and changes nothing on the node: the kubelet stumbles over --max-pods=-1 once it has read its file.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from typing import Any

import pytest

from roles.engine.kubelet import schema
from tests.lab import Lab
from tests.unit.kubelet import samples

pytestmark = pytest.mark.lab

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def script(configurations: list[dict[str, Any]]) -> str:
    """What to run on a node: for each configuration one line, what its kubelet says of it in base64."""
    lines = ["cd $(mktemp -d) || exit 1", "trap 'rm -rf \"$PWD\"' EXIT", "PATH=$PATH:/usr/local/bin"]
    for content in configurations:
        encoded = base64.b64encode(json.dumps({**HEAD, **content}).encode()).decode()
        lines.append(f"echo {encoded} | base64 -d >config")
        lines.append("timeout 120 kubelet --config=config --max-pods=-1 2>&1 </dev/null | base64 -w 0; echo")
    return "\n".join(lines) + "\n"


def verdict(said: str) -> str:
    """Strict (decoded as it stands), lenient (a part of it passed over), or refused."""
    if re.search(r"failed to load kubelet config file|failed to construct kubelet|^panic: ", said, re.IGNORECASE | re.MULTILINE):
        return "refused"
    # It was read: what it stumbles over comes later (the options of log formats are looked at before the number of pods).
    assert re.search(r"maxPods \(--max-pods\) -1 must not be a negative number|initialize logging: ", said), said
    return "lenient" if "lenient decoding" in said else "strict"


def ask(lab: Lab, node: str, configurations: list[dict[str, Any]]) -> list[str]:
    """What the kubelet says of each."""
    answers = lab.run(node, "sh -s", input=script(configurations), timeout=1800).stdout.splitlines()
    assert len(answers) == len(configurations)
    return [base64.b64decode(answer).decode(errors="replace") for answer in answers]


# sigs.k8s.io/json names 100 unknown fields at most.
MOST = 90


def together(configurations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same in few configurations, no two of which set one path: to start a kubelet takes longer than to read a file."""
    groups: list[tuple[dict[str, Any], int]] = []
    for one in configurations:
        for number, (group, count) in enumerate(groups):
            if count < MOST and _put(group, one):
                groups[number] = group, count + 1
                break
        else:
            groups.append((copy.deepcopy(one), 1))
    return [group for group, _ in groups]


def _put(group: dict[str, Any], one: dict[str, Any]) -> bool:
    """Whether `one`, a path to a value, has a place in the group: it is there then."""
    ((name, value),) = one.items()
    if name not in group:
        group[name] = copy.deepcopy(value)
        return True
    there = group[name]
    if isinstance(value, list) and isinstance(there, list):
        value, there = value[0], there[0]
    return isinstance(value, dict) and isinstance(there, dict) and len(value) == 1 and _put(there, value)


# The second node has the same kubelet, on another system.
@pytest.fixture(params=["w1", pytest.param("w2", marks=pytest.mark.slow)])
def node(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def minor(lab: Lab, node: str) -> int:
    told = lab.run(node, "PATH=$PATH:/usr/local/bin kubelet --version").stdout
    return int(told.strip().removeprefix("Kubernetes v").split(".")[1])


def test_every_field_is_decoded_strictly(lab: Lab, node: str, minor: int) -> None:
    wanted = [samples.nested(path, value) for path, value in samples.every(minor)]
    assert [(one, schema.check(minor, one)) for one in wanted if schema.check(minor, one)] == []
    assert {said for said in ask(lab, node, together(wanted)) if verdict(said) != "strict"} == set()


@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one", "all"])
def test_every_value_of_another_type_is_refused(lab: Lab, node: str, minor: int, all_of_them: bool) -> None:
    """Of each field one that a near type would take; all of them say of each what the decoder says of the type."""
    wrong_values = samples.mistyped if all_of_them else samples.telling
    wanted = [samples.nested(path, value) for path, field in schema.fields(minor).items() for value in wrong_values(field)]
    assert [one for one in wanted if not schema.check(minor, one)] == []
    taken = [(one, said) for one, said in zip(wanted, ask(lab, node, wanted), strict=True) if verdict(said) != "refused"]
    assert taken == []


def test_durations_and_quantities(lab: Lab, node: str, minor: int) -> None:
    taken = [*({"syncFrequency": text} for text in samples.DURATIONS), *(samples.limits(text) for text in samples.QUANTITIES)]
    refused = [*({"syncFrequency": text} for text in samples.NO_DURATIONS), *(samples.limits(text) for text in samples.NO_QUANTITIES)]
    cases = [*((one, "strict") for one in taken), *((one, "refused") for one in refused)]
    assert [(one, "refused" if schema.check(minor, one) else "strict") for one, _ in cases] == cases
    found = ask(lab, node, [one for one, _ in cases])
    assert [(one, verdict(said)) for (one, _), said in zip(cases, found, strict=True)] == cases


def test_every_unknown_name_is_refused_where_the_kubelet_only_logs_it(lab: Lab, node: str, minor: int) -> None:
    paths = [*(name for path in schema.fields(minor) for name in samples.misspelt(path)), *_others(minor)]
    wanted = [samples.nested(path, 1) for path in paths]
    assert [one for one in wanted if not schema.check(minor, one)] == []
    found = ask(lab, node, together(wanted))
    assert {verdict(said) for said in found} == {"lenient"}
    named = {name for said in found for name in re.findall(r'unknown field \\?"([^"\\]+)', said)}
    # Of a field in one that is not known either, only the outer one is named.
    assert [path for path in paths if not any(f"{path.replace('[]', '[0]')}.".startswith(f"{name}.") for name in named)] == []


def _others(minor: int) -> list[str]:
    """Fields of other minors, not of this one."""
    known = schema.fields(minor)
    every = {path for other in range(schema.OLDEST, schema.NEWEST + 1) for path in schema.fields(other)}
    return sorted(path for path in every if path not in known)


def test_the_flags_are_those_that_the_kubelet_lists(lab: Lab, node: str, minor: int) -> None:
    told = lab.run(node, "PATH=$PATH:/usr/local/bin kubelet --help 2>&1").stdout
    listed = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", told, re.MULTILINE))
    assert listed == set(schema.flags(minor))
