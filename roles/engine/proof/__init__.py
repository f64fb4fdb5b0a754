"""Evidence from the running processes: the state before a change, and the proof that it took effect."""

from roles.engine.proof.cluster import API_WAIT_SECONDS, Cluster, NoApi
from roles.engine.proof.effective import UnmetField, UnmetFlag, UnmetGate, unmet_fields, unmet_flags, unmet_gates, written
from roles.engine.proof.prover import Proof, Prover, RequiredProof
from roles.engine.proof.skew import Restarts, Running, SkewJudgement, judge_skew, outside, problems, running_of
from roles.engine.proof.survey import Survey, SurveyedNode, survey
from roles.engine.proof.versions import ObservedNode, with_versions

__all__ = [
    "API_WAIT_SECONDS",
    "Cluster",
    "NoApi",
    "ObservedNode",
    "Proof",
    "Prover",
    "RequiredProof",
    "Restarts",
    "Running",
    "SkewJudgement",
    "Survey",
    "SurveyedNode",
    "UnmetField",
    "UnmetFlag",
    "UnmetGate",
    "judge_skew",
    "outside",
    "problems",
    "running_of",
    "survey",
    "unmet_fields",
    "unmet_flags",
    "unmet_gates",
    "with_versions",
    "written",
]
