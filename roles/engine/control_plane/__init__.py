"""The control-plane components that run as static pods: apiserver, controller-manager, scheduler."""

from roles.engine.control_plane import control_plane_plan
from roles.engine.control_plane.control_plane_plan import places
from roles.engine.control_plane.facts import COMPONENTS, Component, ControlPlane, find, ignored_files, look, sourced_gates

__all__ = ["COMPONENTS", "Component", "ControlPlane", "control_plane_plan", "find", "ignored_files", "look", "places", "sourced_gates"]
