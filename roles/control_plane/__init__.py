"""The control-plane components that run as static pods: apiserver, controller-manager, scheduler."""

from roles.control_plane.facts import COMPONENTS, Component, find, left_alone

__all__ = ["COMPONENTS", "Component", "find", "left_alone"]
