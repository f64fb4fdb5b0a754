"""The control-plane components that run as static pods: apiserver, controller-manager, scheduler."""

from roles.engine.control_plane import plan
from roles.engine.control_plane.facts import COMPONENTS, Component, ControlPlane, find, left_alone, look
from roles.engine.control_plane.plan import places

__all__ = ["COMPONENTS", "Component", "ControlPlane", "find", "left_alone", "look", "places", "plan"]
