"""The versions of a node's kubelet and components: from the API, or from their binaries if the API does not know them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine.api import ApiFailure
from roles.engine.bounds import moment
from roles.engine.bridge import Remote, at_once, whole
from roles.engine.bridge.tasks import spawn
from roles.engine.control_plane import Component
from roles.engine.kube.fields import kubelet_version, status_of
from roles.engine.kubelet import Kubelet, ask
from roles.engine.node import Observation, Process, Replacement, is_younger
from roles.engine.proof.cluster import Cluster, listed_nodes
from roles.engine.remote import RemoteError
from roles.engine.timeouts import patient

KUBELET = "kubelet"
# Time limits for the version of one binary, and for all of a node.
SECONDS = 5
ALL_SECONDS = 60


@dataclass(frozen=True)
class ObservedNode:
    """An observed node, with its kubelet and components as far as they could be parsed."""

    remote: Remote
    seen: Observation
    kubelet: Kubelet | None = None
    components: Mapping[str, Component] = field(default_factory=dict)


# By PID: the versions of running processes, and what replaced their files.
Answers = tuple[dict[int, str], dict[int, Replacement]]
AskEach = Callable[[Sequence[Remote], Callable[[Remote], Answers]], Mapping[str, Answers | Exception]]


def with_versions(cluster: Cluster, looked: Sequence[ObservedNode], each: AskEach) -> dict[str, Observation]:
    """The observations, by host, with the versions of the kubelet and the components; None if a version is unknown.

    `each` runs a function on many nodes at once. Only if the API does not know a version, its binary is asked
    (roles.engine.kubelet.ask.ask_version), and so is a file that replaced a running kubelet's.
    """
    known: dict[str, dict[int, str]] = {one.remote.name: {} for one in looked}
    new: dict[str, dict[int, Replacement]] = {}
    kubelets = spawn(listed_nodes, cluster) if looked else None
    components = [(one, name) for one in looked for name in one.components]
    for answer in at_once([partial(_by_api, cluster, one, name) for one, name in components]):
        if isinstance(answer, Exception):
            raise answer
        host, pid, version = answer
        known[host] |= {pid: version} if version else {}
    nodes = kubelets.get() if kubelets is not None else {}
    questions: dict[str, str] = {}
    for one in looked:
        host = one.remote.name
        if one.kubelet is not None and (version := of_kubelet(one.seen, one.kubelet.process, nodes.get(one.kubelet.node_name, {}))):
            known[host][one.kubelet.process.pid] = version
        if left := list(_questions(one, known[host])):
            questions[host] = ask.script(left, SECONDS)
    asked = [one.remote for one in looked if one.remote.name in questions]
    for host, found in whole(each(asked, lambda remote: _ask(remote, questions[remote.name]))).items():
        known[host] |= found[0]
        new[host] = found[1]
    return {host: one.seen.with_versions(known[host], new.get(host)) for one in looked for host in (one.remote.name,)}


def of_kubelet(seen: Observation, process: Process, node: Mapping[str, Any]) -> str | None:
    """The version in a Node object, if the running kubelet wrote it: its heartbeat, by the same clock, is not older than the process
    (pkg/kubelet/nodestatus, ReadyCondition). An older one may be the version before an upgrade."""
    status = status_of(node)
    beats = [one.get("lastHeartbeatTime") for one in status.get("conditions") or () if one.get("type") == "Ready"]
    since = moment(beats[0]) if beats else None
    if since is None or not is_younger(since.timestamp(), seen.started_at(process)):
        return None
    return ask.as_version(kubelet_version(node))


def _by_api(cluster: Cluster, one: ObservedNode, component: str) -> tuple[str, int, str | None]:
    """Host, process and version of one component."""
    try:
        version = ask.as_version(cluster.component_version(one.remote.name, component) or "")
    except ApiFailure:
        version = None
    return one.remote.name, one.components[component].process.pid, version


def _questions(one: ObservedNode, known: Mapping[int, str]) -> list[str]:
    left = []
    if one.kubelet is not None and one.kubelet.process.pid not in known:
        left.append(ask.ask_version(KUBELET, one.kubelet.process, ""))
    for name, component in one.components.items():
        if component.process.pid not in known:
            left.append(ask.ask_version(name, component.process, component.log_name))
    if one.kubelet is not None and one.kubelet.process.binary_replaced:
        left.append(ask.ask_replacement(one.kubelet.process))
    return left


def _ask(remote: Remote, script: str) -> Answers:
    try:
        said = remote.run(script, timeout=patient(ALL_SECONDS)).stdout
    except RemoteError:
        return {}, {}  # these versions stay unknown
    return ask.versions(said), ask.replacements(said)
