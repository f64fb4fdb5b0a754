"""A shadow control plane: etcd, kube-apiserver and kube-scheduler on the loopback, with Nodes that are mere objects. No kubelet, no root."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.operator import wait_for

TOKEN = "shadow"
# Nothing of the cluster's own is added to what the test creates.
ADMISSION = "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,RuntimeClass,LimitRanger,StorageObjectInUseProtection"


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        found = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class Shadow:
    """Its API; `ask` returns the JSON of an answer."""

    def __init__(self, port: int) -> None:
        self._url = f"https://127.0.0.1:{port}"
        # Its certificate is its own, made a moment ago, on the loopback.
        self._context = ssl._create_unverified_context()

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        request = urllib.request.Request(self._url + path, sent, headers, method=method)
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def ready(self) -> bool:
        try:
            request = urllib.request.Request(f"{self._url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(request, context=self._context, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def create(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        """Also with its status, for kinds that have it as a subresource."""
        made = self.ask("POST", path, item)
        if "status" in item:
            self.ask("PATCH", f"{path}/{item['metadata']['name']}/status", {"status": item["status"]}, "application/merge-patch+json")
        return made

    def items(self, path: str) -> list[dict[str, Any]]:
        return list(self.ask("GET", path)["items"] or ())

    def clear(self, path: str) -> None:
        self.ask("DELETE", f"{path}?gracePeriodSeconds=0", {"gracePeriodSeconds": 0})


@contextlib.contextmanager
def shadow(folder: Path, binaries: Path, controllers: str = "", *flags: str) -> Iterator[Shadow]:
    """Started in `folder`, with the binaries of one version. `controllers`: those of kube-controller-manager, with `flags`; without any
    there is none, but a scheduler."""
    client, peer, port, scheduler = free_ports(4)
    (folder / "tokens.csv").write_text(f'{TOKEN},shadow,1,"system:masters"\n')
    subprocess.run(["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], check=True, capture_output=True)
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "shadow", "cluster": cluster}],
        "users": [{"name": "shadow", "user": {"token": TOKEN}}],
        "contexts": [{"name": "shadow", "context": {"cluster": "shadow", "user": "shadow"}}],
        "current-context": "shadow",
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    commands = [
        ["etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}"]
        + [f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster=default=http://127.0.0.1:{peer}", "--unsafe-no-fsync"],
        ["kube-apiserver", f"--etcd-servers=http://127.0.0.1:{client}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}"]
        + [f"--cert-dir={folder}/certs", f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=AlwaysAllow", "--service-cluster-ip-range=10.0.0.0/24"]
        + [f"--service-account-key-file={folder}/sa.key", f"--service-account-signing-key-file={folder}/sa.key", "--service-account-issuer=https://shadow"]
        + [f"--disable-admission-plugins={ADMISSION}"],
        ["kube-scheduler", f"--kubeconfig={folder}/kubeconfig", "--bind-address=127.0.0.1", f"--secure-port={scheduler}", "--leader-elect=false"]
        + [f"--authentication-kubeconfig={folder}/kubeconfig", f"--authorization-kubeconfig={folder}/kubeconfig", f"--cert-dir={folder}/certs"],
    ]  # fmt: skip
    if controllers:
        commands[-1] = [
            "kube-controller-manager", f"--kubeconfig={folder}/kubeconfig", "--bind-address=127.0.0.1", f"--secure-port={scheduler}",
            f"--authentication-kubeconfig={folder}/kubeconfig", f"--authorization-kubeconfig={folder}/kubeconfig", f"--cert-dir={folder}/certs",
            f"--controllers={controllers}", *flags,
        ]  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    api = Shadow(port)
    try:
        for words in commands:
            log = (folder / f"{words[0]}.log").open("wb")
            running.append(
                subprocess.Popen([str(binaries / words[0]), *words[1:]], stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
            )
            if words[0] == "kube-apiserver":
                wait_for(api.ready, "the shadow's API server")
        yield api
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()
