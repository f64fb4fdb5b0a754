"""Evidence from the running processes: the state before a change, and the proof that it took effect."""

from roles.engine.proof import effective, evidence, presented, signs, skew
from roles.engine.proof.cluster import Cluster, listed_nodes
from roles.engine.proof.identity import claimed_names
from roles.engine.proof.prover import ChangedProcess, Proof, Prover, RequiredProof
from roles.engine.proof.survey import (
    Reported,
    Survey,
    SurveyedNode,
    claims,
    known_nodes,
    not_their_node,
    observed,
    refuse_claim,
    reported,
    survey,
    surveyed,
)
from roles.engine.proof.versions import ObservedNode

__all__ = [
    "ChangedProcess",
    "Cluster",
    "ObservedNode",
    "Proof",
    "Prover",
    "Reported",
    "RequiredProof",
    "Survey",
    "SurveyedNode",
    "claimed_names",
    "claims",
    "effective",
    "evidence",
    "known_nodes",
    "listed_nodes",
    "not_their_node",
    "observed",
    "presented",
    "refuse_claim",
    "reported",
    "signs",
    "skew",
    "survey",
    "surveyed",
]
