"""The engine for changes of nodes. A capability provides pure functions; the engine surveys, asks, refuses, orders, runs and reports."""

from roles.engine.node_changes.brought import JudgedVersions, judge_versions
from roles.engine.node_changes.capability import Basis, Capability, DesiredByHost, Steps, change_nodes, ended, from_data
from roles.engine.node_changes.node_plan import KUBELET, ComponentPlan, NodePlan, Verdicts, refused_anyway
from roles.engine.node_changes.outages import ChangeDrains, cordoned_for_change, fates_of
from roles.engine.node_changes.paired import own_warnings, read_picture, refusal, servers, unfit_at_start, warning
from roles.engine.node_changes.starts import would_not_start
from roles.engine.node_changes.step import NodeStep

__all__ = [
    "KUBELET",
    "Basis",
    "Capability",
    "ChangeDrains",
    "ComponentPlan",
    "DesiredByHost",
    "JudgedVersions",
    "NodePlan",
    "NodeStep",
    "Steps",
    "Verdicts",
    "change_nodes",
    "cordoned_for_change",
    "ended",
    "fates_of",
    "from_data",
    "judge_versions",
    "own_warnings",
    "read_picture",
    "refusal",
    "refused_anyway",
    "servers",
    "unfit_at_start",
    "warning",
    "would_not_start",
]
