"""The version skew policy: it is the engine's, for all deploys (roles/engine/proof/skew.py)."""

from roles.engine.proof import Running, problems

__all__ = ["Running", "problems"]
