"""Paths on a node that control-plane components have no business to write, by rule. Pure.

A list of dangerous files is never complete, so the rule says where files of the control plane belong: below /etc/kubernetes, in /var/log,
or outside of the system's own directories.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reserved:
    """`path`: a pattern for the begin of a path; `why`: whose it is."""

    path: str
    why: str


#: The first one that matches counts.
RESERVED = (
    Reserved(r"/(?:bin|sbin|lib\w*|usr|nix|snap)/|/(?!var/lib/)(?:.*/)?(?:bin|sbin|lib|lib64|libexec)/", "programs of the node are there"),
    Reserved(r"/(?:boot|efi)/", "the node boots from it"),
    Reserved(r"/(?:root|home)/|/(?:.*/)?\.?ssh/", "it belongs to users, who log in with what is there"),
    Reserved(r"/(?:proc|sys|dev)/", "it is no place for files"),
    Reserved(r"/(?:.*/)?(?:systemd|init\.d|cron[.\w]*|pam\.d|sudoers\.d)/", "the system starts or trusts what is there"),
    Reserved(r"/etc/kubernetes/(?:.*/)?manifests/", "the kubelet reads every file there as a static pod"),
    Reserved(r"/etc/kubernetes/(?:.*/)?(?:pki|ssl|certs?|keys?)/", "kubeadm and its renewal of certificates write it"),
    Reserved(r"/etc/kubernetes/[^/]+\.conf\Z", "kubeadm writes the kubeconfigs there"),
    Reserved(r"/etc/kubernetes/(?:kubelet|kubeadm)[^/]*\Z|/etc/kubernetes/(?:tmp|addons)/", "kubelet, kubeadm and other tools write it"),
    Reserved(r"/etc/(?!kubernetes/)", "outside of /etc/kubernetes it belongs to other programs of the node"),
    Reserved(r"/var/(?!log/|lib/(?!kubelet)(?:kube|k8s|audit))", "it belongs to other programs of the node"),
)


def reserved(path: str) -> str:
    """Why a component must not write this absolute path, nor daytwo a file there; "" if it may."""
    usual = posixpath.normpath(path) + ("/" if path.endswith("/") else "")
    usual = re.sub(r"^/+(?:var/(?=run/))?", "/", usual)
    return next((one.why for one in RESERVED if re.match(one.path, usual)), "")
