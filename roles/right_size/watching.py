"""Whether a workload is worse off than before its resize: restarted, killed for its memory, stopped by its CPU limit, or starved. Pure.

Source: Documentation/accounting/psi.rst (`some`: the time in which at least one process waited).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from roles.engine.folding import counted
from roles.right_size.quantities import memory_text
from roles.right_size.samples import LEAST_PERIODS, THROTTLED, Read
from roles.right_size.workloads import ContainerNow

#: The share of throttled periods, and that of the time in which processes wait for CPU, may be so much more than before.
_MORE, _MORE_WAITING = 0.05, 0.25
# Seconds of waiting that are judged at least: less says little.
_LEAST_WAITING = 10.0


@dataclass(frozen=True)
class UseBefore:
    """What the samples know of one container: the share of the periods in which its CPU limit stopped it; and `waited`, the share of the
    time in which its processes waited for CPU, if its CPU request falls: only then a resize can be why they wait more. None: not known."""

    throttled: float = 0.0
    waited: float | None = None


@dataclass(frozen=True)
class SoakLook:
    """Containers by pod and name: as the API has them, and what the kernel has counted of each that runs. `failed`: pods that ended, with
    the reason (Evicted)."""

    containers: Mapping[tuple[str, str], ContainerNow]
    reads: Mapping[tuple[str, str], Read]
    failed: Mapping[str, str] = field(default_factory=dict)


def worse(before: SoakLook, now: SoakLook, known: Mapping[str, UseBefore]) -> Iterator[str]:
    """Sentences. `before`: right before the resize; `known`: by container. Pods that are gone are not judged, since someone else deleted
    them; but if none is left, that is a sentence too."""
    if before.containers and not any(place in now.containers for place in before.containers):
        yield "none of its pods is left to be watched: someone else deleted them"
    for pod in dict.fromkeys(pod for pod, _ in before.containers):
        if (why := now.failed.get(pod)) and pod not in before.failed:
            yield f"{pod}: it has ended: {why}"
    for place, was in before.containers.items():
        one = now.containers.get(place)
        if one is None:
            continue
        where = f"{place[0]}, {place[1]}"
        if kills := [kill for kill in one.kills if kill.id not in {known.id for known in was.kills}]:
            at = f" at a limit of {memory_text(one.limits.memory)}" if one.limits.memory else ""
            yield f"{where}: the kernel killed it for its memory{at}, {counted(len(kills), 'time')} since"
        elif one.restarts > was.restarts:
            yield f"{where}: it was restarted"
        yield from _counted(where, before.reads.get(place), now.reads.get(place), known.get(place[1], UseBefore()), one)


def _counted(where: str, before: Read | None, now: Read | None, known: UseBefore, one: ContainerNow) -> Iterator[str]:
    if before is None or now is None or before.source != now.source:
        return
    if (now.oom_kills or 0) > (before.oom_kills or 0):
        yield f"{where}: the kernel killed a process of it for its memory"
    if one.limits.cpu and now.periods is not None and before.periods is not None and now.throttled is not None:
        periods, throttled = now.periods - before.periods, now.throttled - (before.throttled or 0)
        if periods >= LEAST_PERIODS and throttled / periods >= max(THROTTLED, known.throttled + _MORE):
            yield f"{where}: its CPU limit stopped it in {throttled / periods:.0%} of the periods, before in {known.throttled:.0%}"
    if None not in (known.waited, before.cpu_pressure, now.cpu_pressure, before.clock, now.clock):
        yield from _waited(where, before, now, known.waited or 0.0)


def _waited(where: str, before: Read, now: Read, share: float) -> Iterator[str]:
    seconds, waited = (now.clock or 0.0) - (before.clock or 0.0), (now.cpu_pressure or 0.0) - (before.cpu_pressure or 0.0)
    if seconds >= _LEAST_WAITING and waited / seconds >= share + _MORE_WAITING:
        yield (
            f"{where}: its processes waited for CPU in {min(1.0, waited / seconds):.0%} of the time, before in {share:.0%}: others on the "
            "node take what it no longer requests"
        )
