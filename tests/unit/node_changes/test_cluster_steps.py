"""The parts of a run that are no node's: first or last, recorded before they are written, and what a failure of one halts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.engine.bridge import Fleet
from roles.engine.context import ClusterStep, Stage, StepContext
from roles.engine.node_changes import NodeStep
from roles.engine.node_changes.run import NodeRun
from roles.engine.proof import Proof
from tests.unit.hosts import COUNT, INFO, unrecorded
from tests.unit.node_changes.world import change, events, fleet

pytestmark = pytest.mark.usefixtures("alone")

FIELDS = [{"path": ["featureGates", "A"], "before": None, "after": True}]


def writes(name: str, log: list[str], error: Exception | None = None) -> ClusterStep:
    def write(context: StepContext) -> str:
        context.begin(FIELDS)
        log.append(name)
        if error is not None:
            raise error
        return "read back"

    return ClusterStep(name, "A=true", "", write, "it does not last")


def on_node(host: str, log: list[str]) -> NodeStep:
    """A step that is never ready."""

    def ready() -> str | None:
        log.append(host)
        return "not now"

    return NodeStep(change(host), ready, lambda status: Proof("seen"))


def drive(hosts: Fleet, steps: list[NodeStep], **more: list[ClusterStep]) -> tuple[NodeRun, dict[str, bool]]:
    run = NodeRun(INFO, [Stage(tuple(steps))] if steps else [], hosts, "", lambda run: None, **more)
    return run, {remote.name: run.result(remote.name) for remote in hosts.targets if run.involves(remote.name)}


def test_without_any_node_one_host_speaks_for_the_cluster() -> None:
    log: list[str] = []
    hosts = fleet("cp1", "w1")
    run, results = drive(hosts, [], last=[writes("kubeadm-config", log), writes("kubelet-config", log)])
    assert results == {"cp1": True} and log == ["kubeadm-config", "kubelet-config"] and not run.halted
    keeper: Any = hosts.lock_host
    assert len(keeper.kept) == 4 and "staged" in keeper.kept[0] and "confirmed" in keeper.kept[1]
    told = events(run)
    assert [event["event"] for event in told] == ["run", "begin", "plan", "end", "plan", "end", "end-of-run"]
    assert told[1]["number"] == told[2]["number"] == {"count": COUNT, "number": 7}
    assert told[2]["fields"] == FIELDS and told[3]["outcome"] == "confirmed" and (told[2]["order"], told[4]["order"]) == (1, 2)


def test_nothing_to_do_involves_nobody() -> None:
    assert drive(fleet("cp1", "w1"), [])[1] == {}


def test_what_fails_last_fails_the_run_and_hinders_no_other() -> None:
    log: list[str] = []
    run, results = drive(fleet("cp1"), [], last=[writes("one", log, ValueError("RBAC says no")), writes("other", log)])
    assert results == {"cp1": False} and log == ["one", "other"]
    assert [step.outcome for step in run.last] == ["failed", "confirmed"] and run.halted == "one: failed: RBAC says no"
    assert [event["outcome"] for event in events(run) if event["event"] == "end"] == ["failed", "confirmed"]


def test_the_last_is_not_begun_where_a_node_has_not_got_it() -> None:
    log: list[str] = []
    run, results = drive(fleet("cp1", "w1"), [on_node("w1", log)], last=[writes("kubelet-config", log)])
    assert results == {"w1": False} and log == ["w1"] and run.last[0].outcome == "not started"


def test_no_node_is_touched_where_the_first_fails() -> None:
    log: list[str] = []
    first = [writes("kubelet-config", log, ValueError("it was changed since")), writes("kubeadm-config", log)]
    run, results = drive(fleet("cp1", "w1"), [on_node("w1", log)], first=first)
    assert results == {"w1": False} and log == ["kubelet-config"] and run.steps[0].outcome == "not started"


def test_without_a_record_nothing_is_written() -> None:
    log: list[str] = []
    hosts = fleet("cp1")
    keeper: Any = hosts.lock_host
    keeper.full = True
    run, results = drive(hosts, [], last=[writes("kubelet-config", log)])
    assert results == {"cp1": False} and log == [] and "No space left" in run.halted


def test_an_interrupted_run_writes_nothing_more() -> None:
    log: list[str] = []
    step = writes("one", log)
    run = NodeRun(INFO, [], fleet("cp1"), "", lambda run: None, last=[step, writes("other", log)])
    once = step.write

    def interrupted(context: StepContext) -> str:
        run.interrupt()
        return once(context)

    step.write = interrupted
    assert run.result("cp1") is False and log == ["one"], "what is in hand ends, and nothing more is begun"


def test_a_run_whose_report_breaks_has_failed() -> None:
    def report(run: NodeRun) -> None:
        raise KeyError("metadata")

    run = NodeRun(INFO, [], fleet("cp1"), "", report, last=[writes("kubelet-config", [])])
    assert run.result("cp1") is False and run.last[0].outcome == "confirmed"
    assert "which is a defect: KeyError: 'metadata'" in run.halted


def test_a_run_that_gets_no_number_is_not_begun() -> None:
    log: list[str] = []
    hosts = fleet("cp1", "w1")
    keeper: Any = hosts.lock_host
    keeper.uncounted = True
    run, _ = drive(hosts, [on_node("w1", log)], last=[writes("kubelet-config", log)])
    assert log == [] and "cp1: the run could not get its number, and nothing begins without it: No space left" in run.halted


def test_a_record_that_cannot_be_written_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "daytwo").write_text("a file in the way")
    log: list[str] = []
    run, _ = drive(fleet("cp1", "w1"), [on_node("w1", log)], first=[writes("kubelet-config", log)])
    assert log == [] and "could not be written" in run.halted


def test_a_record_that_cannot_be_written_any_more_stops_the_run_before_the_next_write(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    unrecorded(monkeypatch, "end")
    run, _ = drive(fleet("cp1", "w1"), [on_node("w1", log)], first=[writes("kubelet-config", log), writes("kubeadm-config", log)])
    assert log == ["kubelet-config"] and "No space left on device" in run.halted and run.steps[0].outcome == "not started"


def test_no_node_is_touched_whose_plan_could_not_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded(monkeypatch, "plan")
    hosts = fleet("cp1", "w1")
    step = on_node("w1", [])
    step.ready = lambda: None
    run, _ = drive(hosts, [step])
    node: Any = hosts.targets[1]
    assert node.began is False and (step.outcome, step.touched) == ("not started", False) and "No space left" in run.halted
