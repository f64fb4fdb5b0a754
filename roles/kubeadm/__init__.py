"""What lasts on clusters that kubeadm made: its ConfigMaps, from which `kubeadm upgrade` writes a node's files anew."""

from roles.kubeadm.lasting import Difference, Found, Lasting, gate_differences, kubelet_differences, read
from roles.kubeadm.plan import GATES, Member, Path, as_given
from roles.kubeadm.steps import ClusterWrites, last, undo

__all__ = [
    "GATES",
    "ClusterWrites",
    "Difference",
    "Found",
    "Lasting",
    "Member",
    "Path",
    "as_given",
    "gate_differences",
    "kubelet_differences",
    "last",
    "read",
    "undo",
]
