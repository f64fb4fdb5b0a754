"""A command whose scope is not exact fails, with the wrong name in its answer, before it sends anything to a host.

The hosts are pyinfra's own fake ones: each of them would answer any command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roles.engine.bridge.command_line import data_problems
from roles.engine.inputs import registry
from tests.unit.scope.fake_hosts import HOSTS

ROOT = Path(__file__).resolve().parents[3]
DEPLOYS = sorted(path.stem for path in (ROOT / "deploys").glob("*.py"))


@dataclass(frozen=True)
class Wrong:
    """A wrong command, and what its answer must have."""

    name: str
    words: tuple[str, ...]
    answer: tuple[str, ...]
    inventory: str = "hosts.py"


def reads(deploy: str) -> set[str]:
    return {key for key, deploys in registry.readers().items() if deploy in deploys or registry.EVERY_DEPLOY in deploys}


def example(key: str) -> str:
    given = next(one for found in registry.every() if found.name == key for one in found.examples)
    return given if isinstance(given, str) else json.dumps(given)


def typo(key: str) -> str:
    """The last two letters swapped, or one letter twice."""
    swapped = f"{key[:-2]}{key[-1]}{key[-2]}"
    return swapped if swapped != key else f"{key}{key[-1]}"


def data(**values: str) -> tuple[str, ...]:
    return tuple(word for key, value in values.items() for word in ("--data", f"{key}={value}"))


def keys_of_others() -> list[Wrong]:
    """For each deploy all keys that it does not read and others do."""
    found = []
    for deploy in DEPLOYS:
        others = sorted(set(registry.names()) - reads(deploy) - {"own_keys"})
        answer = tuple(f"--data {key}: {deploy}.py does not read it" for key in others)
        found.append(Wrong(f"{deploy}: keys of others", (deploy, "-y", *data(**{key: example(key) for key in others})), answer))
    return found


def typing_errors() -> list[Wrong]:
    """For each deploy all its keys with two letters swapped."""
    found = []
    for deploy in DEPLOYS:
        wrong = {typo(key): key for key in sorted(reads(deploy))}
        answer = tuple(f"--data: {key} is not a key of daytwo's data" for key in wrong)
        found.append(Wrong(f"{deploy}: typing errors", (deploy, "-y", *data(**dict.fromkeys(wrong, "w1"))), answer))
    return found


NO_HOST = "is no host and no group with hosts in this inventory"
SINGLE = [
    Wrong("reboot nodes", ("reboot", "-y", *data(nodes="w9", allow_unneeded="true")), ("nodes: 'w9' is no host of this run",)),
    Wrong(
        "both names",
        ("reboot", "-y", *data(nodes="w1", only="w1", allow_unneeded="true")),
        ("nodes and only are the same key", "keep nodes"),
    ),
    Wrong("a group as nodes", ("reboot", "-y", *data(nodes="workers")), ("nodes=@fake/w1,@fake/w2, or --limit workers",)),
    Wrong("drain only", ("drain", "-y", *data(only="w1")), ("there its name is nodes: write --data nodes=w1",)),
    Wrong("labels only", ("node_labels", "-y", *data(only="w1", node_labels="a=b")), ("--data only:", "write --limit w1")),
    Wrong("rollback only", ("rollback", "-y", *data(only="w1")), ("--data only:", "write --limit w1")),
    Wrong("budgets nodes", ("disruption_budgets", "-y", *data(nodes="w1")), ("--data nodes:", "choose them with only_objects=")),
    Wrong(
        "right_size deployment",
        ("right_size", "-y", *data(deployment="shop/web")),
        ("--data deployment:", "'only_objects' or 'namespaces'"),
    ),
    Wrong("drain format", ("drain", "-y", *data(nodes="w1", format="json")), ("--data format:", "audit")),
    Wrong("rollback format", ("rollback", "-y", *data(format="json")), ("--data format:",)),
    Wrong("objects soak", ("disruption_budgets", "-y", *data(soak="60")), ("--data soak:",)),
    Wrong("drain pace", ("drain", "-y", *data(nodes="w1", max_unavailable="2")), ("--data max_unavailable:",)),
    Wrong("a gate as a key", ("feature_gates", "-y", *data(NodeSwap="true")), ("did you mean feature_gates=NodeSwap=true?",)),
    Wrong("no gate as a key", ("feature_gates", "-y", *data(rack="5")), ("rack is not a key of daytwo's data; no deploy reads it",)),
    Wrong("a field as a key", ("kubelet_config", "-y", *data(maxPods="200")), ("did you mean kubelet_config=maxPods=200?",)),
    Wrong("a flag as a key", ("control_plane_flags", "-y", "--data", "kube-apiserver:v=4"), ("control_plane_flags=kube-apiserver:v=4?",)),
    Wrong("a class as a key", ("priority_classes", "-y", *data(web="1000")), ("did you mean priority_classes=web=1000?",)),
    Wrong("a signal as a key", ("eviction", "-y", "--data", "memory.available=5%"), ("did you mean eviction_hard=memory.available=...?",)),
    Wrong("a key in camel case", ("kubelet_config", "-y", *data(maxUnavailable="2")), ("did you mean max_unavailable?",)),
    Wrong("a workload as a host", ("autoscaler_status", "-y", "--limit", "web"), ("choose them with namespaces=",)),
    Wrong("the name of an inventory", ("checks", "-y"), ("did you mean 'inventories/prod.py'?",), "prod"),
    Wrong("a password without a terminal", ("status", "--same-sudo-password"), ("the sudo password cannot be asked for",), "sudo.py"),
    Wrong("no such inventory", ("checks", "-y"), ("there is no such inventory, did you mean", "hosts.py"), "host.py"),
    Wrong("an inventory that is empty", ("checks", "-y"), ("the inventory has no hosts; there are: inventories/lab.py",), "none.py"),
    Wrong("a name that nobody knows", ("checks", "-y"), ("there is no such inventory",), "nobody-knows-this-host.invalid"),
    Wrong("a path and ssh_hostname", ("checks", "-y", *data(ssh_hostname="127.0.0.1")), ("there is no such inventory",), "nope.py"),
    *(
        Wrong(
            f"{deploy} --limit", (deploy, "-y", "--limit", "@fake/w9"), (f"--limit '@fake/w9' {NO_HOST}, did you mean '@fake/w", "workers")
        )
        for deploy in DEPLOYS
    ),
    Wrong(
        "one of several", ("checks", "-y", "--limit", "@fake/w1", "--limit", "wokers"), (f"'wokers' {NO_HOST}, did you mean 'workers'?",)
    ),
    Wrong("a pattern", ("checks", "-y", "--limit", "x*"), (f"'x*' {NO_HOST}; there are: ",)),
    Wrong("nothing", ("checks", "-y", "--limit", ""), (f"'' {NO_HOST}",)),
    Wrong("a group without hosts", ("checks", "-y", "--limit", "empty"), (f"'empty' {NO_HOST}",)),
    Wrong("a comma", ("drain", "-y", "--limit", "@fake/w1,@fake/w9"), (f"'@fake/w9' {NO_HOST}",)),
    Wrong("exclude", ("uninstall", "-y", "--exclude", "@fake/w9"), (f"--exclude '@fake/w9' {NO_HOST}",)),
    Wrong("exclude all", ("checks", "-y", "--exclude", "@fake/*"), ("no host is left",)),
    Wrong("no value", ("feature_gates", "-y", "--data", "feature_gates"), ("--data feature_gates: it has no value; write --data",)),
    Wrong("an empty value", ("reboot", "-y", "--data", "only="), ("--data only: the value is empty",)),
    Wrong("an empty list", ("drain", "-y", "--data", "nodes=[]"), ("--data nodes: the value is empty",)),
    Wrong("an empty list with a space", ("drain", "-y", "--data", "nodes=[ ]"), ("--data nodes: the value is empty",)),
    Wrong("a list of nothing", ("drain", "-y", "--data", 'nodes=[""]'), ("names nothing",)),
    Wrong("null for hosts", ("reboot", "-y", *data(only="null", allow_unneeded="true")), ("--data only: the value is null",)),
    Wrong("null for a run", ("rollback", "-y", "--data", "run= null"), ("--data run: the value is null",)),
    Wrong(
        "null for a part",
        ("feature_gates", "-y", *data(feature_gates="A=true", components="null")),
        ("--data components: the value is null",),
    ),
    Wrong(
        "null for a flag",
        ("control_plane_flags", "-y", *data(control_plane_flags='{"kube-apiserver": {"v": null}}')),
        ("`absent` to remove the flag",),
    ),
    Wrong(
        "null for a file",
        ("control_plane_flags", "-y", *data(control_plane_files='{"/etc/kubernetes/x": null}')),
        ("/etc/kubernetes/x: write",),
    ),
    Wrong(
        "null for a field",
        ("kubelet_config", "-y", *data(kubelet_config='{"maxPods": null}')),
        ("maxPods has no value; write it, or absent",),
    ),
    Wrong(
        "a gate twice", ("feature_gates", "-y", *data(feature_gates="A=true,B=true,A=false")), ("feature_gates: it has A twice; keep one",)
    ),
    Wrong("a gate by two names", ("feature_gates", "-y", *data(feature_gates="A=true,kube:A=false")), ("feature_gates: it has A twice",)),
    Wrong(
        "a flag by two names",
        ("control_plane_flags", "-y", *data(control_plane_flags='{"scheduler": {"v": 4, "--v": 5}}')),
        ("it has v twice",),
    ),
    Wrong(
        "a component by two names",
        ("control_plane_flags", "-y", *data(control_plane_flags='{"scheduler": {"v": 4}, "kube-scheduler": {"v": 5}}')),
        ("control_plane_flags: kube-scheduler: it has v twice; keep one",),
    ),
    Wrong(
        "two flags in a text",
        ("control_plane_flags", "-y", *data(control_plane_flags="kube-apiserver:v=4,kube-scheduler:v=5")),
        ("write COMPONENT:FLAG=VALUE, or JSON for several flags",),
    ),
    Wrong(
        "a threshold without a unit",
        ("eviction", "-y", *data(eviction_hard="memory.available=500")),
        ("is the unit missing, as in 500Mi?",),
    ),
    Wrong(
        "memory without a unit",
        ("resize", "-y", *data(deployment="shop/web", memory_request="512")),
        ("is the unit missing, as in 512Mi?",),
    ),
    Wrong(
        "one name for all certificates",
        ("kubelet_certificates", "-y", *data(serving_names="203.0.113.7")),
        ("serving_names: all of them have 203.0.113.7; give it to one host alone",),
    ),
    Wrong("only commas", ("reboot", "-y", "--data", "only=,"), ("only: ',' names nothing",)),
    Wrong("no key", ("status", "-y", "--data", "=w1"), ("there is no key",)),
    Wrong("twice", ("drain", "-y", "--data", "nodes=w1", "--data", "nodes=w2"), ("--data nodes is given 2 times",)),
    Wrong(
        "broken JSON",
        ("autoscalers", "-y", "--data", 'autoscalers={"shop/deployment/web": {'),
        ("broken JSON: }} is missing at the end, character 26", """write --data 'autoscalers={"shop/deployment/web":{}}'"""),
    ),
    Wrong("quotes", ("autoscalers", "-y", "--data", "autoscalers={shop: 1}"), ("broken JSON", "double quotes")),
    Wrong("JSON twice", ("feature_gates", "-y", "--data", 'feature_gates={"A": true, "A": false}'), ("it has A twice",)),
    Wrong("deep JSON", ("feature_gates", "-y", "--data", "feature_gates=" + "[" * 60000), ("broken JSON", "more than 100 levels")),
]
#: Values that no rule allows: the key, the value, the rule, and what to write.
VALUES: list[tuple[Any, ...]] = [
    ("feature_gates", {"feature_gates": "A=yes"}, "A=yes is not a boolean; write true, false or absent"),
    ("feature_gates", {"feature_gates": "A=true", "components": "kubelt"}, "'kubelt' is not one of", "did you mean 'kubelet'?"),
    ("feature_gates", {"feature_gates": "A=true", "max_unavailable": "0"}, "max_unavailable: 0 must be a number of nodes (1, 2, ...)"),
    ("feature_gates", {"feature_gates": "A=true", "soak": "-1"}, "soak: -1, but it must be 0 or more"),
    ("feature_gates", {"feature_gates": "A=true", "soak": "1_000"}, "write a number in the digits 0 to 9 alone"),
    ("reboot", {"allow_unneeded": "yes"}, "allow_unneeded: yes is not a boolean; write true or false"),
    ("eviction", {"eviction_hard": "memory.available>500Mi"}, "'memory.available>500Mi' has the operator >"),
    ("drain", {"nodes": "w1", "surge": "shop/sts/db"}, "surge: 'shop/sts/db': it must be a Deployment, and no StatefulSet"),
    ("restart", {"restart": "deploy/web"}, "'deploy/web' has no namespace; write NAMESPACE/KIND/NAME, such as shop/deploy/web"),
    ("restart", {"restart": "shop/deploymnet/web"}, "'deploymnet' is not one of", "did you mean 'deployment'? only these"),
    ("restart", {}, "no workload is named; name some with --data restart=NAMESPACE/KIND/NAME"),
    ("resize", {"cpu": "300m"}, "choose pods by one of workload (NAMESPACE/KIND/NAME)", "none is given"),
    ("resize", {"workload": "shop/deploy/web"}, "no amount is given", "--data cpu=300m"),
    ("resize", {"workload": "shop/deploy/web", "cpu": "lots"}, "cpu: 'lots' is not a quantity; write a number"),
    (
        "disruption_budgets",
        {"disruption_budgets": '{"shop/web": {"workload": "web/x/y/z", "max_unavailable": 1}}'},
        "is not NAMESPACE/KIND/NAME",
    ),
    (
        "disruption_budgets",
        {"disruption_budgets": '{"shop/web": {"workload": "deploy/web"}}'},
        "give either max_unavailable or min_available",
    ),
    ("priority_classes", {"priority_classes": "web=high"}, "web=high: the value is not a whole number; write one, such as web=1000"),
    ("autoscalers", {"autoscalers": '{"shop/ds/web": {"max": 3, "cpu": "60%"}}'}, "shop/ds/web: a DaemonSet has no scale; only Deployment"),
    ("autoscalers", {"autoscalers": '{"shop/deploy/web": {"cpu": "60%"}}'}, "give max: the highest number of pods"),
    ("node_labels", {"node_labels": "a b=c"}, "'a b' is not a valid key: letters, digits"),
    ("rollback", {"run": "yesterday"}, "run=yesterday is not the name of a run"),
    ("changes", {"since": "yesterday"}, "since=yesterday is no age; write a number and m, h or d"),
]
SINGLE += [
    Wrong(f"{deploy}: {', '.join(f'{key}={value}' for key, value in values.items())}", (deploy, "-y", *data(**values)), answer)
    for deploy, values, *words in VALUES
    for answer in [tuple(words)]
]
EVERY = [*keys_of_others(), *typing_errors(), *SINGLE]


@dataclass(frozen=True)
class Ended:
    code: int
    said: str
    sent: int


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("scope")
    (found / "hosts.py").write_text(HOSTS)
    (found / "sudo.py").write_text(HOSTS.replace('"fake_delay": 0', '"_sudo": True, "fake_delay": 0'))
    (found / "none.py").write_text("workers = []\n")
    (found / "operation.py").write_text('from pyinfra.operations import server\n\nserver.shell(commands=["true"])\n')
    (found / "nothing.py").write_text("")
    (found / "exit2.py").write_text("from roles.engine import bridge\n\nbridge.exit_with(2)\n")
    (found / "unproven.py").write_text(
        "from roles.engine.runs import end_unproven\n\nend_unproven(['shown; NOT PROVEN: x'], ['allow_x=true'])\n"
    )
    return found


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, Ended]:
    """By the name of the wrong command. One process runs them all."""
    wanted = [([inventory(one.inventory, folder), f"deploys/{one.words[0]}.py", *one.words[1:]], "") for one in EVERY]
    return dict(zip((one.name for one in EVERY), carried_out(wanted, folder), strict=True))


def carried_out(commands: list[tuple[list[str], str]], folder: Path) -> list[Ended]:
    environment = {**os.environ, "PYINFRA_PROGRESS": "off", "XDG_STATE_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.scope.commands"],
        input=json.dumps(commands),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [Ended(**found) for found in json.loads(done.stdout)]


def inventory(name: str, folder: Path) -> str:
    return str(folder / name) if name.endswith(".py") else name


def test_there_are_enough_of_them() -> None:
    assert len(EVERY) >= 60 and len({one.name for one in EVERY}) == len(EVERY)
    assert {one.words[0] for one in EVERY} == set(DEPLOYS)


@pytest.mark.parametrize("wrong", EVERY, ids=lambda one: one.name)
def test_a_wrong_command_fails_and_says_what_is_wrong(wrong: Wrong, answers: dict[str, Ended]) -> None:
    ended = answers[wrong.name]
    assert ended.code == 1, ended.said
    assert ended.sent == 0, "nothing is asked of a host before the scope is known"
    assert [text for text in wrong.answer if text not in ended.said] == [], ended.said
    assert "Traceback" not in ended.said and "bug report" not in ended.said


def test_the_exit_status_says_what_became_of_the_run(folder: Path) -> None:
    """Whether something was asked, and all of it is done; also with several deploys."""
    cases = [
        (("operation.py", "-y"), "", 0, 3, ""),
        (("operation.py", "-y", "-v"), "", 0, 3, "Success"),
        (("operation.py", "-y", "--same-sudo-password"), "", 0, 3, ""),  # no host uses sudo
        (("operation.py",), "yes\n", 0, 3, "Type yes to carry out the plan above"),
        (("operation.py",), "", 1, 0, "-y answers it, --dry only plans"),
        (("operation.py",), "\n", 1, 0, "nothing was changed: the answer was not yes"),
        (("operation.py",), "y\n", 1, 0, "nothing was changed: the answer was not yes"),
        (("nothing.py",), "", 0, 0, ""),
        (("exit2.py", "operation.py", "-y"), "", 2, 0, ""),
        (("unproven.py", "-y"), "", 3, 0, "NOT PROVEN: not all of it, see above; accepted by allow_x=true, so the exit status is 3."),
        (("nothing.py", "-y"), "", 0, 0, ""),
    ]
    commands = [
        ([str(folder / "hosts.py"), *(str(folder / word) if word.endswith(".py") else word for word in words)], typed)
        for words, typed, *_ in cases
    ]
    for (words, typed, code, sent, text), ended in zip(cases, carried_out(commands, folder), strict=True):
        assert (ended.code, ended.sent) == (code, sent), (words, typed, ended.said)
        assert text in ended.said and "Traceback" not in ended.said, ended.said
        # The first line is there before daytwo is.
        of_pyinfra = ("Loading inventory", "Connected", "Detected changes", "Beginning", "Results", "Grand total", "Disconnecting")
        assert "-v" in words or [one for one in of_pyinfra if one in ended.said] == [], ended.said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_at_its_question_is_not_done(folder: Path, number: signal.Signals) -> None:
    command = [str(Path(sys.executable).with_name("pyinfra")), str(folder / "hosts.py"), str(folder / "operation.py")]
    environment = {**os.environ, "PYINFRA_PROGRESS": "off"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while "Type yes to carry out the plan above: " not in said:
            letter = process.stderr.read(1)
            assert letter, said
            said += letter
        process.send_signal(number)
        rest = process.stderr.read()
        assert (process.wait(), "stopped before anything was changed" in rest) == (128 + number, True), rest


def test_an_empty_map_is_a_value_where_it_says_that_none_is_wanted() -> None:
    assert data_problems(["priority_classes={}", "prune=true"]) == []
    assert data_problems(["priority_classes="]) and data_problems(["only={}"])
