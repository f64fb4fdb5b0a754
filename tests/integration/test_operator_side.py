"""What keeps the operator's own side safe: whom it believes, what it shows, and who may go on. Needs the small lab (cp1, w1, w2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.change.bundle import HOME
from tests.integration.operator import GATE, data, pyinfra
from tests.lab import Lab

pytestmark = pytest.mark.lab

# OSC 52 sets the clipboard; then two lines up, and erased; then right to left.
EVIL = r"evil\033]52;c;ZXZpbA==\007\033[2A\033[2K\342\200\256.yaml"


@pytest.fixture
def evil(lab: Lab) -> Iterator[str]:
    """A file that the kubelet of w1 reads, with a name that steers terminals."""
    lab.run("w1", f"mkdir -p /etc/kubernetes/manifests; touch \"/etc/kubernetes/manifests/$(printf '{EVIL}')\"")
    yield "w1"
    lab.run("w1", "rm -f /etc/kubernetes/manifests/evil*")


def test_a_file_name_does_not_reach_the_terminal_as_it_is(lab: Lab, evil: str) -> None:
    said = pyinfra("audit", "-y")
    assert "evil" in said.all, "it is shown"
    assert not set(said.all) & {"\x07", "\u202e"} and "\x1b]" not in said.all and "\x1b[2A" not in said.all


def test_a_host_whose_key_is_not_known_is_not_spoken_to(lab: Lab, tmp_path: Path) -> None:
    said = pyinfra("status", "-y", *data(ssh_known_hosts_file=str(tmp_path / "nobody")))
    assert said.code != 0 and "host key of" in said.all and "StrictHostKeyChecking yes" in said.all
    changed = pyinfra("feature_gates", "-y", *data(ssh_known_hosts_file=str(tmp_path / "nobody"), feature_gates=f"{GATE}=true"))
    assert changed.code != 0 and GATE not in lab.run("w1", "cat /var/lib/kubelet/config.yaml", check=False).stdout


def test_each_run_gets_the_next_number_and_a_node_refuses_an_older_one(lab: Lab) -> None:
    lab.reset()
    assert pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", components="kubelet", only="w1")).code == 0
    first = lab.run("cp1", f"cat {HOME}/generation").stdout.split()
    assert lab.run("w1", f"cat {HOME}/fence").stdout.split() == first
    # As if a newer run had come to the node since this one was given its number.
    lab.run("w1", f"echo {first[0]} {int(first[1]) + 5} >{HOME}/fence")
    stale = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=absent", components="kubelet", only="w1"))
    assert stale.code != 0 and "another run was here since this one lost the cluster's lock" in stale.all
    lab.run("w1", f"rm {HOME}/fence")
    assert pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=absent", components="kubelet", only="w1")).code == 0
    assert int(lab.run("cp1", f"cat {HOME}/generation").stdout.split()[1]) == int(first[1]) + 2
