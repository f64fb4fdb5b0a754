"""Where a kubelet keeps its certificates. Pure."""

from __future__ import annotations

import posixpath

from roles.engine.editing import last_flag
from roles.engine.kubelet.facts import Kubelet


def path(text: str | None) -> str | None:
    """An absolute path as an argument has it; None for anything else."""
    return posixpath.normpath(text) if text and text.startswith("/") and text.isprintable() else None


def folder(kubelet: Kubelet) -> str:
    return path(last_flag(kubelet.process.argv, "cert-dir")) or "/var/lib/kubelet/pki"


def client(kubelet: Kubelet) -> tuple[str, str | None]:
    """The file of a kubelet that renews its certificate, and its kubeconfig, which may have one too."""
    return f"{folder(kubelet)}/kubelet-client-current.pem", path(last_flag(kubelet.process.argv, "kubeconfig"))
