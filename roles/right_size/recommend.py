"""What a container should request, and its limits: from the evidence, with its range and the reason. Pure.

Rules, where other tools have them too: VPA (OOM: at least x 1.2), krr (CPU p95 without peaks, memory the highest, OOM + 25 %). Here a CPU
request is the 95th percentile of the worst replica, a memory request the highest need of the worst one, each with MARGIN; a limit leaves
room above the highest use. Nothing is lowered before `min_span`. A limit that is not set is not proposed: a running pod cannot lose it
again. If requests equal limits (Guaranteed), they stay equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from roles.right_size.evidence import LEAST_POINTS, LEAST_RATES, UseEvidence
from roles.right_size.quantities import cpu_text, memory_text, rate_text, round_cpu, round_memory, span_text
from roles.right_size.samples import THROTTLED
from roles.right_size.workloads import Amounts

Pattern = Literal["OOM-killed", "leaking", "rising", "spiky", "steady", "unknown"]
Decision = Literal["raise", "lower", "keep", "wait", "fix", "unknown"]

MARGIN = 1.10
_CPU_LIMIT, _MEMORY_LIMIT, _AFTER_OOM = 1.20, 1.25, 1.25
# So many times the lowest limit at which it was killed in KEEP_DAYS a guess may reach: raise after raise has an end.
_MOST_OOM = 4
#: Smaller differences are not worth a change.
CLOSE = 0.10
# By how much a CPU limit is raised that stops the container often.
_LESS_THROTTLED = 1.5
#: A highest use that is so many times the median is a spike.
SPIKE = 1.5
_SPIKE_CPU, _SPIKE_MEMORY = 20, 8 * 2**20
# A life that was shorter, and ended by an OOM kill, is no proof of a leak: some programs need more than their limit to start.
_LEAK_LIFE = 3600.0
_LEAST_CPU, _LEAST_MEMORY = 5, 8 * 2**20
# No CPU limit is lowered below this: a limit reserves nothing, and a start needs more than an idle container, which may never start then.
_LEAST_CPU_LIMIT = 100


@dataclass(frozen=True)
class Advice:
    """For CPU (thousandths of a core) or memory (bytes) of one container. `low`, `high`: the range of what it was seen to need. `request`
    and `limit` are what it should have; as they are now if nothing should change, None if they are not set and should not be. `target`: the
    request that fits what was seen, also if `min_span` holds it back; None: not known. No Finding: it says what to set."""

    resource: Literal["cpu", "memory"]
    pattern: Pattern
    decision: Decision
    why: str
    low: int | None = None
    high: int | None = None
    request: int | None = None
    limit: int | None = None
    target: int | None = None

    @property
    def changes(self) -> bool:
        return self.decision in ("raise", "lower")


@dataclass(frozen=True)
class Present:
    """What a container has now. `guaranteed`: its pod's QoS class."""

    requests: Amounts
    limits: Amounts
    guaranteed: bool = False

    def of(self, resource: str) -> tuple[int | None, int | None]:
        """Request and limit."""
        return self.requests.of_resource(resource), self.limits.of_resource(resource)


def advise(found: UseEvidence, now: Present, min_span: float) -> tuple[Advice, Advice]:
    """For CPU and for memory. `min_span` in seconds."""
    return _cpu(found, now, min_span), _memory(found, now, min_span)


# ---- CPU


def cpu_pattern(found: UseEvidence) -> Pattern:
    if found.rates < LEAST_RATES or found.cpu_median is None or found.cpu_p95 is None or found.cpu_highest is None:
        return "unknown"
    spike = found.cpu_highest >= SPIKE * found.cpu_median and found.cpu_highest - found.cpu_median >= _SPIKE_CPU
    # A container that its limit stops is as high as the limit: how much more it would use is not seen.
    return "spiky" if spike or (found.throttled or 0) >= THROTTLED else "steady"


def _cpu(found: UseEvidence, now: Present, min_span: float) -> Advice:
    pattern = cpu_pattern(found)
    has, most = now.requests.cpu, now.limits.cpu
    if pattern == "unknown" or found.cpu_p95 is None or found.cpu_highest is None or found.cpu_median is None:
        return Advice("cpu", "unknown", "unknown", f"too few rates: {found.rates}, {LEAST_RATES} are needed", request=has, limit=most)
    low, high = round(found.cpu_median), round(found.cpu_highest)
    request = max(_LEAST_CPU, round_cpu(found.cpu_p95 * MARGIN))
    limit = None if most is None else max(request, round_cpu(found.cpu_highest * _CPU_LIMIT), min(most, _LEAST_CPU_LIMIT))
    why = f"95 % of its rates are at most {cpu_text(round(found.cpu_p95))}"
    throttled = found.throttled or 0.0
    if most is not None and limit is not None and throttled >= THROTTLED:
        limit = max(limit, round_cpu((found.throttled_at or most) * _LESS_THROTTLED))
        at = f" of {cpu_text(found.throttled_at)}" if found.throttled_at else ""
        why = f"its limit{at} stopped it in {throttled:.0%} of the periods, so it needs more than was seen"
    if now.guaranteed and limit is not None:
        request = limit
    return _decided("cpu", pattern, why, (low, high), (has, most), (request, limit), found.cpu_seconds, min_span)


# ---- memory


def memory_pattern(found: UseEvidence) -> Pattern:
    if found.kills and (found.trend is None or (found.kill_lived or 0.0) < _LEAK_LIFE):
        return "OOM-killed"
    if found.trend is not None:
        return "leaking"
    if found.points < LEAST_POINTS or found.memory_median is None or found.memory_highest is None:
        return "unknown"
    if found.rising:
        return "rising"
    highest = max(found.memory_highest, found.peak or 0)
    spike = highest >= SPIKE * found.memory_median and highest - found.memory_median >= _SPIKE_MEMORY
    return "spiky" if spike else "steady"


def _memory(found: UseEvidence, now: Present, min_span: float) -> Advice:
    pattern = memory_pattern(found)
    has, most = now.requests.memory, now.limits.memory
    seen = max((one for one in (found.memory_highest, found.peak) if one is not None), default=None)
    if pattern == "OOM-killed":
        return _after_oom(found, now, seen, min_span)
    if pattern == "unknown" or seen is None:
        why = f"too few reads: {found.points}, {LEAST_POINTS} are needed"
        return Advice("memory", "unknown", "unknown", why, found.memory_p95, seen, has, most)
    if pattern == "leaking":
        return Advice("memory", pattern, "fix", "; ".join(_leak(found, most)), found.memory_p95, seen, has, most)
    request, limit, held = _fitting(seen, found.kernel_peak or 0, now)
    why = f"it used at most {memory_text(seen)}" + (", by the kernel's peak" if found.peak == seen else "")
    if held:
        why = f"{why}; the {held} is not lowered below the kernel's peak with page cache, {memory_text(found.kernel_peak or 0)}"
    if pattern == "rising":
        why = f"it uses more than it did at first, and may leak: more runs will tell; {why}"
        request = max(request, has or 0)
        limit = None if limit is None else max(limit, most or 0)
    return _decided("memory", pattern, why, (found.memory_p95, seen), (has, most), (request, limit), found.memory_seconds, min_span)


def _fitting(seen: int, kernel_peak: int, now: Present) -> tuple[int, int | None, str]:
    """Request and limit for a need of `seen`, and which of them is held at the kernel's peak. How much of that was page cache is known of
    now, not of then: a start may need all of it again. So the limit keeps room for it; where there is none, the request does."""
    has, most = now.requests.memory, now.limits.memory
    request, held = max(_LEAST_MEMORY, round_memory(seen * MARGIN)), ""
    if most is None:
        if (kept := min(has or 0, round_memory(kernel_peak))) > request:
            request, held = kept, "request"
        return request, None, held
    limit = max(request, round_memory(seen * _MEMORY_LIMIT))
    if (kept := min(most, round_memory(kernel_peak))) > limit:
        limit, held = kept, "limit"
    return (limit if now.guaranteed else request), limit, held


def _leak(found: UseEvidence, limit: int | None) -> Iterator[str]:
    assert found.trend is not None
    rising = found.trend
    yield f"its memory rose in each part of {span_text(rising.seconds)}, by {rate_text(rising.rate)}"
    if rising.age < _LEAK_LIFE:
        yield f"it started {span_text(rising.age)} before: a start can look like this"
    if limit is not None and found.memory_highest is not None:
        yield f"at this rate it reaches its limit in {span_text(max(0.0, (limit - found.memory_highest) / rising.rate))}"
    yield "no request fits it: fix the program"


def _after_oom(found: UseEvidence, now: Present, seen: int | None, min_span: float) -> Advice:
    has, most = now.requests.memory, now.limits.memory
    killed = max(found.kill_limit or 0, 0) or most or seen
    times = f"the kernel killed it for its memory {found.kills} times" if found.kills > 1 else "the kernel killed it for its memory"
    if killed is None:
        return Advice("memory", "OOM-killed", "unknown", f"{times}, and nothing more is known", request=has, limit=most)
    at = f", at a limit of {memory_text(found.kill_limit)}" if found.kill_limit else ""
    if found.kill_limit and seen is not None and seen > found.kill_limit and found.trend is None and not found.rising:
        # It has run with more since, so that its need is known, and no guess.
        request, limit, _ = _fitting(seen, found.kernel_peak or 0, now)
        why = f"{times}{at}, and it needs {memory_text(seen)}"
        seconds = found.kill_ago or 0.0
        return _decided("memory", "OOM-killed", why, (found.kill_limit, seen), (has, most), (request, limit), seconds, min_span)
    needed = round_memory(max(killed * _AFTER_OOM, (seen or 0) * MARGIN))
    if found.kill_least is not None and needed > _MOST_OOM * found.kill_least:
        # Each guess was too low: the next one is no better. Somebody must look at the program.
        grown = f"its limit rose from {memory_text(found.kill_least)} to {memory_text(killed)}, and each time it was killed again"
        return Advice(
            "memory", "OOM-killed", "fix", f"{times}: {grown}; fix the program, or set its memory by hand", killed, seen, has, most
        )
    enough = has is not None and has >= needed and (most is None or most >= needed)
    limit = None if most is None else max(most, needed)
    why = f"{times}{at}; it needs more than that" + ("; it has more by now" if enough else "")
    high, request = max(killed, seen or 0), max(has or 0, needed)
    limit = None if limit is None else max(limit, request)
    return Advice("memory", "OOM-killed", "keep" if enough else "raise", why, killed, high, request, limit, needed)


# ---- both


def _decided(
    resource: Literal["cpu", "memory"],
    pattern: Pattern,
    why: str,
    seen: tuple[int | None, int],
    has: tuple[int | None, int | None],
    wanted: tuple[int, int | None],
    seconds: float,
    min_span: float,
) -> Advice:
    """`has` and `wanted`: request and limit."""
    low, high = seen
    request = has[0] if not _differs(has[0], wanted[0]) else wanted[0]
    limit = has[1] if wanted[1] is None or not _differs(has[1], wanted[1]) else wanted[1]
    if limit is not None and request is not None and request > limit:
        limit = request
    ups = _above(request, has[0]) or _above(limit, has[1])
    downs = _above(has[0], request) or _above(has[1], limit)
    if downs and seconds < min_span:
        left = span_text(min_span - seconds)
        request, limit = _not_lower(request, has[0]), _not_lower(limit, has[1])
        why = f"{why}; not lowered before {span_text(min_span)} were seen ({left} more)"
        return Advice(resource, pattern, "raise" if ups else "wait", why, low, high, request, limit, wanted[0])
    decision: Decision = "raise" if ups else "lower" if downs else "keep"
    return Advice(resource, pattern, decision, why, low, high, request, limit, wanted[0])


def _differs(now: int | None, wanted: int | None) -> bool:
    if now is None or wanted is None:
        return now is not wanted
    return abs(now - wanted) > CLOSE * max(now, 1)


def _above(one: int | None, other: int | None) -> bool:
    return one is not None and (other is None or one > other)


def _not_lower(wanted: int | None, now: int | None) -> int | None:
    return now if wanted is None or (now is not None and now > wanted) else wanted
