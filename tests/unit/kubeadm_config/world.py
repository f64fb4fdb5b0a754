"""kubeadm's ConfigMaps, as kubeadm writes them."""

from __future__ import annotations

from typing import Any

from roles.engine.kubeadm_config import CLUSTER, KEYS, KUBELET, StoredSettings
from roles.engine.kubeadm_config.stored import parse

CLUSTER_TEXT = """\
apiServer:
  extraArgs:
  - name: feature-gates
    value: A=true,B=false
apiVersion: kubeadm.k8s.io/v1beta4
controllerManager: {}
kind: ClusterConfiguration
scheduler: {}
"""
KUBELET_TEXT = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: ""
evictionHard:
  memory.available: 50Mi
featureGates:
  A: true
fileCheckFrequency: 0s
"""


def item(name: str, text: str | None) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}, "data": {} if text is None else {KEYS[name]: text}}


def lasting(cluster: str | None = CLUSTER_TEXT, kubelet: str | None = KUBELET_TEXT) -> StoredSettings:
    return parse([item(CLUSTER, cluster), item(KUBELET, kubelet)])
