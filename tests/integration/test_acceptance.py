"""The checks of tests/acceptance, run as an operator runs them, on the lab's nodes."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.operator import GATE, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]
STATIC_PODS = "/etc/kubernetes-node/static"  # of w2; there are none in it


class Result:
    """How a run ended: names of its tests by outcome, `test_node[ssh://w2-kubelet-healthy]`."""

    def __init__(self, code: int, output: str, report: Path) -> None:
        self.code, self.output = code, output
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.skipped: set[str] = set()
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            kinds = {child.tag for child in case}
            names = self.failed if kinds & {"failure", "error"} else self.skipped if "skipped" in kinds else self.passed
            names.add(str(case.get("name")))


def acceptance(lab: Lab, folder: Path, nodes: str, *options: str) -> Result:
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    hosts = ",".join(f"ssh://{node}" for node in nodes.split())
    command = [sys.executable, "-m", "pytest", "tests/acceptance", f"--hosts={hosts}", f"--ssh-config={lab.ssh_config}"]
    command += [f"--control-plane={node}" for node in nodes.split() if node in lab.control_planes]
    done = subprocess.run(
        [*command, f"--junit-xml={report}", "-p", "no:cacheprovider", *options],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=900,
    )
    return Result(done.returncode, done.stdout, report)


def test_the_labs_nodes_pass(lab: Lab, tmp_path: Path) -> None:
    """By testinfra's connection alone, and with gates that are given on the command line."""
    run = acceptance(lab, tmp_path, "cp1 w1 w2", "--gate", "kubelet:NoSuchGate=absent", "--gate", "kube-apiserver:NoSuchGate=absent")
    assert (run.code, run.failed) == (0, set()), run.output
    everywhere = ("kubelet-healthy", "kubelet-stable", "kubelet-arguments", "kubelet-configuration", "kubelet-gates", "node-ready")
    components = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert run.passed >= {
        *(f"test_node[ssh://{node}-{check}]" for check in everywhere for node in ("cp1", "w1", "w2")),
        *(f"test_node[ssh://cp1-{name}-healthy]" for name in components),
        "test_node[ssh://cp1-kube-apiserver-gates]",
    }
    assert run.skipped >= {
        *(f"test_node[ssh://{node}-kube-apiserver-gates]" for node in ("w1", "w2")),
        *(f"test_node[ssh://{node}-{name}-healthy]" for node in ("w1", "w2") for name in components),
        # No gate was asked of these, no thresholds, no class.
        *(f"test_node[ssh://cp1-{name}-gates]" for name in components[1:]),
        "test_node[ssh://w1-eviction-thresholds]",
        "test_cluster[priority-classes]",
    }


@pytest.fixture
def stray(lab: Lab) -> Iterator[str]:
    """A file that nobody takes for a manifest, as an editor leaves it."""
    path = f"{STATIC_PODS}/note.txt~"
    lab.run("w2", f"cat >{path}", input="remember the milk\n")
    yield path
    lab.run("w2", f"rm -f {path}")


def test_a_stray_beside_the_manifests_is_found(lab: Lab, tmp_path: Path, stray: str) -> None:
    run = acceptance(lab, tmp_path, "w2")
    assert (run.code, run.failed) == (1, {"test_node[ssh://w2-manifests-clean]"}), run.output
    assert f"{STATIC_PODS}/note.txt~: the kubelet reads every file here as a manifest, and this is not" in run.output


def test_a_gate_that_is_not_as_expected_is_found(lab: Lab, tmp_path: Path) -> None:
    run = acceptance(lab, tmp_path, "w1 w2", "--gate", "kubelet:NoSuchGate=true")
    assert run.code == 1
    assert run.failed == {f"test_node[ssh://{node}-kubelet-gates]" for node in ("w1", "w2")}, run.output
    assert "kubelet: NoSuchGate is absent in its flags and files, wanted true" in run.output
    # Without a control-plane node nobody can say whether the node is Ready.
    assert {f"test_node[ssh://{node}-node-ready]" for node in ("w1", "w2")} <= run.skipped


@pytest.mark.parametrize("gate", ["NoSuchGate=true", "kubelet:NoSuchGate", "kubelet:NoSuchGate=yes", "kube-proxy:NoSuchGate=true"])
def test_a_gate_that_cannot_be_read_stops_the_run(lab: Lab, tmp_path: Path, gate: str) -> None:
    run = acceptance(lab, tmp_path, "w1", "--gate", gate)
    assert run.code != 0 and not run.passed
    assert f"--gate {gate}: write COMPONENT:NAME=VALUE" in run.output


@pytest.fixture
def gate_on(lab: Lab) -> Iterator[None]:
    """The gate as the deploy writes it, by hand: w1 has it in its configuration file, w2 on its command line."""
    config, flags = "/var/lib/kubelet/config.yaml", "/etc/default/kubelet"
    gated = {
        "w1": f"cp -a {config} /root/kept && printf 'featureGates:\\n  {GATE}: true\\n' >>{config}",
        "w2": f"[ ! -e {flags} ] || cp -a {flags} /root/kept; echo KUBELET_EXTRA_ARGS=--feature-gates={GATE}=true >>{flags}",
    }
    back = {"w1": f"mv /root/kept {config}", "w2": f"rm {flags}; [ ! -e /root/kept ] || mv /root/kept {flags}"}
    try:
        restarted(lab, gated)
        yield
    finally:
        restarted(lab, back)


def restarted(lab: Lab, commands: dict[str, str]) -> None:
    """By node what to do before its kubelet starts again; returns when they serve, also through the API."""
    for node, command in commands.items():
        lab.run(node, f"{command}; systemctl restart kubelet")
    for node in commands:
        wait_for(
            lambda node=node: lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/healthz", check=False) == "ok", f"{node}'s kubelet"
        )  # type: ignore[misc]


def test_gates_that_run_are_found_where_they_are_set(lab: Lab, tmp_path: Path, gate_on: None) -> None:
    """Without the API: by command line and files. With it: by /metrics."""
    for nodes in ("w1 w2", "cp1 w1 w2"):
        run = acceptance(lab, tmp_path, nodes, "--gate", f"kubelet:{GATE}=true", "-k", "w1 or w2")
        assert (run.code, run.failed) == (0, set()), run.output
        assert {f"test_node[ssh://{node}-kubelet-gates]" for node in ("w1", "w2")} <= run.passed
    # The kubelet reads its configuration at its start: what was written since does not run.
    lab.run("w1", "touch /var/lib/kubelet/config.yaml")
    run = acceptance(lab, tmp_path, "w1 w2", "--gate", f"kubelet:{GATE}=true")
    assert run.failed == {"test_node[ssh://w1-kubelet-configuration]"}, run.output
    assert "/var/lib/kubelet/config.yaml: the file was changed after the kubelet started" in run.output
