"""Evidence from the running processes: how all is before a change, and that it took effect."""

from roles.proof.cluster import Cluster, NoApi
from roles.proof.effective import UnmetField, UnmetGate, unmet_fields, unmet_gates
from roles.proof.prover import Owed, Proof, Prover
from roles.proof.survey import Node, Survey, survey
from roles.proof.versions import Looked, with_versions

__all__ = [
    "Cluster",
    "Looked",
    "NoApi",
    "Node",
    "Owed",
    "Proof",
    "Prover",
    "Survey",
    "UnmetField",
    "UnmetGate",
    "survey",
    "unmet_fields",
    "unmet_gates",
    "with_versions",
]
