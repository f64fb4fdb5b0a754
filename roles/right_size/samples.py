"""What was seen of a container over time: one span for each of its lives, never a rate across a restart. Pure; times are seconds since the
epoch by the clock of the machine that reads.

A rate between two reads of the same counter is the exact mean of the time between them. Rates over at most FINE seconds show peaks; longer
ones only the mean. Both are counted in histograms, one for each day, so that a file stays small and old days can be dropped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

DAY = 86400
#: Days that are kept.
KEEP_DAYS = 30
#: Seconds: a rate over more than this is a mean, and shows no peak.
FINE = 60.0
# Two reads that are closer than this say little: counters are written in ticks.
_LEAST_SECONDS = 1.0
#: Points of memory in one span, and ended lives of one container; older points are merged in pairs, older lives dropped.
MOST_POINTS, MOST_SPANS, MOST_KILLS = 300, 100, 50
#: Lives that go on, one for each replica: of more, those that use most memory.
MOST_LIVING = 1000
#: Periods of the CPU limit (of 100 ms each, as a rule) below which a share of them says little.
LEAST_PERIODS = 50
#: The share of throttled periods from which a CPU limit is too low.
THROTTLED = 0.05
# Seconds between the kernel's count of a kill and the end of its container, at most.
_SAME_KILL = 60.0
# Each bucket of a histogram begins 2 % above the one before; the first is below one thousandth of a core.
_RATIO = math.log(1.02)


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a running container. `counter`: CPU time in seconds since its start, read at `clock` (seconds of a clock that `source`
    names: two reads are comparable if it is the same). Bytes; None: not known. `age`: seconds since the container's start; `cpu_limit` in
    thousandths of a core, and `memory_limit`: those that the container had then."""

    at: float
    source: str
    clock: float | None = None
    counter: float | None = None
    age: float | None = None
    memory: int | None = None
    cache: int | None = None
    peak: int | None = None
    oom_kills: int | None = None
    periods: int | None = None
    throttled: int | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    cpu_limit: int | None = None
    memory_limit: int | None = None


class Point(NamedTuple):
    """Memory in bytes, the most and the least until `at` and since the point before."""

    at: float
    most: int
    least: int


@dataclass(frozen=True)
class Span:
    """One life of one container: `id` is its container ID. `fine` and `slow`: histograms of CPU rates (bucket: count) by day; `highest`:
    the highest fine rate in thousandths of a core. `last`: its last read. `reads`: how many there were. `passed`: the periods of the CPU
    limit, and those in which it stopped the container, that had passed when the limit was last changed; `stopped`: the highest limit before
    that which stopped it often, and in which share of the periods."""

    id: str
    pod: str
    node: str
    image: str
    first: float
    last: Read
    reads: int = 1
    highest: float | None = None
    fine: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    slow: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    passed: tuple[int, int] = (0, 0)
    stopped: tuple[int, float] | None = None

    @property
    def throttled(self) -> float | None:
        """The share of the periods of its present CPU limit in which it stopped the container; None: unknown, or too few."""
        if self.last.periods is None or self.last.throttled is None:
            return None
        periods, throttled = self.last.periods - self.passed[0], self.last.throttled - self.passed[1]
        return max(0, throttled) / periods if periods >= LEAST_PERIODS else None

    @property
    def started(self) -> float:
        """When the container started, as far as known: the kernel counted since then."""
        return self.last.at - self.last.age if self.last.age is not None else self.first

    @property
    def mean(self) -> float | None:
        """The mean CPU rate since the container's start, in thousandths of a core."""
        if self.last.counter is None or not self.last.age or self.last.age < FINE:
            return None
        return 1000 * self.last.counter / self.last.age


@dataclass(frozen=True)
class Kill:
    """A container that the kernel killed for its memory: its ID, when, its memory limit in bytes and how long it had run in seconds, if
    known. Or `processes`: only some of its processes, and it went on."""

    id: str
    at: float
    limit: int | None = None
    lived: float | None = None

    @property
    def processes(self) -> bool:
        return "#" in self.id


def processes_killed(id: str, read: Read) -> Iterator[Kill]:
    """What the kernel has counted in a container that goes on, with the limit of that moment: later, nothing else says so."""
    if read.oom_kills:
        yield Kill(f"{id}#{read.oom_kills}", read.at, read.memory_limit)


@dataclass(frozen=True)
class SampleHistory:
    """All that is known of one container of a workload, over all its pods and lives."""

    spans: tuple[Span, ...] = ()
    kills: tuple[Kill, ...] = ()


class ClockError(ValueError):
    """Samples are dated in the future: the clock of this machine, or of another operator's, is wrong."""


@dataclass(frozen=True)
class Seen:
    """A running container, and what one run read of it, in order."""

    id: str
    pod: str
    node: str
    image: str
    reads: Sequence[Read]


def begin(seen: Seen, read: Read) -> Span:
    return Span(seen.id, seen.pod, seen.node, seen.image, read.at, read, points=_with_point((), read))


def extended(span: Span, read: Read) -> Span:
    """The span with one more read; as it is if the read is not younger than its last one (another operator's was)."""
    if read.at <= span.last.at:
        return span
    rate = _rate(span.last, read)
    fine, slow, highest = span.fine, span.slow, span.highest
    if rate is not None:
        millis, seconds = rate
        if seconds <= FINE:
            fine = _counted(fine, read.at, millis)
            highest = max(millis, highest or 0.0)
        else:
            slow = _counted(slow, read.at, millis)
    passed, stopped, was = span.passed, span.stopped, span.last
    if read.cpu_limit != was.cpu_limit and was.cpu_limit is not None and was.periods is not None:
        passed = was.periods, was.throttled or 0
        if (span.throttled or 0.0) >= THROTTLED:
            stopped = max(stopped or (0, 0.0), (was.cpu_limit, span.throttled or 0.0))
    # A read without a counter must not lose the one before.
    kept = read if read.counter is not None else replace(read, source=span.last.source, clock=span.last.clock, counter=span.last.counter)
    return replace(
        span, last=kept, reads=span.reads + 1, highest=highest, fine=fine, slow=slow, points=_with_point(span.points, read),
        passed=passed, stopped=stopped,
    )  # fmt: skip


def _rate(before: Read, after: Read) -> tuple[float, float] | None:
    """Thousandths of a core, and over how many seconds."""
    if before.source != after.source or before.clock is None or after.clock is None or before.counter is None or after.counter is None:
        return None
    seconds, used = after.clock - before.clock, after.counter - before.counter
    return (1000 * used / seconds, seconds) if seconds >= _LEAST_SECONDS and used >= 0 else None


def _counted(days: Mapping[int, Mapping[int, int]], at: float, millis: float) -> dict[int, dict[int, int]]:
    day, index = int(at // DAY), bucket(millis)
    counts = {**days.get(day, {})}
    counts[index] = counts.get(index, 0) + 1
    return {**{one: dict(found) for one, found in days.items()}, day: counts}


def bucket(millis: float) -> int:
    return 0 if millis < 1 else 1 + math.floor(math.log(millis) / _RATIO)


def middle(index: int) -> float:
    """The rate in the middle of a bucket, in thousandths of a core."""
    return math.exp((index - 0.5) * _RATIO) if index > 0 else 0.5


def total(days: Mapping[int, Mapping[int, int]]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for one in days.values():
        counts.update(one)
    return counts


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """The rate that `share` of the counted rates do not exceed; None without rates."""
    left = share * sum(counts.values())
    for index in sorted(counts):
        left -= counts[index]
        if left <= 1e-9:
            return middle(index)
    return None


def _with_point(points: tuple[Point, ...], read: Read) -> tuple[Point, ...]:
    if read.memory is None:
        return points
    more = (*points, Point(round(read.at, 1), read.memory, read.memory))
    return more if len(more) <= MOST_POINTS else _thinned(more)


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """The older half merged in pairs."""
    half = len(points) // 4 * 2
    pairs = zip(points[0:half:2], points[1:half:2], strict=True)
    return (*(Point(two.at, max(one.most, two.most), min(one.least, two.least)) for one, two in pairs), *points[half:])


def pruned(history: SampleHistory, now: float, living: Collection[str] = ()) -> SampleHistory:
    """Without what is older than KEEP_DAYS, and without the oldest lives if too many have ended. `living`: the IDs of those that go on:
    all replicas count, or the worst one may be missing."""
    oldest = now - KEEP_DAYS * DAY
    spans = sorted((_without_old(span, oldest) for span in history.spans if span.last.at >= oldest), key=lambda span: span.last.at)
    ended = [span for span in spans if span.id not in living]
    # Without a new life nothing grows, and which ones go on is not known.
    ended = ended[-MOST_SPANS:] if living else ended
    going_on = sorted((span for span in spans if span.id in living), key=_memory)[-MOST_LIVING:]
    kept = {span.id for span in (*ended, *going_on)}
    spans = [span for span in spans if span.id in kept]
    return SampleHistory(tuple(spans), _kept_kills(history.kills, oldest))


def _kept_kills(kills: Iterable[Kill], oldest: float) -> tuple[Kill, ...]:
    """The newest ones since `oldest`; and as long as there is one of them, the one at the lowest limit, however old it is. It says where
    raise after raise began: kills at each new limit must not make it forgotten."""
    in_order = sorted(kills, key=lambda kill: kill.at)
    newest = [kill for kill in in_order if kill.at >= oldest][-MOST_KILLS:]
    lowest = min((kill for kill in in_order if kill.limit is not None), key=lambda kill: kill.limit or 0, default=None)
    return (lowest, *newest[-MOST_KILLS + 1 :]) if newest and lowest is not None and lowest not in newest else tuple(newest)


def _memory(span: Span) -> int:
    return max(span.last.peak or 0, *(point.most for point in span.points), 0)


def _without_old(span: Span, oldest: float) -> Span:
    day = int(oldest // DAY)

    def kept(days: Mapping[int, Mapping[int, int]]) -> dict[int, Mapping[int, int]]:
        return {one: counts for one, counts in days.items() if one >= day}

    return replace(span, fine=kept(span.fine), slow=kept(span.slow), points=tuple(one for one in span.points if one.at >= oldest))


def added(history: SampleHistory, seen: Iterable[Seen], kills: Iterable[Kill], now: float) -> SampleHistory:
    """The history with what one run saw. A span that is known, also from another operator, is extended; a kill that is known stays as it
    is. Raises ClockError."""
    ahead = max((span.last.at - now for span in history.spans), default=0.0)
    if ahead > DAY:
        raise ClockError(f"samples of {ahead / DAY:.0f} days in the future are kept: this machine's clock, or another operator's, is wrong")
    known = {span.id: span for span in history.spans}
    living = set()
    kills = list(kills)
    for one in seen:
        living.add(one.id)
        for read in one.reads:
            kills += processes_killed(one.id, read)
            there = known.get(one.id)
            known[one.id] = begin(one, read) if there is None else extended(there, read)
    # The time of a kill is by the node's clock.
    killed: dict[str, Kill] = {}
    for kill in (*history.kills, *(replace(one, at=min(one.at, now)) for one in kills)):
        killed.setdefault(kill.id, _with_its_limit(kill, killed.values()))
    return pruned(SampleHistory(tuple(known.values()), tuple(killed.values())), now, living)


def _with_its_limit(kill: Kill, known: Iterable[Kill]) -> Kill:
    """The kernel may count a kill before the API has it. Then the limit of that moment is known; the API's may be another one by now."""
    if kill.processes:
        return kill
    counted = [one for one in known if one.id.startswith(f"{kill.id}#") and abs(one.at - kill.at) <= _SAME_KILL]
    return replace(kill, limit=max(counted, key=lambda one: one.at).limit) if counted else kill


def union_seconds(pieces: Iterable[tuple[float, float]]) -> float:
    """The time that intervals cover together."""
    covered, end = 0.0, -math.inf
    for begun, ended in sorted(pieces):
        covered += max(0.0, ended - max(begun, end))
        end = max(end, ended)
    return covered
