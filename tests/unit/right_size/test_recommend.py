"""Recommendations for containers whose truth is known: within 20 % of it, a leak is never steady, nothing is lowered too early."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.right_size import SampleHistory
from roles.right_size.evidence import UseEvidence, evidence, trend
from roles.right_size.recommend import CLOSE, Advice, Present, advise, cpu_pattern, memory_pattern
from roles.right_size.samples import Kill, Point, added, processes_killed
from roles.right_size.workloads import Amounts
from tests.unit.right_size.world import DAY, ID, MI, OTHER, START, history, life, noise, reads

WEEK = 7 * DAY


def now(
    cpu: int | None = None,
    memory: int | None = None,
    cpu_limit: int | None = None,
    memory_limit: int | None = None,
    guaranteed: bool = False,
) -> Present:
    return Present(Amounts(cpu, memory), Amounts(cpu_limit, memory_limit), guaranteed)


def judged(found: SampleHistory, present: Present, min_span: float = 0.0) -> tuple[Advice, Advice]:
    return advise(evidence(found), present, min_span)


@pytest.mark.parametrize("millis", [12, 150, 730, 2600])
@pytest.mark.parametrize("size", [24 * MI, 90 * MI, 700 * MI, 5000 * MI])
def test_a_steady_one(millis: int, size: int) -> None:
    found = history(life(reads(600, 5, noise(millis, 0.03), noise(size, 0.01))))
    cpu, memory = judged(found, now(4 * millis, 4 * size))
    assert (cpu.pattern, memory.pattern) == ("steady", "steady")
    assert (cpu.decision, memory.decision) == ("lower", "lower")
    assert cpu.request is not None and millis <= cpu.request <= 1.2 * millis
    assert memory.request is not None and size <= memory.request <= 1.2 * size
    assert cpu.low is not None and cpu.high is not None and cpu.low <= millis * 1.01 and millis <= cpu.high


def test_a_spiky_one_gets_its_spikes() -> None:
    found = history(life(reads(600, 5, lambda at: 400 if at % 60 < 15 else 50, lambda at: (200 if at % 60 < 15 else 100) * MI)))
    cpu, memory = judged(found, now(50, 100 * MI))
    assert (cpu.pattern, memory.pattern) == ("spiky", "spiky")
    assert cpu.request is not None and 400 <= cpu.request <= 480 and cpu.low is not None and cpu.low < 60
    assert memory.request is not None and 200 * MI <= memory.request <= 240 * MI


def test_a_peak_between_the_reads_is_the_kernels() -> None:
    found = history(life(reads(600, 60, memory=lambda at: (300 if at % 60 == 30 else 100) * MI)))
    cpu, memory = judged(found, now(100, 100 * MI))
    assert memory.pattern == "unknown" and evidence(found).points == 11, "too few reads to say more"
    found = history(life(reads(1200, 60, memory=lambda at: (300 if at % 60 == 30 else 100) * MI)))
    cpu, memory = judged(found, now(100, 100 * MI))
    assert memory.pattern == "spiky" and memory.high == 300 * MI and memory.low == 100 * MI
    assert memory.request is not None and 300 * MI <= memory.request <= 360 * MI and "kernel's peak" in memory.why
    assert cpu.pattern == "steady"


def test_page_cache_in_the_peak_is_not_needed() -> None:
    every = reads(120, 5, peak=900 * MI)
    every = [read.__class__(**{name: getattr(read, name) for name in read.__slots__} | {"cache": 790 * MI}) for read in every]
    _, memory = judged(history(life(every)), now(None, 200 * MI))
    assert memory.high == 110 * MI and evidence(history(life(every))).kernel_peak == 900 * MI


def test_a_limit_is_not_lowered_below_a_peak_that_may_not_have_been_cache() -> None:
    """A start needed 900 MiB, and the cache came later: the kernel's peak does not say which it was."""
    every = [replace(read, cache=790 * MI) for read in reads(120, 5, peak=900 * MI)]
    found = history(life(every))
    _, memory = judged(found, now(None, 2048 * MI, None, 2048 * MI))
    assert memory.decision == "lower" and memory.request is not None and memory.request <= 128 * MI
    assert memory.limit is not None and 900 * MI <= memory.limit <= 960 * MI and "peak with page cache, 900Mi" in memory.why
    _, memory = judged(found, now(None, 850 * MI, None, 850 * MI, True))
    assert (memory.request, memory.limit) == (850 * MI, 850 * MI), "nor raised for it"


def test_a_request_without_a_limit_is_not_lowered_below_such_a_peak() -> None:
    """Nothing else keeps room for the next start. With a limit, that does."""
    found = history(life([replace(read, cache=790 * MI) for read in reads(120, 5, peak=900 * MI)]))
    _, memory = judged(found, now(None, 2048 * MI))
    assert memory.decision == "lower" and memory.request == memory.target == 912 * MI and memory.limit is None
    assert "the request is not lowered below the kernel's peak with page cache, 900Mi" in memory.why
    _, memory = judged(found, now(None, 512 * MI))
    assert (memory.decision, memory.request) == ("keep", 512 * MI)
    _, memory = judged(found, now(None, 64 * MI))
    assert memory.decision == "raise" and memory.request is not None and memory.request <= 128 * MI, "nor raised for it"
    _, memory = judged(found, now())
    assert memory.request is not None and memory.request <= 128 * MI


@pytest.mark.parametrize("share", [0.0, 0.02])
@pytest.mark.parametrize("teeth", [0, 20])
def test_a_leak_is_never_called_steady(share: float, teeth: int) -> None:
    """Also with noise, and with a garbage collector's saw teeth."""

    def memory(at: float) -> float:
        return noise((100 + at / 60) * MI + (at % 100) / 100 * teeth * MI, share)(at)

    found = history(life(reads(6000, 10, memory=memory, age=7200)))
    _, advice = judged(found, now(None, 150 * MI, memory_limit=400 * MI))
    assert (advice.pattern, advice.decision) == ("leaking", "fix")
    assert (advice.request, advice.limit) == (150 * MI, 400 * MI), "no request fits a leak"
    assert "fix the program" in advice.why and "a start can look like this" not in advice.why
    rising = evidence(found).trend
    assert rising is not None and rising.rate == pytest.approx(MI / 60, rel=0.2)


def cron(*runs: float, memory: Callable[[float], float]) -> SampleHistory:
    """Runs of a minute each, that begin so many seconds after the container's start."""
    found = SampleHistory()
    for begun in runs:
        every = reads(60, 5, memory=lambda at, begun=begun: memory(begun + at), begun=START + begun, age=begun)  # type: ignore[misc]
        found = added(found, [life(every)], [], START + begun + 60)
    return found


@pytest.mark.parametrize("minutes", [10, 20, 60, 24 * 60])
@pytest.mark.parametrize("share", [0.0, 0.002, 0.01])
def test_a_leak_between_short_runs_is_never_called_steady(minutes: int, share: float) -> None:
    """Each run alone sees nothing of it."""

    def memory(at: float) -> float:
        return noise((100 + 20 * at / 60 / minutes) * MI, share)(at)

    for count in range(2, 12):
        found = evidence(cron(*(number * minutes * 60.0 for number in range(count)), memory=memory))
        assert memory_pattern(found) in ("leaking", "rising"), f"after {count} runs"
        advice = advise(found, now(None, 4000 * MI), 0)[1]
        assert advice.request == 4000 * MI and advice.decision in ("keep", "fix")
    assert memory_pattern(found) == "leaking" or share, "without noise it is certain"


def test_what_rises_is_raised() -> None:
    found = evidence(cron(0.0, 3600.0, memory=lambda at: (100 if at < 1800 else 140) * MI))
    advice = advise(found, now(None, 64 * MI), WEEK)[1]
    assert (advice.pattern, advice.decision) == ("rising", "raise") and "may leak" in advice.why
    assert advice.request is not None and advice.request >= 140 * MI


def test_short_runs_over_days_of_a_steady_one_are_steady() -> None:
    found = evidence(cron(*(number * 3600.0 for number in range(30)), memory=noise(100 * MI, 0.01)))
    assert memory_pattern(found) == "steady"


def test_a_leak_of_an_older_image_is_over() -> None:
    leaking = life(reads(600, 5, memory=lambda at: (20 + at) * MI), OTHER, image="v1")
    assert memory_pattern(evidence(history(leaking))) == "leaking"
    fixed = life(reads(600, 5, begun=START + 900), image="v2")
    assert evidence(history(leaking, fixed)).trend is None
    again = life(reads(600, 5, begun=START + 900, memory=lambda at: (20 + at) * MI), image="v1")
    assert evidence(history(leaking, again)).trend is not None


def test_a_start_that_levels_off_is_no_leak() -> None:
    found = history(life(reads(600, 5, memory=lambda at: min(100.0, 20 + at) * MI)))
    assert evidence(found).trend is None and memory_pattern(evidence(found)) == "steady"


def test_one_that_fills_more_and_more_slowly_is_no_leak() -> None:
    found = history(life(reads(600, 5, memory=lambda at: (20 + 80 * (1 - math.exp(-at / 90))) * MI)))
    assert evidence(found).trend is None


def test_one_jump_is_no_leak() -> None:
    found = history(life(reads(600, 5, memory=lambda at: (150 if at >= 500 else 100) * MI)))
    assert evidence(found).trend is None and memory_pattern(evidence(found)) == "spiky"


def test_a_start_that_is_still_going_on_is_said_to_look_like_one() -> None:
    _, memory = judged(history(life(reads(60, 5, memory=lambda at: (20 + at) * MI))), now(None, 500 * MI))
    assert memory.pattern == "leaking" and "a start can look like this" in memory.why


@given(st.integers(0, 2**32), st.floats(0.001, 0.2))
def test_noise_is_no_leak_but_for_bad_luck(seed: int, share: float) -> None:
    points = [Point(START + number, size := int(noise(100 * MI, share, seed)(number)), size) for number in range(60)]
    found = trend(points, START)
    # Six minima in order by chance: once in 720, and then they must also grow.
    assert found is None or points[-1].least > points[0].least * 0.8


def test_too_few_reads_are_unknown_and_change_nothing() -> None:
    cpu, memory = judged(history(life(reads(15, 5))), now(999, 999 * MI))
    assert (cpu.pattern, memory.pattern, cpu.decision, memory.decision) == ("unknown",) * 2 + ("unknown",) * 2
    assert (cpu.request, memory.request) == (999, 999 * MI)
    cpu, memory = advise(UseEvidence(), now(), 0)
    assert cpu.request is None and memory.request is None


def test_nothing_is_lowered_before_the_least_span() -> None:
    found = history(life(reads(3 * DAY, 3600, age=60)))
    cpu, memory = judged(found, now(1000, 1000 * MI, 2000, 2000 * MI), WEEK)
    assert (cpu.decision, memory.decision) == ("wait", "wait")
    assert (cpu.request, cpu.limit, memory.request, memory.limit) == (1000, 2000, 1000 * MI, 2000 * MI)
    assert cpu.target is not None and cpu.target < 200 and "4 d more" in cpu.why
    long = history(life(reads(8 * DAY, 3600, age=60)))
    cpu, memory = judged(long, now(1000, 1000 * MI, 2000, 2000 * MI), WEEK)
    assert (cpu.decision, memory.decision) == ("lower", "lower")


def test_the_kernels_peak_counts_from_the_containers_start() -> None:
    """CPU was read for ten minutes only; of memory the kernel has seen ten days."""
    found = history(life(reads(600, 5, age=10 * DAY)))
    cpu, memory = judged(found, now(1000, 1000 * MI), WEEK)
    assert (cpu.decision, memory.decision) == ("wait", "lower")


def test_raising_needs_no_span() -> None:
    found = history(life(reads(60, 5, lambda _: 500.0, lambda _: 500 * MI)))
    cpu, memory = judged(found, now(100, 100 * MI, None, 520 * MI), WEEK)
    assert (cpu.decision, memory.decision) == ("raise", "raise")
    assert cpu.limit is None, "a limit that is not set is not proposed"
    assert memory.limit is not None and memory.limit >= 600 * MI


def test_a_request_goes_up_while_a_limit_may_not_go_down() -> None:
    found = history(life(reads(60, 5, lambda _: 500.0)))
    cpu, _ = judged(found, now(100, None, 4000), WEEK)
    assert (cpu.decision, cpu.limit) == ("raise", 4000) and cpu.request is not None and cpu.request >= 500


@pytest.mark.parametrize("need", [115, 110])
def test_one_that_was_killed_for_its_memory_gets_more(need: int) -> None:
    kills = [Kill(OTHER, START, 100 * MI, 5.0), Kill("9" * 64, START + 9, 100 * MI, 4.0)]
    cpu, memory = judged(history(now=START, kills=kills), now(100, 100 * MI, None, 100 * MI))
    assert (memory.pattern, memory.decision) == ("OOM-killed", "raise") and "2 times" in memory.why
    assert memory.request == memory.limit and memory.request is not None
    assert need * MI <= memory.request <= 1.2 * need * MI
    assert cpu.pattern == "unknown"


def test_a_container_that_rises_until_it_is_killed_at_its_start_is_too_small_and_no_leak() -> None:
    rising = life(reads(60, 4, memory=lambda at: (40 + at) * MI))
    _, memory = judged(history(rising, kills=[Kill(OTHER, START, 100 * MI, 60.0)]), now(None, 64 * MI, None, 100 * MI))
    assert memory.pattern == "OOM-killed" and memory.decision == "raise"
    _, memory = judged(history(rising, kills=[Kill(OTHER, START, 100 * MI, 9 * 3600.0)]), now(None, 64 * MI, None, 100 * MI))
    assert memory.pattern == "leaking" and memory.decision == "fix"


def test_a_kill_that_was_answered_changes_nothing_more() -> None:
    found = history(life(reads(120, 5)), kills=[Kill(OTHER, START, 64 * MI, 5.0)])
    _, memory = judged(found, now(None, 112 * MI, None, 128 * MI))
    assert (memory.pattern, memory.decision, memory.limit) == ("OOM-killed", "keep", 128 * MI)


@given(st.integers(20, 3000), st.integers(8, 3000))
def test_the_advice_after_kills_ends_near_the_need(need: int, limit: int) -> None:
    """Each advice is followed: it is killed at once while its limit is below its need, and then it runs. (Above 4 times the first limit the
    advice is another one.)"""
    kills: list[Kill] = []
    request = limit = max(min(limit, need - 1), need // 2) * MI
    while limit < need * MI:
        kills.append(Kill(f"{len(kills):064x}", START + len(kills), limit, 1.0))
        _, memory = judged(history(now=START + len(kills), kills=kills), now(None, request, None, limit), WEEK)
        assert memory.decision == "raise" and memory.request is not None and memory.limit is not None and memory.limit >= 1.25 * limit
        request, limit = memory.request, memory.limit
    runs = life(reads(120, 5, memory=lambda _: need * MI, begun=START + 100))
    for span in (WEEK, 0.0):
        _, memory = judged(history(runs, kills=kills), now(None, request, None, limit), span)
        assert memory.pattern == "OOM-killed" and memory.request is not None and memory.limit is not None
        assert memory.limit >= memory.request >= need * MI
        assert span == 0 or (memory.request, memory.limit) >= (request, limit), "nothing is lowered so early"
    assert memory.target is not None and need * MI <= memory.target <= 1.2 * need * MI
    assert memory.request <= memory.target / (1 - CLOSE), "what is close enough stays"


def test_one_that_still_rises_keeps_what_it_got_after_a_kill() -> None:
    kills = [Kill(OTHER, START, 90 * MI, 5.0)]
    present = now(None, 256 * MI, None, 256 * MI)
    _, memory = judged(history(life(reads(600, 5, memory=lambda _: 100 * MI, begun=START + 1)), kills=kills), present)
    assert (memory.decision, memory.request) == ("lower", 112 * MI) and "needs 100Mi" in memory.why
    rising = history(life(reads(600, 5, memory=lambda at: (100 if at < 300 else 130) * MI, begun=START + 1)), kills=kills)
    assert evidence(rising).rising
    _, memory = judged(rising, present)
    assert (memory.decision, memory.request) == ("keep", 256 * MI)


def test_the_time_before_a_kill_does_not_lower_anything() -> None:
    """It ran for eight days, was killed when its need grew, and got more an hour ago."""
    before = life(reads(8 * DAY, 3600), OTHER)
    kills = [Kill(OTHER, START + 8 * DAY, 128 * MI, 8 * DAY)]
    after = life(reads(3600, 60, memory=lambda _: 140 * MI, begun=START + 8 * DAY + 10))
    _, memory = judged(history(before, after, kills=kills), now(None, 512 * MI, None, 512 * MI), WEEK)
    assert (memory.pattern, memory.decision, memory.request) == ("OOM-killed", "wait", 512 * MI)


def test_processes_that_were_killed_in_a_container_that_went_on_count() -> None:
    found = evidence(history(life(reads(60, 5, oom_kills=3))))
    assert found.kills == 3 and memory_pattern(found) == "OOM-killed"


def test_a_limit_is_not_raised_again_for_a_process_that_the_old_one_killed() -> None:
    """In place the container goes on, and so does the kernel's count; recreated, its old life is kept."""
    limited = [replace(one, memory_limit=100 * MI) for one in reads(60, 5, memory=lambda _: 80 * MI, oom_kills=3)]
    before = history(life(limited))
    _, memory = judged(before, now(None, 100 * MI, None, 100 * MI))
    assert (memory.decision, memory.limit) == ("raise", 128 * MI) and "at a limit of 100Mi" in memory.why
    later = [replace(one, memory_limit=128 * MI) for one in reads(60, 5, memory=lambda _: 80 * MI, oom_kills=3, begun=START + 99, age=99)]
    for seen in (life(later), life([replace(one, oom_kills=0) for one in later], OTHER)):
        found = added(before, [seen], [], START + 200)
        assert evidence(found).kills == 3
        _, memory = judged(found, now(None, 128 * MI, None, 128 * MI))
        assert (memory.decision, memory.limit) == ("keep", 128 * MI)
    again = added(before, [life([replace(one, oom_kills=4) for one in later])], [], START + 200)
    assert evidence(again).kills == 4
    _, memory = judged(again, now(None, 128 * MI, None, 128 * MI))
    assert memory.decision == "raise" and memory.limit == 160 * MI


def test_one_that_its_limit_stops_needs_more_than_was_seen() -> None:
    found = history(life(reads(60, 5, lambda _: 100.0, periods=1000, throttled=400)))
    cpu, _ = judged(found, now(100, None, 100))
    assert cpu_pattern(evidence(found)) == "spiky" and cpu.decision == "raise" and cpu.limit == 150 and "40%" in cpu.why


def test_a_guaranteed_pod_stays_one() -> None:
    found = history(life(reads(60, 5, lambda _: 500.0, lambda _: 500 * MI)))
    for advice in judged(found, now(100, 100 * MI, 100, 100 * MI, guaranteed=True)):
        assert advice.request == advice.limit and advice.decision == "raise"


def test_close_enough_stays() -> None:
    cpu, memory = judged(history(life(reads(60, 5))), now(115, 115 * MI, 125, 130 * MI))
    assert (cpu.decision, memory.decision) == ("keep", "keep")
    assert (cpu.request, cpu.limit, memory.request, memory.limit) == (115, 125, 115 * MI, 130 * MI)


def test_the_worst_replica_counts() -> None:
    calm, busy = life(reads(600, 5)), life(reads(600, 5, lambda _: 400.0, lambda _: 300 * MI), OTHER, "web-2")
    found = evidence(history(calm, busy))
    assert (found.cpu_worst, found.memory_worst) == ("web-2", "web-2")
    cpu, memory = judged(history(calm, busy), now(100, 100 * MI))
    assert cpu.request is not None and cpu.request >= 400 and memory.request is not None and memory.request >= 300 * MI


def test_lives_count_together_and_apart() -> None:
    found = evidence(history(life(reads(600, 5)), life(reads(600, 5, begun=START + 300), OTHER, image="i2")))
    assert (found.lives, found.images) == (2, 2) and found.cpu_seconds == 900


@given(st.data())
def test_a_recommendation_is_never_below_what_was_seen(data: st.DataObject) -> None:
    millis, size = data.draw(st.floats(1, 8000)), data.draw(st.floats(MI, 9000 * MI))
    request = data.draw(st.one_of(st.none(), st.integers(1, 9000)))
    limit = data.draw(st.one_of(st.none(), st.integers(request or 1, 20_000)))
    present = now(
        request,
        None if request is None else request * MI,
        limit,
        None if limit is None else limit * MI,
        data.draw(st.booleans()) and request is not None and request == limit,
    )
    for advice, used in zip(
        judged(history(life(reads(60, 5, lambda _: millis, lambda _: size))), present, data.draw(st.sampled_from([0.0, WEEK]))),
        (millis, size),
        strict=True,
    ):
        assert advice.request is not None and advice.request >= used * 0.9
        assert advice.limit is None or advice.limit >= advice.request
        assert (advice.limit is None) == (limit is None)
        if advice.decision in ("wait", "keep"):
            has = getattr(present.requests, advice.resource), getattr(present.limits, advice.resource)
            assert (advice.request, advice.limit) == has


def test_a_kill_that_the_kernel_counted_before_the_api_had_it_keeps_its_limit() -> None:
    """A watch sees the kernel's count and puts the old limit back; then the pod's status says that its container was killed."""
    counted = added(SampleHistory(), (), processes_killed(ID, replace(reads(0, 5)[0], oom_kills=1, memory_limit=124 * MI)), START)
    assert (evidence(counted).kill_limit, evidence(counted).kills) == (124 * MI, 0), "its life is not in the samples"
    found = added(counted, (), [Kill(ID, START - 3, 512 * MI, 60.0)], START + 30)
    assert (evidence(found).kill_limit, evidence(found).kills) == (124 * MI, 1)
    late = added(counted, (), [Kill(ID, START + 3600, 512 * MI, 60.0)], START + 3600)
    assert evidence(late).kill_limit == 512 * MI, "another kill of it"
    other = added(counted, (), [Kill(OTHER, START, 512 * MI, 60.0)], START)
    assert evidence(other).kill_limit == 512 * MI


def test_an_idle_container_keeps_a_limit_that_it_can_start_with() -> None:
    found = history(life(reads(600, 5, lambda _: 2.0)))
    for limit, advised in ((1000, 100), (100, 100), (50, 50)):
        cpu, _ = judged(found, now(50, 200 * MI, cpu_limit=limit))
        assert (cpu.request, cpu.limit) == (5, advised)


def test_a_limit_that_was_raised_is_not_raised_again_for_what_the_old_one_did() -> None:
    """In place the counters go on: 400 of 1000 periods at 100m, then 10 of 1000 more at 150m."""
    before = [replace(one, cpu_limit=100) for one in reads(60, 5, lambda _: 100.0, periods=1000, throttled=400)]
    later = [replace(one, cpu_limit=150) for one in reads(60, 5, lambda _: 100.0, begun=START + 65, age=65, periods=2000, throttled=410)]
    cpu, _ = judged(history(life(before)), now(100, cpu_limit=100))
    assert cpu.limit == 150 and "its limit of 100m stopped it in 40%" in cpu.why
    again = [replace(one, periods=1000, throttled=10) for one in later]
    for spans in ((life([*before, *later]),), (life(before), life(again, OTHER))):
        cpu, _ = judged(history(*spans), now(110, cpu_limit=150))
        assert (cpu.decision, cpu.limit) == ("keep", 150), spans
    few = [replace(one, cpu_limit=150) for one in reads(10, 5, lambda _: 100.0, begun=START + 65, age=65, periods=1020, throttled=420)]
    cpu, _ = judged(history(life([*before, *few])), now(110, cpu_limit=150))
    assert (cpu.decision, cpu.limit) == ("keep", 150), "too few periods of the new limit to say"


def test_raises_after_oom_kills_have_an_end() -> None:
    """Each raise is applied, and each time the container is killed at its new limit."""
    limit, first, kills = 160 * MI, 160 * MI, list[Kill]()
    for number in range(20):
        kills.append(Kill(f"{number:064x}", START + number * 3600.0, limit, 60.0))
        memory = judged(SampleHistory((), tuple(kills)), now(100, limit, None, limit))[1]
        if memory.decision != "raise":
            break
        assert memory.limit is not None and memory.limit > limit
        limit = memory.limit
    assert memory.decision == "fix" and limit <= 4 * first, (memory, limit)
    assert "rose from 160Mi" in memory.why and "fix the program" in memory.why
