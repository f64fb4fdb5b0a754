"""A real Kubernetes cluster on this machine: systemd-nspawn nodes with their own systemd, sshd, containerd and kubelet."""

from tests.lab.cluster import SHAPES, Lab, Shape
from tests.lab.tools import LabError

__all__ = ["SHAPES", "Lab", "LabError", "Shape"]
