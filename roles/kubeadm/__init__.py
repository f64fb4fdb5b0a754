"""What lasts on clusters that kubeadm made: its ConfigMaps, from which `kubeadm upgrade` writes a node's files anew."""

from roles.kubeadm.lasting import Difference, Found, Lasting, gate_differences, kubelet_differences, read

__all__ = ["Difference", "Found", "Lasting", "gate_differences", "kubelet_differences", "read"]
