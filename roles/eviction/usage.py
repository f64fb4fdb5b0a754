"""The oom_score_adj of a node's containers, as read from /proc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from roles.engine.bridge import Remote
from roles.engine.node import ObservationError
from roles.engine.scripts import templates
from roles.engine.timeouts import patient

LOOK_SECONDS = 60

# A pod's cgroup and a container's cgroup in it, as the kubelet's two drivers and the runtimes name them:
#   cgroupfs  .../kubepods/burstable/pod<UID>/<ID>
#   systemd   .../kubepods-burstable-pod<UID with _ for ->.slice/cri-containerd-<ID>.scope, crio-<ID>.scope, docker-<ID>.scope
# and .../kubepods-burstable-pod<UID>.slice:cri-containerd:<ID> if the runtime's driver differs from the kubelet's.
# Static pods have 32 hex digits without dashes.
_CONTAINER = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?[/:]((?:[a-z]+[-:])*)([0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
# CRI-O's monitor of a container has a cgroup next to the container's: crio-conmon-<ID>.scope.
_MONITOR = "conmon-"


@dataclass(frozen=True)
class ContainerProcess:
    """The first process of a container, its PID 1. `pod_uid` with dashes as the API has it, or a static pod's 32 hex digits."""

    pod_uid: str
    container_id: str
    pid: int
    oom_score_adj: int


def script() -> str:
    """The script that reads the containers' processes, POSIX sh."""
    return templates().get_template("eviction_usage.sh.j2").render()


def parse(host: str, lines: Iterable[str]) -> tuple[ContainerProcess, ...]:
    """The first process of each container, from the lines of `script`; by pod and container.

    Raises ObservationError if the answer is cut short or does not have this form.
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
        # Later processes of a container have the same cgroup, but may have a different oom_score_adj.
        if place and entry < first.get(place, (entry[0] + 1,)):
            first[place] = entry
    if not whole:
        raise ObservationError(f"{host}: the answer about the containers was cut short after {len(first)} of them; try again")
    return tuple(ContainerProcess(*place, pid, adjust) for place, (_, pid, adjust) in sorted(first.items()))


def container_of(cgroup: str) -> tuple[str, str] | None:
    """Pod UID and container ID from a path in /proc/PID/cgroup; None if it is not a container's."""
    found = _CONTAINER.search(cgroup)
    if found is None or found.group(2).endswith(_MONITOR):
        return None
    return found.group(1).replace("_", "-"), found.group(3)


def look(remote: Remote) -> tuple[ContainerProcess, ...]:
    """The containers' first processes on a node. Raises ObservationError and RemoteError."""
    answer = remote.run(script(), timeout=patient(LOOK_SECONDS))
    if answer.code != 0:
        error = " ".join(answer.stderr[-3:]) or f"exit status {answer.code}"
        raise ObservationError(f"{remote.name}: could not read the containers' processes: {error}")
    return parse(remote.name, answer.stdout)
