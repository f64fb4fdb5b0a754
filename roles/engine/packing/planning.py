"""Pure: the plan: searched in whole numbers, then judged by placement, pod by pod. What placement does not confirm is taken back."""

from __future__ import annotations

from dataclasses import replace

from roles.engine.packing.model import Plan, Problem
from roles.engine.packing.search import MOVE, Found, Search
from roles.engine.packing.shape import Shape
from roles.engine.packing.why import Reasons
from roles.engine.placement import Trial


def plan(problem: Problem) -> Plan:
    """The cheapest plan that is found, with a price on each pod that moves; at least the one that changes nothing. Raises ValueError if a
    quantity cannot be read."""
    shape = Shape(problem)
    kept = {shape.numbers[name] for name in problem.keep if name in shape.numbers and not shape.machines[shape.numbers[name]].off}
    # What its owner may take away is not woken, unless all is like that.
    owned = any(not one.reclaimable for one in shape.machines)
    never = {number for number, one in enumerate(shape.machines) if one.off and one.reclaimable and owned}
    search = Search(shape, kept | set(shape.stuck), never)
    search.run()
    most = problem.max_moves if problem.max_moves is not None else search.usual
    refused: set[int] = set()
    found = search.best(MOVE * search.share, most, refused)
    while new := _refused(shape, found):
        refused |= new
        found = search.best(MOVE * search.share, most, refused)
    placed = ((shape.pods[number], machine) for number, machine in found.places.items())
    moves = {pod.name: shape.machines[machine].name for pod, machine in placed if not pod.free}
    on = {one.name for number, one in enumerate(shape.machines) if number in found.on}
    return Plan(
        stays=tuple(one.name for one in shape.machines if not one.off and one.name in on),
        goes=tuple(one.name for one in shape.machines if not one.off and one.name not in on),
        woken=tuple(one.name for one in shape.machines if one.off and one.name in on),
        cost=found.cost,
        moves=moves,
        bound=search.bound(),
        why=Reasons(search, found, refused),
    )


def _refused(shape: Shape, found: Found) -> set[int]:
    """The machines of pods that placement does not confirm on their new node. Those that go stay in the cluster, as cordoned nodes."""
    goes = {one.name for number, one in enumerate(shape.machines) if number not in found.on}
    nodes = [one.node for number, one in enumerate(shape.machines) if not one.off or number in found.on]
    moved = [shape.pods[number] for number in found.places]
    waiting = [pod for pod in shape.pods if pod.free and pod.number not in found.places and pod.home in found.on]
    listed = [(pod.raw, shape.machines[pod.home].name) for pod in waiting]
    listed += [(pod.raw, shape.machines[found.places[pod.number]].name) for pod in moved]
    if not moved:
        return set()
    verdicts = Trial(replace(shape.view, nodes=nodes), goes).moves(listed)
    judged = zip([*waiting, *moved], verdicts, strict=True)
    return {pod.home for pod, verdict in judged if verdict.state != "fits" and not pod.free}
