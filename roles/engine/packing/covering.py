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

_ROUNDS = 160


@dataclass(frozen=True)
class Row:
    """`room`: by machine; the machines that are on need `demand` together."""

    room: Sequence[int]
    demand: int


@dataclass(frozen=True)
class Cover:
    """A set of machines that are on, and what it costs."""

    cost: float
    on: frozenset[int]


class Covering:
    """`costs`: by machine, negative for one that is better on. `always`: machines that are on in any case; `open_`: those to decide."""

    def __init__(self, costs: Sequence[float], rows: Sequence[Row], always: Collection[int], open_: Collection[int]) -> None:
        self._costs, self._open = costs, sorted(open_)
        self._always = frozenset(always)
        self._rows = [one for one in rows if one.demand > sum(one.room[number] for number in always)]
        self._needs = [one.demand - sum(one.room[number] for number in always) for one in self._rows]
        self._fixed = sum(costs[number] for number in always)
        self.prices = [0.0] * len(self._rows)
        self.bound = self._fixed + sum(min(0.0, costs[number]) for number in self._open)
        self._optimize()

    @property
    def is_possible(self) -> bool:
        return all(sum(row.room[number] for number in self._open) >= need for row, need in zip(self._rows, self._needs, strict=True))

    def _lost(self, number: int, prices: Sequence[float]) -> float:
        """What a machine costs more than its room is worth."""
        return self._costs[number] - sum(price * row.room[number] for price, row in zip(prices, self._rows, strict=True) if price)

    def _optimize(self) -> None:
        """Subgradients: the price of a row rises as long as the set lacks of it."""
        norms = [max(need, 1) for need in self._needs]
        prices, step, stale = list(self.prices), 1.0, 0
        goal = self._goal()
        for _ in range(_ROUNDS if self._rows else 0):
            on, value = [], self._fixed + sum(price * need for price, need in zip(prices, self._needs, strict=True))
            for number in self._open:
                lost = self._lost(number, prices)
                if lost < 0:
                    on.append(number)
                    value += lost
            stale += 1
            if value > self.bound:
                self.bound, self.prices, stale = value, list(prices), 0
            elif stale > 6:
                step, stale, prices = step / 2, 0, list(self.prices)
                continue
            lacks = [
                (need - sum(row.room[number] for number in on)) / norm
                for row, need, norm in zip(self._rows, self._needs, norms, strict=True)
            ]
            square = sum(lack * lack for lack, price in zip(lacks, prices, strict=True) if lack > 0 or price)
            if not square:
                break
            size = step * max(goal - value, 0.001 * abs(goal)) / square
            prices = [max(0.0, price + size * lack / norm) for price, lack, norm in zip(prices, lacks, norms, strict=True)]

    def _goal(self) -> float:
        """What some cover costs."""
        on = self._completed({number for number in self._open if self._costs[number] < 0})
        return self._fixed + sum(self._costs[number] for number in sorted(on)) if on is not None else self.bound

    def covers(self, most: int) -> Iterator[tuple[float, Cover | None]]:
        """What everything from now on costs at least, and a cover if this set is one; up to `most` sets."""
        lost = {number: self._lost(number, self.prices) for number in self._open}
        base = frozenset(number for number in self._open if lost[number] < 0)
        order = sorted(self._open, key=lambda number: (abs(lost[number]), number))
        weights = [abs(lost[number]) for number in order]
        signs = [-1 if number in base else 1 for number in order]
        changes = [[sign * row.room[number] for row in self._rows] for sign, number in zip(signs, order, strict=True)]
        prices = [sign * self._costs[number] for sign, number in zip(signs, order, strict=True)]
        start = [sum(row.room[number] for number in base) - need for row, need in zip(self._rows, self._needs, strict=True)]
        cost = self._fixed + sum(self._costs[number] for number in base)
        heap: list[tuple[float, int, int, tuple[int, ...], list[int], float]] = [(self.bound, 0, -1, (), start, cost)]
        ties = 0
        for _ in range(most):
            if not heap:
                return
            least, _, last, flipped, surplus, price = heappop(heap)
            if min(surplus, default=0) >= 0:
                yield least, Cover(price, self._always | (base ^ frozenset(order[index] for index in flipped)))
            else:
                yield least, None
            following = last + 1
            if following >= len(order):
                continue
            ties += 2
            change = changes[following]
            more = [have + by for have, by in zip(surplus, change, strict=True)]
            heappush(heap, (least + weights[following], ties, following, (*flipped, following), more, price + prices[following]))
            if flipped:
                old = changes[last]
                instead = [have - by for have, by in zip(more, old, strict=True)]
                entry = (least + weights[following] - weights[last], ties + 1, following, (*flipped[:-1], following), instead)
                heappush(heap, (*entry, price + prices[following] - prices[last]))

    def repaired(self, most: int) -> Iterator[Cover]:
        """Covers made of the sets that cost the least but lack of something: with machines that add the most for their cost, without those
        that are not needed then."""
        lost = {number: self._lost(number, self.prices) for number in self._open}
        base = frozenset(number for number in self._open if lost[number] < 0)
        for number in (None, *sorted(self._open, key=lambda one: (abs(lost[one]), one))[:most]):
            on = self._completed(set(base if number is None else base ^ {number}))
            if on is not None:
                self._thin_out(on)
                yield Cover(self._fixed + sum(self._costs[one] for one in sorted(on)), self._always | on)

    def _completed(self, on: set[int]) -> set[int] | None:
        while True:
            lacks = [need - sum(row.room[number] for number in on) for row, need in zip(self._rows, self._needs, strict=True)]
            if max(lacks, default=0) <= 0:
                return on
            best = min((one for one in self._open if one not in on), key=lambda one: (self._worth(one, lacks), one), default=None)
            if best is None:
                return None
            on.add(best)

    def _worth(self, number: int, lacks: Sequence[int]) -> float:
        """What a machine costs for each share of what is lacking."""
        adds = sum(min(lack, row.room[number]) / lack for lack, row in zip(lacks, self._rows, strict=True) if lack > 0)
        return self._costs[number] / adds if adds else float("inf")

    def _thin_out(self, on: set[int]) -> None:
        surplus = [sum(row.room[number] for number in on) - need for row, need in zip(self._rows, self._needs, strict=True)]
        for number in sorted(on, key=lambda one: (-self._costs[one], one)):
            if self._costs[number] > 0 and all(row.room[number] <= have for row, have in zip(self._rows, surplus, strict=True)):
                on.discard(number)
                surplus = [have - row.room[number] for row, have in zip(self._rows, surplus, strict=True)]
