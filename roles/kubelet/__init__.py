"""The kubelet of a node: where its settings live, and how they are changed."""

from roles.kubelet import schema
from roles.kubelet.facts import Kubelet, find, wanted
from roles.kubelet.values import lookup, same_setting

__all__ = ["Kubelet", "find", "lookup", "same_setting", "schema", "wanted"]
