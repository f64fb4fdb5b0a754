"""What survives an upgrade on clusters that kubeadm made: its ConfigMaps, from which `kubeadm upgrade` rewrites a node's files."""

from roles.engine.kubeadm_config.plan import ARGUMENTS, GATES, VOLUMES, ComponentDesired, ConfigMapPath, as_given
from roles.engine.kubeadm_config.steps import ClusterWrites, plan_undo, plan_writes
from roles.engine.kubeadm_config.stored import (
    CLUSTER,
    KEYS,
    KUBELET,
    NAMESPACE,
    Difference,
    StoredSettings,
    gate_differences,
    kubelet_differences,
    read_stored,
    written_by_kubeadm,
)

__all__ = [
    "ARGUMENTS",
    "CLUSTER",
    "GATES",
    "KEYS",
    "KUBELET",
    "NAMESPACE",
    "VOLUMES",
    "ClusterWrites",
    "ComponentDesired",
    "ConfigMapPath",
    "Difference",
    "StoredSettings",
    "as_given",
    "gate_differences",
    "kubelet_differences",
    "plan_undo",
    "plan_writes",
    "read_stored",
    "written_by_kubeadm",
]
