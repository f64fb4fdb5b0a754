"""Plans of small clusters: what they do is possible, nothing beats their bound, and what keeps a node is what keeps it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.kube import pods
from roles.engine.packing import Cause, Plan, Problem, plan
from roles.engine.placement import ClusterView, Trial
from tests.unit.packing.world import BY_HOST, PLAIN, after, asks, cheapest, have_room, machine, name, owned, problem_of, room
from tests.unit.placement.cluster import HOST, ZONE, affinity, spread

SEEDS = st.integers(0, 10**6)


def on(found: Plan) -> list[str]:
    return [*found.stays, *found.woken]


@settings(max_examples=60)
@given(SEEDS, st.integers(0, 1))
def test_all_pods_of_a_node_that_goes_have_a_place_that_placement_confirms(seed: int, spare: int) -> None:
    problem = problem_of(seed, spare=spare)
    found = plan(problem)
    assert {*found.stays, *found.goes} == {one.name for one in problem.machines if not one.off}
    assert found.cost == pytest.approx(sum(one.cost for one in problem.machines if one.name in on(found)))
    homes = {name(one): pods.node_of(one) for one in problem.pods}
    assert {homes[pod] for pod in found.moves} <= set(found.goes) and set(found.moves.values()) <= set(on(found))
    assert all(pod in found.moves for pod, home in homes.items() if home in found.goes)
    by_name = {name(one): one for one in problem.pods}
    nodes = [one.node for one in problem.machines if not one.off or one.name in found.woken]
    moves = [(by_name[pod], node) for pod, node in found.moves.items()]
    assert [str(one) for one in Trial(ClusterView(nodes, problem.pods), found.goes).moves(moves)] == ["fits"] * len(moves)


@settings(max_examples=50)
@given(SEEDS)
def test_no_solver_beats_the_bound_and_no_plan_beats_the_solver(seed: int) -> None:
    problem = problem_of(seed, PLAIN)
    found, least = plan(problem), cheapest(problem)
    assert found.bound <= least + 1e-9
    assert found.bound <= found.cost + 1e-9
    assert least <= found.cost + 1e-9


@settings(max_examples=25)
@given(SEEDS)
def test_more_moves_never_cost_more(seed: int) -> None:
    problem = problem_of(seed)
    found = [plan(replace(problem, max_moves=moves)) for moves in range(0, 9, 2)]
    assert all(len(one.moves) <= moves for moves, one in zip(range(0, 9, 2), found, strict=True))
    costs = [one.cost for one in (*found, plan(problem))]
    assert costs == sorted(costs, reverse=True)


@settings(max_examples=50)
@given(SEEDS)
def test_without_what_keeps_it_a_node_goes_and_with_a_part_of_it_it_stays(seed: int) -> None:
    problem = problem_of(seed, BY_HOST)
    found = plan(problem)
    now = after(problem, found.moves, on(found))
    for node in found.stays:
        lacking = _lacking(found.why[node])
        if lacking is None:
            continue
        others = {one: "stays" for one in on(found) if one != node}
        gone = [plan(_without(now, lacking[:less] + lacking[less + 1 :], others)).goes for less in range(len(lacking))]
        assert plan(_without(now, lacking, others)).goes == (node,)
        assert gone == [()] * len(lacking)


def _lacking(why: str) -> list[tuple[str, str]] | None:
    """The pods without room that keep a node; None if something else does, too."""
    parts = [part.partition(": ") for part in why.split("; ")]
    if any(cause != Cause.ROOM.value for cause, _, _ in parts):
        return None
    return [(subject.split("/")[0], subject.split("/")[1]) for _, _, subject in parts]


def _without(problem: Problem, gone: list[tuple[str, str]], keep: dict[str, str]) -> Problem:
    return replace(problem, pods=tuple(one for one in problem.pods if name(one) not in gone), keep=keep)


@settings(max_examples=40)
@given(SEEDS)
def test_with_a_spare_the_largest_node_may_fail(seed: int) -> None:
    problem = problem_of(seed, PLAIN, spare=1)
    found = plan(problem)
    if not found.goes or not found.moves:
        return  # what is not changed may have had no spare before
    now = after(problem, found.moves, on(found))
    largest = max((one for one in now.machines if not one.off), key=lambda one: (room(one)["cpu"], room(one)["memory"]))
    free = {one.name: room(one) for one in now.machines if not one.off and one is not largest}
    for one in now.pods:
        if pods.node_of(one) in free:
            free[pods.node_of(one)] = {key: have - asks(one)[key] for key, have in free[pods.node_of(one)].items()}
    assert have_room([one for one in now.pods if pods.node_of(one) == largest.name], list(free.values()))


BUDGET = {
    "metadata": {"namespace": "x", "name": "b"}, "spec": {"selector": {"matchLabels": {"app": "db"}}}, "status": {"disruptionsAllowed": 0},
}  # fmt: skip
CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]


@pytest.mark.parametrize(
    ("kept", "more", "cause"),
    [
        (owned("p", "a", "db"), {"budgets": (BUDGET,)}, Cause.BUDGET),
        (
            owned("p", "a", "db"),
            {
                "budgets": (
                    BUDGET | {"status": {"disruptionsAllowed": 1}},
                    BUDGET | {"metadata": {"namespace": "x", "name": "c"}, "status": {"disruptionsAllowed": 1}},
                )
            },
            Cause.BUDGET,
        ),
        (owned("p", "a", "db") | {"metadata": {"namespace": "x", "name": "p"}}, {}, Cause.UNMANAGED),
        (owned("p", "a", "db", volumes=CLAIM), {}, Cause.BOUND),
        (owned("p", "a", "db", schedulerName="other"), {}, Cause.BOUND),
        (owned("p", "a", "db", nodeSelector={HOST: "a"}), {}, Cause.BOUND),
        (owned("p", "a", "db"), {"keep": {"a": "it has the registry"}}, Cause.KEPT),
        (owned("p", "a", "db", cpu="3"), {}, Cause.ROOM),
        (owned("p", "a", "db"), {"max_moves": 0}, Cause.MOVES),
        (owned("p", "a", "db", cpu="2100m"), {"spare": 1}, Cause.SPARE),
        (owned("p", "a", "db", affinity=affinity("podAntiAffinity", app="web")), {}, Cause.ROOM),
        (owned("p", "a", "db", topologySpreadConstraints=spread(app="db")), {}, None),
        (owned("p", "a", "web", topologySpreadConstraints=spread(app="web")), {}, Cause.ROOM),
        (owned("p", "a", "db"), {}, None),
    ],
)
def test_what_keeps_a_node(kept: Any, more: Any, cause: Cause | None) -> None:
    """Node b is dearer, and is kept."""
    machines = (machine("a"), machine("b", 200, cpu="4"))
    problem = Problem(machines, (kept, owned("q", "b", "web", cpu="1500m")), **more)
    found = plan(replace(problem, keep={"b": "dear"} | problem.keep))
    assert found.goes == (("a",) if cause is None else ())
    assert found.why["b"].startswith("kept: dear")
    assert cause is None or found.why["a"].startswith(f"{cause.value}: ")


@pytest.mark.parametrize(
    "wants",
    [
        {"topologySpreadConstraints": spread(ZONE, app="db")},
        {"affinity": affinity("podAntiAffinity", ZONE, "web")},
        {"affinity": affinity("podAffinity", HOST, "near")},
        {"affinity": affinity("podAffinity", ZONE, "near")},
    ],
)
@pytest.mark.parametrize("cpu", ["100m", "1"])
def test_a_pod_that_is_kept_near_or_far_from_others_moves_where_placement_confirms_it(wants: Any, cpu: str) -> None:
    machines = (machine("a", zone="a"), machine("b", zone="b"), machine("c", zone="c"))
    beside, other = owned("r", "a", "near", cpu="200m"), owned("q", "c", "web")
    found = plan(Problem(machines, (owned("p", "a", "db", cpu=cpu, **wants), beside, other), keep={"b": "kept", "c": "kept"}))
    assert found.goes == ("a",) and found.moves[name(beside)] in ("b", "c")
    blocked = owned("s", "b", "web")
    if "podAntiAffinity" in str(wants):
        left = plan(Problem(machines, (owned("p", "a", "db", cpu=cpu, **wants), beside, other, blocked), keep={"b": "kept", "c": "kept"}))
        assert left.goes == () and left.why["a"].startswith(f"{Cause.BOUND.value}: x/p: ")


def test_a_cheaper_machine_is_woken_with_room_for_the_pods_of_daemon_sets() -> None:
    daemon = owned("d", "a", "agent", cpu="3")
    daemon["metadata"]["ownerReferences"][0] |= {"kind": "DaemonSet"}
    machines = (machine("a", 200, cpu="8"), machine("s", 100, off=True, cpu="4"))
    small, large = owned("p", "a", cpu="1"), owned("p", "a", cpu="1100m")
    assert plan(Problem(machines, (daemon, small))).woken == ("s",)
    assert plan(Problem(machines, (daemon, large))).woken == ()
    assert plan(Problem(machines, (daemon, small), closed=frozenset("s"))).woken == ()


def test_a_reclaimable_machine_wakes_for_one_that_is_owned_and_for_no_other_reclaimable_one() -> None:
    owned_one, dear = machine("a", 200), replace(machine("r", 150), reclaimable=True)
    cheap = replace(machine("s", 100, off=True), reclaimable=True)
    assert plan(Problem((owned_one, cheap), (owned("p", "a"),))).woken == ("s",)
    assert plan(Problem((dear, cheap), (owned("p", "r"),))).goes == ()
    assert plan(Problem((dear, owned_one), (owned("p", "r"),), keep={"a": "it has the registry"})).goes == ("r",)
    # One that is taken back may have any machine instead.
    assert plan(Problem((dear, cheap), (owned("p", "r"),), must_go=frozenset("r"))).woken == ("s",)


def test_a_reclaimable_machine_is_no_reserve() -> None:
    machines = (machine("a", 300), machine("b", 200), machine("c", 100))
    there = (owned("p", "a"),)
    assert plan(Problem(machines, there, spare=1)).stays == ("b", "c")
    lent = replace(machines[2], reclaimable=True)
    found = plan(Problem((*machines[:2], lent), there, spare=1))
    assert found.stays in (("a", "b"), ("b", "c")) and found.stays != ("c",)
    only_there = (owned("p", "c", nodeSelector={HOST: "c"}),)
    assert plan(Problem((*machines[:2], lent), only_there, spare=1)).goes == ("a", "b")


def test_pods_that_do_not_tolerate_its_taint_do_not_move_to_a_machine() -> None:
    tainted = replace(machine("r", 1, taints=[("daytwo.dev/reclaimable", "true", "NoSchedule")]), reclaimable=True)
    tolerant = owned("q", "a", tolerations=[{"key": "daytwo.dev/reclaimable", "operator": "Exists"}])
    assert plan(Problem((machine("a"), tainted), (owned("p", "a"), tolerant))).goes == ("r",)
    assert plan(Problem((machine("a"), tainted), (tolerant,))).goes == ("a",)
    rather_not = machine("r", 1, taints=[("x", "", "PreferNoSchedule")])
    assert plan(Problem((machine("a"), rather_not), (owned("p", "a"),))).goes == ("a",)


def test_a_machine_that_must_go_goes_whatever_it_costs() -> None:
    machines = (machine("a", 0), machine("b", 100), machine("s", 900, off=True))
    there = (owned("p", "a"), owned("q", "a"))
    found = plan(Problem(machines, there, must_go=frozenset("a"), max_moves=1, spare=1))
    assert (found.goes, found.left) == (("a",), {}) and len(found.moves) == 2
    full = (*there, owned("full", "b", cpu="3900m"))
    assert plan(Problem(machines, full, must_go=frozenset("a"))).woken == ("s",)
    closed = plan(Problem(machines, full, must_go=frozenset("a"), closed=frozenset("s")))
    assert closed.goes == () and set(closed.left) <= {("x", "p"), ("x", "q")} and "no room" in next(iter(closed.left.values()))
    alone = owned("own", "a")
    del alone["metadata"]["ownerReferences"]
    assert list(plan(Problem(machines, (*there, alone), must_go=frozenset("a"))).left) == [name(alone)]


@settings(max_examples=60)
@given(SEEDS)
def test_what_must_go_goes_or_says_what_is_left_and_what_is_closed_takes_nothing(seed: int) -> None:
    dice, problem = Random(seed), problem_of(seed)
    machines = tuple(replace(one, reclaimable=dice.randrange(2) == 0) for one in problem.machines)
    names = [one.name for one in machines]
    closed, must = (frozenset(one for one in names if dice.randrange(4) == 0) for _ in range(2))
    problem = replace(problem, machines=machines, closed=closed, must_go=must, spare=dice.randrange(2), max_moves=dice.choice([None, 1]))
    found, awake = plan(problem), {one.name for one in machines if not one.off}
    assert found.left or must & awake <= set(found.goes)
    assert all(pods.node_of(one) in must for one in problem.pods if name(one) in found.left) and not (found.left and found.goes)
    assert not set(found.woken) & closed and not set(found.moves.values()) & (closed | must)
    lent = {one.name for one in machines if one.reclaimable}
    assert not (lent & set(found.woken) and lent & set(found.goes) - must)


def test_pods_that_are_spread_over_zones_move_within_their_zone() -> None:
    names = {"a1": "a", "a2": "a", "b1": "b"}
    machines = tuple(machine(node, zone=zone) for node, zone in names.items())
    there = tuple(owned(f"p-{node}", node, topologySpreadConstraints=spread(ZONE)) for node in names)
    found = plan(Problem(machines, there))
    assert len(found.goes) == 1 and found.goes[0].startswith("a") and "b1" in found.stays


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"machines": (machine("a"), machine("a"))}, "machine a is listed twice"),
        ({"machines": (machine("a", -1),)}, "machine a costs -1"),
        ({"machines": (machine("a", float("nan")),)}, "machine a costs nan"),
        ({"machines": (replace(machine("a"), name="b"),)}, "machine b has the Node of a"),
        ({"machines": (), "spare": -1}, "not negative"),
        ({"machines": (), "max_moves": -1}, "not negative"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(more: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Problem(**{"pods": (), **more})


def test_a_cluster_without_machines_has_a_plan() -> None:
    found = plan(Problem((), ()))
    assert (found.cost, found.bound, dict(found.moves), dict(found.why)) == (0, 0, {}, {})
