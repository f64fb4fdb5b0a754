"""The control-plane components that run as static pods: apiserver, controller-manager, scheduler."""

from roles.engine.control_plane import control_plane_plan
from roles.engine.control_plane.control_plane_plan import places
from roles.engine.control_plane.facts import (
    COMPONENTS,
    Component,
    ControlPlane,
    ManifestFile,
    by_pod,
    find,
    ignored_files,
    look,
    manifest_files,
    own_etcd,
    sourced_gates,
)
from roles.engine.control_plane.questions import RULES, ask_flags, beyond_the_trick, scheduler_kubeconfig

__all__ = [
    "COMPONENTS",
    "RULES",
    "Component",
    "ControlPlane",
    "ManifestFile",
    "ask_flags",
    "beyond_the_trick",
    "by_pod",
    "control_plane_plan",
    "find",
    "ignored_files",
    "look",
    "manifest_files",
    "own_etcd",
    "places",
    "scheduler_kubeconfig",
    "sourced_gates",
]
