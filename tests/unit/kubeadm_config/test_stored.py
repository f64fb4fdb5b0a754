"""The content of kubeadm's ConfigMaps, and how nodes differ from it."""

from __future__ import annotations

from roles.engine.kubeadm_config import CLUSTER, KUBELET, gate_differences, kubelet_differences
from roles.engine.kubeadm_config.stored import Found, parse
from tests.unit.kubeadm_config.world import KUBELET_TEXT, lasting


def test_content() -> None:
    found = lasting()
    assert found.by_kubeadm and not found.problems
    assert found.gates == {
        "kube-apiserver": {"A": True, "B": False},
        "kube-controller-manager": {},
        "kube-scheduler": {},
        "kubelet": {"A": True},
    }
    assert found.kubelet["evictionHard"] == {"memory.available": "50Mi"}
    assert found.maps[CLUSTER].version == "7" and found.maps[CLUSTER].uid == "uid-kubeadm-config"


def test_a_cluster_without_kubeadm() -> None:
    assert not parse([]).by_kubeadm
    assert gate_differences(parse([]), [Found("w1", "kubelet", {"A": True})]) == []
    assert kubelet_differences(parse([]), [Found("w1", "kubelet", {"maxPods": 5})]) == []


def test_an_unreadable_configmap_is_named_and_the_other_is_read() -> None:
    found = lasting(cluster="kind: [", kubelet=KUBELET_TEXT)
    assert list(found.problems) == [CLUSTER] and "kube-system/kubeadm-config" in found.problems[CLUSTER]
    assert found.gates == {"kubelet": {"A": True}}
    found = lasting(kubelet=None)
    assert "has no key kubelet" in found.problems[KUBELET] and kubelet_differences(found, [Found("w1", "kubelet", {"maxPods": 5})]) == []


def test_gates_that_differ() -> None:
    found = [
        Found("cp1", "kube-apiserver", {"A": True, "B": False}, {"A": True, "B": False, "Other": True}),
        Found("cp1", "kube-scheduler", {"C": True}),
        Found("w1", "kubelet", {}, {"A": False}),
        Found("w2", "kubelet", {"A": True}, {"A": False}),
    ]
    texts = [str(difference) for difference in gate_differences(lasting(), found)]
    assert texts == [
        "cp1 kube-scheduler: C is (not set) in kubeadm-config, true in its files",
        "w1 kubelet: A is true in kubelet-config, (not set) in its files, false in the process",
        "w2 kubelet: A is true in kubelet-config, true in its files, false in the process",
    ]


def test_fields_that_differ() -> None:
    files = {
        "kind": "KubeletConfiguration",
        "evictionHard": {"memory.available": "51200Ki"},
        "containerRuntimeEndpoint": "unix:///run/x",
        "featureGates": {"B": True},
    }
    assert kubelet_differences(lasting(), [Found("w1", "kubelet", files)]) == []
    other = {**files, "evictionHard": {"memory.available": "100Mi"}, "maxPods": 5}
    texts = [
        (found.host, found.setting, found.lasting, found.files) for found in kubelet_differences(lasting(), [Found("w1", "kubelet", other)])
    ]
    assert texts == [("w1", "evictionHard.memory.available", "50Mi", "100Mi"), ("w1", "maxPods", None, 5)]
