"""What all lives of one container of a workload say together: its CPU rates, its memory, its trend, its kills. Pure.

A leak is looked for in each life by itself. Its reads are cut into PARTS of as many reads, and the least memory of each part must be above
that of the part before: a garbage collector's saw teeth do not hide a leak, and a start that levels off is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from roles.right_size.samples import THROTTLED, Point, SampleHistory, Span, percentile, total, union_seconds

#: Rates and reads of memory below which nothing is called steady, and nothing recommended.
LEAST_RATES, LEAST_POINTS = 5, 12
PARTS = 6
# Of the memory at the end of a life: less growth than this is no leak. And the last part must still grow by this share of the mean growth.
_GROWTH, _STILL = 0.03, 0.25


@dataclass(frozen=True)
class Trend:
    """Memory that rose in every part of a life: bytes per second, over how many seconds, and the container's age then."""

    rate: float
    seconds: float
    age: float


@dataclass(frozen=True)
class UseEvidence:
    """CPU in thousandths of a core, memory in bytes, times in seconds. None: not known.

    CPU: `cpu_seconds` are between the first and the last read of all lives together; `cpu_median` over all of them, `cpu_p95` and
    `cpu_highest` of the worst one (`cpu_worst`, a pod). `fine`: the number of rates over at most a minute.
    Memory: `memory_seconds` also count the time before the first read, since the kernel's peak does; `memory_p95` and `memory_highest` are
    reads of the working set, `peak` the kernel's peak without the page cache that can be reclaimed, `kernel_peak` as the kernel has it.
    `trend`: a leak; `rising`: it may be one, and more reads will tell. Both are of the newest image only.
    `throttled`: the share of the periods in which a CPU limit of `throttled_at` stopped the container (see _throttled). `kills`: OOM kills,
    `kill_limit` and `kill_least` the highest and the lowest limit at which one happened, `kill_lived` the longest life that ended so,
    `kill_ago` the time between the last one and the last read.
    """

    cpu_seconds: float = 0.0
    memory_seconds: float = 0.0
    reads: int = 0
    lives: int = 0
    images: int = 0
    rates: int = 0
    fine: int = 0
    cpu_median: float | None = None
    cpu_p95: float | None = None
    cpu_highest: float | None = None
    cpu_mean: float | None = None
    cpu_worst: str = ""
    throttled: float | None = None
    throttled_at: int | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    points: int = 0
    memory_median: int | None = None
    memory_p95: int | None = None
    memory_highest: int | None = None
    peak: int | None = None
    kernel_peak: int | None = None
    memory_worst: str = ""
    trend: Trend | None = None
    rising: bool = False
    kills: int = 0
    kill_limit: int | None = None
    kill_least: int | None = None
    kill_lived: float | None = None
    kill_ago: float | None = None


def evidence(history: SampleHistory, gone: Sequence[Span] = ()) -> UseEvidence:
    """`gone`: lives of pods that are gone and whose image is not known: they say nothing of a leak now."""
    spans = (*history.spans, *gone)
    cpu, worst = _cpu(spans)
    killed = {kill.id for kill in history.kills if not kill.processes}
    # The kernel also counts processes that it killed in a container that went on.
    kills = len(killed) + sum(span.last.oom_kills or 0 for span in spans if span.id not in killed)
    limits = [kill.limit for kill in history.kills if kill.limit is not None]
    lived = [kill.lived for kill in history.kills if kill.lived is not None]
    memory, memory_worst = _memory(spans)
    present = _of_newest_image(history.spans)
    throttled_at, throttled = _throttled(spans)
    trends = [found for span in present if (found := trend(span.points, span.started))]
    return UseEvidence(
        cpu_seconds=union_seconds((span.first, span.last.at) for span in spans if span.reads > 1),
        memory_seconds=union_seconds((span.started if span.last.peak is not None else span.first, span.last.at) for span in spans),
        reads=sum(span.reads for span in spans),
        lives=len(spans),
        images=len({span.image for span in spans}),
        cpu_worst=worst,
        **cpu,
        throttled=throttled,
        throttled_at=throttled_at,
        cpu_pressure=_most(_per_second(span.last.cpu_pressure, span) for span in spans),
        memory_pressure=_most(_per_second(span.last.memory_pressure, span) for span in spans),
        points=sum(len(span.points) for span in spans),
        **memory,
        memory_worst=memory_worst,
        trend=max(trends, key=lambda one: one.seconds, default=None),
        rising=any(rises(span.points) for span in present),
        kills=kills,
        kill_limit=max(limits, default=None),
        kill_least=min(limits, default=None),
        kill_lived=max(lived, default=None),
        kill_ago=_since(history),
    )


def _since(history: SampleHistory) -> float | None:
    kill = max((kill.at for kill in history.kills), default=None)
    read = max((span.last.at for span in history.spans), default=None)
    return None if kill is None or read is None else max(0.0, read - kill)


def _cpu(spans: Sequence[Span]) -> tuple[dict[str, Any], str]:
    everything = sum((total(span.fine) for span in spans), total({}))
    slow = sum((total(span.slow) for span in spans), total({}))
    found: dict[str, float] = {}
    for span in spans:
        counts = total(span.fine)
        few = sum(counts.values()) < LEAST_RATES
        rates = [one for one in (None if few else percentile(counts, 0.95), percentile(total(span.slow), 0.95)) if one is not None]
        if rates:
            found[span.id] = max(rates)
    pooled = percentile(everything, 0.95)
    p95 = max([*found.values(), *([pooled] if pooled is not None else [])], default=None)
    worst = max(found, key=lambda one: found[one], default="")
    highest = [one for one in (*(span.highest for span in spans), p95) if one is not None]
    return {
        "rates": sum(everything.values()) + sum(slow.values()),
        "fine": sum(everything.values()),
        "cpu_median": percentile(everything or slow, 0.5),
        "cpu_p95": p95,
        "cpu_highest": max(highest, default=None),
        "cpu_mean": _most(span.mean for span in spans),
    }, next((span.pod for span in spans if span.id == worst), "")


def _memory(spans: Sequence[Span]) -> tuple[dict[str, Any], str]:
    reads = sorted(point.most for span in spans for point in span.points)
    highest: dict[str, int] = {}
    for span in spans:
        seen = [point.most for point in span.points]
        peak = span.last.peak
        # The kernel's peak has page cache in it, as a rule as much as there is now; a limit is not lowered on the strength of that.
        needed = None if peak is None else peak - (span.last.cache or 0)
        both = [*seen, *([needed] if needed is not None else [])]
        if both:
            highest[span.id] = max(both)
    worst = max(highest, key=lambda one: highest[one], default="")
    kernel = [span.last.peak for span in spans if span.last.peak is not None]
    return {
        "memory_median": reads[len(reads) // 2] if reads else None,
        "memory_p95": _worst_p95(spans),
        "memory_highest": max(reads, default=None),
        "peak": highest.get(worst) if kernel else None,
        "kernel_peak": max(kernel, default=None),
    }, next((span.pod for span in spans if span.id == worst), "")


def _worst_p95(spans: Iterable[Span]) -> int | None:
    found = []
    for span in spans:
        reads = sorted(point.most for point in span.points)
        if reads:
            found.append(reads[min(len(reads) - 1, int(0.95 * len(reads)))])
    return max(found, default=None)


def trend(points: Sequence[Point], started: float) -> Trend | None:
    """The growth of memory in one life; None if it did not rise in every part of it, or if there are too few reads to say."""
    if len(points) < LEAST_POINTS:
        return None
    size = len(points) / PARTS
    lowest = [min(points[round(n * size) : round((n + 1) * size)], key=lambda point: point.least) for n in range(PARTS)]
    growth, seconds = lowest[-1].least - lowest[0].least, lowest[-1].at - lowest[0].at
    if any(after.least <= before.least for before, after in pairwise(lowest)) or growth < _GROWTH * lowest[-1].least or seconds <= 0:
        return None
    # Runs may be hours apart: what counts is the rate, not the step.
    last = (lowest[-1].least - lowest[-2].least) / max(lowest[-1].at - lowest[-2].at, 1e-9)
    if last < _STILL * growth / seconds:
        return None
    return Trend(growth / seconds, points[-1].at - points[0].at, points[-1].at - started)


def rises(points: Sequence[Point]) -> bool:
    """Memory was never as low in the last third of the reads as it was at most in the first: it may be a leak."""
    if len(points) < LEAST_POINTS:
        return False
    third = len(points) // 3
    before, after = max(point.most for point in points[:third]), min(point.least for point in points[-third:])
    return after - before >= _GROWTH * after


def _of_newest_image(spans: Sequence[Span]) -> list[Span]:
    """The lives that say whether it leaks now: an older image may have had a leak that the present one has not."""
    known = [span for span in spans if span.image]
    newest = max(known, key=lambda span: span.last.at).image if known else ""
    return [span for span in spans if span.image in ("", newest)]


def _throttled(spans: Iterable[Span]) -> tuple[int | None, float | None]:
    """The highest limit that stopped it often, and in which share of the periods: what a lower limit did counts no more, or each run would
    raise the limit again. If none did: the worst share."""
    found = [(span.last.cpu_limit or 0, share) for span in spans if (share := span.throttled) is not None]
    found += [span.stopped for span in spans if span.stopped is not None]
    often = [one for one in found if one[1] >= THROTTLED]
    limit, share = max(often) if often else max(found, key=lambda one: one[1], default=(0, None))
    return limit or None, share


def _per_second(waited: float | None, span: Span) -> float | None:
    age = span.last.age
    return None if waited is None or not age else waited / age


def _most(values: Iterable[float | None]) -> float | None:
    return max((one for one in values if one is not None), default=None)
