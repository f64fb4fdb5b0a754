"""The kubelet of a node: where its settings live, and how they are changed."""

from roles.kubelet import schema
from roles.kubelet.facts import Kubelet, find, wanted
from roles.kubelet.values import SECRETS, in_effect, lookup, same_setting, shown

__all__ = ["SECRETS", "Kubelet", "find", "in_effect", "lookup", "same_setting", "schema", "shown", "wanted"]
