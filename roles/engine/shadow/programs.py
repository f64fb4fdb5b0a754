"""The command lines and the files of a shadow control plane's programs. Pure.

All listen on the loopback, where pods with the host's network are too: each requires a client certificate of the shadow's own authority,
also between etcd's peers. Nothing of the cluster's own secrets is in any of these files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.editing import flag_values, kubelet_config, yaml_text
from roles.engine.shadow.credentials import ShadowCredentials

SCHEDULER_KIND = "KubeSchedulerConfiguration"
#: Operations of one request to etcd, and its bytes.
MOST_OPERATIONS, MOST_BYTES = 2000, 8 << 20
#: Flags of the cluster's own components that decide what they do with objects; all others are about connections, logs and identities.
_KEPT = ("feature-gates", "emulated-version", "emulation-forward-compatible")
# What is copied has passed the cluster's own admission: nothing of the shadow's may be added to it. All versions have these.
_ADMISSION = "DefaultTolerationSeconds,LimitRanger,RuntimeClass,ServiceAccount,StorageObjectInUseProtection,TaintNodesByCondition"


@dataclass(frozen=True)
class Ports:
    """On the loopback."""

    etcd: int
    peer: int
    api: int
    scheduler: int


@dataclass(frozen=True)
class Programs:
    """`words`: those after its name, by program; `files`: what they read, by name in the shadow's folder."""

    words: Mapping[str, tuple[str, ...]]
    files: Mapping[str, bytes]


def programs(
    folder: str,
    ports: Ports,
    own: ShadowCredentials,
    api_argv: Sequence[str] = (),
    scheduler_argv: Sequence[str] = (),
    configuration: bytes = b"",
) -> Programs:
    """`folder`: as the programs see it. `api_argv`, `scheduler_argv`: the command lines of the cluster's own; `configuration`: what the
    scheduler's --config names, b"" without one. Raises FormatError for a configuration that cannot be read."""
    files = {
        "ca.crt": own.authority,
        "server.crt": own.server.certificate,
        "server.key": own.server.key,
        "client.crt": own.client.certificate,
        "client.key": own.client.key,
        "kubeconfig": _json(_kubeconfig(folder, ports)),
        "scheduler.yaml": scheduler_configuration(configuration, f"{folder}/kubeconfig"),
    }
    words = {
        "etcd": (*_etcd(folder, ports),),
        "kube-apiserver": (*_api(folder, ports), *_kept(api_argv)),
        "kube-scheduler": (*_scheduler(folder, ports), *_kept(scheduler_argv)),
    }
    return Programs(words, files)


def scheduler_configuration(data: bytes, kubeconfig: str) -> bytes:
    """The cluster's own configuration of the scheduler, with the shadow's API and no other scheduler to elect a leader with; a default one
    for b"". Raises FormatError."""
    if not data:
        data = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: {SCHEDULER_KIND}\n".encode()
    edits: dict[tuple[str, ...], object] = {
        ("clientConnection", "kubeconfig"): kubeconfig,
        # Else the client itself makes it wait: 50 requests a second.
        ("clientConnection", "qps"): 5000,
        ("clientConnection", "burst"): 5000,
        ("leaderElection", "leaderElect"): False,
    }
    return kubelet_config.edit_fields(data, edits, SCHEDULER_KIND)


def extenders(data: bytes) -> bool:
    """True if the scheduler's configuration has extenders, which the shadow must not ask. Raises FormatError."""
    return bool(data and yaml_text.load(data).get("extenders"))


def _kept(argv: Sequence[str]) -> list[str]:
    return [f"--{flag}={value}" for flag in _KEPT for value in flag_values(argv, flag)]


def _etcd(folder: str, ports: Ports) -> list[str]:
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"https://127.0.0.1:{ports.peer}"
    return [
        "--name=shadow", f"--data-dir={folder}/etcd", "--unsafe-no-fsync", "--log-level=error",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=shadow={peer}",
        "--client-cert-auth", f"--trusted-ca-file={folder}/ca.crt", f"--cert-file={folder}/server.crt", f"--key-file={folder}/server.key",
        "--peer-client-cert-auth", f"--peer-trusted-ca-file={folder}/ca.crt", f"--peer-cert-file={folder}/server.crt",
        f"--peer-key-file={folder}/server.key", f"--max-txn-ops={MOST_OPERATIONS}", f"--max-request-bytes={2 * MOST_BYTES}",
    ]  # fmt: skip


def _api(folder: str, ports: Ports) -> list[str]:
    return [
        f"--etcd-servers=https://127.0.0.1:{ports.etcd}", f"--etcd-cafile={folder}/ca.crt", f"--etcd-certfile={folder}/client.crt",
        f"--etcd-keyfile={folder}/client.key", "--storage-media-type=application/json",
        "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", f"--secure-port={ports.api}",
        f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key", f"--client-ca-file={folder}/ca.crt",
        "--anonymous-auth=false", "--authorization-mode=AlwaysDeny", "--enable-priority-and-fairness=false",
        "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://shadow",
        f"--service-account-key-file={folder}/server.key", f"--service-account-signing-key-file={folder}/server.key",
        f"--disable-admission-plugins={_ADMISSION}",
    ]  # fmt: skip


def _scheduler(folder: str, ports: Ports) -> list[str]:
    return [
        f"--config={folder}/scheduler.yaml", "--bind-address=127.0.0.1", f"--secure-port={ports.scheduler}",
        f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key", f"--client-ca-file={folder}/ca.crt",
        f"--authentication-kubeconfig={folder}/kubeconfig", f"--authorization-kubeconfig={folder}/kubeconfig",
        "--authentication-skip-lookup",
    ]  # fmt: skip


def _kubeconfig(folder: str, ports: Ports) -> dict[str, Any]:
    cluster = {"server": f"https://127.0.0.1:{ports.api}", "certificate-authority": f"{folder}/ca.crt"}
    user = {"client-certificate": f"{folder}/client.crt", "client-key": f"{folder}/client.key"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "shadow", "cluster": cluster}],
        "users": [{"name": "shadow", "user": user}],
        "contexts": [{"name": "shadow", "context": {"cluster": "shadow", "user": "shadow"}}],
        "current-context": "shadow",
    }


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()
