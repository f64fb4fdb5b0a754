"""The plan of the drains of a run: each node, and the nodes that the pace may drain at the same time."""

from __future__ import annotations

from typing import Any

from roles.engine.outage import Mark
from roles.engine.outage.mark import OUTAGE
from roles.engine.runs import Pace
from roles.reboot import RebootOptions, RebootPlan, order, plan_drains
from tests.unit.disruption.world import NOW, budget, deployment, of_status, world
from tests.unit.outage.world import node, spread
from tests.unit.reboot.world import ASKS, OLD, RUN, candidate, plan

W = [node(f"w{number}") for number in (1, 2, 3)]
BUDGET = budget(maxUnavailable=1, status=of_status(2, 1, 2, 1))


def rebooting(host: str, mark: Mark | None = None) -> RebootPlan:
    return plan(candidate(host, mark.text() if mark else None, signs=ASKS))


def judged(*items: dict[str, Any], hosts: str = "w1 w2", at_once: str = "1", plans: Any = (), **asked: Any) -> tuple[str, list[str]]:
    stages = order([*plans, *map(rebooting, hosts.split())], Pace(at_once), "cp1")
    texts, refusals = plan_drains(world(*items), stages, RebootOptions(**asked), NOW)
    return "\n".join(texts), refusals


def test_nodes_that_are_drained_at_the_same_time_are_added_up() -> None:
    """The canary is alone: the others, w2 and w3, follow together."""
    web = [*spread(deployment(2, 2), "w2", "w3"), BUDGET]
    text, refusals = judged(*W, *web, hosts="w1 w2 w3", at_once="2")
    assert refusals == []
    assert "w2, w3 are drained at the same time (max_unavailable): they wait for each other's replacements by shop/web" in text
    assert "at the same time" not in judged(*W, *web, hosts="w1 w2 w3")[0]
    # w1 takes no pods.
    full = [node("w1", pods=0), *W[1:]]
    assert judged(*full, *web, hosts="w1 w2 w3")[1] == []
    refused = judged(*full, *web, hosts="w1 w2 w3", at_once="2")[1]
    assert refused and all(text.startswith("w2, w3 are drained at the same time") and "lower max_unavailable" in text for text in refused)


def test_cordons_of_an_earlier_run_are_gone_by_then_and_others_stay() -> None:
    left, kept = node("w2", manager="daytwo", mark=RUN), node("w1", manager="daytwo", mark="r1")
    web = [W[0], left, *deployment(1, 1)]
    assert judged(*web, hosts="w1")[1]
    marked = {
        **left,
        "metadata": {**left["metadata"], "annotations": {**left["metadata"]["annotations"], OUTAGE: Mark(RUN, "reboot", OLD).text()}},
    }
    text, refusals = judged(W[0], marked, *deployment(1, 1), hosts="w1", plans=[plan(candidate_of(marked))])
    assert refusals == [] and f"Node w2: cordoned already by run {RUN}: this run takes it over and continues" in text
    text, refusals = judged(kept, W[1], *deployment(1, 1), plans=[plan(candidate_of(kept))], hosts="")
    assert refusals == [] and "that cordon stays, also at the end" in text


def candidate_of(item: dict[str, Any]) -> Any:
    found = candidate(item["metadata"]["name"], signs=ASKS)
    return type(found)(**{**found.__dict__, "node": item})
