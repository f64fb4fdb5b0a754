"""What a lane does next."""

from __future__ import annotations

import random

import pytest

from tests.lanes.schedule import UNKNOWN, Lane, LanesError, Plan, Unit, parse, units

KNOWN = ("small", "wide", "older")
W, A, B, U = Lane("w", ("wide", "older", "small")), Lane("a", ("small",)), Lane("b", ("small",)), Lane("u", ("none",))
C = Lane("c", ("small",), "u")


def unit(module: str, shape: str, seconds: float, tests: int = 1) -> Unit:
    return Unit(module, shape, [f"{module}::test_{number}" for number in range(tests)], seconds)


def name(found: Unit | None) -> str | None:
    return found and found.module


def test_lanes_are_read_in_their_order() -> None:
    assert parse("w:wide+older+small, a:small,b:small,u:none", KNOWN) == [W, A, B, U]
    assert [lane.has_lab for lane in (W, A, U)] == [True, True, False]
    assert parse("a:small,u:none,c:small@u", KNOWN) == [A, U, C]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("w", "'w' is not NAME:SHAPE"),
        ("W:wide", "'W:wide' is not NAME:SHAPE"),
        ("a:small,,u:none", "'' is not NAME:SHAPE"),
        ("a:small,a:wide", "the lane a is named twice"),
        ("a:huge", "huge is no shape; there are small, wide, older, none"),
        ("a:small+none", "lane a: none is a lane of its own"),
        ("a:small@", "'a:small@' is not NAME:SHAPE"),
        ("a:small,c:small@u", "lane c: it waits for u, and no lane of this name begins at once"),
        ("a:small,c:small@c", "lane c: it waits for c, and no lane of this name begins at once"),
        ("a:small,b:small@a,c:small@b", "lane c: it waits for b, and no lane of this name begins at once"),
        ("a:small,c:wide@a", "lane c: it only helps, and no other lane has the shape wide"),
    ],
)
def test_what_is_no_list_of_lanes(text: str, why: str) -> None:
    with pytest.raises(LanesError, match=why):
        parse(text, KNOWN)


def test_a_module_is_a_unit_for_each_shape_in_the_tests_order() -> None:
    shapes = {"m.py::b[2]": "small", "m.py::w": "wide", "n.py::x": "none", "m.py::a": "small"}
    found = units(shapes, {"m.py::b[2]": 4.0, "m.py::a": 2.0})
    assert [(one.module, one.shape, one.tests, one.seconds) for one in found] == [
        ("m.py", "small", ["m.py::b[2]", "m.py::a"], 6),
        ("m.py", "wide", ["m.py::w"], UNKNOWN),
        ("n.py", "none", ["n.py::x"], 0),
    ]


def test_the_longest_first_and_of_equals_the_first() -> None:
    plan = Plan([A], [unit("x", "small", 5), unit("y", "small", 9), unit("z", "small", 9)])
    assert [name(plan.next("a")) for _ in range(4)] == ["y", "z", "x", None]


def test_a_lane_takes_its_shapes_in_their_order_and_helps_at_the_end() -> None:
    plan = Plan(
        [W, A],
        [
            unit("long", "small", 400),
            *(unit(f"s{number}", "small", 100) for number in range(4)),
            unit("o", "older", 1),
            unit("wide", "wide", 2),
        ],
    )
    assert name(plan.next("w")) == "wide"
    assert name(plan.next("a")) == "long"
    assert name(plan.next("w")) == "o", "no other lane has such a lab, however short it is"
    assert plan.to_go("w") == 4
    assert name(plan.next("w")) == "s0", "400 s for two lanes are worth a lab"
    assert [name(plan.next("a")), name(plan.next("w")), name(plan.next("a"))] == ["s1", "s2", "s3"]
    assert plan.next("w") is None and plan.next("a") is None


def test_a_lab_is_not_made_for_what_others_have_soon_done() -> None:
    plan = Plan([W, A], [unit("long", "small", 400), unit("s1", "small", 90), unit("s2", "small", 80)])
    assert name(plan.next("a")) == "long"
    assert plan.next("w") is None, "85 s for each of two lanes are not worth a lab"
    assert [name(plan.next("a")), name(plan.next("a")), plan.next("a")] == ["s1", "s2", None]


def test_a_lab_that_is_there_is_used_for_the_shortest_work() -> None:
    plan = Plan([A, B], [unit("x", "small", 1), unit("y", "small", 1)], labs={"a": "small", "b": "small"})
    assert name(plan.next("b")) == "x" and name(plan.next("a")) == "y"


def test_a_lane_that_waits_for_another_begins_when_only_its_own_shape_is_left() -> None:
    plan = Plan(
        [W, A, U, C], [unit("wide", "wide", 9), unit("pure", "none", 9), *(unit(f"s{number}", "small", 500) for number in range(4))]
    )
    assert [name(plan.next(lane)) for lane in "wau"] == ["wide", "s0", "pure"] and plan.waits("c")
    assert plan.next("u") is None and plan.waits("c"), "the wide lab is still needed"
    assert name(plan.next("w")) == "s1" and not plan.waits("c")
    assert name(plan.next("c")) == "s2" and not plan.waits("c") and not plan.waits("a")
    assert name(plan.next("c")) == "s3" and plan.next("c") is None


def test_a_lane_that_waits_is_not_needed_for_what_others_have_soon_done() -> None:
    plan = Plan([A, U, C], [unit("pure", "none", 9), unit("s0", "small", 500), unit("s1", "small", 150)])
    assert name(plan.next("a")) == "s0" and name(plan.next("u")) == "pure" and plan.next("u") is None
    assert not plan.waits("c") and plan.next("c") is None


def test_tests_without_a_lab_go_to_no_lane_with_one() -> None:
    plan = Plan([A, U], [unit("pure", "none", 1000)])
    assert plan.next("a") is None and name(plan.next("u")) == "pure"


def test_a_shape_that_no_lane_has() -> None:
    with pytest.raises(LanesError, match="m::test_0 needs a lane of the shape older, and --lanes has none"):
        Plan([A, U], [unit("m", "older", 1)])


def test_what_a_lost_worker_leaves_is_done_by_somebody() -> None:
    plan = Plan([A, B], [unit("x", "small", 30, tests=3)])
    assert name(plan.next("a")) == "x" and plan.next("b") is None
    plan.lost("a", ["x::test_2"])
    found = plan.next("a")
    assert found and (found.tests, found.seconds) == (["x::test_2"], 10)
    plan.lost("a", [])
    assert plan.left == [] and plan.next("a") is None


def test_a_lane_that_cannot_make_its_lab_does_only_what_nobody_else_can() -> None:
    plan = Plan([W, A], [unit("wide", "wide", 9), unit("x", "small", 900), unit("y", "small", 900), unit("z", "small", 1)])
    plan.broken.add("w")
    assert name(plan.next("w")) == "wide"
    assert plan.next("w") is None
    assert [name(plan.next("a")) for _ in range(4)] == ["x", "y", "z", None]


def test_of_two_broken_lanes_none_waits_for_the_other() -> None:
    plan = Plan([A, B], [unit("x", "small", 9), unit("y", "small", 9)])
    plan.broken |= {"a", "b"}
    assert name(plan.next("a")) == "x" and name(plan.next("b")) == "y"


@pytest.mark.parametrize("seed", range(200))
def test_every_unit_is_done_whatever_takes_how_long(seed: int) -> None:
    """Lanes of any shapes, labs that cannot be made, workers that are lost: nothing is left, and no lane is asked in vain twice."""
    dice = random.Random(seed)
    lanes = [Lane(letter, tuple(dice.sample(KNOWN, dice.randint(1, 3)))) for letter in "abc"[: dice.randint(1, 3)]] + [U]
    if dice.random() < 0.5:
        lanes.append(Lane("d", tuple(dice.sample(lanes[0].shapes, 1)), dice.choice(lanes).name))
    able = sorted({shape for lane in lanes for shape in lane.shapes})
    work = [unit(f"m{number}", dice.choice(able), dice.choice([1, 60, 200, 900]), 2) for number in range(dice.randint(0, 25))]
    plan, done, busy = Plan(lanes, list(work)), [], {}
    asked = [lane.name for lane in lanes]
    clock = 0.0
    while asked or busy:
        # Twice: what one takes may be what another has waited for.
        for lane in [*asked, *asked]:
            if lane in asked and not plan.waits(lane):
                asked.remove(lane)
                found = plan.next(lane)
                if found:
                    busy[lane] = (clock + found.seconds * dice.uniform(0.2, 3), found)
        assert busy or not plan.left, "all wait for each other"
        if not busy:
            break
        lane = min(busy, key=lambda one: busy[one][0])
        clock, found = busy.pop(lane)
        if dice.random() < 0.05:
            plan.lost(lane, found.tests[1:])
            done.append(found.tests[0])
        else:
            done.extend(found.tests)
        if dice.random() < 0.05:
            plan.broken.add(lane)
        asked.append(lane)
    assert sorted(done) == sorted(test for one in work for test in one.tests)
