"""Evidence from the running processes that a change took effect."""

from roles.proof.cluster import Cluster, NoApi

__all__ = ["Cluster", "NoApi"]
