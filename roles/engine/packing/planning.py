"""Pure: the plan: searched in whole numbers, then judged by placement, pod by pod. What placement does not confirm is taken back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.engine.kube import Object
from roles.engine.packing.model import Cause, Plan, Problem
from roles.engine.packing.search import MOVE, Found, Search
from roles.engine.packing.shape import Pod, Shape
from roles.engine.packing.why import Reasons
from roles.engine.placement import Trial

_NO_ROOM = "no other machine has room for it"
_NOT_CONFIRMED = "placement does not confirm another place"


#: A cluster with more machines than this has no second look; so many nodes are emptied pod by pod at most.
_MANY, _EMPTIED = 120, 20


@dataclass(frozen=True)
class _Choice:
    """What was found by one of the searches, and placement confirms. `refused`: the machines that stay because it does not."""

    searches: Sequence[Search]
    search: Search
    found: Found
    refused: Collection[int]


def plan(problem: Problem) -> Plan:
    """The cheapest plan that is found, with a price on each pod that moves; at least the one that changes nothing but what must go. Raises
    ValueError if a quantity cannot be read."""
    shape = Shape(problem)
    choices, left = _searched(shape, problem.max_moves)
    if shape.is_careful and len(shape.machines) <= _MANY:
        choices += _second_look(problem)
    if not choices:
        on = [one for one in shape.machines if not one.off]
        return Plan(tuple(one.name for one in on), (), (), sum(one.cost for one in on), {}, 0.0, {}, left)
    price = MOVE * choices[0].search.share
    best = min(choices, key=lambda one: (one.found.lacks, one.found.cost + price * one.found.moves, one.found.moves))
    searches = {search: None for one in choices for search in one.searches}
    return _planned(best, min(best.found.cost, *(one.bound() for one in searches)))


def _second_look(problem: Problem) -> Iterator[_Choice]:
    """With pods that only placement knows places for. What is found does not depend on `max_moves`, so that more moves never cost more."""
    for loose in _searched(Shape(problem, loose=True), None)[0]:
        for one in (loose, *_emptied(loose, loose.search.start), *_emptied(loose, loose.found)):
            if problem.max_moves is None or one.found.moves <= max(problem.max_moves, one.search.start.moves):
                yield one


def _searched(shape: Shape, max_moves: int | None) -> tuple[list[_Choice], Mapping[tuple[str, str], str]]:
    """What was found; or else, of machines that must go, the pods that cannot leave, and why."""
    gone = {number for number, one in enumerate(shape.machines) if one.name in shape.problem.must_go and not one.off}
    stuck = {one.pod: f"{one.cause.value}: {one.subject}" for number in gone for one in shape.stuck.get(number, ())}
    searches = [] if stuck else list(_searches(shape, gone))
    left = stuck or {pod.name: f"{Cause.ROOM.value}: {_NO_ROOM}" for search in searches for pod in search.stranded}
    if left:
        return [], left
    for search in searches:
        search.run()
    refused: set[int] = set()
    search, found = _best(searches, refused, max_moves)
    while new := _refused(shape, found):
        if not new.keys().isdisjoint(gone):
            # Without what may go, there may be room for what must.
            others = {number for number in search.start.on if not shape.machines[number].off}
            if others <= refused:
                return [], {pod.name: f"{Cause.BOUND.value}: {_NOT_CONFIRMED}" for home in gone for pod in new.get(home, ())}
            refused |= others
        refused |= new.keys() - gone
        search, found = _best(searches, refused, max_moves)
    return [_Choice(searches, search, found, refused)], {}


def _planned(choice: _Choice, bound: float) -> Plan:
    shape, found = choice.search.shape, choice.found
    placed = ((shape.pods[number], machine) for number, machine in found.places.items())
    moves = {pod.name: shape.machines[machine].name for pod, machine in placed if not pod.free}
    on = {one.name for number, one in enumerate(shape.machines) if number in found.on}
    return Plan(
        stays=tuple(one.name for one in shape.machines if not one.off and one.name in on),
        goes=tuple(one.name for one in shape.machines if not one.off and one.name not in on),
        woken=tuple(one.name for one in shape.machines if one.off and one.name in on),
        cost=found.cost,
        moves=moves,
        bound=bound,
        why=Reasons(choice.search, found, choice.refused),
        reserve=not found.lacks,
    )


def _searches(shape: Shape, gone: set[int]) -> Iterator[Search]:
    """One; or two, if reclaimable machines may go or wake: in a plan that lets one go, none wakes."""
    problem = shape.problem
    kept = {shape.numbers[name] for name in problem.keep if name in shape.numbers and not shape.machines[shape.numbers[name]].off}
    always = (kept | set(shape.stuck)) - gone
    closed = {number for number, one in enumerate(shape.machines) if one.off and one.name in problem.closed}
    reclaimable = {number for number, one in enumerate(shape.machines) if one.reclaimable} - gone
    wake = {number for number in reclaimable if shape.machines[number].off} - closed
    go = {number for number in reclaimable if not shape.machines[number].off} - always
    if wake and go:
        yield Search(shape, always, closed | wake, gone)
        yield Search(shape, always | go, closed, gone)
    else:
        yield Search(shape, always, closed, gone)


def _best(searches: list[Search], refused: set[int], max_moves: int | None) -> tuple[Search, Found]:
    """The cheapest of what was found. Machines that must go may move more pods than `max_moves`."""
    found = []
    for search in searches:
        most = search.usual if max_moves is None else max(max_moves, search.start.moves)
        found.append((search, search.best(MOVE * search.share, most, refused)))
    return min(found, key=lambda one: (one[1].lacks, one[1].cost + MOVE * one[0].share * one[1].moves))


def _refused(shape: Shape, found: Found) -> dict[int, list[Pod]]:
    """The pods, by their machine, that placement does not confirm on the new one."""
    if not found.places:
        return {}
    pods, moves = _moves(shape, found.on, found.places)
    refused: dict[int, list[Pod]] = {}
    for pod, verdict in zip(pods, _trial(shape, found.on).moves(moves), strict=True):
        if verdict.state != "fits" and not pod.free:
            refused.setdefault(pod.home, []).append(pod)
    return refused


def _moves(shape: Shape, on: Collection[int], places: Mapping[int, int]) -> tuple[list[Pod], list[tuple[Object, str]]]:
    """The pods that get a node: those first that wait for one."""
    waiting = [(pod, pod.home) for pod in shape.pods if pod.free and pod.number not in places and pod.home in on]
    listed = [*waiting, *((shape.pods[number], node) for number, node in places.items())]
    return [pod for pod, _ in listed], [(pod.raw, shape.machines[node].name) for pod, node in listed]


def _trial(shape: Shape, on: Collection[int]) -> Trial:
    """With these machines. Those that go stay in the cluster, as cordoned nodes."""
    nodes = [one.node for number, one in enumerate(shape.machines) if not one.off or number in on]
    goes = {one.name for number, one in enumerate(shape.machines) if number not in on}
    return Trial(replace(shape.view, nodes=nodes), goes, shape.world.held)


def _emptied(choice: _Choice, found: Found) -> Iterator[_Choice]:
    """Node after node emptied by placement itself, the dearest first: it knows more than the search of what pods want of each other."""
    search, shape = choice.search, choice.search.shape
    listed = [
        number
        for number in found.on - search.always
        if not shape.machines[number].off and (number in choice.refused or any(pod.kind.pinned for pod in shape.by_machine[number]))
    ]
    price = MOVE * search.share
    for number in sorted(listed, key=lambda one: (price * search.evictions[one] - search.costs[one], one))[:_EMPTIED]:
        on, places = found.on - {number}, _places(shape, found, number)
        if places is not None and search.survives(on, places):
            found = Found(on, found.cost - search.costs[number], found.moves + search.evictions[number], places)
            yield replace(choice, found=found)


def _places(shape: Shape, found: Found, machine: int) -> dict[int, int] | None:
    """Where all pods go once one more machine does; None if one has no place for sure."""
    on, places = found.on - {machine}, {number: node for number, node in found.places.items() if node != machine}
    trial = _trial(shape, on)
    pods, moves = _moves(shape, on, places)
    if any(verdict.state != "fits" and not pod.free for pod, verdict in zip(pods, trial.moves(moves), strict=True)):
        return None
    left = [*shape.by_machine[machine], *(shape.pods[number] for number, node in found.places.items() if node == machine)]
    left.sort(key=lambda pod: (-shape.weight(pod.kind.asks), pod.number))
    # A pod that wants to be beside another one comes after it.
    while left:
        new = {pod: node for pod in left if (node := _place(shape, pod, on, trial)) is not None}
        if not new:
            return None
        places |= {pod.number: node for pod, node in new.items()}
        left = [pod for pod in left if pod not in new]
    return places


def _place(shape: Shape, pod: Pod, on: Collection[int], trial: Trial) -> int | None:
    """A node that the pod can be placed on for sure, and is then."""
    for node in sorted(on if pod.kind.on is None else pod.kind.on & frozenset(on)):
        if trial.moves([(pod.raw, shape.machines[node].name)], undo=True)[0].state == "fits":
            trial.moves([(pod.raw, shape.machines[node].name)])
            return node
    return None
