"""What must hold on a node before a change, and after it."""

from __future__ import annotations

import posixpath
import time
from collections import Counter

import pytest

from roles.control_plane import COMPONENTS
from roles.formats import FormatError, flags, manifest
from tests.acceptance.conftest import Gate, Node

# A kubelet that cannot go on ends within seconds of its start, and systemd starts the next one 10 s later (RestartSec in the
# packaged unit): one that is this old is none of those.
STABLE_SECONDS = 30
LOOKS = 3
# The kubelet reads every name in its manifests directory that has no dot in front, whatever it ends with
# (pkg/kubelet/config/file.go, extractFromDir): these are the endings that people give to what is meant to be read.
MEANT = (".yaml", ".yml", ".json")


def ask(node: Node, url: str, *arguments: str) -> tuple[str, str]:
    """HTTP status (000: no answer) and body of a URL, asked on the node itself."""
    assert node.host.exists("curl"), "curl is missing on the node; health endpoints cannot be asked without it"
    options = ["--silent", "--show-error", "--insecure", "--noproxy", "*", "--max-time", "10", "--write-out", "\\n%{http_code}"]
    words = ["curl", *options, *arguments, url]
    done = node.host.run(" ".join("%s" for _ in words), *words)
    body, _, status = done.stdout.rpartition("\n")
    return status, body or done.stderr


def test_kubelet_service_runs(node: Node) -> None:
    unit = node.kubelet.seen.unit
    assert unit is not None
    assert (unit.first("ActiveState"), unit.first("SubState")) == ("active", "running")
    status, said = ask(node, node.kubelet.health_url)
    assert status == "200", f"{node.kubelet.health_url} answers {status}: {said}"


def test_kubelet_is_stable(node: Node) -> None:
    """The same process in every look, not started again by systemd, until it is old enough."""

    def identity(looked: Node) -> tuple[int, int, str]:
        unit = looked.kubelet.seen.unit
        return looked.kubelet.process.pid, looked.kubelet.process.start_ticks, unit.first("NRestarts") if unit else ""

    looks, age = 1, 0.0
    while looks < LOOKS or age < STABLE_SECONDS:
        time.sleep(0.5)  # between looks
        looked = node.again()
        assert identity(looked) == identity(node), "PID, start and NRestarts now and at the first look"
        seen = looked.kubelet.seen
        looks, age = looks + 1, seen.uptime - looked.kubelet.process.start_ticks / seen.ticks_per_second


def test_kubelet_runs_with_what_its_unit_gives(node: Node) -> None:
    """A difference means that a file was changed and the kubelet not restarted: the next restart brings a surprise."""
    kubelet = node.kubelet
    assert kubelet.running_gates == kubelet.flag_gates
    assert len(kubelet.process.argv) == len(kubelet.service.argv), [word.text for word in kubelet.service.argv]
    # The first word is the program; a word with a specifier is only known to systemd.
    words = list(zip(kubelet.process.argv, kubelet.service.argv, strict=True))[1:]
    differ = [f"runs with {has}, {gives.origin} gives {gives.text}" for has, gives in words if gives.known and has != gives.text]
    assert not differ


def test_gate(node: Node, gate: Gate) -> None:
    if gate.component == "kubelet":
        kubelet = node.kubelet
        found = kubelet.running_gates.get(gate.name)
        where = "its command line"
        if found is None:
            found = (kubelet.configuration.get("featureGates") or {}).get(gate.name)
            started = kubelet.seen.started_at(kubelet.process)
            paths = [path for path in (kubelet.config_path, *kubelet.dropin_paths) if path]
            newer = [path for path in paths if (file := kubelet.seen.file(path)) and file.mtime > started + 1]
            assert not newer, f"{', '.join(newer)} was changed after the kubelet started, which reads it at its start only"
            where = ", ".join(paths) or where
    elif gate.component in node.components:
        found = node.components[gate.component].running_gates.get(gate.name)
        where = "its command line"
    else:
        pytest.skip(f"no {gate.component} runs here as a static pod")
    assert found == gate.value, f"{gate.component} has {gate.name}={'absent' if found is None else found} in {where}"


def test_manifests_directory_has_no_strays(node: Node) -> None:
    """A backup beside a manifest is a second pod of the same name, and the kubelet takes one of them."""
    folder = node.kubelet.manifests
    if folder is None:
        pytest.skip("this kubelet has no directory for static pods")
    strays = []
    for name in visible(node, folder):
        file = node.kubelet.seen.file(posixpath.join(folder, name))
        if not name.endswith(MEANT) or file is None or file.data is None:
            strays.append(name)
    assert not strays, f"{folder} holds what is no manifest: {', '.join(strays)}"


def test_each_manifest_makes_a_pod_of_its_own(node: Node) -> None:
    folder = node.kubelet.manifests
    if folder is None:
        pytest.skip("this kubelet has no directory for static pods")
    pods: Counter[str] = Counter()
    for name in visible(node, folder):
        data = node.kubelet.seen.data(posixpath.join(folder, name))
        if not name.endswith(MEANT) or data is None:
            continue
        try:
            pod = manifest.read(data)
        except FormatError as error:
            pytest.fail(str(error.in_file(posixpath.join(folder, name))), pytrace=False)
        pods[f"{pod.namespace}/{pod.name}"] += 1
    assert not [pod for pod, count in pods.items() if count > 1], f"pods that several files in {folder} make"


def visible(node: Node, folder: str) -> list[str]:
    """Names in the manifests directory that the kubelet does not skip for their dot."""
    names = node.kubelet.seen.directories.get(posixpath.normpath(folder))
    if names is None:
        there = node.kubelet.seen.file(folder)
        # kubeadm names the directory on workers too and does not make it; the kubelet waits for it.
        assert there is not None and there.kind == "none", f"{folder}, where the kubelet looks for static pods, is no directory"
    return [name for name in names or () if not name.startswith(".")]


@pytest.mark.parametrize("name", COMPONENTS)
def test_control_plane_is_ready(node: Node, name: str) -> None:
    """Asked on the node itself, not through a load balancer that another node may answer for."""
    component = node.components.get(name)
    if component is None:
        pytest.skip(f"no {name} runs here as a static pod")
    argv = component.process.argv
    certificate, key = flags.last_flag(argv, "kubelet-client-certificate"), flags.last_flag(argv, "kubelet-client-key")
    # Where anonymous requests are refused, the API server's own client certificate may ask: /readyz is open to all it knows.
    known = certificate and key and node.host.file(certificate).exists and node.host.file(key).exists
    status, said = ask(node, f"{component.health_url}?verbose", *(["--cert", certificate, "--key", key] if known else []))
    assert status == "200", f"{component.health_url} answers {status}: {said}"
