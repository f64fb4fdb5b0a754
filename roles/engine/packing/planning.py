"""Pure: the plan: searched in whole numbers, then judged by placement, pod by pod. What placement does not confirm is taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from roles.engine.packing.model import Cause, Plan, Problem
from roles.engine.packing.search import MOVE, Found, Search
from roles.engine.packing.shape import Pod, Shape
from roles.engine.packing.why import Reasons
from roles.engine.placement import Trial

_NO_ROOM = "no other machine has room for it"
_NOT_CONFIRMED = "placement does not confirm another place"


def plan(problem: Problem) -> Plan:
    """The cheapest plan that is found, with a price on each pod that moves; at least the one that changes nothing but what must go. Raises
    ValueError if a quantity cannot be read."""
    shape = Shape(problem)
    gone = {number for number, one in enumerate(shape.machines) if one.name in problem.must_go and not one.off}
    stuck = {one.pod: f"{one.cause.value}: {one.subject}" for number in gone for one in shape.stuck.get(number, ())}
    searches = [] if stuck else list(_searches(shape, gone))
    left = stuck or {pod.name: f"{Cause.ROOM.value}: {_NO_ROOM}" for search in searches for pod in search.stranded}
    if left:
        return _nothing(shape, left)
    for search in searches:
        search.run()
    refused: set[int] = set()
    search, found = _best(searches, refused)
    while new := _refused(shape, found):
        if not new.keys().isdisjoint(gone):
            # Without what may go, there may be room for what must.
            others = {number for number in search.start.on if not shape.machines[number].off}
            if others <= refused:
                return _nothing(shape, {pod.name: f"{Cause.BOUND.value}: {_NOT_CONFIRMED}" for home in gone for pod in new.get(home, ())})
            refused |= others
        refused |= new.keys() - gone
        search, found = _best(searches, refused)
    placed = ((shape.pods[number], machine) for number, machine in found.places.items())
    moves = {pod.name: shape.machines[machine].name for pod, machine in placed if not pod.free}
    on = {one.name for number, one in enumerate(shape.machines) if number in found.on}
    return Plan(
        stays=tuple(one.name for one in shape.machines if not one.off and one.name in on),
        goes=tuple(one.name for one in shape.machines if not one.off and one.name not in on),
        woken=tuple(one.name for one in shape.machines if one.off and one.name in on),
        cost=found.cost,
        moves=moves,
        bound=min(one.bound() for one in searches),
        why=Reasons(search, found, refused),
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


def _best(searches: list[Search], refused: set[int]) -> tuple[Search, Found]:
    """The cheapest of what was found. Machines that must go may move more pods than `max_moves`."""
    found = []
    for search in searches:
        most = search.shape.problem.max_moves
        most = search.usual if most is None else max(most, search.start.moves)
        found.append((search, search.best(MOVE * search.share, most, refused)))
    return min(found, key=lambda one: (one[1].lacks, one[1].cost + MOVE * one[0].share * one[1].moves))


def _nothing(shape: Shape, left: Mapping[tuple[str, str], str]) -> Plan:
    on = [one for one in shape.machines if not one.off]
    return Plan(tuple(one.name for one in on), (), (), sum(one.cost for one in on), {}, 0.0, {}, left)


def _refused(shape: Shape, found: Found) -> dict[int, list[Pod]]:
    """The pods, by their machine, that placement does not confirm on the new one. Those that go stay in the cluster, as cordoned nodes."""
    goes = {one.name for number, one in enumerate(shape.machines) if number not in found.on}
    nodes = [one.node for number, one in enumerate(shape.machines) if not one.off or number in found.on]
    moved = [shape.pods[number] for number in found.places]
    waiting = [pod for pod in shape.pods if pod.free and pod.number not in found.places and pod.home in found.on]
    listed = [(pod.raw, shape.machines[pod.home].name) for pod in waiting]
    listed += [(pod.raw, shape.machines[found.places[pod.number]].name) for pod in moved]
    if not moved:
        return {}
    verdicts = Trial(replace(shape.view, nodes=nodes), goes, shape.world.held).moves(listed)
    refused: dict[int, list[Pod]] = {}
    for pod, verdict in zip([*waiting, *moved], verdicts, strict=True):
        if verdict.state != "fits" and not pod.free:
            refused.setdefault(pod.home, []).append(pod)
    return refused
