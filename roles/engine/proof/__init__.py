"""Evidence from the running processes: the state before a change, and the proof that it took effect."""

from roles.engine.proof.cluster import API_WAIT_SECONDS, Cluster, NoApi
from roles.engine.proof.effective import UnmetField, UnmetFlag, UnmetGate, unmet_fields, unmet_flags, unmet_gates, written
from roles.engine.proof.evidence import ProcessLook, look_at
from roles.engine.proof.identity import claimed_names
from roles.engine.proof.presented import ADDRESSES, Presented, address_of, handshake, presented
from roles.engine.proof.prover import Proof, Prover, RequiredProof
from roles.engine.proof.signs import Found, Sign
from roles.engine.proof.skew import Restarts, Running, SkewJudgement, judge_skew, outside, problems, running_of
from roles.engine.proof.survey import Survey, SurveyedNode, claims, not_their_node, refuse_claim, survey
from roles.engine.proof.versions import ObservedNode, with_versions

__all__ = [
    "ADDRESSES",
    "API_WAIT_SECONDS",
    "Cluster",
    "Found",
    "NoApi",
    "ObservedNode",
    "Presented",
    "ProcessLook",
    "Proof",
    "Prover",
    "RequiredProof",
    "Restarts",
    "Running",
    "Sign",
    "SkewJudgement",
    "Survey",
    "SurveyedNode",
    "UnmetField",
    "UnmetFlag",
    "UnmetGate",
    "address_of",
    "claimed_names",
    "claims",
    "handshake",
    "judge_skew",
    "look_at",
    "not_their_node",
    "outside",
    "presented",
    "problems",
    "refuse_claim",
    "running_of",
    "survey",
    "unmet_fields",
    "unmet_flags",
    "unmet_gates",
    "with_versions",
    "written",
]
