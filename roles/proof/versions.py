"""The versions of the kubelet and of the control plane's processes. The API has them, and nothing is run for that; only
where it says nothing, or may speak of an earlier process, the node's own binaries are asked."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roles.control_plane import Component
from roles.kubelet import Kubelet
from roles.observe import Observation, Process
from roles.patience import patient
from roles.proof.cluster import Cluster
from roles.rollout.remote import Answer, Remote, RemoteError
from roles.scripts import templates

# For one binary to tell its version, and for all of a node.
SECONDS = 10
ALL_SECONDS = 60
# As Kubernetes writes them (k8s.io/apimachinery/pkg/version); vendors add a suffix.
_VERSION = re.compile(r"v1\.\d{1,3}\.\d{1,4}[0-9A-Za-z.+-]{0,60}")
# The node's clock and a heartbeat are read in whole seconds.
_ROUNDED = 1.0


@dataclass(frozen=True)
class Running:
    """A node that was looked at: its proven processes."""

    remote: Remote
    kubelet: Kubelet
    components: Mapping[str, Component]

    @property
    def seen(self) -> Observation:
        return self.kubelet.seen


Each = Callable[[Sequence[Remote], Callable[[Remote], Any]], Mapping[str, Any]]


def read(each: Each, cluster: Cluster, nodes: Sequence[Running]) -> dict[str, dict[int, str]]:
    """The versions of each node's processes, by host and PID, as far as they can be known; `each` asks many nodes at once.

    The API is not waited for. What is no fault of a node is raised.
    """
    objects = cluster.node_objects() if nodes else {}
    known = {node.remote.name: _by_api(cluster, node, objects.get(node.kubelet.node_name) or {}) for node in nodes}
    questions = {node.remote.name: script(node, known[node.remote.name]) for node in nodes}
    asked = each([node.remote for node in nodes if questions[node.remote.name]], lambda remote: _run(remote, questions[remote.name]))
    for host, answer in asked.items():
        if isinstance(answer, RemoteError):
            continue
        if isinstance(answer, Exception):
            raise answer
        known[host] |= parse(answer.stdout)
    return known


def _run(remote: Remote, question: str) -> Answer:
    return remote.run(question, timeout=patient(ALL_SECONDS))


def _by_api(cluster: Cluster, node: Running, its_object: Mapping[str, Any]) -> dict[int, str]:
    process = node.kubelet.process
    found = {process.pid: registered(its_object, node.seen, process)}
    found |= {component.process.pid: cluster.version(node.remote.name, name) or "" for name, component in node.components.items()}
    return {pid: version for pid, version in found.items() if _VERSION.fullmatch(version)}


def registered(node: Mapping[str, Any], seen: Observation, process: Process) -> str:
    """The version of this very kubelet by its Node object; "" where that is another machine's, another boot's, or was last written
    before the process started."""
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    if not seen.boot_id or info.get("bootID") != seen.boot_id:
        return ""
    beats = [one.get("lastHeartbeatTime") for one in status.get("conditions") or () if one.get("type") == "Ready"]
    try:
        written = datetime.fromisoformat(str(beats[0])).timestamp()
    except (IndexError, ValueError):
        return ""
    return str(info.get("kubeletVersion") or "") if written > seen.started_at(process) + _ROUNDED else ""


def script(node: Running, known: Mapping[int, str], proc: str = "/proc") -> str:
    """A script that asks the processes whose version is not `known` yet; "" where there is none. A kubelet answers as it
    is; a component in its own container, without any rights."""
    kubelet = node.kubelet.process
    kubelets = [] if kubelet.pid in known else [(kubelet.pid, kubelet.start_ticks)]
    processes = (_of_its_manifest(node.seen, component) for component in node.components.values())
    components = [(one.pid, one.start_ticks, one.pod_uid) for one in processes if one is not None and one.pid not in known]
    if not kubelets and not components:
        return ""
    template = templates().get_template("versions.sh.j2")
    return template.render(kubelets=kubelets, components=components, seconds=patient(SECONDS), proc=proc)


def _of_its_manifest(seen: Observation, component: Component) -> Process | None:
    """The component's process, if it is that of a pod that a manifest of this kubelet makes."""
    own = seen.process_of(component.name, component.pod.namespace, component.pod.name) if component.file.path else None
    return own if own is not None and own.pid == component.process.pid else None


def parse(lines: Iterable[str]) -> dict[int, str]:
    """The versions that were answered, by PID."""
    found = {}
    for line in lines:
        if answer := re.fullmatch(r"version (\d+) (\S*)=", line):
            body = answer.group(2).rstrip("=")
            try:
                said = base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")
            except binascii.Error:
                continue
            if version := re.fullmatch(rf"Kubernetes ({_VERSION.pattern})\s*", said):
                found[int(answer.group(1))] = version.group(1)
    return found
