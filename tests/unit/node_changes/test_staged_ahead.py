"""The next change waits on its node while the one before it is proven, and begins only after that; if the run halts, it is removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from roles.engine.bridge import Feed, Fleet
from roles.engine.bridge.tasks import Event, Timeout, sleep
from roles.engine.context import Stage
from roles.engine.node_changes import NodeStep
from roles.engine.node_changes import run as running
from roles.engine.node_changes.run import NodeRun
from roles.engine.proof import Proof
from roles.engine.remote import Answer, ConnectionLost
from roles.engine.runs.lock import Locked
from roles.engine.transaction import Change, FileEdit
from tests.unit.hosts import INFO, LockHost

pytestmark = pytest.mark.usefixtures("alone")


class Node(LockHost):
    """A node that takes changes as change.sh does, and says in the common `log` what happened, in order. `loses` has the moments at which
    its connection is lost, each once: "sending", "waiting", "go"; `full`: it has no space for a change."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(name)
        self.log = log
        self.loses: list[str] = []
        self.full = self.fails = self.away = False
        self.cut = Event()

    @property
    def alive(self) -> bool:
        return not self.cut.is_set()

    def ensure_connected(self, within: float = 0) -> None:
        if self.away:
            raise ConnectionLost(f"{self.name}: no route to host")
        self.cut.clear()

    reconnect = ensure_connected

    def say(self, what: str) -> None:
        self.log.append(f"{self.name} {what}")

    def lost_at(self, moment: str) -> bool:
        if moment not in self.loses:
            return False
        self.loses.remove(moment)
        self.say(f"lost, {moment}")
        self.cut.set()
        return True

    def answer(self, script: str, stdin: str) -> Answer:
        return Answer(0, ["state=staged"], []) if "state=staged" in script else super().answer(script, stdin)

    def change(self, on_line: Callable[[str], None], feed: Feed) -> Answer:
        lost = ConnectionLost(f"{self.name}: the SSH connection was lost")
        if self.full:
            self.say("full")
            return Answer(0, ["state=refused", "reason=no space; nothing was changed"], [])
        if self.lost_at("sending"):
            raise lost
        self.say("staged")
        on_line("staged")
        if self.lost_at("waiting"):
            raise lost
        if feed.get() != "go\n":
            self.say("removed")
            return Answer(0, ["staged"], [])
        if self.lost_at("go"):
            raise lost
        self.say("began")
        lines = ["staged", "log 1 step: wait"]
        on_line(lines[-1])
        if self.fails:
            lines += ["log 2 failed: it ended 2 times", "state=reverted", "reason=it ended 2 times"]
            for line in lines[2:]:
                on_line(line)
            self.say("reverted")
            return Answer(0, lines, [])
        for line in ("log 14 settled: 12.4 s after the first file was placed", "state=applied", "verdict?"):
            on_line(line)
        verdict = str(feed.get()).split()[0]
        self.say({"confirm": "confirmed", "revert": "reverted"}[verdict])
        return Answer(0, [*lines, f"state={verdict}ed"], [])


@pytest.fixture
def log() -> list[str]:
    return []


class Run:
    """A run on workers, by default one at a time. `prove` and `ready` are called with a worker's name, and may wait for the log."""

    def __init__(self, log: list[str], *names: str, at_once: int = 1, soak: int = 0) -> None:
        self.log = log
        self.nodes = {name: Node(name, log) for name in ("cp1", *names)}
        self.prove: Callable[[str], str] = lambda name: ""
        self.ready: Callable[[str], None] = lambda name: None
        self.steps = [self._step(name, soak if number == 0 else 0) for number, name in enumerate(names)]
        stages = [Stage(tuple(self.steps[:1]), canary=True), Stage(tuple(self.steps[1:]), at_once=at_once)]
        hosts: list[Any] = list(self.nodes.values())
        self.run = NodeRun(INFO, [stage for stage in stages if stage.steps], Fleet(hosts, [], [], hosts), "", lambda run: None)

    def _step(self, name: str, soak: int) -> NodeStep:
        change = Change(
            id=f"{INFO.id}-{name}-kubelet", node=name, component="kubelet", kind="kubelet", unit="kubelet.service", summary="A=true",
            files=(FileEdit("/etc/a", b"1", b"2"),), health_url="http://127.0.0.1/", old_argv=None, new_argv=None, soak=soak,
        )  # fmt: skip

        def ready() -> str | None:
            self.log.append(f"{name} ready")
            self.ready(name)
            return None

        def prove(status: object) -> Proof:
            problem = self.prove(name)
            return Proof("seen", (problem,) if problem else ())

        return NodeStep(change, ready, prove)

    def drive(self) -> dict[str, str]:
        with Timeout(60):
            for name in self.nodes:
                if self.run.involves(name):
                    self.run.result(name)
        return {step.change.node: step.outcome for step in self.steps}

    def until(self, line: str) -> str:
        with Timeout(30, AssertionError(f"no {line!r}: {self.log}")):
            while line not in self.log:
                sleep(0)
        return ""

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run.record.path.read_text().splitlines()]


def follower(name: str) -> str:
    return f"w{int(name[1:]) + 1}"


def test_the_next_one_is_staged_meanwhile_and_begins_after_that(log: list[str]) -> None:
    one = Run(log, "w1", "w2", "w3")
    one.prove = lambda name: one.until(f"{follower(name)} staged") if name != "w3" else ""
    assert set(one.drive().values()) == {"confirmed"}
    assert log == [
        *("w1 staged", "w1 ready", "w1 began", "w2 staged", "w1 confirmed"),
        *("w2 ready", "w2 began", "w3 staged", "w2 confirmed"),
        *("w3 ready", "w3 began", "w3 confirmed"),
    ]


def test_the_record_has_the_share_of_daytwo_itself(log: list[str]) -> None:
    one = Run(log, "w1")
    one.drive()
    (ended,) = [event for event in one.events() if event["event"] == "end"]
    assert ended["own_seconds"] == pytest.approx(one.steps[0].seconds - 12.4, abs=0.01)
    one.steps[0].drain_seconds = 7.0
    assert one.run._end_of(one.steps[0])["own_seconds"] == pytest.approx(one.steps[0].seconds - 19.4, abs=0.01)


@pytest.mark.parametrize("how", ["not proven", "not healthy"])
def test_if_the_run_halts_what_was_staged_is_removed(log: list[str], how: str) -> None:
    one = Run(log, "w1", "w2", "w3")
    one.nodes["w1"].fails = how == "not healthy"
    one.prove = lambda name: one.until("w2 staged") or "a pod is gone"
    assert one.drive() == {"w1": "reverted", "w2": "not started", "w3": "not started"}
    assert "w2 began" not in log and "w2 ready" not in log
    assert log.count("w2 staged") == log.count("w2 removed") and not any(line.startswith("w3") for line in log)
    planned = [event["node"] for event in one.events() if event["event"] == "plan"]
    assert planned == ["w1"] and one.events()[-1]["outcomes"][one.steps[1].change.id] == "not started"


def test_ctrl_c_removes_what_was_staged_and_lets_the_change_in_progress_finish(log: list[str]) -> None:
    one = Run(log, "w1", "w2")

    def interrupted(name: str) -> str:
        one.until("w2 staged")
        one.run.interrupt()
        return one.until("w2 removed")

    one.prove = interrupted
    assert one.drive() == {"w1": "confirmed", "w2": "not started"} and log[-1] == "w1 confirmed"


def test_ctrl_c_while_a_change_waits_for_its_turn_to_begin(log: list[str]) -> None:
    one = Run(log, "w1")

    def interrupted(name: str) -> None:
        one.run.interrupt()
        sleep(0)

    one.ready = interrupted
    assert one.drive() == {"w1": "not started"} and log == ["w1 staged", "w1 ready", "w1 removed"]


@pytest.mark.parametrize("moment", ["sending", "waiting"])
def test_a_connection_lost_while_staged_ahead_is_no_failure(log: list[str], moment: str) -> None:
    one = Run(log, "w1", "w2")
    one.nodes["w2"].loses = [moment]
    one.prove = lambda name: one.until(f"w2 lost, {moment}")
    assert one.drive() == {"w1": "confirmed", "w2": "confirmed"}
    assert log.index("w1 confirmed") < log.index("w2 staged", log.index(f"w2 lost, {moment}")), "again in its turn"


def test_a_connection_lost_while_the_cluster_is_checked_is_no_failure(log: list[str]) -> None:
    one = Run(log, "w1")
    one.ready = lambda name: None if "w1 lost, waiting" in log else one.nodes["w1"].cut.set() or log.append("w1 lost, waiting")
    assert one.drive() == {"w1": "confirmed"}
    assert log[:6] == ["w1 staged", "w1 ready", "w1 lost, waiting", "w1 staged", "w1 ready", "w1 began"], "checked again, too"


def test_a_node_that_does_not_come_back_is_not_started(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "RECONNECT_SECONDS", 0)
    one = Run(log, "w1")
    one.nodes["w1"].away = True
    assert one.drive() == {"w1": "not started"} and "w1: no route to host" in one.run.halted


def test_a_connection_lost_at_the_word_leaves_it_unchanged(log: list[str]) -> None:
    one = Run(log, "w1", "w2")
    one.nodes["w1"].loses = ["go"]
    assert one.drive() == {"w1": "refused", "w2": "not started"} and "nothing was changed" in one.run.halted


def test_a_node_without_space_is_refused_in_its_turn(log: list[str]) -> None:
    one = Run(log, "w1", "w2", "w3")
    one.nodes["w2"].full = True
    one.prove = lambda name: one.until("w2 full")
    assert one.drive() == {"w1": "confirmed", "w2": "refused", "w3": "not started"} and log[-1] == "w2 ready"
    ended = [event["change"] for event in one.events() if event["event"] == "end"]
    assert ended == [step.change.id for step in one.steps[:2]]


def test_without_the_lock_what_was_staged_does_not_begin(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    one = Run(log, "w1", "w2")

    def ensure() -> None:
        if "w1 confirmed" in log:
            raise Locked("another run has held this cluster's lock")

    def lose(name: str) -> str:
        monkeypatch.setattr(one.run._lock, "ensure", ensure)
        return one.until("w2 staged")

    one.prove = lose
    assert one.drive() == {"w1": "confirmed", "w2": "not started"}
    assert "another run has held" in one.run.halted and log[-1] == "w2 removed" and "w2 ready" not in log


def test_one_is_staged_ahead_for_each_that_may_change_at_once(log: list[str]) -> None:
    one = Run(log, "w1", "w2", "w3", "w4", "w5", "w6", at_once=2)

    def prove(name: str) -> str:
        waiting = {line[:2] for line in log if line.endswith("staged")} - {line[:2] for line in log if line.endswith("began")}
        assert len(waiting) <= 2, log
        return one.until(f"{follower(name)} staged") if name != "w6" else ""

    one.prove = prove
    assert set(one.drive().values()) == {"confirmed"}


def test_one_that_fails_keeps_those_that_wait_for_their_turn(log: list[str]) -> None:
    """Two at a time: while w3 is checked, w2 fails."""
    one = Run(log, "w1", "w2", "w3", at_once=2)
    one.nodes["w2"].fails = True
    one.ready = lambda name: one.until("w2 reverted" if name == "w3" else "w1 staged") and None
    assert one.drive() == {"w1": "confirmed", "w2": "reverted", "w3": "not started"}
    assert "w3 ready" in log and "w3 removed" in log and "w3 began" not in log and one.steps[2].why == ""


def test_nothing_is_staged_during_a_soak(log: list[str]) -> None:
    one = Run(log, "w1", "w2", soak=1)
    proofs: list[bool] = []

    def prove(name: str) -> str:
        proofs.append("w2 staged" in log)
        return ""

    one.prove = prove
    assert one.drive() == {"w1": "confirmed", "w2": "confirmed"}
    assert proofs == [False, False, True] and log.index("w2 staged") > log.index("w1 confirmed")
