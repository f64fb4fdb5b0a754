"""The control-plane components that run as static pods: apiserver, controller-manager, scheduler."""

from roles.control_plane.facts import COMPONENTS, Component, container_of, find, warnings

__all__ = ["COMPONENTS", "Component", "container_of", "find", "warnings"]
