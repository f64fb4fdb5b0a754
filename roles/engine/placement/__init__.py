"""Where pods can run: what a pod needs of a node, where a scheduler places it, and which pods a starting kubelet admits again. Pure."""

from roles.engine.placement.admission import pressures_of, rejected_under
from roles.engine.placement.profiles import differs
from roles.engine.placement.readmission import Forecast, Readmission, forecast
from roles.engine.placement.storage import Attachment, Move, PodVolume, Storage, attachments, in_node_status, own_names
from roles.engine.placement.taints import without_passing
from roles.engine.placement.where import Outcome, Placement, place_all, where
from roles.engine.placement.world import ClusterView, World, claims_of

__all__ = [
    "Attachment",
    "ClusterView",
    "Forecast",
    "Move",
    "Outcome",
    "Placement",
    "PodVolume",
    "Readmission",
    "Storage",
    "World",
    "attachments",
    "claims_of",
    "differs",
    "forecast",
    "in_node_status",
    "own_names",
    "place_all",
    "pressures_of",
    "rejected_under",
    "where",
    "without_passing",
]
