"""The cgroup of a container, by its path. Pure."""

from __future__ import annotations

import re

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


def container_of(cgroup: str) -> tuple[str, str] | None:
    """Pod UID and container ID from a path in /proc/PID/cgroup; None if it is not a container's."""
    found = _CONTAINER.search(cgroup)
    if found is None or found.group(2).endswith(_MONITOR):
        return None
    return found.group(1).replace("_", "-"), found.group(3)
