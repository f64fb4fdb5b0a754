"""The scheduler's own word: a shadow control plane of the cluster's own programs places pods in a copy of the cluster, before anything is
written. A pod without a node is a no; so is one that would have to preempt others."""

from roles.engine.shadow import credentials, programs
from roles.engine.shadow.control_plane import ShadowControlPlane, own_components, shadow_control_plane
from roles.engine.shadow.filling import KINDS_OF_SHADOW
from roles.engine.shadow.question import Move, PlacedPod, Verdict
from roles.engine.shadow.store import ShadowError

__all__ = [
    "KINDS_OF_SHADOW",
    "Move",
    "PlacedPod",
    "ShadowControlPlane",
    "ShadowError",
    "Verdict",
    "credentials",
    "own_components",
    "programs",
    "shadow_control_plane",
]
