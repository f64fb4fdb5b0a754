"""Where pods can run: what a pod needs of a node, where a scheduler places it, and which pods a starting kubelet admits again. Pure."""

from roles.engine.placement import storage
from roles.engine.placement.admission import pressures_of, rejected_under
from roles.engine.placement.profiles import differs
from roles.engine.placement.readmission import Forecast, Readmission, forecast
from roles.engine.placement.storage import Move, PodVolume, Storage
from roles.engine.placement.taints import without_passing
from roles.engine.placement.topology import constraints
from roles.engine.placement.where import Outcome, Placement, Trial, place_all, where
from roles.engine.placement.world import ClusterView, Held, World, claims_of, terms

__all__ = [
    "ClusterView",
    "Forecast",
    "Held",
    "Move",
    "Outcome",
    "Placement",
    "PodVolume",
    "Readmission",
    "Storage",
    "Trial",
    "World",
    "claims_of",
    "constraints",
    "differs",
    "forecast",
    "place_all",
    "pressures_of",
    "rejected_under",
    "storage",
    "terms",
    "where",
    "without_passing",
]
