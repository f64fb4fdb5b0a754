"""The operator's own side on a real cluster: whose key a node shows, and what text from it reaches the terminal."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.engine.harmless import harmless
from tests.integration.operator import MANIFESTS, Outcome, data, pyinfra
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

# The clipboard is written, the line is gone over, the text turned around, and a line of its own is claimed.
HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2K\u202ednuof\u2066\u200b\u009b1A\nHALTED: w1, kubelet: reverted"
# On w1, for a test's pods.
SHARED = "/var/tmp/t-words"
SHOWN = r"\x1b]52;c;cm0gLXJmIC8=\x07"


class Operator:
    """Somebody with an ssh_config and known hosts of their own, and an inventory that says nothing of host keys."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        self.known = folder / "known hosts"
        self.known.write_text(self._of_the_lab().read_text())
        self.inventory = folder / "inventory.py"
        access = {"ssh_config_file": str(folder / "ssh_config")}
        planes, workers = ([(name, access) for name in names] for names in (lab.control_planes, lab.workers))
        self.inventory.write_text(f"control_plane = {planes!r}\nworkers = {workers!r}\n")

    def _of_the_lab(self) -> Path:
        return Path(re.findall(r"UserKnownHostsFile (\S+)", self._lab.ssh_config.read_text())[0])

    def status(self, strict: str, *arguments: str) -> Outcome:
        text = self._lab.ssh_config.read_text()
        text = re.sub(r"UserKnownHostsFile .*", f'UserKnownHostsFile "{self.known}"\n  GlobalKnownHostsFile none', text)
        (self._folder / "ssh_config").write_text(re.sub(r"StrictHostKeyChecking .*", f"StrictHostKeyChecking {strict}", text))
        return pyinfra("status", "-y", *arguments, inventory=str(self.inventory))

    def knows(self, node: str, key: str | None) -> None:
        """Of this node another key, or none."""
        lines = [line for line in self.known.read_text().splitlines() if node not in line.split()[0].split(",")]
        self.known.write_text("\n".join([*lines, *([f"{node},{self._lab.address(node)} {key}"] if key else [])]) + "\n")


@pytest.fixture
def operator(lab: Lab, tmp_path: Path) -> Operator:
    return Operator(lab, tmp_path)


@pytest.fixture
def other_key(tmp_path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    return " ".join((tmp_path / "other.pub").read_text().split()[:2])


@pytest.mark.parametrize("strict", ["yes", "accept-new"])
def test_a_node_with_another_key_than_the_known_one_is_not_talked_to(operator: Operator, other_key: str, strict: str) -> None:
    operator.knows("w1", other_key)
    before = operator.known.read_text()
    told = operator.status(strict)
    said = " ".join(told.all.split())
    assert told.code != 0, told.all
    assert "has another one: another machine answers" in said and f"{operator.known}:" in said, told.all
    assert operator.known.read_text() == before


def test_a_node_that_is_not_known_is_taken_only_where_ssh_would(lab: Lab, operator: Operator) -> None:
    whole = operator.known.read_text()
    operator.knows("w1", None)
    for strict in ("yes", "ask"):
        told = operator.status(strict)
        assert told.code != 0 and f"would refuse it too (StrictHostKeyChecking {strict})" in " ".join(told.all.split()), told.all
    assert len(operator.known.read_text().splitlines()) == len(whole.splitlines()) - 1
    told = operator.status("accept-new").ended(0)
    noted = operator.known.read_text().splitlines()[-1].split()
    assert noted[0] == lab.address("w1") and " ".join(noted[1:]) in whole
    assert operator.status("yes").code == 0


def is_harmless(told: Outcome) -> None:
    # Nobody looks by a terminal: pyinfra leaves its colours out.
    assert harmless(told.all) == told.all, [line for line in told.all.splitlines() if harmless(line) != line]
    assert not re.search(r"^HALTED: w1, kubelet", told.all, re.MULTILINE), told.all


@pytest.fixture
def hostile_class(lab: Lab) -> Iterator[None]:
    metadata = {"name": "t-hostile", "annotations": {"example.net/note": HOSTILE}}
    item = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 7, "description": HOSTILE}
    lab.kubectl("create", "-f", "-", input=json.dumps(item))
    yield
    lab.kubectl("delete", "priorityclass", "t-hostile")


def test_what_stands_in_a_class_does_nothing_to_the_terminal(lab: Lab, hostile_class: None) -> None:
    wanted = {"t-hostile": {"value": 7, "description": "fine"}}
    told = pyinfra("priority_classes", "--dry", *data(priority_classes=json.dumps(wanted), force="true"))
    assert told.code == 0 and "description: fine" in told.out, told.all
    assert "HALTED" in told.out, "the old description is shown, as it is"
    is_harmless(told)


@pytest.fixture
def hostile_file(lab: Lab) -> Iterator[None]:
    """Beside the manifests of a worker, in no pod's way: the kubelet passes over what begins with a dot."""
    name = f"{MANIFESTS}/.{HOSTILE}.yaml"
    make = 'IFS= read -r line; name=$(printf %b. "$line"); mkdir -p "${name%/*}"; printf "# no pod\\n" >"${name%.}"'
    words = "".join(f"\\0{byte:03o}" for byte in name.encode())
    was_there = lab.run("w1", f"test -d {MANIFESTS}", check=False).returncode == 0
    lab.run("w1", make, input=f"{words}\n")
    yield
    lab.run("w1", f"find {MANIFESTS} -maxdepth 1 -name '.*52;c;*' -delete{'' if was_there else f'; rmdir {MANIFESTS}'}")


@pytest.mark.parametrize("deploy", ["status", "checks", "audit"])
def test_the_name_of_a_file_does_nothing_to_the_terminal(lab: Lab, hostile_file: None, deploy: str) -> None:
    assert "52;c;" in lab.run("w1", f"ls -aq {MANIFESTS}").stdout
    told = pyinfra(deploy, "-y")
    is_harmless(told)
    if deploy == "audit":
        assert SHOWN in told.out, f"the file is found, and its name shown:\n{told.all}"


def _never_ready_again(name: str) -> dict[str, Any]:
    """Its first pod is ready, and no later one: their readiness probe fails, with words of its own that end in an event."""
    words = "".join(f"\\0{byte:03o}" for byte in HOSTILE.encode())
    first = 'mkdir /shared/of 2>/dev/null && echo "$HOSTNAME" >/shared/of/name; [ "$(cat /shared/of/name)" = "$HOSTNAME" ] && exit 0'
    script = f"{first}; printf %b '{words} password=of-the-pod'; exit 1"
    container = {
        "name": "app",
        "image": f"{images.REPOSITORY}/app:1",
        "imagePullPolicy": "Never",
        "readinessProbe": {"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1},
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    spec = {
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": "w1"},
        "containers": [container],
        "volumes": [{"name": "shared", "hostPath": {"path": SHARED, "type": "DirectoryOrCreate"}}],
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def test_what_a_container_says_does_nothing_to_the_terminal(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lab.kubectl("apply", "-f", "-", input=json.dumps(_never_ready_again("t-words")))
    try:
        lab.kubectl("rollout", "status", "deployment/t-words", "-n", "default", "--timeout=280s")
        keys = data(priority_classes="t-words=7", workloads=json.dumps({"default/deployment/t-words": "t-words"}), rollout_timeout="20")
        told = pyinfra("priority_classes", "-y", *keys)
        assert told.code != 0 and "Readiness probe failed: " in told.all, told.all
        is_harmless(told)
        assert SHOWN in told.all and "password=<masked sha256:" in told.all, told.all
        records = "".join(path.read_text() for path in (tmp_path / "daytwo/runs").glob("*.jsonl"))
        assert "Readiness probe failed: " in records and "of-the-pod" not in told.all + records
    finally:
        lab.kubectl("delete", "deployment", "t-words", "-n", "default", "--wait")
        lab.kubectl("delete", "priorityclass", "t-words")
        lab.run("w1", f"rm -rf {SHARED}")
