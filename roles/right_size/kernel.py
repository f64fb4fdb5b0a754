"""What the kernel counted for the containers of a node since each of them started, read from their cgroups over SSH.

Sources: Documentation/admin-guide/cgroup-v2.rst (memory.current, memory.peak from 5.19 on, memory.events, cpu.stat), cgroup-v1/memory.rst
(memory.max_usage_in_bytes, memory.oom_control: oom_kill from 4.13 on), cgroup-v1/cpuacct.rst, accounting/psi.rst.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roles.engine.bounds import digits
from roles.engine.kubelet import container_of
from roles.engine.node import ObservationError, answered, unreadable
from roles.engine.remote import Shell
from roles.engine.scripts import filled

#: Records in one answer: 250 pods of four containers, each in three hierarchies.
MOST = 3000
# Larger than any real value: a limit that is not set reads as `max` (v2) or as the largest number of whole pages (v1).
_NO_LIMIT = 2**60
# No counter and no clock is higher (2**63; 300 years): a node that says so is broken, or lies.
_MOST_SECONDS = 1e10
_MICRO, _NANO = 1e6, 1e9
# Of CPU time, the one that counts first.
_COUNTERS = ("usage_usec", "cpuacct.usage")


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One running container. `at`: seconds since the node's boot; bytes; CPU time and the time that processes waited (pressure: psi.rst) in
    seconds. All but `memory` count since the container's cgroup was created. None: this kernel does not say.

    `memory` is the working set as the kubelet counts it (without inactive page cache); `cache` the inactive page cache; `peak` includes
    page cache, so it is an upper bound. `periods` and `throttled`: periods of the CPU limit, and those in which it stopped the container.
    """

    at: float
    memory: int | None = None
    cache: int | None = None
    peak: int | None = None
    memory_limit: int | None = None
    oom_kills: int | None = None
    cpu: float | None = None
    periods: int | None = None
    throttled: int | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None


@dataclass(frozen=True)
class NodeUse:
    """One read of a node: its boot; `clock`, its wall clock in seconds since the epoch; and its containers by the UID of their pod (with
    dashes, or a static pod's 32 hex digits) and their ID. `cut`: there were more than MOST records."""

    boot: str
    clock: float
    containers: Mapping[tuple[str, str], KernelUse]
    cut: bool = False


def script() -> str:
    """The POSIX sh script; nothing from a pod is in it."""
    return filled("container_use.sh.j2", most=MOST)


def parse(host: str, lines: Iterable[str]) -> NodeUse:
    """The answer of `script`. Raises ObservationError if it is cut short or malformed. Records whose cgroup is not a container's are
    ignored: a privileged container may give its own cgroups any name."""
    boot, clock, cut, whole = "", 0.0, False, False
    files: dict[tuple[str, str], dict[str, str]] = {}
    times: dict[tuple[str, str], float] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        try:
            if words == ["end"]:
                whole = True
            elif words == ["cut"]:
                cut = True
            elif words[0] == "boot":
                [_, boot, epoch] = words
                clock = _time(epoch)
            else:
                kind, version, now, *values, path = words
                if kind != "use" or version not in ("v1", "v2"):
                    raise ValueError(kind)
                at = _time(now)
                read = dict(value.split("=", 1) for value in values)
                if place := container_of(path):
                    known = files.setdefault(place, {})
                    # The time is that of the CPU counter: rates are computed from both.
                    if place not in times or (read.keys() & _COUNTERS and _COUNTERS[0] not in known):
                        times[place] = at
                    known.update(read)
        except (ValueError, IndexError) as error:
            raise unreadable(host, number, line) from error
    if not whole or not boot:
        raise ObservationError(f"{host}: the answer about the containers' use was cut short after {len(files)} of them; try again")
    return NodeUse(boot, clock, {place: _use(times[place], read) for place, read in files.items()}, cut)


def _use(at: float, files: Mapping[str, str]) -> KernelUse:
    used, cache = _number(files, "memory.current", "memory.usage_in_bytes"), _number(files, "inactive_file")
    limit = _number(files, "memory.max", "memory.limit_in_bytes")
    micro, nano = (_number(files, name) for name in _COUNTERS)
    return KernelUse(
        at=at,
        memory=None if used is None else max(0, used - (cache or 0)),
        cache=cache,
        peak=_number(files, "memory.peak", "memory.max_usage_in_bytes"),
        memory_limit=None if limit is None or limit >= _NO_LIMIT else limit,
        oom_kills=_number(files, "oom_kill"),
        cpu=micro / _MICRO if micro is not None else nano / _NANO if nano is not None else None,
        periods=_number(files, "nr_periods"),
        throttled=_number(files, "nr_throttled"),
        cpu_pressure=_seconds(files, "cpu.pressure"),
        memory_pressure=_seconds(files, "memory.pressure"),
    )


def _time(text: str) -> float:
    """Raises ValueError."""
    found = float(text)
    if not 0 <= found < _MOST_SECONDS:
        raise ValueError(f"{text} is no time")
    return found


def _number(files: Mapping[str, str], *names: str) -> int | None:
    return next((found for name in names if (found := digits(files.get(name, ""))) is not None), None)


def _seconds(files: Mapping[str, str], name: str) -> float | None:
    found = _number(files, name)
    return None if found is None else found / _MICRO


def look(remote: Shell) -> NodeUse:
    """Read the containers of a node. Raises ObservationError and RemoteError."""
    return parse(remote.name, answered(remote, script(), "read what its containers use"))
