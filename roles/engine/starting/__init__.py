"""Would this node's kubelet and components start again, and could it start a pod? One judgement, for every deploy that restarts something,
for the proof afterwards, for checks and the audit. The kernel tunables are in `TUNABLES`, the fields and flags that name paths in `FILES`.
"""

from roles.engine.starting import probe
from roles.engine.starting.facts import SECONDS, answer, question
from roles.engine.starting.judge import judge, swap_obstacles
from roles.engine.starting.model import Cause, Needs, Obstacle, PathFact, StartFacts, Stops
from roles.engine.starting.needs import component_needs, kubelet_needs, node_needs, together
from roles.engine.starting.table import FILES, KEYS, NEW_PODS, TUNABLES

__all__ = [
    "FILES",
    "KEYS",
    "NEW_PODS",
    "SECONDS",
    "TUNABLES",
    "Cause",
    "Needs",
    "Obstacle",
    "PathFact",
    "StartFacts",
    "Stops",
    "answer",
    "component_needs",
    "judge",
    "kubelet_needs",
    "node_needs",
    "probe",
    "question",
    "swap_obstacles",
    "together",
]
