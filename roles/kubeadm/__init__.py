"""What lasts on clusters that kubeadm made: its ConfigMaps, from which `kubeadm upgrade` writes a node's files anew."""

from roles.kubeadm.lasting import Difference, Found, Lasting, gate_differences, kubelet_differences, read
from roles.kubeadm.plan import GATES, Member, Path, as_given
from roles.kubeadm.steps import Last, last, undo

__all__ = [
    "GATES",
    "Difference",
    "Found",
    "Last",
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
