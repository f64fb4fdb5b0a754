"""The control-plane components that run as static pods: apiserver, controller-manager, scheduler."""

from roles.control_plane.facts import COMPONENTS, Component, ControlPlane, find, left_alone, look

__all__ = ["COMPONENTS", "Component", "ControlPlane", "find", "left_alone", "look"]
