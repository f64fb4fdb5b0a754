"""The kubelet of a node: where its settings live, and how they are changed."""

from roles.engine.kubelet import (
    allocatable,
    ask,
    blame,
    certificate_files,
    drained,
    kubelet_plan,
    pending,
    runtime,
    runtime_file,
    schema,
    settings,
    static_pods,
    thresholds,
    values,
)
from roles.engine.kubelet.facts import Kubelet, UnsupportedNode, find, wanted
from roles.engine.kubelet.idle import idle
from roles.engine.kubelet.runtime import container_of
from roles.engine.kubelet.schema import SHAPE
from roles.engine.kubelet.settings import as_value
from roles.engine.kubelet.state import KubeletState

__all__ = [
    "SHAPE",
    "Kubelet",
    "KubeletState",
    "UnsupportedNode",
    "allocatable",
    "as_value",
    "ask",
    "blame",
    "certificate_files",
    "container_of",
    "drained",
    "find",
    "idle",
    "kubelet_plan",
    "pending",
    "runtime",
    "runtime_file",
    "schema",
    "settings",
    "static_pods",
    "thresholds",
    "values",
    "wanted",
]
