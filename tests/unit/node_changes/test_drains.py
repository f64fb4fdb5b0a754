"""Which nodes a run of changes drains, the plan of these drains, and what the run does around a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from roles.engine.context import Stage, StepContext
from roles.engine.node_changes import KUBELET, ChangeDrains, NodeStep, outages
from roles.engine.node_changes.outages import Leftover
from roles.engine.node_changes.run import NodeRun
from roles.engine.objects import NotDone
from roles.engine.outage import DrainConsents, Mark, NodeOutage, Wanted, read_mark
from roles.engine.proof import Proof
from tests.context import context
from tests.unit.disruption.world import deployment
from tests.unit.hosts import INFO
from tests.unit.node_changes.world import change, events, fleet
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.world import node, of_change, spread

pytestmark = pytest.mark.usefixtures("alone")

W1, W2 = Wanted("w1", "w1", ("drain=always",)), Wanted("w2", "w2", ("drain=always",))


# ---- what is drained


@pytest.mark.parametrize("left", ["", "w2"])
def test_each_outage_is_marked_with_this_run(monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    """Also beside a node that an earlier run has left cordoned, and one that nobody has."""
    nodes = [node("w1"), node("w2", manager="daytwo" if left else "", mark=of_change("r0") if left else ""), node("w3")]
    cluster = LiveCluster(monkeypatch, *nodes, *deployment(1, 1))
    monkeypatch.setattr(outages, "open_session", lambda *args: cluster.session)
    survey: Any = SimpleNamespace(reading=SimpleNamespace(last_nodes=lambda: {one["metadata"]["name"]: one for one in nodes}))
    changing = [SimpleNamespace(needs_drain=(), component=KUBELET, instead="")]
    plans: Any = [SimpleNamespace(host="w1", kubelet=SimpleNamespace(node_name="w1"), changing=changing)]
    one = step("w1", [], Drained("w1", []))
    _, leftovers = outages.plan_drains(fleet("w1"), survey, ChangeDrains(drain="always"), "r1", plans, [Stage((one,))], ("r0",))
    assert [(found.node, found.run) for found in leftovers] == ([("w2", "r0")] if left else [])
    assert one.drain is not None
    one.drain.take(context())
    assert read_mark(cluster.node("w1")) == Mark("r1", "change")


def test_all_drains_of_a_run_share_the_limit_of_a_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LiveCluster(monkeypatch, node("w1"), node("w2"), node("w3"), *spread(deployment(2, 2), "w1", "w2"))
    steps = tuple(step(name, [], Drained(name, [])) for name in ("w1", "w2"))
    outages.set_drains(cluster.session, [Stage(steps, 2)], {"w1": W1, "w2": W2}, DrainConsents(drain_timeout=60), "r1")
    begun = [gevent.spawn(one.drain.take, context()) for one in steps if one.drain is not None]
    gevent.joinall(begun, raise_error=True)
    assert [ready for _, ready in cluster.evictions] == [1, 1]


def test_the_mark_says_that_a_change_cordoned_the_node() -> None:
    fates = [outages.node_fate(node("w1", manager="daytwo", mark=text)) for text in (of_change("r1"), "r1")]
    assert [outages.cordoned_for_change(fate) for fate in fates] == ["r1", ""]
    theirs = outages.node_fate(node("w1", manager="kubectl-cordon", mark=of_change("r1")))
    assert outages.cordoned_for_change(theirs) == ""


def test_whether_a_node_is_drained_at_all() -> None:
    assert ChangeDrains().allowed and not ChangeDrains(drain="never").allowed
    with pytest.raises(ValueError, match="drain"):
        ChangeDrains(drain="sometimes")  # type: ignore[arg-type]


# ---- the run


class Drained:
    """Stands in for the drain of a node, and says in `log` what happened; `fails` at "begin" or "end"."""

    why = ("drain=always",)

    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        self.node, self.log, self.fails = name, log, fails
        self.cordoned = False
        self.moved = ["shop/web-1"]
        self.stopping: Callable[[], str] = lambda: ""

    def take(self, context: StepContext) -> str:
        context.note({"event": "drain", "node": self.node, "what": "cordon"})
        self.stopping = context.stopped
        self.log.append(f"drain {self.node}")
        if self.fails == "begin":
            raise NotDone("its budget refused")
        self.cordoned = True
        return "empty"

    def give_back(self, context: StepContext) -> str:
        self.log.append(f"uncordon {self.node}")
        if self.fails == "end":
            raise NotDone("the API is away")
        self.cordoned = False
        return "uncordoned: read back"


def step(host: str, log: list[str], drain: Drained, outcome: str = "", why: str | None = None) -> NodeStep:
    def ready() -> str | None:
        log.append(f"ready {host}")
        return why

    return NodeStep(change(host), ready, lambda status: Proof("seen"), drain=cast(NodeOutage, drain))


def drive(*steps: NodeStep, outcomes: Mapping[str, str] | None = None, leftovers: list[Leftover] | None = None) -> NodeRun:
    """A run whose changes end as `outcomes` say, by host; the others are confirmed."""
    names = dict.fromkeys(["cp1", *(one.change.node for one in steps)])
    run = NodeRun(INFO, [Stage((one,)) for one in steps], fleet(*names), "", lambda run: None, leftovers=leftovers or [])

    def transact(one: NodeStep, staged: object) -> None:
        one.touched = True
        one.outcome = (outcomes or {}).get(one.change.node, "confirmed")  # type: ignore[assignment]
        one.how = "proven"
        staged.withdraw()  # type: ignore[attr-defined]

    run._transact = transact  # type: ignore[method-assign]
    for name in names:
        if run.involves(name):
            run.result(name)
    return run


def test_a_node_is_drained_before_its_change_is_sent_and_uncordoned_after_it() -> None:
    log: list[str] = []
    run = drive(*(step(name, log, Drained(name, log)) for name in ("w1", "w2")))
    assert log == [f"{what} {name}" for name in ("w1", "w2") for what in ("drain", "ready", "uncordon")]
    assert [one.how for one in run.steps] == ["proven; drained before it (1 pod moved), uncordoned"] * 2 and not run.halted
    assert all(0 < one.drain_seconds < one.seconds for one in run.steps)
    noted = [one for one in events(run) if one["event"] in ("drain", "drained", "uncordoned")]
    # The node's own record says that it was drained, too: a roll-back of this run looks for its cordon.
    assert [one["drained"] for one in events(run) if one["event"] == "plan"] == ["w1", "w2"]
    assert [one["event"] for one in noted] == ["drain", "drained", "uncordoned"] * 2 and noted[1]["moved"] == ["shop/web-1"]


@pytest.mark.parametrize(("outcome", "back"), [("reverted", True), ("refused", True), ("revert-failed", False), ("unknown", False)])
def test_only_a_node_that_may_be_broken_stays_cordoned(outcome: str, back: bool) -> None:
    log: list[str] = []
    drained = Drained("w1", log)
    run = drive(step("w1", log, drained), step("w2", log, Drained("w2", log)), outcomes={"w1": outcome})
    assert drained.cordoned is not back and ("uncordon w1" in log) is back and "drain w2" not in log
    assert run.still_cordoned == ({} if back else {"w1": f"its change ended as {outcome}"})
    assert not run.result("w1") and ("still cordoned" in [one["event"] for one in events(run)]) is not back


def test_a_drain_that_fails_halts_the_run_and_nothing_is_sent() -> None:
    log: list[str] = []
    run = drive(step("w1", log, Drained("w1", log, "begin")), step("w2", log, Drained("w2", log)))
    assert log == ["drain w1"] and run.steps[0].outcome == "not started" and "its budget refused" in run.halted


def test_a_change_that_must_not_begin_uncordons() -> None:
    log: list[str] = []
    run = drive(step("w1", log, Drained("w1", log), why="not now"))
    assert log == ["drain w1", "ready w1", "uncordon w1"] and "not now" in run.halted


def test_a_confirmed_change_whose_node_stays_cordoned_fails_the_run() -> None:
    log: list[str] = []
    run = drive(step("w1", log, Drained("w1", log, "end")), step("w2", log, Drained("w2", log)))
    assert run.steps[0].outcome == "confirmed" and run.still_cordoned == {"w1": "the API is away"}
    assert "w1 is STILL CORDONED: the API is away" in run.halted and "drain w2" not in log


def test_a_run_that_halts_stops_its_drains() -> None:
    log: list[str] = []
    drained = Drained("w1", log)
    run = drive(step("w1", log, drained))
    assert drained.stopping() == ""
    run.interrupt()
    assert (
        drained.stopping() == "interrupted by the operator" and run._leaving() == "each node reverts what is not confirmed at its deadline"
    )
    drained.cordoned = True
    assert "w1 stay cordoned: the same command continues, or pyinfra INVENTORY deploys/uncordon.py --data nodes=w1" in run._leaving()


class Left:
    """A cordon that an earlier run left on a host."""

    run = "r0"

    def __init__(self, host: str, log: list[str]) -> None:
        self.host = self.node = host
        self.log = log

    def uncordon(self, context: StepContext) -> str:
        context.note({"event": "uncordon", "node": self.node})
        self.log.append(f"uncordon {self.host}")
        return "read back"


@pytest.mark.parametrize("outcome", ["confirmed", "reverted"])
def test_what_earlier_runs_left_is_uncordoned(outcome: str) -> None:
    """A node with a change of this run only after that."""
    log: list[str] = []
    own = step("w1", log, Drained("w1", log))
    own.drain = None
    left = [cast(Leftover, Left(host, log)) for host in ("w1", "cp1")]
    run = drive(own, leftovers=left, outcomes={"w1": outcome})
    assert log == ["uncordon cp1", "ready w1", *(["uncordon w1"] if outcome == "confirmed" else [])]
    assert bool(run.halted) is (outcome != "confirmed")
