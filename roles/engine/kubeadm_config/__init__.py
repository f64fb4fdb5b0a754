"""What survives an upgrade on clusters that kubeadm made: its ConfigMaps, from which `kubeadm upgrade` rewrites a node's files."""

from roles.engine.kubeadm_config.plan import GATES, ComponentDesired, ConfigMapPath, as_given
from roles.engine.kubeadm_config.steps import ClusterWrites, last, undo
from roles.engine.kubeadm_config.stored import (
    CLUSTER,
    KEYS,
    KUBELET,
    NAMESPACE,
    Difference,
    Found,
    Lasting,
    gate_differences,
    kubelet_differences,
    read,
)

__all__ = [
    "CLUSTER",
    "GATES",
    "KEYS",
    "KUBELET",
    "NAMESPACE",
    "ClusterWrites",
    "ComponentDesired",
    "ConfigMapPath",
    "Difference",
    "Found",
    "Lasting",
    "as_given",
    "gate_differences",
    "kubelet_differences",
    "last",
    "read",
    "undo",
]
