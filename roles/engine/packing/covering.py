"""Pure: the cheapest sets of machines whose room, added up, is enough. What packs is among them, so their cost is a lower bound.

Each row says that the machines that are on have together at least so much of something. Lagrangian relaxation: with a price on each row's
amount, a machine is on if it costs less than its room is worth. The sum of what that costs is a bound, whatever the prices are (Geoffrion
1974). From there, sets are looked at in the order of what they can cost at least: each machine that is decided otherwise adds at least what
it loses by that. So the search also ends with a proof, if it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from operator import mul

#: Rounds of subgradients, without and with prices to begin with; after so many without a better bound, the step is halved.
_ROUNDS, _AGAIN, _STALE = 160, 50, 6


@dataclass(frozen=True)
class Row:
    """`room`: by machine; the machines that are on need `demand` together. `hosts`: it counts machines, and not what they have."""

    room: Sequence[int]
    demand: int
    hosts: bool = False


@dataclass(frozen=True)
class Cover:
    """A set of machines that are on, and what it costs."""

    cost: float
    on: frozenset[int]


class Covering:
    """`costs`: by machine, negative for one that is better on. `always`: machines that are on in any case; `open_`: those to decide.
    `prices`: of a covering with the same rows and about the same costs, to begin with."""

    def __init__(
        self,
        costs: Sequence[float],
        rows: Sequence[Row],
        always: Collection[int],
        open_: Collection[int],
        prices: Sequence[float] | None = None,
    ) -> None:
        self._costs, self._open, self._always = costs, sorted(open_), frozenset(always)
        self._rows = [[row.room[number] for number in self._open] for row in rows]
        self._needs = [max(0, row.demand - sum(row.room[number] for number in always)) for row in rows]
        self._fixed = sum(costs[number] for number in sorted(always))
        self._own = [costs[number] for number in self._open]
        self.prices = [0.0] * len(rows)
        self.bound = self._fixed + sum(min(0.0, cost) for cost in self._own)
        self._optimize(list(prices) if prices is not None else list(self.prices), _AGAIN if prices is not None else _ROUNDS)

    @property
    def is_possible(self) -> bool:
        return all(sum(row) >= need for row, need in zip(self._rows, self._needs, strict=True))

    @property
    def size(self) -> int:
        return len(self._open)

    def _lost(self, prices: Sequence[float]) -> list[float]:
        """What each machine costs more than its room is worth."""
        lost = self._own
        for price, row in zip(prices, self._rows, strict=True):
            if price:
                lost = [have - price * room for have, room in zip(lost, row, strict=True)]
        return lost

    def _optimize(self, prices: list[float], rounds: int) -> None:
        """Subgradients: the price of a row rises as long as the set lacks of it."""
        norms = [max(need, 1) for need in self._needs]
        step, stale, goal = 1.0, 0, self._goal()
        for _ in range(rounds if any(self._needs) else 0):
            lost = self._lost(prices)
            on = [index for index, one in enumerate(lost) if one < 0]
            value = self._fixed + sum(map(mul, prices, self._needs)) + sum(lost[index] for index in on)
            stale += 1
            if value > self.bound:
                self.bound, self.prices, stale = value, prices, 0
            elif stale > _STALE:
                step, stale, prices = step / 2, 0, self.prices
                continue
            lacks = [
                (need - sum([row[index] for index in on])) / norm for row, need, norm in zip(self._rows, self._needs, norms, strict=True)
            ]
            square = sum(lack * lack for lack, price in zip(lacks, prices, strict=True) if lack > 0 or price)
            if not square:
                break
            size = step * max(goal - value, 0.001 * abs(goal)) / square
            prices = [max(0.0, price + size * lack / norm) for price, lack, norm in zip(prices, lacks, norms, strict=True)]

    def _goal(self) -> float:
        """What some cover costs."""
        on = self._completed({index for index, cost in enumerate(self._own) if cost < 0})
        return self._fixed + sum(self._own[index] for index in sorted(on)) if on is not None else self.bound

    def _cover(self, on: Collection[int]) -> Cover:
        own, opened = self._own, self._open
        return Cover(self._fixed + sum([own[index] for index in sorted(on)]), self._always.union([opened[index] for index in on]))

    def _surplus(self, on: Collection[int]) -> list[int]:
        return [sum([row[index] for index in on]) - need for row, need in zip(self._rows, self._needs, strict=True)]

    def covers(self, most: int) -> Iterator[tuple[float, Cover | None]]:
        """What everything from now on costs at least, and a cover if this set is one; up to `most` sets."""
        lost = self._lost(self.prices)
        base = frozenset(index for index, one in enumerate(lost) if one < 0)
        order = sorted(range(len(lost)), key=lambda index: (abs(lost[index]), index))
        weights = [abs(lost[index]) for index in order]
        signs = [-1 if index in base else 1 for index in order]
        changes = [[sign * row[index] for row in self._rows] for sign, index in zip(signs, order, strict=True)]
        heap: list[tuple[float, int, int, tuple[int, ...], list[int]]] = [(self.bound, 0, -1, (), self._surplus(base))]
        ties = 0
        for _ in range(most):
            if not heap:
                return
            least, _, last, flipped, surplus = heappop(heap)
            if min(surplus, default=0) >= 0:
                yield least, self._cover(base ^ frozenset(order[index] for index in flipped))
            else:
                yield least, None
            following = last + 1
            if following >= len(order):
                continue
            ties += 2
            change = changes[following]
            more = [have + by for have, by in zip(surplus, change, strict=True)]
            heappush(heap, (least + weights[following], ties, following, (*flipped, following), more))
            if flipped:
                old = changes[last]
                instead = [have - by for have, by in zip(more, old, strict=True)]
                heappush(heap, (least + weights[following] - weights[last], ties + 1, following, (*flipped[:-1], following), instead))

    def repaired(self, most: int) -> Iterator[Cover]:
        """Covers made of the sets that cost the least but lack of something: with machines that add the most for their cost, without those
        that are not needed then."""
        lost = self._lost(self.prices)
        base = frozenset(index for index, one in enumerate(lost) if one < 0)
        for changed in (None, *sorted(range(len(lost)), key=lambda index: (abs(lost[index]), index))[:most]):
            on = self._completed(set(base if changed is None else base ^ {changed}))
            if on is not None:
                self._thin_out(on)
                yield self._cover(on)

    def _completed(self, on: set[int]) -> set[int] | None:
        """With machines that add the most for their cost, until nothing lacks; None if they are not enough."""
        lacks = [-have for have in self._surplus(on)]
        left = [index for index in range(len(self._own)) if index not in on]
        rows = [[row[index] for index in left] for row in self._rows]
        costs = [self._own[index] for index in left]
        while max(lacks, default=0) > 0:
            adds = [0.0] * len(left)
            for row, lack in zip(rows, lacks, strict=True):
                if lack > 0:
                    adds = [share + (1.0 if room >= lack else room / lack) for share, room in zip(adds, row, strict=True)]
            prices = [cost / share if share else inf for cost, share in zip(costs, adds, strict=True)]
            cheapest = min(prices, default=inf)
            if cheapest == inf:
                return None
            best = prices.index(cheapest)
            on.add(left.pop(best))
            costs.pop(best)
            lacks = [lack - row.pop(best) for lack, row in zip(lacks, rows, strict=True)]
        return on

    def _thin_out(self, on: set[int]) -> None:
        surplus = self._surplus(on)
        for index in sorted(on, key=lambda one: (-self._own[one], one)):
            if self._own[index] > 0 and all(row[index] <= have for row, have in zip(self._rows, surplus, strict=True)):
                on.discard(index)
                surplus = [have - row[index] for row, have in zip(self._rows, surplus, strict=True)]
