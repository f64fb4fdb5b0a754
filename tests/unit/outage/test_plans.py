"""The outages of a run, planned together, for each purpose: their budgets, second pods, refusals, and the cordons that are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.engine.node_changes.outages import CHANGE
from roles.engine.outage import DrainConsents, Mark, Purpose, Wanted, plan_outages
from roles.engine.outage.mark import OUTAGE
from roles.reboot.plan import REBOOT
from tests.unit.disruption.world import NOW, budget, deployment, of_status, world
from tests.unit.outage.world import node, single, spread

W1, W2 = Wanted("w1", "w1", ("drain=always",)), Wanted("w2", "w2", ("drain=always",))
# What the pace drains at the same time.
AT_ONCE = [(["w1", "w2"], 2)]
PURPOSES = pytest.mark.parametrize("purpose", [CHANGE, REBOOT], ids=lambda one: one.name)


def marked(mark: Mark) -> dict[str, Any]:
    """w2, cordoned by this run."""
    found = node("w2", manager="daytwo")
    found["metadata"]["annotations"] = {OUTAGE: mark.text()}
    return found


@PURPOSES
def test_each_drain_is_planned_as_if_the_others_were_over(purpose: Purpose) -> None:
    live = world(node("w1"), node("w2"), *spread(deployment(2, 2), "w1", "w2"), budget(maxUnavailable=1, status=of_status(2, 1, 2, 1)))
    notes, refusals = plan_outages(live, [W1, W2], [], DrainConsents(), NOW, purpose)
    assert refusals == [] and all("\n1 pod leaves in 1 wave" in note for note in notes)
    assert notes[0].startswith(f"w1 is drained for {purpose.text}: drain=always\nNode w1: cordon it")


@PURPOSES
def test_what_the_pace_drains_at_the_same_time_is_added_up(purpose: Purpose) -> None:
    live = world(node("w1"), node("w2"), *spread(deployment(2, 2), "w1", "w2"), budget(maxUnavailable=1, status=of_status(2, 1, 2, 1)))
    _, refusals = plan_outages(live, [W1, W2], AT_ONCE, DrainConsents(), NOW, purpose)
    assert any("w1, w2 are drained at the same time (max_unavailable): no other node is Ready" in text for text in refusals), refusals
    roomy = world(*(node(f"w{number}") for number in (1, 2, 3)), *live.of("Pod"), *spread(deployment(2, 2), "w1", "w2")[:2],
                  budget(maxUnavailable=1, status=of_status(2, 1, 2, 1)))  # fmt: skip
    notes, refusals = plan_outages(roomy, [W1, W2], AT_ONCE, DrainConsents(), NOW, purpose)
    assert refusals == [] and "wait for each other's replacements by shop/web (2 of its pods leave, it allows 1)" in notes[-1]


@PURPOSES
def test_a_deadlock_refuses_and_says_why_the_node_is_drained(purpose: Purpose) -> None:
    live = world(node("w1"), node("w2"), *deployment(1, 1), budget(maxUnavailable=0, status=of_status(1, 1, 1, 0)))
    _, refusals = plan_outages(live, [W1], [], DrainConsents(), NOW, purpose)
    assert len(refusals) == 1 and refusals[0].startswith(
        f"w1: it is drained for {purpose.text} (drain=always), and cannot be: w1: pod shop/web"
    )
    _, refusals = plan_outages(
        live, [replace(W1, instead="accept the loss with --data allow_evictions=true")], [], DrainConsents(), NOW, purpose
    )
    assert len(refusals) == 1 and refusals[0].endswith("; or accept the loss with --data allow_evictions=true")
    found = plan_outages(live, [W1], [], DrainConsents(ignore_budgets="shop/web"), NOW, purpose)[1]
    assert "on w1, shop/web-1-0 would be deleted. It has 1 healthy pod, at worst 0" in found[0], found
    code = found[1].partition("add --data confirm_ignore=")[2]
    assert plan_outages(live, [W1], [], DrainConsents(ignore_budgets="shop/web", confirm_ignore=code), NOW, purpose)[1] == []


@PURPOSES
def test_a_named_second_pod_must_be_on_one_of_the_nodes(purpose: Purpose) -> None:
    live = world(node("w1"), node("w2"), *single())
    notes, refusals = plan_outages(live, [W1, W2], [], DrainConsents(surge="shop/web"), NOW, purpose)
    assert refusals == [] and ["with a second pod before" in note for note in notes] == [True, False]
    _, refusals = plan_outages(live, [W1], [], DrainConsents(surge="shop/other"), NOW, purpose)
    assert refusals == ["surge: shop/other has no pod on w1"]


@PURPOSES
def test_many_pods_are_summed_up(purpose: Purpose) -> None:
    live = world(node("w1"), node("w2"), *deployment(40, 40))
    notes, _ = plan_outages(live, [W1], [], DrainConsents(), NOW, purpose)
    assert notes[0].splitlines()[1] == "  40 pods leave in 4 waves, 0 stay"


@PURPOSES
def test_a_cordon_that_the_run_removes_is_none_for_the_plan(purpose: Purpose) -> None:
    cordoned = marked(Mark("r1", purpose.name, "b"))
    live = world(node("w1"), cordoned, *deployment(1, 1))
    assert plan_outages(live, [W1], [], DrainConsents(), NOW, purpose)[1]
    assert plan_outages(live, [W1], [], DrainConsents(), NOW, purpose, {"w2"})[1] == []
    # The cordon itself is shown.
    notes, _ = plan_outages(live, [W2], [], DrainConsents(), NOW, purpose, {"w2"})
    assert f"Node w2: cordoned already by run {Mark('r1', purpose.name)}: this run takes it over and continues" in notes[0]
    drained = world(node("w1"), marked(Mark("r1")), *deployment(1, 1))
    notes, _ = plan_outages(drained, [W2], [], DrainConsents(), NOW, purpose)
    assert "that cordon stays, also at the end" in notes[0]
