"""A plan carried out: in which order, what is skipped, what a halt gives back, and which way back there is. And the judgement before each
node."""

from __future__ import annotations

from typing import Any

import pytest

from roles.consolidation.carrying import LEFT_CORDONED, POWERED_OFF, Carrying, Leaving
from roles.consolidation.judging import Judge, half_done, kept_on, why_not
from roles.consolidation.kept import CONSOLIDATION
from roles.consolidation.model import ConsolidateOptions, Machines
from roles.consolidation.run import UNDO, ways_back
from roles.engine.context import ClusterStep, Skipped, StepContext
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.engine.objects import NotDone
from roles.engine.outage import DrainConsents, Mark, read_mark
from roles.engine.outage.drainer import CORDON
from roles.engine.transaction import ObjectsRecord
from roles.engine.transaction.object_record import ChangedObject
from tests.context import context
from tests.unit.consolidation.cluster import keeper, pod
from tests.unit.disruption.world import NOW, deployment
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.world import cordon, node
from tests.unit.placement.cluster import node as placed

RUN, OLD = "r20260102-000000-bbbb", "r20260101-000000-aaaa"
BOOT = "00000000-53a4-4b4b-9f4f-0123456789ab"


def carry_out(carrying: Carrying, context: StepContext) -> list[ClusterStep]:
    """As a run does, without its lock and its record: step by step until one fails or it is stopped, then what did not begin is given
    back."""
    halted = ""
    for step in carrying.steps:
        halted = halted or context.stopped()
        if halted:
            break
        try:
            step.outcome = "failed"
            step.how = step.write(context)
            step.outcome = "done"
        except Exception as error:
            step.outcome, step.why = getattr(error, "outcome", "failed"), str(error) or repr(error)
            halted = "" if step.outcome == Skipped.outcome else step.why
        context.say(f"  {step.name}: {step.outcome}: {step.how or step.why}")
    if halted:
        for step, said in carrying.give_back(context):
            context.say(f"  {step.name}: {said}")
    return carrying.steps


class World:
    """Nodes w1 and w2 go, w3 stays. `no`: by node, why it is judged otherwise in its turn."""

    def __init__(self, patch: pytest.MonkeyPatch, no: dict[str, str] | None = None, *nodes: dict[str, Any]) -> None:
        given = {one["metadata"]["name"]: one for one in nodes}
        made = [given.get(name) or node(name) for name in ("w1", "w2", "w3")]
        self.cluster = LiveCluster(patch, *made, *deployment(2, 2))
        self.no, self.asked, self.before = no or {}, list[tuple[str, list[str]]](), lambda name: None
        self.leaving = [Leaving(self.cluster.node(name), name, "saves 100 W") for name in ("w1", "w2")]
        self.halted = ""

    def judge(self, name: str, rest: Any) -> tuple[str, int]:
        self.asked.append((name, list(rest)))
        self.before(name)
        if self.no.get(name) == "error":
            raise NotDone("the API is away")
        return self.no.get(name, ""), 1

    def carry(self, *wakes: ClusterStep) -> dict[str, str]:
        carrying = Carrying(self.cluster.session, DrainConsents(drain_timeout=60), wakes, self.leaving, self.judge)
        self.steps = carry_out(carrying, context(run=RUN, stopped=lambda: self.halted))
        return {step.name: step.outcome for step in self.steps}

    def cordons(self) -> dict[str, tuple[bool, str]]:
        return {name: cordon(self.cluster.node(name)) for name in ("w1", "w2", "w3")}


def test_all_are_cordoned_first_and_each_pod_moves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert set(world.carry().values()) == {"done"}
    assert world.asked == [("w1", ["w1", "w2"]), ("w2", ["w2"])] and len(world.cluster.evictions) == 2
    assert {one["spec"]["nodeName"] for one in world.cluster.pods()} == {"w3"}
    assert read_mark(world.cluster.node("w1")) == Mark(RUN, CONSOLIDATION.name, why="saves 100 W")
    assert world.cordons()["w3"] == (False, "")


def test_a_machine_wakes_before_anything_is_cordoned_and_one_that_does_not_halts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)

    def write(_: Any) -> str:
        raise NotDone("NOT ON after 10 s")

    found = world.carry(ClusterStep("w9", "power on", "", write, ""))
    assert found == {"w9": "failed", "Node w1": "not started", "Node w2": "not started", "w1": "not started", "w2": "not started"}
    assert not world.asked and world.cordons()["w1"] == (False, "")


def test_a_node_whose_judgement_has_changed_is_skipped_and_the_next_one_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {"w1": "its room is needed if another node fails"})
    found = world.carry()
    assert found == {"Node w1": "reverted", "Node w2": "done", "w1": "skipped", "w2": "done"}
    assert world.cordons() == {"w1": (False, ""), "w2": (True, RUN), "w3": (False, "")}
    assert "its room is needed if another node fails; uncordoned" in {step.name: step.why for step in world.steps}["w1"]


@pytest.mark.parametrize("manager", ["", "kubectl-cordon"])
def test_an_administrators_hand_in_between_counts(monkeypatch: pytest.MonkeyPatch, manager: str) -> None:
    """Before a turn, and also while it is judged."""
    for at in ("w1", "w2"):
        world = World(monkeypatch)

        def hand(name: str, at: str = at, world: World = world) -> None:
            if name == at:
                path = next(path for path, item in world.cluster.there.items() if item is world.cluster.node("w2"))
                world.cluster.there[path] = node("w2", manager=manager)

        world.before = hand
        found = world.carry()
        assert found["w1"] == "done" and found["w2"] == "skipped"
        assert world.cordons()["w2"] == (bool(manager), "")
        assert ("uncordoned it since" if not manager else "has cordoned it since") in {step.name: step.why for step in world.steps}["w2"]


def test_a_failure_halts_and_the_nodes_that_wait_are_uncordoned(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.cluster.starts = False
    assert world.carry() == {"Node w1": "reverted", "Node w2": "reverted", "w1": "reverted", "w2": "not started"}
    assert world.cordons() == dict.fromkeys(("w1", "w2", "w3"), (False, "")) and len(world.cluster.evictions) == 1
    world = World(monkeypatch, {"w1": "error"})
    assert world.carry()["w1"] == "reverted" and world.cordons()["w2"] == (False, "") and not world.cluster.evictions


def test_the_cordon_of_an_earlier_run_is_taken_over_and_that_of_others_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = node("w1", manager="daytwo", mark=Mark(OLD, CONSOLIDATION.name).text())
    world = World(monkeypatch, None, earlier)
    assert world.carry()["w1"] == "done" and world.cordons()["w1"] == (True, RUN)
    world = World(monkeypatch, None, node("w1", manager="kubectl-cordon"))
    found = world.carry()
    assert (found["Node w1"], found["w1"], found["w2"]) == ("skipped", "skipped", "done") and world.cordons()["w1"] == (True, "")


# ---- the judgement


def held(name: str, mark: Mark, ready: bool = True, **more: Any) -> dict[str, Any]:
    made = placed(name, **more)
    meta = {**made["metadata"], "annotations": {"daytwo.dev/outage": mark.text()}}
    meta["managedFields"] = [{"manager": FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        **made,
        "metadata": meta,
        "spec": {**made["spec"], "unschedulable": True},
        "status": {**made["status"], "conditions": conditions},
    }


def judged(*items: dict[str, Any], spare: int = 0, moves: int | None = None, **cost: float) -> tuple[Judge, Any]:
    live = keeper(*items).live
    hosts = {one["metadata"]["name"]: one["metadata"]["name"] for one in live.of("Node")}
    machines = Machines("watts", {**dict.fromkeys(hosts, 100.0), **cost})
    return Judge(machines, hosts, (), ConsolidateOptions(spare_nodes=spare, max_moves=moves)), live


def test_what_a_run_left_half_done_goes_on() -> None:
    mark = Mark(OLD, CONSOLIDATION.name, why="saves 300 W")
    judge, live = judged(held("w1", mark), placed("w2"), pod("a", "w1"), pod("b", "w2"), w1=300)
    found, notes = judge.plan(live, NOW)
    assert found.goes == ["w1"] and notes == [f"w1: run {OLD} began to take it out of service; this run continues"]
    assert kept_on(found) == ["w2"]


def test_what_does_not_go_on_has_no_room_for_others() -> None:
    """w1 is the cheapest, and stays cordoned: the pod of w2 has no place there."""
    judge, live = judged(held("w1", Mark(OLD, CONSOLIDATION.name)), placed("w2"), placed("w3"), pod("a", "w1"), pod("b", "w2"), w1=1)
    found, notes = judge.plan(live, NOW)
    assert "w1" not in found.goes and not notes and set(found.plan.moves.values()) <= {"w2", "w3"}


@pytest.mark.parametrize("ready", [True, False])
def test_one_that_a_consolidation_has_left_is_asleep_and_no_reserve(ready: bool) -> None:
    mark = Mark(OLD, CONSOLIDATION.name, why="saves 300 W")
    judge, live = judged(held("w1", mark, ready), placed("w2"), placed("w3"), pod("a", "w2"), pod("b", "w3"), spare=1)
    found, _ = judge.plan(live, NOW)
    assert found.keeper.asleep == {"w1"} and not half_done(found.keeper) and found.goes == []
    assert judge.again(live, NOW, ["w2"], 0).goes == []


def test_a_node_is_judged_by_the_cluster_as_it_is_in_its_turn() -> None:
    there = [held("w1", Mark(RUN, CONSOLIDATION.name)), placed("w2"), pod("a", "w1"), pod("b", "w2")]
    judge, live = judged(*there, moves=1)
    assert why_not(judge.again(live, NOW, ["w1"], 0), "w1") == ""
    assert why_not(judge.again(live, NOW, ["w1"], 1), "w1"), "no more pods may move"
    for more, why in (
        (pod("big", "w2", cpu="4"), ""),
        (pod("alone", "w1", owner=None), "nothing recreates shop/alone"),
        (pod("mine", "w1", meta={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}), "an annotation forbids"),
    ):
        judge, live = judged(*there, more)
        assert (found := why_not(judge.again(live, NOW, ["w1"], 0), "w1")) and why in found


# ---- the way back


def test_the_nodes_come_back_in_the_reverse_order() -> None:
    def one(name: str, action: str, of: str) -> ChangedObject:
        path = f"/api/v1/nodes/{of}"
        return ChangedObject(name, action, (), {"path": path, "uid": f"uid-{of}"}, "done")

    names = ("w1", "w2", "w3", "w4")
    record = ObjectsRecord(RUN, "c", "consolidate", {}, (
        one("w9", "power on", "w9"), *(one(f"Node {name}", CORDON, name) for name in names),
        one("w1", POWERED_OFF, "w1"), one("w2", LEFT_CORDONED, "w2"), one("w3", LEFT_CORDONED, "w3"),
    ))  # fmt: skip
    nodes = {
        "w1": held("w1", Mark(RUN, "power-off", BOOT), ready=False), "w2": held("w2", Mark(RUN, CONSOLIDATION.name)),
        "w3": placed("w3"), "w4": held("w4", Mark(OLD, "drain")), "w9": placed("w9"),
    }  # fmt: skip
    for name, item in nodes.items():
        item["metadata"]["uid"] = f"uid-{name}"
    drivers: Any = {"w1": object(), "w2": object()}
    hosts = {"/api/v1/nodes/w1": "w1", "/api/v1/nodes/w2": "w2"}
    back, rest = ways_back(record, {f"/api/v1/nodes/{name}": item for name, item in nodes.items()}, hosts, drivers)
    assert [(host, switched) for host, _, switched in back] == [("w2", False), ("w1", True)]
    said = dict(rest)
    assert said["w3"] == "it is not cordoned" and OLD in said["w4"] and said["w9"] == "it was woken, and stays on"
    assert ways_back(record, {}, hosts, {})[0] == [] and UNDO.refusals(record) == []
