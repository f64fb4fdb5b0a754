"""Lives of containers: exact rates, never one across a restart, and files that stay small."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.right_size import SampleHistory, samples
from roles.right_size.evidence import evidence
from roles.right_size.samples import DAY, FINE, ClockError, Kill, Read, added, bucket, middle, percentile, total, union_seconds
from tests.unit.right_size.world import ID, MI, OTHER, START, history, life, reads


def rates(found: SampleHistory) -> list[float]:
    return [middle(index) for span in found.spans for index in total(span.fine).elements()]


def test_a_rate_is_the_mean_between_two_reads() -> None:
    found = history(life(reads(60, 5, lambda at: 300 if at % 10 < 5 else 100)))
    assert sorted({round(rate, -2) for rate in rates(found)}) == [100, 300]
    assert found.spans[0].highest == pytest.approx(300)
    slow = history(life(reads(3600, 600, lambda at: 300 if at % 10 < 5 else 100)))
    assert not rates(slow) and percentile(total(slow.spans[0].slow), 0.95) == pytest.approx(200, rel=0.03)
    assert slow.spans[0].highest is None, "a mean over ten minutes is no peak"


def test_there_is_no_rate_across_a_restart() -> None:
    first, second = reads(30, 5), reads(30, 5, begun=START + 40)
    found = history(life(first), life(second, OTHER))
    assert len(found.spans) == 2
    assert sum(sum(total(span.fine).values()) for span in found.spans) == len(first) - 1 + len(second) - 1


def test_counters_of_another_source_or_that_went_back_give_no_rate() -> None:
    one = Read(START, "kernel b1", 10, 5.0)
    for other in (
        Read(START + 5, "kernel b2", 15, 6.0),
        Read(START + 5, "kubelet w1", 15, 6.0),
        Read(START + 5, "kernel b1", 15, 4.0),
        Read(START + 5, "kernel b1", 10.5, 6.0),
        Read(START + 5, "kernel b1", 15, None),
    ):
        found = history(life([one, other]))
        assert not rates(found) and not found.spans[0].slow


def test_a_read_without_a_counter_does_not_lose_the_one_before() -> None:
    found = history(life([Read(START, "kernel b1", 10, 5.0), Read(START + 5, "kubelet w1"), Read(START + 10, "kernel b1", 20, 6.0)]))
    assert rates(found) == pytest.approx([100], rel=0.03)


def test_another_run_extends_a_life_and_reads_twice_count_once() -> None:
    every = reads(60, 5)
    one = added(SampleHistory(), [life(every[:6])], [], START)
    both = added(one, [life(every[6:])], [], START)
    assert both == added(SampleHistory(), [life(every)], [], START)
    # Two operators read at the same time: the second one's older reads are not counted again.
    assert added(both, [life(every)], [], START) == both


def test_a_kill_is_counted_once() -> None:
    kill = Kill(OTHER, START, 64 * MI, 9.0)
    found = added(history(kills=[kill], now=START), [], [replace(kill, limit=128 * MI)], START)
    assert found.kills == (kill,), "the limit at the time, not the present one"


@given(st.floats(1, 200_000))
def test_a_bucket_is_within_one_percent(millis: float) -> None:
    assert middle(bucket(millis)) == pytest.approx(millis, rel=0.0101)


@given(st.dictionaries(st.integers(0, 300), st.integers(1, 9), min_size=1, max_size=9), st.floats(0.01, 1))
def test_percentiles(counts: dict[int, int], share: float) -> None:
    found = percentile(counts, share)
    assert found is not None
    every = sorted(middle(index) for index, count in counts.items() for _ in range(count))
    assert found == every[max(0, math.ceil(share * len(every) - 1e-6) - 1)]


def test_what_is_kept_has_a_bound() -> None:
    found = history(life(reads(samples.MOST_POINTS * 50, 10, memory=lambda at: at)))
    [span] = found.spans
    assert len(span.points) <= samples.MOST_POINTS
    assert span.points[0].least == 0 and span.points[-1].most == samples.MOST_POINTS * 50, "nothing is lost but detail"
    lives = [life(reads(10, 5, begun=START + 100 * number), f"{number:064x}") for number in range(samples.MOST_SPANS + 9)]
    kept = added(history(*lives, now=START), [life(reads(10, 5, begun=START + 90_000))], [], START)
    assert len(kept.spans) == samples.MOST_SPANS + 1 and kept.spans[-2].id == lives[-1].id and kept.spans[-1].id == ID
    kept = history(kills=[Kill(f"{n:064x}", START + n) for n in range(samples.MOST_KILLS + 9)], now=START)
    assert len(kept.kills) == samples.MOST_KILLS


def test_kills_at_each_new_limit_do_not_hide_where_the_raises_began() -> None:
    limits, kept, day = [160, 200, 256, 320, 400, 512], SampleHistory(), 0
    for limit in limits:
        for _ in range(samples.MOST_KILLS + 9):
            day += 1
            at = START + day * samples.DAY / 6
            kept = samples.pruned(SampleHistory(kills=(*kept.kills, Kill(f"{day:064x}", at, limit))), at)
    assert len(kept.kills) == samples.MOST_KILLS and evidence(kept).kill_least == 160
    after = START + (day / 6 + samples.KEEP_DAYS + 1) * samples.DAY
    assert samples.pruned(kept, after).kills == (), "a month without a kill: what was before says nothing of the program of today"


def test_every_replica_that_runs_is_kept_from_run_to_run() -> None:
    """Else the worst one may be missing from the advice, and no rate would ever be over more than one run."""
    count = samples.MOST_SPANS + 30
    found = SampleHistory()
    for run in range(3):
        begun = START + 3600 * run
        lives = [life(reads(20, 5, memory=lambda _, n=n: (500 if n == 3 else 100) * MI, begun=begun), f"{n:064x}") for n in range(count)]  # type: ignore[misc]
        found = added(found, lives, [], begun + 20)
        assert len(found.spans) == count and {span.first for span in found.spans} == {START}
    assert evidence(found).memory_highest == 500 * MI
    assert len(added(found, [], [Kill(OTHER, begun)], begun + 20).spans) == count, "a kill that is added says nothing of the others"
    many = [life(reads(10, 5, memory=lambda _, n=n: (n + 1) * MI), f"{n:064x}") for n in range(samples.MOST_LIVING + 5)]  # type: ignore[misc]
    kept = added(SampleHistory(), many, [], START + 10)
    assert len(kept.spans) == samples.MOST_LIVING and evidence(kept).memory_highest == (samples.MOST_LIVING + 5) * MI


def test_samples_of_the_future_are_an_error() -> None:
    """A machine whose clock is wrong must not remove what others keep, nor stop what they read from counting without a word."""
    ahead = history(life(reads(60, 5, begun=START + 300 * DAY)))
    with pytest.raises(ClockError, match="300 days in the future"):
        added(ahead, [life(reads(60, 5))], [], START + 60)


def test_a_kill_of_a_node_whose_clock_is_ahead_is_forgotten_like_others() -> None:
    found = history(kills=[Kill(OTHER, START + 9999 * DAY)], now=START)
    assert found.kills[0].at == START
    assert not added(found, [], [], START + 31 * DAY).kills


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e5)), max_size=30))
def test_time_covered_is_never_more_than_all_of_it(pieces: list[tuple[float, float]]) -> None:
    whole = [(begun, begun + length) for begun, length in pieces]
    found = union_seconds(whole)
    assert found <= sum(end - begun for begun, end in whole) + 1e-3
    assert found <= max((end for _, end in whole), default=0) - min((begun for begun, _ in whole), default=0) + 1e-3
    assert found >= max((end - begun for begun, end in whole), default=0) - 1e-3


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=900))
def test_thinned_points_keep_the_most_and_the_least(sizes: list[int]) -> None:
    [span] = history(life([Read(START + n, "kernel b1", memory=size) for n, size in enumerate(sizes)])).spans
    assert len(span.points) <= samples.MOST_POINTS
    assert max(point.most for point in span.points) == max(sizes) and min(point.least for point in span.points) == min(sizes)
    assert all(one.at < two.at for one, two in pairwise(span.points)) and span.points[-1].at == START + len(sizes) - 1


def test_old_samples_are_dropped() -> None:
    old, young = life(reads(60, 5), OTHER), life(reads(60, 5, begun=START + 31 * DAY))
    assert [span.id for span in history(old, young).spans] == [ID]
    long = history(life(reads(40 * DAY, 6 * 3600)))
    oldest = START + 40 * DAY - samples.KEEP_DAYS * DAY
    assert all(point.at >= oldest for point in long.spans[0].points) and min(long.spans[0].slow) >= int(oldest // DAY)


def test_the_mean_since_the_start() -> None:
    assert history(life([Read(START, "kernel b1", 9, 500.0, 1000.0)])).spans[0].mean == pytest.approx(500)
    assert history(life([Read(START, "kernel b1", 9, 5.0, FINE / 2)])).spans[0].mean is None
    assert history(life([Read(START, "kernel b1", 9, 5.0, 1000.0)])).spans[0].started == START - 1000


@pytest.mark.parametrize(
    ("pieces", "seconds"), [([], 0), ([(0, 10)], 10), ([(0, 10), (5, 20)], 20), ([(0, 10), (2, 3), (15, 20)], 15), ([(5, 5)], 0)]
)
def test_time_covered_together(pieces: list[tuple[float, float]], seconds: float) -> None:
    assert union_seconds(pieces) == seconds
