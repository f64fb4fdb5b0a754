"""Pure: whether pods have room on machines. Best fit, the largest pods first; those that are bound to some machines before all others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roles.engine.packing.shape import Kind, Pod, Shape

#: What a machine has left, as one number: cores, cores and memory, memory. One after the other is tried until all pods have room.
_MEASURES = (("cpu",), ("cpu", "memory"), ("memory",))


@dataclass(frozen=True)
class State:
    """What is free on each machine, and how many pods of each tag are there. `measured`: what is free, by each measure."""

    free: Sequence[list[int]]
    tags: Sequence[Counter[int]]
    measured: Sequence[list[int]]


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
        all_of = [shape.weight(pod.kind.asks) for pod in shape.pods]
        self._orders = [
            [(pod.kind.rank, -sizes[pod.number], -all_of[pod.number], pod.number) for pod in shape.pods] for sizes in self._sizes
        ]
        self.start = self._state([list(free) for free in shape.free], shape.tags)

    def _state(self, free: Sequence[list[int]], tags: Sequence[Counter[int]]) -> State:
        return State(free, tags, [[_measure(enumerate(one), weights) for one in free] for weights in self._weights])

    def after(self, places: Mapping[int, int]) -> State:
        """The state when the pods have their new places; what they left is not used any more, and stays as it is."""
        state = self._state([list(one) for one in self.start.free], [Counter(one) for one in self.start.tags])
        self.put(places, state)
        return state

    def put(self, places: Mapping[int, int], state: State) -> None:
        """Changes the state."""
        for number, machine in places.items():
            kind = self._shape.pods[number].kind
            for resource, amount in kind.asks:
                state.free[machine][resource] -= amount
            state.tags[machine].update(kind.shows)
            for measured, sizes in zip(state.measured, self._sizes, strict=True):
                measured[machine] -= sizes[number]

    def fill(self, pods: Collection[Pod], on: Collection[int], state: State | None = None) -> dict[int, int] | None:
        """Places for all of the pods on these machines, beside the pods that are there; None if some has none."""
        for number in range(len(_MEASURES)):
            found = self.fill_by(number, pods, on, state or self.start, all_or_none=True)
            if not found.left:
                return found.places
        return None

    def fewest_left(self, pods: Collection[Pod], on: Collection[int]) -> Filling:
        """As fill, with the fewest pods that have no place."""
        return min((self.fill_by(number, pods, on, self.start) for number in range(len(_MEASURES))), key=lambda one: len(one.left))

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
    """`line`: the machines with what is free by the measure, the fullest first. The state stays as it is."""

    def __init__(self, state: State, line: list[tuple[int, int]]) -> None:
        self._free, self._tags, self._line = list(state.free), state.tags, line
        self._measures: dict[int, int] = {}
        self._shown: Counter[tuple[int, int]] = Counter()
        #: By kind of pod, the last machine that took one, with what was free on it before: fuller ones have no room.
        self._last: dict[int, tuple[int, int]] = {}

    def place(self, pod: Pod, size: int) -> int | None:
        """The fullest machine that has room; it has less of it then."""
        kind, line, first = pod.kind, self._line, (size, -1)
        last = self._last.get(id(kind))
        if last is not None and (index := self._again(kind, last[1])) is not None:
            return self._put(index, pod, size)
        index = self._first_with_room(kind, bisect_left(line, last or first))
        if index is None and last is not None:
            # Others of its kind were placed before pods of other kinds: what these left may be fuller, and have room.
            index = self._first_with_room(kind, bisect_left(line, first))
        if index is None:
            return None
        self._last[id(kind)] = line[index]
        return self._put(index, pod, size)

    def _again(self, kind: Kind, machine: int) -> int | None:
        """Where in the line the machine is, if it has room for one more."""
        free = self._free[machine]
        for resource, amount in kind.asks:
            if amount > free[resource]:
                return None
        return bisect_left(self._line, (self._measures[machine], machine)) if self._allowed(machine, kind.limits) else None

    def _first_with_room(self, kind: Kind, start: int) -> int | None:
        line, all_free = self._line, self._free
        asks, suits, limits = kind.asks, kind.on, kind.limits
        for index in range(start, len(line)):
            machine = line[index][1]
            free = all_free[machine]
            for resource, amount in asks:
                if amount > free[resource]:
                    break
            else:
                if (suits is None or machine in suits) and (not limits or self._allowed(machine, limits)):
                    return index
        return None

    def _put(self, index: int, pod: Pod, size: int) -> int:
        measure, machine = self._line.pop(index)
        self._take(machine, pod)
        self._measures[machine] = measure - size
        insort(self._line, (measure - size, machine))
        return machine

    def _allowed(self, machine: int, limits: Iterable[tuple[int, int]]) -> bool:
        there, shown = self._tags[machine], self._shown
        return all(there[tag] + shown[machine, tag] <= most for tag, most in limits)

    def _take(self, machine: int, pod: Pod) -> None:
        free = self._free[machine] if machine in self._measures else list(self._free[machine])
        self._free[machine] = free
        for resource, amount in pod.kind.asks:
            free[resource] -= amount
        for tag in pod.kind.shows:
            self._shown[machine, tag] += 1


def _measure(amounts: Iterable[tuple[int, int]], weights: Sequence[int]) -> int:
    return sum(amount * weights[resource] for resource, amount in amounts)
