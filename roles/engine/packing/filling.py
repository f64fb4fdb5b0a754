"""Pure: whether pods have room on machines. Best fit, the largest pods first; those that are bound to some machines before all others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roles.engine.packing.shape import Pod, Shape

#: What a machine has left, as one number: cores, cores and memory, memory. One after the other is tried until all pods have room.
_MEASURES = (("cpu",), ("cpu", "memory"), ("memory",))


@dataclass(frozen=True)
class State:
    """What is free on each machine, and how many pods of each tag are there. `measured`: what is free, by each measure."""

    free: Sequence[Sequence[int]]
    tags: Sequence[Counter[int]]
    measured: Sequence[Sequence[int]]


@dataclass
class Filling:
    """`places`: by the number of a pod, its machine. `left`: pods that have none."""

    places: dict[int, int] = field(default_factory=dict)
    left: list[Pod] = field(default_factory=list)


class Filler:
    """Fills machines of a shape with pods."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        scales = dict(zip(shape.resources, shape.scales, strict=True))
        self._weights = [[max(scales.values()) // scales[one] if one in measure else 0 for one in shape.resources] for measure in _MEASURES]
        #: A machine with less than a pod's size, by any measure, has no room for it.
        self._sizes = [[_measure(pod.kind.asks, weights) for pod in shape.pods] for weights in self._weights]
        self._orders = [[(pod.kind.rank, -sizes[pod.number], pod.number) for pod in shape.pods] for sizes in self._sizes]
        self.start = self._state([list(free) for free in shape.free], shape.tags)

    def _state(self, free: Sequence[Sequence[int]], tags: Sequence[Counter[int]]) -> State:
        return State(free, tags, [[_measure(enumerate(one), weights) for one in free] for weights in self._weights])

    def after(self, places: Mapping[int, int]) -> State:
        """The state when the pods have their new places; what they left is not used any more, and stays as it is."""
        free, tags = [list(one) for one in self.start.free], [Counter(one) for one in self.start.tags]
        for number, machine in places.items():
            kind = self._shape.pods[number].kind
            for resource, amount in kind.asks:
                free[machine][resource] -= amount
            tags[machine].update(kind.shows)
        return self._state(free, tags)

    def fill(self, pods: Collection[Pod], on: Collection[int], state: State | None = None) -> dict[int, int] | None:
        """Places for all of the pods on these machines, beside the pods that are there; None if some has none."""
        for number in range(len(_MEASURES)):
            found = self.fill_by(number, pods, on, state or self.start, all_or_none=True)
            if not found.left:
                return found.places
        return None

    def fill_by(self, number: int, pods: Iterable[Pod], on: Collection[int], state: State, *, all_or_none: bool = False) -> Filling:
        """By one measure. `all_or_none`: ends at the first pod that has no place."""
        order, sizes, found = self._orders[number], self._sizes[number], Filling()
        measured = state.measured[number]
        run = _Run(state, sorted((measured[machine], machine) for machine in on))
        for pod in sorted(pods, key=lambda pod: order[pod.number]):
            machine = run.place(pod, sizes[pod.number])
            if machine is not None:
                found.places[pod.number] = machine
                continue
            found.left.append(pod)
            if all_or_none:
                break
        return found


class _Run:
    """`line`: the machines with what is free by the measure, the fullest first."""

    def __init__(self, state: State, line: list[tuple[int, int]]) -> None:
        self._all_free, self._tags, self._line = state.free, state.tags, line
        self._own: dict[int, list[int]] = {}
        self._shown: Counter[tuple[int, int]] = Counter()

    def place(self, pod: Pod, size: int) -> int | None:
        """The fullest machine that has room; it has less of it then."""
        line, own, all_free, kind = self._line, self._own, self._all_free, pod.kind
        asks, suits, limits = kind.asks, kind.on, kind.limits
        for index in range(bisect_left(line, (size, -1)), len(line)):
            measure, machine = line[index]
            free = own.get(machine) or all_free[machine]
            for resource, amount in asks:
                if amount > free[resource]:
                    break
            else:
                if (suits is None or machine in suits) and (not limits or self._allowed(machine, limits)):
                    del line[index]
                    insort(line, (measure - size, machine))
                    self._take(machine, pod)
                    return machine
        return None

    def _allowed(self, machine: int, limits: Iterable[tuple[int, int]]) -> bool:
        there, shown = self._tags[machine], self._shown
        return all(there[tag] + shown[machine, tag] <= most for tag, most in limits)

    def _take(self, machine: int, pod: Pod) -> None:
        free = self._own.get(machine)
        if free is None:
            free = self._own[machine] = list(self._all_free[machine])
        for resource, amount in pod.kind.asks:
            free[resource] -= amount
        for tag in pod.kind.shows:
            self._shown[machine, tag] += 1


def _measure(amounts: Iterable[tuple[int, int]], weights: Sequence[int]) -> int:
    return sum(amount * weights[resource] for resource, amount in amounts)
