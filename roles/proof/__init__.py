"""Evidence from the running processes that a change took effect."""

from roles.proof.cluster import Cluster, NoApi
from roles.proof.prover import Owed, Prover, differences

__all__ = ["Cluster", "NoApi", "Owed", "Prover", "differences"]
