"""The kubelet of a node: where its settings live, and how they are changed."""

from roles.kubelet.facts import Kubelet, find, wanted

__all__ = ["Kubelet", "find", "wanted"]
