"""A kubelet, what it needs, and the answer of a node on which all of that is well."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from roles.engine.kubelet import Kubelet, find
from roles.engine.starting import Needs, Obstacle, PathFact, StartFacts, judge, kubelet_needs
from roles.engine.starting.cri import RuntimeHealth
from roles.engine.starting.model import Holds
from tests.unit.node import node

NOW = datetime(2026, 6, 1, tzinfo=UTC)
RUNTIME = RuntimeHealth(
    name="containerd 2.1",
    version="0",
    config="0",
    conditions={"RuntimeReady": (True, ""), "NetworkReady": (True, "")},
    plugin_folders=("/opt/cni/bin",),
    plugins=frozenset({"bridge", "host-local", "portmap"}),
    network="/etc/cni/net.d/10-lab.conflist",
    wanted_plugins=frozenset({"bridge", "host-local"}),
)
KIND = {Holds.directory: "directory", Holds.written: "directory", Holds.socket: "socket", Holds.device: "device"}


def kubelet(config: str = "", style: str = "kubeadm", **more: Any) -> Kubelet:
    path = "/var/lib/kubelet/config.yaml" if style == "kubeadm" else "/etc/kubernetes-node/kubelet.yaml"
    socket = "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"
    return find(node.parse("n1", node.answer(style=style, files={path: node.CONFIG + (socket + config).encode()}, **more)))


@cache
def certificate(name: str = "system:node:node", days: int = 90, since: int = 100) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(NOW - timedelta(days=since)).not_valid_after(NOW + timedelta(days=days))
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def well(needs: Needs, **more: Any) -> StartFacts:
    """The answer of a healthy node: all that is needed is there, but for the bootstrap kubeconfig, which kubeadm removes."""
    paths = {one.path: PathFact(KIND.get(one.holds, "file"), True, True, True) for one in needs.paths}
    named = {one.path for one in needs.paths if one.named_by not in ("--bootstrap-kubeconfig", "")}
    paths |= {one.path: PathFact("none", makeable=True) for one in needs.paths if one.path not in named}
    facts: dict[str, Any] = {
        "epoch": int(NOW.timestamp()),
        "tunables": {one.name: (one.value, True) for one in needs.tunables},
        "paths": paths,
        "pems": {one.path: certificate() for one in needs.paths if one.holds in (Holds.certificates, Holds.identity)},
        "nameservers": {"/etc/resolv.conf": ("10.0.0.53",)},
        "space": {one.path: (5000, 100000) for one in needs.paths if one.holds is Holds.written},
        "addresses": frozenset({"10.0.0.1"}),
        "controllers": frozenset({"cpu", "cpuset", "memory", "pids"}),
        "cgroup2": True,
        "swap": 0,
        "tasks": (500, 32768),
        "main_pid": 100,
        "runtime": RUNTIME,
        "complete": True,
    }
    return StartFacts(**{**facts, **more})


def obstacles(config: str = "", argv: tuple[str, ...] | None = None, **facts: Any) -> list[Obstacle]:
    """Of a node that is well but for these facts; a mapping of facts is laid over the healthy one."""
    needs = kubelet_needs(kubelet(config), argv=argv)
    healthy = well(needs)
    laid = {
        name: {**getattr(healthy, name), **value} if isinstance(value, Mapping) and isinstance(getattr(healthy, name), Mapping) else value
        for name, value in facts.items()
    }
    return judge("n1", needs, well(needs, **laid))
