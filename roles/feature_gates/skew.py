"""The version skew policy: it is the engine's, for all deploys (roles/engine/proof/skew.py)."""

from roles.engine.proof.skew import Running, problems

__all__ = ["Running", "problems"]
