"""The limits that the kernel enforces on a container, read from its own cgroup on its node, and the expected values. Sources:
pkg/kubelet/cm/helpers_linux.go (MilliCPUToShares, MilliCPUToQuota), pkg/kubelet/kuberuntime/kuberuntime_container_linux.go
(calculateLinuxResources), opencontainers/cgroups (ConvertCPUSharesToCgroupV2Value).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roles.engine.bounds import digits
from roles.engine.kube.amounts import whole
from roles.engine.node import ObservationError, answered, unreadable
from roles.engine.remote import Shell
from roles.engine.scripts import filled
from roles.pod_resize.pod_resources import Resources, quantity

MIN_SHARES, MAX_SHARES = 2, 262144
MIN_QUOTA_US = 1000
# For tiny requests (below 2 milli-CPU, 1.32 and later) cpu.shares is the kernel's minimum.
# In v1, "no limit" is the largest number of whole pages in an int64 (mm/page_counter.c: PAGE_COUNTER_MAX).
_NO_MEMORY_LIMIT = 2**62
_PAGE = 4096
_ID = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class ContainerCgroup:
    """A running container's cgroup. `files` are its values by file name; `pid` and `start` (clock ticks since boot) are of its first
    process."""

    container_id: str
    pid: int
    start: int
    version: Literal["v1", "v2"]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def usage(self) -> int | None:
        """Bytes that the kernel cannot reclaim for a lower limit: without inactive page cache, as the kubelet counts the working set."""
        name = "memory.usage_in_bytes" if self.version == "v1" else "memory.current"
        if (used := digits(self.files.get(name, ""))) is None:
            return None
        return max(0, used - (digits(self.files.get("inactive_file", "")) or 0))

    def __str__(self) -> str:
        names = (
            ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes") if self.version == "v1" else ("cpu.weight", "cpu.max", "memory.max")
        )
        return ", ".join(f"{name} {self.files.get(name, '-').replace(',', ' ')}" for name in names)


def shares(request_millis: int) -> int:
    return max(MIN_SHARES, min(MAX_SHARES, request_millis * 1024 // 1000))


def weights(cpu_shares: int) -> set[int]:
    """The cpu.weight (v2) that runtimes compute from shares: linear, or, since opencontainers/cgroups 0.0.4 and crun 1.23, on a curve on
    which 1024 shares are the weight 100."""
    exponent = math.log2(cpu_shares)
    curved = math.ceil(10 ** ((exponent * exponent + 125 * exponent) / 612 - 7 / 34))
    return {1 + (cpu_shares - 2) * 9999 // 262142, curved}


def quota(limit_millis: int, period: int) -> int:
    return max(MIN_QUOTA_US, limit_millis * period // 1000)


def problems(held: ContainerCgroup, wanted: Resources, *, cfs_quota: bool = True) -> list[str]:
    """The values of a container's cgroup that differ from `wanted`; empty: none. `cfs_quota` is the kubelet's cpuCFSQuota: without it the
    kubelet writes no CPU limit."""
    requests, limits = wanted.get("requests") or {}, wanted.get("limits") or {}
    found = []
    cpu_request = requests.get("cpu", limits.get("cpu", "0"))
    expected = shares(whole(quantity(cpu_request) * 1000))
    if held.version == "v1":
        if held.files.get("cpu.shares") != str(expected):
            found.append(_wrong(held, "cpu.shares", str(expected)))
    elif held.files.get("cpu.weight") not in {str(one) for one in weights(expected)}:
        found.append(_wrong(held, "cpu.weight", " or ".join(map(str, sorted(weights(expected))))))
    found += _cpu_limit(held, limits.get("cpu") if cfs_quota else None)
    found += _memory_limit(held, limits.get("memory"))
    return found


def _cpu_limit(held: ContainerCgroup, limit: str | None) -> Iterable[str]:
    if held.version == "v1":
        name, has, period = "cpu.cfs_quota_us", held.files.get("cpu.cfs_quota_us", "-"), held.files.get("cpu.cfs_period_us", "")
        unlimited = "-1"
    else:
        name = "cpu.max"
        has, _, period = held.files.get("cpu.max", "-").partition(",")
        unlimited = "max"
    if limit is None or quantity(limit) == 0:
        return [] if has == unlimited else [_wrong(held, name, unlimited)]
    if (each := digits(period)) is None:
        return [f"{name}: its period is unknown ({period or '-'})"]
    expected = quota(whole(quantity(limit) * 1000), each)
    return [] if has == str(expected) else [_wrong(held, name, str(expected))]


def _memory_limit(held: ContainerCgroup, limit: str | None) -> Iterable[str]:
    name = "memory.limit_in_bytes" if held.version == "v1" else "memory.max"
    has = held.files.get(name, "-")
    if limit is None or quantity(limit) == 0:
        unlimited = has == "max" or (digits(has) or 0) > _NO_MEMORY_LIMIT
        return [] if unlimited else [_wrong(held, name, "no limit")]
    # The kernel counts whole pages.
    expected = whole(quantity(limit)) // _PAGE * _PAGE
    return [] if has == str(expected) else [_wrong(held, name, str(expected))]


def _wrong(held: ContainerCgroup, name: str, wanted: str) -> str:
    return f"{name} is {held.files.get(name, '-').replace(',', ' ')}, wanted {wanted}"


def bare_id(container_id: str) -> str:
    """The ID of `containerd://ID`; "" if it is not an ID."""
    found = container_id.rpartition("/")[2]
    return found if _ID.match(found) else ""


def script(container_ids: Iterable[str]) -> str:
    """The POSIX sh script that reads the cgroups of these containers."""
    return filled("pod_cgroups.sh.j2", containers=[one for one in container_ids if _ID.match(one)])


def parse(host: str, lines: Iterable[str]) -> dict[str, ContainerCgroup]:
    """The running containers by id. Raises ObservationError if the answer is cut short or malformed."""
    found: dict[str, ContainerCgroup] = {}
    whole_answer = False
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words == ["end"]:
            whole_answer = True
            continue
        try:
            kind, identifier, pid, start, version, *values = words
            if kind != "container" or version not in ("v1", "v2"):
                raise ValueError
            files = dict(value.split("=", 1) for value in values)
            found[identifier] = ContainerCgroup(identifier, int(pid), int(start), "v1" if version == "v1" else "v2", files)
        except ValueError as error:
            raise unreadable(host, number, line) from error
    if not whole_answer:
        raise ObservationError(f"{host}: the answer about the cgroups was cut short after {len(found)} containers; try again")
    return found


def look(remote: Shell, container_ids: Iterable[str]) -> dict[str, ContainerCgroup]:
    """Read the cgroups of the running containers of a node. Raises ObservationError and RemoteError."""
    return parse(remote.name, answered(remote, script(container_ids), "read the containers' cgroups"))
