"""Passes one after the other: whatever the machines, the pods and the choices of the scheduler are, the loop comes to rest, and takes back
nothing that it did for the same load."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from roles.node_autoscaler.decision import Limits
from tests.unit.node_autoscaler.world import World

PASS = 600.0


def world_of(seed: int) -> World:
    """Three to six machines, some of them on; up to eight pods."""
    dice = Random(seed)
    machines = {
        f"w{number}": (cores := dice.choice([2, 3, 4]), float(cores * dice.randint(20, 40)), dice.choice(("", "", "a", "b")))
        for number in range(dice.randint(3, 6))
    }
    limits = Limits(idle=PASS, cool_down=PASS, at_once=dice.choice([1, 1, 2]), spare=dice.choice([0, 0, 1]))
    found = World(machines, dice, limits, set(dice.sample(sorted(machines), dice.randint(1, len(machines)))))
    found.scale(1, dice.randint(0, 5))
    found.scale(2, dice.randint(0, 3))
    return found


def rest(world: World) -> list[str]:
    """Passes until three in a row have held; the kinds of all of them."""
    kinds: list[str] = []
    while kinds[-3:] != ["hold"] * 3:
        assert len(kinds) < 60, world.done
        kinds.append(world.step(PASS).kind)
    return kinds


def check(world: World) -> None:
    """No machine went to and fro for one load; and one that was woken went only for less work."""
    for number, one in enumerate(world.done):
        later = next((other for other in world.done[number + 1 :] if other.node == one.node), None)
        if later is None:
            continue
        assert later.kind != one.kind and later.changes > one.changes, world.done
        if one.kind == "wake":
            assert any(later.load[cores] < count for cores, count in one.load.items()), world.done


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_with_one_load_it_wakes_then_consolidates_and_then_rests(seed: int) -> None:
    world = world_of(seed)
    kinds = [kind for kind in rest(world) if kind != "hold"]
    assert kinds == sorted(kinds, key=["wake", "consolidate"].index)
    check(world)
    asleep = set(world.machines) - world.on
    for cores, where in world.pods.values():
        assert where or not any(world.machines[name][0] >= cores for name in asleep), "a pod waits beside a machine that could take it"


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_when_the_load_changes_nothing_comes_back_for_the_load_that_it_left(seed: int) -> None:
    world = world_of(seed)
    for _ in range(3):
        rest(world)
        world.scale(1, world.dice.randint(0, 6))
        world.scale(2, world.dice.randint(0, 3))
    rest(world)
    check(world)


def test_ten_replicas_six_three_and_ten_again() -> None:
    machines = {f"w{number}": (4, 100.0 + number, "") for number in range(5)}
    world = World(machines, Random(1), Limits(idle=PASS, cool_down=PASS, spare=0), set(machines))
    on = []
    for count in (10, 6, 3, 10):
        world.scale(1, count)
        rest(world)
        on.append(len(world.on))
        assert all(where for _, where in world.pods.values())
    assert on == [3, 2, 1, 3]
    assert Counter(one.kind for one in world.done) == {"away": 4, "wake": 2}
    check(world)
