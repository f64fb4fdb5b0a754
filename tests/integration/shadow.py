"""A shadow control plane of the product (roles/engine/shadow), of processes of this machine: its own etcd, kube-apiserver and kube-scheduler,
with Nodes that are mere objects. No kubelet, no root."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roles.engine.api.kubeconfig import tls_context
from roles.engine.kube import Object
from roles.engine.shadow import ShadowControlPlane, credentials, programs
from roles.engine.shadow.filling import contents
from roles.engine.shadow.store import Store
from tests.integration.operator import wait_for
from tests.unit.api.world import SshServer


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        found = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class Shadow:
    """Its API; `ask` returns the JSON of an answer."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._url = f"https://127.0.0.1:{port}"
        self._context = context

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind}
        request = urllib.request.Request(self._url + path, sent, headers, method=method)
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def ready(self) -> bool:
        try:
            request = urllib.request.Request(f"{self._url}/readyz")
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


class Processes:
    """The programs of a shadow on this machine, in the place of its unit on a node."""

    def __init__(self, folder: Path, binaries: Path, made: programs.Programs) -> None:
        self._folder, self._binaries, self._words = folder, binaries, made.words
        self._running: list[subprocess.Popen[bytes]] = []
        for name, data in made.files.items():
            (folder / name).write_bytes(data)

    def run(self, name: str, words: Sequence[str] = ()) -> None:
        log = (self._folder / f"{name}.log").open("wb")
        command = [str(self._binaries / name), *(words or self._words[name])]
        self._running.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}))

    def schedule(self) -> None:
        self.run("kube-scheduler")

    def check(self) -> None:
        assert all(process.poll() is None for process in self._running)

    def wait_until(self, true: Callable[[], bool], seconds: float, what: str) -> None:
        wait_for(true, what, seconds, every=0.05)

    def end(self) -> None:
        for process in reversed(self._running):
            process.kill()
            process.wait()


@contextlib.contextmanager
def asked(folder: Path, binaries: Path, objects: Mapping[str, Sequence[Object]]) -> Iterator[ShadowControlPlane]:
    """A shadow control plane with a copy of these, through an SSH connection to this process."""
    with _asked(folder, binaries, objects) as (found, _, _):
        yield found


@contextlib.contextmanager
def with_etcd(folder: Path, binaries: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """An empty shadow control plane: its etcd's port, and what it takes to connect."""
    with _asked(folder, binaries, {}) as (_, ports, own):
        yield ports.etcd, tls_context(own.as_client)


@contextlib.contextmanager
def _asked(
    folder: Path, binaries: Path, objects: Mapping[str, Sequence[Object]]
) -> Iterator[tuple[ShadowControlPlane, programs.Ports, credentials.ShadowCredentials]]:
    ports, own = programs.Ports(*free_ports(4)), credentials.new_credentials()
    processes, ssh = Processes(folder, binaries, programs.programs(str(folder), ports, own)), SshServer()
    try:
        processes.run("etcd")
        processes.run("kube-apiserver")
        found = ShadowControlPlane(processes, Store(ssh.transport, "here", ports, own), contents(objects), ["default-scheduler"])
        found.fill()
        yield found, ports, own
    finally:
        ssh.close()
        processes.end()


@contextlib.contextmanager
def shadow(folder: Path, binaries: Path, controllers: str = "", *flags: str) -> Iterator[Shadow]:
    """Started in `folder`, with the binaries of one version. `controllers`: those of kube-controller-manager, with `flags`; without any
    there is none, but a scheduler."""
    ports, own = programs.Ports(*free_ports(4)), credentials.new_credentials()
    made = programs.programs(str(folder), ports, own)
    # Tests write as others too.
    allowing = {name: tuple(each.replace("AlwaysDeny", "AlwaysAllow") for each in one) for name, one in made.words.items()}
    processes = Processes(folder, binaries, replace(made, words=allowing))
    api = Shadow(ports.api, tls_context(own.as_client))
    try:
        processes.run("etcd")
        processes.run("kube-apiserver")
        wait_for(api.ready, "the shadow's API server")
        if controllers:
            words = (
                f"--kubeconfig={folder}/kubeconfig", "--bind-address=127.0.0.1", f"--secure-port={ports.scheduler}",
                f"--authentication-kubeconfig={folder}/kubeconfig", f"--authorization-kubeconfig={folder}/kubeconfig",
                f"--cert-dir={folder}/certs", f"--controllers={controllers}", *flags,
            )  # fmt: skip
            processes.run("kube-controller-manager", words)
        else:
            processes.schedule()
        yield api
    finally:
        processes.end()
