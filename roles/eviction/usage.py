"""The oom_score_adj of a node's containers, as read from /proc."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roles.engine.kubelet import container_of
from roles.engine.node import ObservationError, answered, unreadable
from roles.engine.remote import Shell
from roles.engine.scripts import filled


@dataclass(frozen=True)
class ContainerProcess:
    """The first process of a container, its PID 1. `pod_uid` with dashes as the API has it, or a static pod's 32 hex digits."""

    pod_uid: str
    container_id: str
    pid: int
    oom_score_adj: int


def script() -> str:
    """The script that reads the containers' processes, POSIX sh."""
    return filled("eviction_usage.sh.j2")


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
            raise unreadable(host, number, line) from error
        place = container_of(cgroup)
        # Later processes of a container have the same cgroup, but may have a different oom_score_adj.
        if place and entry < first.get(place, (entry[0] + 1,)):
            first[place] = entry
    if not whole:
        raise ObservationError(f"{host}: the answer about the containers was cut short after {len(first)} of them; try again")
    return tuple(ContainerProcess(*place, pid, adjust) for place, (_, pid, adjust) in sorted(first.items()))


def look(remote: Shell) -> tuple[ContainerProcess, ...]:
    """The containers' first processes on a node. Raises ObservationError and RemoteError."""
    return parse(remote.name, answered(remote, script(), "read the containers' processes"))
