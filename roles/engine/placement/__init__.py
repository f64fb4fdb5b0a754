"""Where pods can run: what a pod needs of a node, where a scheduler places it, and which pods a starting kubelet admits again. Pure."""

from roles.engine.placement.findings import Verdict
from roles.engine.placement.pods import host_ports, is_critical, is_static, requests
from roles.engine.placement.readmission import Lack, Unfit, unfit_pods, which_no_longer_fit
from roles.engine.placement.where import Placement, place_all, where
from roles.engine.placement.world import ClusterView

__all__ = [
    "ClusterView",
    "Lack",
    "Placement",
    "Unfit",
    "Verdict",
    "host_ports",
    "is_critical",
    "is_static",
    "place_all",
    "requests",
    "unfit_pods",
    "where",
    "which_no_longer_fit",
]
