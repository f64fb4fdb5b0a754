"""Evidence from the running processes: the state before a change, and the proof that it took effect."""

from roles.engine.proof import effective, presented, skew
from roles.engine.proof.cluster import Cluster, NoApi, listed_nodes
from roles.engine.proof.evidence import ProcessLook, look_at
from roles.engine.proof.identity import claimed_names
from roles.engine.proof.prover import ChangedProcess, Proof, Prover, RequiredProof
from roles.engine.proof.signs import Found, Sign
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
    "Found",
    "NoApi",
    "ObservedNode",
    "ProcessLook",
    "Proof",
    "Prover",
    "Reported",
    "RequiredProof",
    "Sign",
    "Survey",
    "SurveyedNode",
    "claimed_names",
    "claims",
    "effective",
    "known_nodes",
    "listed_nodes",
    "look_at",
    "not_their_node",
    "observed",
    "presented",
    "refuse_claim",
    "reported",
    "skew",
    "survey",
    "surveyed",
]
