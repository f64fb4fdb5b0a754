"""Pure: of each node that stays, the smallest thing that keeps it: without it the node goes, and without a part of it only, it stays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from roles.engine.packing.filling import State
from roles.engine.packing.model import Cause
from roles.engine.packing.search import MOVE, Found, Search
from roles.engine.packing.shape import Pod
from roles.engine.placement import Trial

#: Measure by which what has no room is found first.
_FIRST = 0


@dataclass(frozen=True)
class Reason:
    """One thing that keeps a node. `subject`: for people; `pod`: (namespace, name) if it is a pod."""

    cause: Cause
    subject: str
    pod: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.cause.value}: {self.subject}"


class Reasons(Mapping[str, str]):
    """By the name of each node that was on and stays: all that keeps it together, with the other nodes as they are after the plan. It is
    looked for when it is asked for: on a large cluster that takes longer than the plan."""

    def __init__(self, search: Search, found: Found, refused: Collection[int]) -> None:
        machines = search.shape.machines
        self._numbers = {machines[number].name: number for number in sorted(found.on) if not machines[number].off}
        self._judge = _Judge(search, found, refused)
        self._texts: dict[str, str] = {}

    def __getitem__(self, node: str) -> str:
        if node not in self._texts:
            self._texts[node] = "; ".join(map(str, self._judge.of(self._numbers[node])))
        return self._texts[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class _Judge:
    def __init__(self, search: Search, found: Found, refused: Collection[int]) -> None:
        self._search, self._shape, self._found, self._refused = search, search.shape, found, refused
        self._come: dict[int, list[Pod]] = {}
        for number, machine in found.places.items():
            self._come.setdefault(machine, []).append(self._shape.pods[number])

    @cached_property
    def _state(self) -> State:
        return self._search.filler.after(self._found.places)

    def of(self, machine: int) -> tuple[Reason, ...]:
        shape, name = self._shape, self._shape.machines[machine].name
        found = [Reason(Cause.KEPT, shape.problem.keep[name])] if name in shape.problem.keep else []
        found += [Reason(one.cause, f"{one.name}: {one.subject}", one.pod) for one in shape.stuck.get(machine, ())]
        there = [*shape.by_machine[machine], *self._come.get(machine, ())]
        lacking = self._without_room(machine, there)
        found += [Reason(Cause.ROOM, "/".join(pod.name), pod.name) for pod in lacking]
        found += [
            Reason(Cause.BOUND, f"{'/'.join(pod.name)}: placement does not confirm another place", pod.name)
            for pod in self._not_confirmed(machine, [pod for pod in there if pod not in lacking])
        ]
        return tuple(found or self._other(machine, there))

    def _not_confirmed(self, machine: int, there: Sequence[Pod]) -> list[Pod]:
        """Those of pods that have room elsewhere. What is within its domain may be refused for what happens in others."""
        if not any(pod.kind.pinned for pod in there):
            return []
        places = self._search.filler.fill(there, self._found.on - {machine}, self._state) or {}
        listed = [(self._shape.pods[number], node) for number, node in places.items()]
        verdicts = self._trial.moves([(pod.raw, self._shape.machines[node].name) for pod, node in listed], undo=True)
        return [pod for (pod, _), verdict in zip(listed, verdicts, strict=True) if verdict.state != "fits"]

    @cached_property
    def _trial(self) -> Trial:
        """The cluster after the plan."""
        shape, found = self._shape, self._found
        nodes = [one.node for number, one in enumerate(shape.machines) if not one.off or number in found.on]
        goes = {one.name for number, one in enumerate(shape.machines) if number not in found.on}
        trial = Trial(replace(shape.view, nodes=nodes), goes, shape.world.held)
        trial.moves((shape.pods[number].raw, shape.machines[machine].name) for number, machine in found.places.items())
        return trial

    def _without_room(self, machine: int, there: Sequence[Pod]) -> list[Pod]:
        """A smallest set of its pods without which the others have room elsewhere."""
        on = self._found.on - {machine}
        if self._search.filler.fill(there, on, self._state) is not None:
            return []
        left = self._search.filler.fill_by(_FIRST, there, on, self._state).left
        if len(left) > 1:
            for one in sorted(there, key=lambda pod: (-self._shape.weight(pod.kind.asks), pod.number))[:1]:
                if self._goes(there, [one], on):
                    return [one]
        smaller: list[Pod] | None = left
        while smaller is not None:
            left = smaller
            each = ([pod for pod in left if pod is not one] for one in left)
            smaller = next((less for less in each if self._goes(there, less, on)), None)
        return left

    def _goes(self, there: Sequence[Pod], without: Sequence[Pod], on: Collection[int]) -> bool:
        numbers = {pod.number for pod in without}
        return self._search.filler.fill([pod for pod in there if pod.number not in numbers], on, self._state) is not None

    def _other(self, machine: int, there: Sequence[Pod]) -> Iterator[Reason]:
        """All its pods have room elsewhere, and nothing keeps it by itself."""
        problem, found = self._shape.problem, self._found
        most = problem.max_moves if problem.max_moves is not None else self._search.usual
        moves = sum(not pod.free for pod in self._shape.by_machine[machine])
        on = found.on - {machine}
        if machine in self._refused:
            yield Reason(Cause.BOUND, "placement does not confirm where its pods would go")
        elif most is not None and found.moves + moves > most:
            yield Reason(Cause.MOVES, f"{found.moves + moves} pods would move, and at most {most} may")
        elif (places := self._search.filler.fill(self._search.leaving(on), on)) is not None and not self._search.survives(on, places):
            yield Reason(
                Cause.SPARE, f"its room is needed if {'another node fails' if problem.spare == 1 else f'{problem.spare} others fail'}"
            )
        else:
            saved, price = self._shape.machines[machine].cost, MOVE * self._search.share * moves
            yield Reason(Cause.PRICE, f"it saves {saved:g}, and {moves} pods would move, which count {price:g}")
