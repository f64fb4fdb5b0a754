"""Pure: the sets of machines that are on, looked for in the order of cost, with a price on each pod that moves.

All sets that pack are kept, and the plan is chosen among them at the end: so what is found does not depend on `max_moves`, and more moves
never cost more. Nothing asks a clock or draws a number: the same problem has the same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.engine.packing.covering import Cover, Covering, Row
from roles.engine.packing.filling import Filler
from roles.engine.packing.shape import Pod, Shape

#: What the move of one pod has to save, as a share of what a pod costs on the machines that are on. docs/consolidation.md has the figures.
MOVE = 0.1
#: The prices of a move that are tried, as shares of the same.
_PRICES = (0.1, 0.02, 0.3, 0.6, 1.0, 0.0)
#: More room than the pods ask for, as a share: a set without spare room seldom packs.
_MARGINS = (0.0, 0.004, 0.008, 0.015, 0.025, 0.04, 0.06, 0.09, 0.13)
#: How many sets are looked at for one price and margin, and how many of the cheapest are packed.
_SETS, _COVERS, _PACKED, _REPAIRED = 3000, 120, 10, 2000
#: A cluster with more machines than this has its own prices, no swaps, and a search for the price that moves as many pods as is usual.
_MANY, _PRICES_OF_MANY, _HALVES = 120, (0.3, 0.6, 1.0), 6
#: How many pods are placed in all, and how many sets are looked at for the bound.
_WORK, _BOUND_SETS = 700_000, 30_000


@dataclass(frozen=True)
class Found:
    """A set of machines on which all pods have room. `moves`: how many pods move; `places`: by the number of a pod, its machine; `lacks`:
    it has no reserve, though one was asked for."""

    on: frozenset[int]
    cost: float
    moves: int
    places: dict[int, int]
    lacks: bool = False


class Search:
    """`always`: the machines that stay in any case; `never`: those that are not woken; `gone`: those that must go. `stranded`: their
    pods that have no place, even if all machines are woken: then there is nothing to search."""

    def __init__(self, shape: Shape, always: Collection[int], never: Collection[int] = (), gone: Collection[int] = ()) -> None:
        self.shape = shape
        self.costs = [one.cost for one in shape.machines]
        self.always = frozenset(always)
        self.open = [number for number in range(len(shape.machines)) if not any(number in some for some in (self.always, never, gone))]
        self.evictions = [sum(not pod.free for pod in there) for there in shape.by_machine]
        self.found: dict[frozenset[int], Found] = {}
        self.work = _WORK
        #: The margin that was enough last.
        self._margin = 0
        self._prices: list[float] | None = None
        self._failed: set[frozenset[int]] = set()
        self.filler = Filler(shape)
        self._rows = list(_rows(shape))
        on = [number for number, one in enumerate(shape.machines) if not one.off]
        self.share = sum(self.costs[number] for number in on) / max(1, sum(self.evictions))
        self.stranded: list[Pod] = []
        self.start = self._without(gone, frozenset(on) - frozenset(gone)) if gone else self._record(frozenset(on), {})
        #: At most so many pods move if nobody says how many may; None: as many as are worth it.
        self.usual: int | None = None

    def run(self) -> None:
        if len(self.open) <= _MANY:
            for price in _PRICES:
                self._search(price * self.share)
            self._emptied_one_by_one()
            self._unwind(self._improve(self.best(MOVE * self.share), self._with_price(MOVE * self.share)))
            return
        self.usual = self._emptied_one_by_one()
        for price in _PRICES_OF_MANY:
            self._search(price * self.share)
        self._aim(self.usual)

    def _without(self, gone: Collection[int], on: frozenset[int]) -> Found:
        """The machines that must go are off, and the fewest others are woken for their pods; whether or not a reserve stays."""
        pods = [pod for number in sorted(gone) for pod in self.shape.by_machine[number]]
        places = self.filler.fill(pods, on)
        if places is None:
            on = on.union(self.open)
            found = self.filler.fewest_left(pods, on)
            places, self.stranded = found.places, found.left
            on, places = self._asleep(on, places)
        return self._record(on, places, lacks=not self.survives(on, places))

    def _emptied_one_by_one(self) -> int:
        """How many pods move if each machine that can be is emptied, the dearest for its pods first, as other consolidators do."""
        order = sorted(
            (number for number in self.open if not self.shape.machines[number].off),
            key=lambda one: (-self.costs[one] / (1 + len(self.shape.by_machine[one])), one),
        )
        on, state, places = set(self.start.on), self.filler.after(self.start.places), dict(self.start.places)
        there = [list(there) for there in self.shape.by_machine]
        for pod, machine in places.items():
            there[machine].append(self.shape.pods[pod])
        for number in order:
            on.discard(number)
            found = self.filler.fill(there[number], on, state)
            if found is None:
                on.add(number)
                continue
            self.filler.put(found, state)
            places |= found
            for pod, machine in found.items():
                there[machine].append(self.shape.pods[pod])
        whole = frozenset(on)
        if whole not in self.found and self.survives(whole, places):
            self._record(whole, places)
        return sum(moves for number, moves in enumerate(self.evictions) if number not in whole)

    def _aim(self, most: int) -> None:
        """The price at which about so many pods move is looked for, by halves."""
        low, high = 0.0, 4 * self.share
        for _ in range(_HALVES):
            price = (low + high) / 2
            found = self._search(price)
            if found is None or found.moves > most:
                low = price
            else:
                high = price

    def best(self, price: float, most: int | None = None, always: Collection[int] = ()) -> Found:
        """The cheapest with a price on each move, with at most so many moves, and with these machines on. If more may move, what is found
        never costs more: a price makes no set better than one with fewer moves that costs as much."""
        allowed = (one for one in self.found.values() if (most is None or one.moves <= most) and one.on.issuperset(always))
        return min(allowed, key=lambda one: (one.lacks, one.cost + price * one.moves, one.moves, sorted(one.on)))

    def bound(self) -> float:
        """No set of machines that has room enough, added up, costs less."""
        covering = Covering(self.costs, self._rows, self.always, self.open)
        bound, best = covering.bound, min(one.cost for one in self.found.values())
        for least, cover in covering.covers(_BOUND_SETS * 60 // max(60, covering.size)):
            bound = max(bound, min(least, best))
            best = min(best, cover.cost) if cover is not None else best
            if least >= best:
                break
        return min(bound, best)

    # ---- sets

    def _search(self, price: float) -> Found | None:
        """The cheapest set that is found with a price on each move; sets with fewer moves are derived from it."""
        costs = self._with_price(price)
        first = max(0, self._margin - 2) if len(self.open) > _MANY else 0
        for number, margin in enumerate(_MARGINS[first:], start=first):
            # Pods that are kept apart do not find room on every machine that is on.
            rows = [replace(row, demand=row.demand + (number // 2 if row.hosts else int(row.demand * margin))) for row in self._rows]
            covering = Covering(costs, rows, self.always, self.open, self._prices)
            self._prices = covering.prices
            if not covering.is_possible:
                return None
            found = next((found for cover in _cheapest(covering) if (found := self.packed(cover.on)) is not None), None)
            if found is not None:
                self._margin = number
                found = self._improve(found, costs)
                self._unwind(found)
                return found
        return None

    def _with_price(self, price: float) -> list[float]:
        return [cost - price * moves for cost, moves in zip(self.costs, self.evictions, strict=True)]

    def packed(self, on: frozenset[int]) -> Found | None:
        """The set, if all pods have room on it."""
        if on in self.found:
            return self.found[on]
        if on in self._failed or self.work <= 0:
            return None
        pods = self.leaving(on)
        self.work -= len(pods) + 5
        places = self.filler.fill(pods, on)
        if places is None or not self.survives(on, places):
            self._failed.add(on)
            return None
        return self._record(on, places)

    def leaving(self, on: Collection[int]) -> list[Pod]:
        return [pod for number, there in enumerate(self.shape.by_machine) if there and number not in on for pod in there]

    def _record(self, on: frozenset[int], places: dict[int, int], *, lacks: bool = False) -> Found:
        moves = sum(there for number, there in enumerate(self.evictions) if number not in on)
        found = self.found[on] = Found(on, sum(self.costs[number] for number in sorted(on)), moves, places, lacks)
        return found

    def survives(self, on: Collection[int], places: Mapping[int, int]) -> bool:
        """After the plan the largest machines may fail: their pods have room on the others, and one more of the largest pod. What an owner
        may take back is no reserve, but for pods that run nowhere else."""
        spare, shape = self.shape.problem.spare, self.shape
        if not spare:
            return True
        failing = sorted(on, key=lambda one: (-shape.weight(enumerate(shape.room[one])), one))[:spare]
        there = [pod for number in failing for pod in shape.by_machine[number]]
        there += [shape.pods[number] for number, machine in places.items() if machine in failing]
        largest = max(shape.pods, key=lambda pod: (shape.weight(pod.kind.asks), -pod.number), default=None)
        more = [] if largest is None else [replace(largest, kind=replace(largest.kind, limits=(), shows=()))]
        self.work -= len(there)
        owned = {number for number in on if not shape.machines[number].reclaimable}
        kept = [pod for pod in (*there, *more) if len(owned) == len(on) or pod.kind.on is None or pod.kind.on & owned]
        return self.filler.fill(kept, owned - set(failing), self.filler.after(places)) is not None

    # ---- from one set to others

    def _improve(self, best: Found, costs: Sequence[float]) -> Found:
        """As long as one machine less, another one instead of one, one instead of two, or two instead of one packs and costs less."""
        better: Found | None = best
        while better is not None:
            best = better
            better = next((found for on in self._neighbours(best.on, costs) if (found := self.packed(on)) is not None), None)
        return best

    def _neighbours(self, on: frozenset[int], costs: Sequence[float]) -> Iterator[frozenset[int]]:
        inside = [number for number in self.open if number in on]
        outside = [number for number in self.open if number not in on]
        if len(self.open) > _MANY:
            return
        changes = [*_swaps(inside, outside, costs)]
        surplus = [sum(row.room[number] for number in on) - row.demand for row in self._rows]
        tried = 0
        for _, out, into in sorted(changes):
            if all(
                have + sum(row.room[number] for number in into) >= sum(row.room[number] for number in out)
                for have, row in zip(surplus, self._rows, strict=True)
            ):
                tried += 1
                if tried > 40:
                    return
                yield (on - set(out)) | set(into)

    def _unwind(self, found: Found) -> None:
        """Fewer moves: machines that went stay after all, those first that save the least for their pods."""
        gone = [number for number in self.open if number not in found.on and not self.shape.machines[number].off]
        on, places = found.on, found.places
        for number in sorted(gone, key=lambda one: (self.costs[one] / max(1, self.evictions[one]), one)):
            on = on | {number}
            back = {pod.number for pod in self.shape.by_machine[number]}
            places = {pod: machine for pod, machine in places.items() if pod not in back}
            on, places = self._asleep(on, places)
            if on not in self.found and self.survives(on, places):
                self._record(on, places)

    def _asleep(self, on: frozenset[int], places: dict[int, int]) -> tuple[frozenset[int], dict[int, int]]:
        """Without the woken machines that no pod needs any more."""
        used = set(places.values())
        idle = {number for number in on if self.shape.machines[number].off and number not in used}
        return on - idle, places


def _swaps(
    inside: Sequence[int], outside: Sequence[int], costs: Sequence[float]
) -> Iterator[tuple[float, tuple[int, ...], tuple[int, ...]]]:
    """What changes the cost to the better: the difference, the machines that leave, and those that come."""
    for one in inside:
        if costs[one] > 0:
            yield -costs[one], (one,), ()
        for new in outside:
            if costs[new] < costs[one]:
                yield costs[new] - costs[one], (one,), (new,)
    for index, one in enumerate(inside):
        for other in inside[index + 1 :]:
            for new in outside:
                if costs[new] < costs[one] + costs[other]:
                    yield costs[new] - costs[one] - costs[other], (one, other), (new,)
    for index, new in enumerate(outside):
        for second in outside[index + 1 :]:
            for one in inside:
                if costs[new] + costs[second] < costs[one]:
                    yield costs[new] + costs[second] - costs[one], (one,), (new, second)


def _cheapest(covering: Covering) -> list[Cover]:
    found: dict[frozenset[int], Cover] = {}
    for _, cover in covering.covers(_SETS if covering.size <= _MANY else _SETS // 5):
        if cover is not None:
            found[cover.on] = cover
            if len(found) >= _COVERS:
                break
    for cover in covering.repaired(min(24, _REPAIRED // (1 + covering.size))):
        found[cover.on] = cover
    return sorted(found.values(), key=lambda one: (one.cost, sorted(one.on)))[: _PACKED if covering.size <= _MANY else 2]


def _rows(shape: Shape) -> Iterator[Row]:
    """For each resource, and each group of machines that pods are bound to: the pods need as much as they ask for. And pods of which one
    host can have one need as many hosts."""
    groups: dict[frozenset[int] | None, Counter[int]] = {None: Counter()}
    for pod in shape.pods:
        # A pod that its machine does not suit any more may stay there all the same.
        for group in {None, pod.kind.on if pod.kind.on and pod.home in pod.kind.on else None}:
            counter = groups.setdefault(group, Counter())
            for resource, amount in pod.kind.asks:
                counter[resource] += amount
    for group, demands in groups.items():
        for resource, demand in sorted(demands.items()):
            yield Row(
                [_room(shape, number, resource) if group is None or number in group else 0 for number in range(len(shape.machines))], demand
            )
    apart: Counter[int] = Counter()
    together: dict[int, Counter[int]] = {}
    for pod in shape.pods:
        for tag, most in pod.kind.limits:
            if most == 0 and tag in pod.kind.shows:
                apart[tag] += 1
                together.setdefault(tag, Counter())[pod.home] += 1
    for tag, count in apart.most_common(1):
        yield Row([max(1, together[tag][number]) for number in range(len(shape.machines))], count, hosts=True)


def _room(shape: Shape, machine: int, resource: int) -> int:
    """At most so much of a resource its pods can ask for together: they may be more already than fit."""
    there = sum(amount for pod in shape.by_machine[machine] for number, amount in pod.kind.asks if number == resource)
    return max(0, shape.room[machine][resource], there)
