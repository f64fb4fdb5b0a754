"""Machines that their owners take back: what must go, what stays away, and what is left."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.consolidation import page, report
from roles.consolidation.hours import parse_hours, parse_zone
from roles.consolidation.kept import KeepReason
from roles.consolidation.model import Machines, Terms
from roles.consolidation.owners import TAINT
from roles.consolidation.plan import Consolidation, consolidate
from tests.unit.consolidation.cluster import keeper, nodes, pod
from tests.unit.disruption.world import NOW
from tests.unit.placement.cluster import node

#: NOW is 2026-03-01 12:00 UTC, a Sunday.
OPEN, ENDING, OVER = "Su 08:00-20:00", "Su 08:00-12:10", "Su 08:00-11:00"
TOLERANT = [{"key": TAINT, "operator": "Exists"}]


def lent(hours: str | None = None) -> Terms:
    return Terms(parse_hours(hours, parse_zone("UTC")) if hours else None)


def planned(
    items: list[dict[str, Any]], cost: dict[str, float], terms: dict[str, Terms], *, back: str = "", spare: int = 0, **more: Any
) -> Consolidation:
    of = keeper(*items, **more)
    return consolidate(of, Machines("watts", cost, terms, frozenset(back.split())), {name: name for name in cost}, spare, None)


def borrowed(name: str, **more: Any) -> dict[str, Any]:
    return node(name, taints=[(TAINT, "true", "NoSchedule")], **more)


def test_now_is_a_sunday() -> None:
    assert (NOW.isoformat(), NOW.weekday()) == ("2026-03-01T12:00:00+00:00", 6)


@pytest.mark.parametrize(("hours", "reason"), [(None, None), (OPEN, None), (ENDING, "hours-over"), (OVER, "hours-over")])
def test_a_machine_must_go_when_its_hours_end_within_its_notice(hours: str | None, reason: str | None) -> None:
    """It costs nothing, so nothing else would take it out."""
    found = planned([*nodes("w1", "w2"), borrowed("r"), pod("a", "r"), pod("b", "w1"), pod("c", "w2", cpu="3950m")],
                    {"w1": 100, "w2": 100, "r": 0}, {"r": lent(hours)}, chosen={"r"})  # fmt: skip
    must = found.owners.must_go.get("r")
    assert (must.reason if must else None, "r" in found.goes) == (reason, reason is not None)
    assert reason is None or found.plan.moves == {("shop", "a"): "w1"}


def test_one_that_is_taken_back_must_be_free_within_its_notice() -> None:
    found = planned([*nodes("w1"), borrowed("r"), pod("a", "r")], {"w1": 100, "r": 0}, {"r": lent(OPEN)}, back="r", chosen={"r"})
    text = report.as_document(found, [])
    (of,) = [one for one in text.nodes if one.node == "r"]
    assert (of.must_go, of.free_by, of.state, of.hours) == ("taken-back", "2026-03-01T12:15:00+00:00", "goes", f"{OPEN} UTC")
    assert text.verdict.startswith("Must be free: r by 2026-03-01 12:15 UTC. 1 of 2 nodes could go: r. ")
    table = " ".join("\n".join(report.text(text)).split())
    assert "r 2026-03-01 12:15 UTC: its owner takes it back 1 w1 (1) -" in table and "Nodes that could go" not in table
    assert "must be free by 2026-03-01 12:15 UTC" in page.page(text)


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (pod("a", "r", owner=None), KeepReason.UNMANAGED),
        (pod("a", "r", cpu="3500m"), KeepReason.NO_ROOM),
        (pod("a", "r", meta={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}), KeepReason.DO_NOT_DISRUPT),
        (pod("a", "r", schedulerName="other"), KeepReason.OTHER_SCHEDULER),
        (pod("a", "r", volumes=[{"name": "v", "emptyDir": {}}]), KeepReason.EMPTY_DIR),
    ],
)
def test_what_is_left_is_named(left: dict[str, Any], reason: KeepReason) -> None:
    """And the others that must go are not held up by it."""
    items = [*nodes("w1"), borrowed("r"), borrowed("q"), left, pod("b", "q"), pod("c", "w1", cpu="1")]
    found = planned(items, {"w1": 1, "r": 900, "q": 900}, {"r": lent(OVER), "q": lent(OVER)})
    assert found.goes == ["q"]
    assert [(one.reason, one.subject) for one in found.kept["r"]] == [(reason, "shop/a")]
    text = report.as_document(found, [])
    assert text.verdict.startswith("Must be free: q by 2026-03-01 11:00 UTC; r by 2026-03-01 11:00 UTC, and pods are left. ")
    (of,) = [one for one in text.nodes if one.node == "r"]
    assert of.state == "stays" and of.must_go == "hours-over" and "shop/a" in of.why


def test_a_machine_that_is_taken_back_and_cannot_be_free_is_refused_with_what_is_left() -> None:
    left = pod("a", "r", owner=None)
    found = planned([*nodes("w1"), borrowed("r"), left], {"w1": 1, "r": 9}, {"r": lent()}, back="r", chosen={"r"})
    assert list(report.not_free(found)) == ["r cannot be free by 2026-03-01 12:15 UTC: nothing recreates shop/a"]
    over = planned([*nodes("w1"), borrowed("r"), left], {"w1": 1, "r": 9}, {"r": lent(OVER)})
    assert not list(report.not_free(over)) and "nothing recreates shop/a" in " ".join(report.text(report.as_document(over, [])))


def test_a_machine_that_is_taken_back_and_free_already_says_so() -> None:
    empty = borrowed("r")
    empty["spec"]["unschedulable"] = True
    found = planned([*nodes("w1"), empty], {"w1": 1, "r": 9}, {"r": lent()}, back="r", chosen={"r"})
    assert (found.goes, list(found.owners.must_go)) == ([], [])
    assert report.as_document(found, []).notes[0].startswith("r is free already")


def test_what_forbids_to_save_does_not_keep_a_machine_from_its_owner() -> None:
    note = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    marked = borrowed("r", zone="b")
    marked["metadata"]["annotations"] = note
    items = [node("w1", zone="a"), marked, pod("a", "r")]
    assert planned(items, {"w1": 1, "r": 9}, {"r": lent()}).goes == []
    found = planned(items, {"w1": 1, "r": 9}, {"r": lent(OVER)})
    assert found.goes == ["r"] and found.bound <= 1


def test_work_moves_to_a_reclaimable_machine_if_it_tolerates_that() -> None:
    def found(**more: Any) -> Consolidation:
        return planned([*nodes("w1"), borrowed("r"), node("w2"), pod("a", "w1", **more), pod("b", "w2", cpu="3950m")],
                       {"w1": 300, "w2": 100, "r": 50}, {"r": lent()})  # fmt: skip

    assert found(tolerations=TOLERANT).plan.moves == {("shop", "a"): "r"}
    assert found().plan.moves == {}


@pytest.mark.parametrize("effect", ["", "PreferNoSchedule"])
def test_a_reclaimable_machine_without_the_taint_takes_no_pods_by_a_plan_and_the_way_out_is_named(effect: str) -> None:
    bare = node("r", taints=[(TAINT, "true", effect)] if effect else [])
    found = planned([*nodes("w1"), bare, pod("a", "w1")], {"w1": 300, "r": 50}, {"r": lent()})
    assert found.goes == ["r"]
    (note,) = report.as_document(found, []).notes
    assert note.startswith(f"r is reclaimable and has no taint {TAINT}: ")
    assert f"node_taints={TAINT}=true:NoSchedule" in note and note.endswith(" --limit r -y")


def test_a_machine_whose_hours_end_is_no_target() -> None:
    items = [*nodes("w1", "w2"), borrowed("r"), pod("a", "w1", tolerations=[{"operator": "Exists"}]), pod("b", "w2", cpu="3950m")]
    for hours, moves in ((OPEN, {("shop", "a"): "r"}), (ENDING, {})):
        found = planned(items, {"w1": 300, "w2": 1, "r": 50}, {"r": lent(hours)}, chosen={"w1"})
        assert found.plan.moves == moves
    # Its owner is told all the same.
    assert list(found.owners.must_go) == ["r"] and [one.reason for one in found.kept["r"]] == [KeepReason.NOT_CHOSEN]


def test_what_must_go_may_leave_no_reserve_and_says_so() -> None:
    items = [*nodes("w1"), borrowed("r"), pod("a", "w1"), pod("b", "r")]
    found = planned(items, {"w1": 1, "r": 0}, {"r": lent(OVER)}, spare=1)
    assert found.goes == ["r"]
    assert "no reserve" in " ".join(report.as_document(found, []).notes)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_what_must_go_goes_or_says_why_not(seed: int) -> None:
    dice = Random(seed)
    names = [f"w{number}" for number in range(dice.randint(2, 5))]
    terms = {name: lent(dice.choice([None, OPEN, ENDING, OVER])) for name in names if dice.randrange(2)}
    items = [borrowed(name) if name in terms and dice.randrange(3) else node(name) for name in names]
    for number in range(dice.randint(0, 8)):
        more = {"tolerations": TOLERANT} if dice.randrange(2) else {}
        more |= {"owner": None} if dice.randrange(8) == 0 else {}
        items.append(pod(f"p{number}", dice.choice(names), cpu=dice.choice(["100m", "500m", "2"]), **more))
    found = planned(items, {name: dice.choice([50.0, 100.0, 200.0]) for name in names}, terms, spare=dice.randrange(2))
    assert all((node in found.goes) != (node in found.kept) for node in found.owners.must_go)
    assert not set(found.plan.moves.values()) & found.owners.closed
    tolerant = {("shop", one["metadata"]["name"]) for one in items if one["spec"].get("tolerations")}
    assert all(to not in terms or one in tolerant for one, to in found.plan.moves.items())
    assert report.as_document(found, []).bound <= report.as_document(found, []).after
