"""A node as a run has surveyed it, without a connection."""

from __future__ import annotations

from typing import Any, cast

from roles.engine import control_plane, kubelet
from roles.engine.node import Observation
from roles.engine.proof import SurveyedNode


def surveyed(seen: Observation) -> SurveyedNode:
    found = kubelet.find(seen)
    return SurveyedNode(cast(Any, None), found, control_plane.look(found))
