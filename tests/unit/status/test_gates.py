"""The table of gates that a file or flag sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from roles.engine import control_plane, kubelet
from roles.engine.api import GateMetric
from roles.engine.bridge import Remote
from roles.engine.kubeadm_config import read_stored
from roles.engine.kubeadm_config.stored import path_of
from roles.engine.proof import SurveyedNode
from roles.status import tables
from roles.status.text import effect
from tests.unit.node import node
from tests.unit.node.node import parse

CONFIG = "/var/lib/kubelet/config.yaml"


def node_of(found: kubelet.Kubelet) -> SurveyedNode:
    return SurveyedNode(cast("Remote", SimpleNamespace(name="w1")), found, control_plane.look(found))


def test_only_what_the_next_kubeadm_upgrade_writes_is_compared_with_its_configmaps() -> None:
    """Not flags of a unit, and not the kubelet's drop-ins."""
    folder, argv = "/etc/kubelet.d", (*node.KUBEADM_ARGV, "--config-dir=/etc/kubelet.d", "--feature-gates=Flag=true")
    lines = node.answer(
        argv=argv,
        files={
            "/etc/default/kubelet": f"KUBELET_EXTRA_ARGS='{' '.join(argv[-2:])}'\n".encode(),
            CONFIG: node.CONFIG + b"featureGates:\n  A: true\n",
            f"{folder}/10.conf": node.CONFIG + b"featureGates:\n  Dropin: true\nmaxPods: 5\n",
        },
        extra=[f"directory {node.b64(folder)}"],
    )
    found = kubelet.find(parse("w1", lines))
    stored = {
        "kubelet-config": ("kubelet", node.CONFIG.decode()),
        "kubeadm-config": (
            "ClusterConfiguration",
            'kind: ClusterConfiguration\nclusterName: "shop"\ncontrolPlaneEndpoint: api.shop:6443\nx:\n  clusterName: no\n',
        ),
    }
    maps = {path_of(name): {"metadata": {"name": name}, "data": {key: text}} for name, (key, text) in stored.items()}
    read = read_stored(maps.get)
    rows, _ = tables.differences([node_of(found)], {}, read)
    assert [(one.host, one.component, one.setting, one.configmap, one.says) for one in rows] == [
        ("w1", "kubelet", "A", "kubelet-config", "(not set)")
    ]
    assert tables.cluster(read, []).model_dump() == {"name": "shop", "endpoint": "api.shop:6443"}
    assert tables.cluster(None, []).model_dump() == {"name": None, "endpoint": None}


def test_what_a_file_sets_and_what_is_in_effect() -> None:
    argv = ("kube-scheduler", "--feature-gates=D=true")
    lines = node.answer(
        files={CONFIG: node.CONFIG + b"featureGates:\n  A: true\n  B: true\n  C: false\n"},
        manifests={"kube-scheduler.yaml": node.manifest(*argv)},
        components={"kube-scheduler": argv},
    )
    found = kubelet.find(parse("w1", lines))
    metrics = {"A": GateMetric("ALPHA", False), "B": GateMetric("ALPHA", True)}
    rows = tables.gates(node_of(found), {"w1": {"kubelet": metrics}})
    assert [(one.component, one.gate, one.set_to, effect(one), one.source) for one in rows] == [
        ("kubelet", "A", True, "false (DIFFERS)", CONFIG),
        ("kubelet", "B", True, "true", CONFIG),
        ("kubelet", "C", False, "unknown", CONFIG),
        ("kube-scheduler", "D", True, "unknown", "/etc/kubernetes/manifests/kube-scheduler.yaml"),
    ]
