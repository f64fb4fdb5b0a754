"""The table of gates that a file or flag sets."""

from __future__ import annotations

from roles import status
from roles.engine import control_plane, kubelet
from roles.engine.api.metrics import GateMetric
from tests.unit.node import node
from tests.unit.node.node import parse

CONFIG = "/var/lib/kubelet/config.yaml"


def test_what_a_file_sets_and_what_is_in_effect() -> None:
    argv = ("kube-scheduler", "--feature-gates=D=true")
    lines = node.answer(
        files={CONFIG: node.CONFIG + b"featureGates:\n  A: true\n  B: true\n  C: false\n"},
        manifests={"kube-scheduler.yaml": node.manifest(*argv)},
        components={"kube-scheduler": argv},
    )
    found = kubelet.find(parse("w1", lines))
    metrics = {"A": GateMetric("ALPHA", False), "B": GateMetric("ALPHA", True)}
    made = status._StatusNode(found.seen, found, control_plane.look(found).components, {"kubelet": metrics})
    assert status._gates(made) == [
        ["w1", "kubelet", "A", "true", "false (DIFFERS)", CONFIG],
        ["w1", "kubelet", "B", "true", "true", CONFIG],
        ["w1", "kubelet", "C", "false", "unknown", CONFIG],
        ["w1", "kube-scheduler", "D", "true", "unknown", "/etc/kubernetes/manifests/kube-scheduler.yaml"],
    ]
