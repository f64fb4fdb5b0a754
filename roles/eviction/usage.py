"""What is read of a node for eviction: its summary, pods and Node through the API, and oom_score_adj of its containers from /proc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from roles.api import Api, Unusable
from roles.api.client import TIMEOUT
from roles.observe.parse import ObservationError
from roles.rollout.remote import Remote
from roles.scripts import templates

LOOK_SECONDS = 60

# A pod's cgroup and a container's in it, as the kubelet's two drivers and the runtimes name them:
#   cgroupfs  .../kubepods/burstable/pod<UID>/<ID>
#   systemd   .../kubepods-burstable-pod<UID with _ for ->.slice/cri-containerd-<ID>.scope, crio-<ID>.scope, docker-<ID>.scope
# and .../kubepods-burstable-pod<UID>.slice:cri-containerd:<ID> where the runtime has the other driver than the kubelet.
# Static pods have 32 hex digits without dashes.
_CONTAINER = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?[/:]((?:[a-z]+[-:])*)([0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
# CRI-O's monitor of a container has a cgroup beside it: crio-conmon-<ID>.scope.
_MONITOR = "conmon-"


@dataclass(frozen=True)
class ContainerProcess:
    """The first process of a container, its PID 1. `pod_uid` with dashes as the API has it, or a static pod's 32 hex digits."""

    pod_uid: str
    container_id: str
    pid: int
    oom_score_adj: int


@dataclass(frozen=True)
class NodeUsage:
    """One node as the API has it: /stats/summary, raw pods, raw Node."""

    summary: dict[str, Any]
    pods: list[dict[str, Any]]
    node: dict[str, Any]


def script() -> str:
    """The look at the containers' processes, POSIX sh."""
    return templates().get_template("eviction_usage.sh.j2").render()


def parse(host: str, lines: Iterable[str]) -> tuple[ContainerProcess, ...]:
    """The first process of each container, from the lines of `script`; by pod and container.

    Raises ObservationError where the answer is cut short or is not of this form.
    """
    first: dict[tuple[str, str], tuple[int, int, int]] = {}
    whole = False
    for number, line in enumerate(lines, 1):
        kind, *fields = line.split(" ", 4)
        if kind == "end":
            whole = True
            continue
        try:
            pid, start, adjust, cgroup = fields
            entry = (int(start), int(pid), int(adjust))
        except ValueError as error:
            raise ObservationError(f"{host}: line {number} of the node's answer is not understood: {line[:120]!r}") from error
        place = container_of(cgroup)
        # What is executed in a container later has the same cgroup, and may have another oom_score_adj.
        if place and entry < first.get(place, (entry[0] + 1,)):
            first[place] = entry
    if not whole:
        raise ObservationError(f"{host}: the look at the containers was cut short after {len(first)} of them; try again")
    return tuple(ContainerProcess(*place, pid, adjust) for place, (_, pid, adjust) in sorted(first.items()))


def container_of(cgroup: str) -> tuple[str, str] | None:
    """Pod UID and container ID out of a path in /proc/PID/cgroup; None where it is no container's."""
    found = _CONTAINER.search(cgroup)
    if found is None or found.group(2).endswith(_MONITOR):
        return None
    return found.group(1).replace("_", "-"), found.group(3)


def look(remote: Remote) -> tuple[ContainerProcess, ...]:
    """The containers' first processes on a node. Raises ObservationError and RemoteError."""
    answer = remote.run(script(), timeout=LOOK_SECONDS)
    if answer.code != 0:
        said = " ".join(answer.stderr[-3:]) or f"exit status {answer.code}"
        raise ObservationError(f"{remote.name}: could not look at the containers' processes: {said}")
    return parse(remote.name, answer.stdout)


def fetch(api: Api, node: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> NodeUsage:
    """The summary first, so that no pod is in it that the list lacks but those that ended meanwhile. Raises an ApiError."""
    part = quote(node, safe="")
    path = f"/api/v1/nodes/{part}/proxy/stats/summary"
    summary = api.get_json(path, timeout, wait=wait)
    if not isinstance(summary.get("node"), dict):
        raise Unusable(api.host, path, "the answer has no node", "is enableDebuggingHandlers false on the node?")
    pods = api.get_json(f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}", timeout, wait=wait)
    return NodeUsage(summary, list(pods.get("items") or ()), api.get_json(f"/api/v1/nodes/{part}", timeout, wait=wait))
