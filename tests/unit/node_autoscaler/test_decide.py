"""One decision, and why: what comes first, what is not done, and the words for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from roles.consolidation.hours import Hours, parse_hours, parse_zone
from roles.consolidation.model import Terms
from roles.node_autoscaler.decide import Situation, decide
from roles.node_autoscaler.decision import Decision, Limits
from roles.node_autoscaler.history import MOST_DECISIONS, Failed, History, Woken, read_history
from tests.unit.consolidation.cluster import nodes, pod
from tests.unit.disruption.world import NOW
from tests.unit.node_autoscaler.world import marked, situation, waiting
from tests.unit.placement.cluster import node

AT = NOW.timestamp()
LIMITS = Limits(idle=1800, cool_down=600, spare=0)


def asleep(name: str, **more: Any) -> dict[str, Any]:
    return marked(node(name, ready=False, **more))


def idle(*names: str, seconds: float = 1800) -> History:
    """Nodes that could go for so long, and a pass a minute ago."""
    return History(passed=AT - 60, not_needed=dict.fromkeys(names, AT - seconds))


def decided(now: Situation, history: History | None = None, limits: Limits = LIMITS, **more: Any) -> Decision:
    return decide(now, history if history is not None else History(), limits, **more)


FULL = [node("w1", cpu="1"), pod("a", "w1", cpu="1")]


# ---- wake


@pytest.mark.parametrize(
    ("sleepers", "pods", "cost", "wakes"),
    [
        ([asleep("w2"), asleep("w3")], [waiting("b")], {"w2": 50}, ("w2",)),
        ([asleep("w2"), asleep("w3")], [waiting("b")], {"w3": 50}, ("w3",)),
        # Two small ones cost less than a large one, and a large one less than two that are dear.
        (
            [asleep("w2", cpu="2"), asleep("w3", cpu="2"), asleep("w4")],
            [waiting("b", cpu="2"), waiting("c", cpu="2")],
            {"w4": 300},
            ("w2", "w3"),
        ),
        (
            [asleep("w2", cpu="2"), asleep("w3", cpu="2"), asleep("w4")],
            [waiting("b", cpu="2"), waiting("c", cpu="2")],
            {"w4": 150},
            ("w4",),
        ),
        # One of the pods has no room anywhere: it is not a cause, and the other one is.
        ([asleep("w2"), asleep("w3")], [waiting("b"), waiting("big", cpu="99")], {}, ("w2",)),
        ([asleep("w2", taints=[("gpu", "", "NoSchedule")]), asleep("w3")], [waiting("b")], {"w2": 1}, ("w3",)),
    ],
)
def test_the_cheapest_machines_that_have_room(
    sleepers: list[dict[str, Any]], pods: list[dict[str, Any]], cost: dict[str, float], wakes: tuple[str, ...]
) -> None:
    found = decided(situation(*FULL, *sleepers, *pods, cost=cost))
    assert (found.kind, found.nodes) == ("wake", wakes), found.line


def test_a_pod_that_no_machine_can_take_is_named_and_wakes_nothing() -> None:
    found = decided(situation(*FULL, asleep("w2"), waiting("big", cpu="99")))
    assert found.kind == "hold" and found.nowhere.keys() == {"shop/big"}
    assert "no machine can take 1 waiting pod: shop/big (" in found.line and "cpu: 99000m requested, 4000m left" in found.line


def test_a_pod_that_has_room_already_wakes_nothing() -> None:
    found = decided(situation(node("w1"), asleep("w2"), waiting("b")), idle("w1"))
    assert found.kind == "hold" and "pod shop/b: not placed yet" in found.why


def test_a_pod_that_wants_another_one_near_wakes_their_machine() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "first"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pair = [waiting("z-near", cpu="2", affinity=near), waiting("first", cpu="1", meta={"labels": {"app": "first"}})]
    found = decided(situation(*FULL, asleep("w2"), *pair))
    assert (found.kind, found.nodes, found.pods) == ("wake", ("w2",), ("shop/first", "shop/z-near"))


def test_what_the_scheduler_refuses_is_not_asked_again() -> None:
    now = situation(*FULL, asleep("w2"), asleep("w3"), waiting("b"))
    assert decided(now, refused=[frozenset({"w2"})]).nodes == ("w3",)
    both = [frozenset({"w2"}), frozenset({"w3"}), frozenset({"w2", "w3"})]
    found = decided(now, refused=both)
    assert found.kind == "hold" and "the scheduler has refused" in found.line


def test_a_machine_that_did_not_wake_is_left_alone_for_a_while_and_longer_each_time() -> None:
    now = situation(*FULL, asleep("w2"), asleep("w3"), waiting("b"), cost={"w2": 1})
    assert decided(now, History(failed={"w2": Failed(1, AT - 599)})).nodes == ("w3",)
    assert decided(now, History(failed={"w2": Failed(1, AT - 600)})).nodes == ("w2",)
    assert decided(now, History(failed={"w2": Failed(2, AT - 1199)})).nodes == ("w3",)
    assert "not tried again yet after a failure: w2" in decided(now, History(failed={"w2": Failed(1, AT)})).why


def test_a_machine_without_a_power_driver_cannot_wake() -> None:
    now = replace(situation(*FULL, asleep("w2"), waiting("b")), switched=())
    assert decided(now).kind == "hold"


def test_a_date_that_is_due_wakes_a_machine_and_it_may_go_again() -> None:
    now = situation(node("w1"), asleep("w2"), due={"w2": "its client certificate ends on 2026-03-05"})
    found = decided(now)
    assert (found.kind, found.nodes, found.why) == ("wake", ("w2",), "its client certificate ends on 2026-03-05")
    after = History().decided(found, AT).begins(found).succeeded(found, AT, "", now.on, now.load)
    assert not after.woken and after.woken_at == AT


# ---- consolidate


def during(text: str) -> Hours:
    return parse_hours(text, ZoneInfo("UTC"))


def two(*, zone: str = "") -> list[dict[str, Any]]:
    return [*nodes("w1", "w2", "w3", zone=zone), pod("a", "w1", cpu="1"), pod("b", "w2", cpu="1"), pod("c", "w3", cpu="1")]


def test_a_node_goes_only_when_it_was_not_needed_for_long_enough() -> None:
    now = situation(*two(), cost={"w3": 200})
    first = decided(now)
    assert first.kind == "hold" and first.not_needed and set(first.not_needed.values()) == {AT}
    assert decided(now, idle("w3", seconds=1799)).kind == "hold"
    found = decided(now, idle("w3"))
    assert (found.kind, found.nodes) == ("consolidate", ("w3",)) and "saves 200 W" in found.line


def test_what_cannot_be_woken_again_stays() -> None:
    now = situation(*two())
    assert decided(replace(now, switched=["w1", "w2"]), idle("w3")).not_needed.keys() <= {"w1", "w2"}
    assert not decided(replace(now, switched=()), idle("w3")).not_needed


def test_nobody_looked_in_between() -> None:
    now = situation(*two())
    assert decided(now, replace(idle("w3", seconds=9000), passed=AT - 1801)).kind == "hold"


@pytest.mark.parametrize(
    ("history", "limits", "why"),
    [
        ({"woken_at": AT - 599}, {}, "since machines were woken"),
        ({"failed": {"": Failed(1, AT - 599)}}, {}, "after 1 failure"),
        ({"failed": {"": Failed(3, AT - 2399)}}, {}, "after 3 failures"),
        ({}, {"hours": during("18:00-06:00")}, "not outside of 18:00-06:00 UTC"),
        ({"woken_at": AT - 600, "failed": {"": Failed(1, AT - 600)}}, {"hours": during("12:00-13:00")}, ""),
    ],
)
def test_when_a_consolidation_may_begin(history: dict[str, Any], limits: dict[str, Any], why: str) -> None:
    found = decided(situation(*two()), replace(idle("w3"), **history), replace(LIMITS, **limits))
    assert found.kind == ("hold" if why else "consolidate") and why in found.why


@pytest.mark.parametrize(("zones", "count"), [("aab", 2), ("aaa", 1), (("", "", ""), 2)])
def test_never_two_of_one_failure_domain(zones: Any, count: int) -> None:
    there = [node(f"w{number}", zone=zone) for number, zone in enumerate(zones, 1)]
    # The last node of a zone stays: so each has one more.
    there += [node(f"x{zone}", zone=zone) for zone in sorted(set(zones))]
    found = decided(situation(*there), idle("w1", "w2", "w3"), replace(LIMITS, at_once=2))
    assert found.kind == "consolidate" and len(found.nodes) == count, found.line


def test_no_node_goes_of_a_domain_that_has_a_fault() -> None:
    there = [node("w1", zone="a"), node("w2", zone="a"), node("w3", zone="a", ready=False), node("w4", zone="b")]
    found = decided(situation(*there), idle("w1", "w2"))
    assert found.kind == "hold" and "a node of their failure domain is not Ready" in found.why


def test_a_node_that_was_woken_for_this_load_stays_until_the_load_is_lower_or_a_node_comes() -> None:
    now = situation(*two())
    history = replace(idle("w3"), woken={"w3": Woken(AT - 9000, now.load, ("w1", "w2", "w3"))})
    assert "w3" not in decided(now, history).not_needed
    more = {**now.load, "cpu": now.load["cpu"] + 1}
    assert decided(now, replace(history, woken={"w3": Woken(AT, more, ("w1", "w2", "w3"))})).nodes == ("w3",)
    assert decided(now, replace(history, woken={"w3": Woken(AT, now.load, ("w1", "w3"))})).nodes == ("w3",)
    both = {"w3": Woken(AT, now.load, ("w1", "w3")), "w2": Woken(AT, now.load, ("w1", "w2", "w3"))}
    assert not {"w2", "w3"} & decided(now, replace(history, woken=both)).not_needed.keys()


def test_a_node_stays_that_a_waiting_pod_would_want_back() -> None:
    """No machine has room for it now; the node that goes would have, once it is empty."""
    there = [node("w1", cpu="4"), node("w2", cpu="3"), pod("a", "w1", cpu="1"), pod("b", "w2", cpu="1")]
    assert decided(situation(*there), idle("w2")).kind == "consolidate"
    found = decided(situation(*there, waiting("big", cpu="3", nodeSelector={"kubernetes.io/hostname": "w2"})), idle("w2"))
    assert found.kind == "hold" and "would want w2 back" in found.why


# ---- finish, stop


def left_behind(kind: str, *names: str) -> History:
    decision = Decision("wake" if kind == "wake" else "consolidate", "why", names)
    return History().decided(decision, AT - 60).begins(decision)


@pytest.mark.parametrize(
    ("history", "w2", "kind"),
    [
        (left_behind("wake", "w2"), asleep("w2"), "finish"),
        (left_behind("wake", "w2"), marked(node("w2")), "finish"),
        (left_behind("wake", "w2"), node("w2"), "hold"),
        (left_behind("consolidate", "w2"), marked(node("w2")), "finish"),
        (left_behind("consolidate", "w2"), asleep("w2"), "hold"),
        # Another run's, or an operator's: not ours to end.
        (History(), marked(node("w2")), "hold"),
        (History(failed={"w2": Failed(1, AT - 600)}), marked(node("w2")), "finish"),
        (History(failed={"w2": Failed(1, AT - 599)}), marked(node("w2")), "hold"),
    ],
)
def test_what_a_killed_loop_left_is_ended_first(history: History, w2: dict[str, Any], kind: str) -> None:
    found = decided(situation(node("w1"), w2), history)
    assert found.kind == kind and (found.nodes == ("w2",)) is (kind == "finish"), found.line


@pytest.mark.parametrize(("count", "of", "stops"), [(3, 4, False), (4, 10, False), (5, 11, True), (4, 8, True)])
def test_too_many_nodes_that_are_not_ready_stop_everything(count: int, of: int, stops: bool) -> None:
    there = [node(f"w{number}", ready=number >= count) for number in range(of)]
    found = decided(situation(*there, *[asleep(f"s{number}") for number in range(9)], waiting("b", cpu="99")))
    assert (found.kind == "stop") is stops
    assert not stops or f"{count} of {of} nodes" in found.why


# ---- what is kept


def test_the_history_is_bounded_and_reads_as_it_was_written() -> None:
    history, hold = History(), Decision("hold", "nothing")
    for number in range(MOST_DECISIONS + 5):
        history = history.decided(replace(hold, why=f"reason {number}"), AT + number, "me/1")
    history = history.decided(replace(hold, why="same"), AT).decided(replace(hold, why="same"), AT + 1)
    assert len(history.decisions) == MOST_DECISIONS and history.decisions[-1].times == 2 and history.counts == {"hold": MOST_DECISIONS + 7}
    wake = Decision("wake", "pods wait", ("w2",), ("shop/a",))
    failed = (
        history.decided(wake, AT).begins(wake).failing(wake, AT, "NOT ON").decided(wake, AT).begins(wake).failing(wake, AT + 1, "NOT ON")
    )
    assert failed.failed == {"w2": Failed(2, AT + 1)} and failed.failures == 2
    done = failed.decided(wake, AT).begins(wake).succeeded(wake, AT, "on", ["w1"], {"pods": 1})
    assert done.failed == {} and done.woken["w2"].on == ("w1", "w2")
    for one in (failed, done, done.begins(wake).named("r1")):
        assert read_history(one.text()) == one


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "passed": "x"}'])
def test_a_file_that_is_no_history(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_history(text)


# ---- machines that their owners take back


def test_a_machine_whose_hours_are_over_goes_at_once_and_is_not_woken() -> None:
    over = Terms(parse_hours("Sa 08:00-20:00", parse_zone("UTC")))
    lent = situation(*nodes("w1"), node("r"), pod("a", "w1", cpu="1"), pod("b", "r"))
    lent = replace(lent, machines=replace(lent.machines, reclaimable={"r": over}))
    found = decided(lent)
    assert (found.kind, found.nodes, found.why) == ("consolidate", ("r",), "their owners take them back")
    assert decided(lent, History(failed={"": Failed(1, AT - 60)})).kind == "hold"
    away = situation(*FULL, asleep("r"), waiting("b"), due={"r": "its certificate ends"})
    assert decided(away).nodes == ("r",)
    assert decided(replace(away, machines=replace(away.machines, reclaimable={"r": over}))).kind == "hold"
