"""A pass with what it carries out: what is kept at each moment, so that whoever comes next can go on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from roles.engine.api import NoApi
from roles.engine.shadow import ShadowError
from roles.node_autoscaler import metrics
from roles.node_autoscaler.child import Ended
from roles.node_autoscaler.decide import Situation
from roles.node_autoscaler.decision import Decision
from roles.node_autoscaler.history import Begun, Failed, History
from roles.node_autoscaler.model import NodeAutoscalerOptions
from roles.node_autoscaler.passing import Passing, Record
from tests.unit.consolidation.cluster import pod
from tests.unit.node_autoscaler.world import marked, situation, waiting
from tests.unit.placement.cluster import node

DONE = Ended(0, "DONE")


def waits(*more: dict[str, Any]) -> Situation:
    asleep = [marked(node(name, ready=False)) for name in ("w2", "w3")]
    return situation(node("w1", cpu="1"), pod("a", "w1", cpu="1"), *asleep, waiting("b"), *more, cost={"w3": 200})


@dataclass
class Seen:
    """The cluster as it is at each look; `refuses`: the machines that the scheduler does not agree with."""

    now: Situation
    refuses: tuple[str, ...] = ()
    broken: bool = False

    def look(self) -> Situation:
        if self.broken:
            raise NoApi("nothing answers")
        return self.now

    def confirms(self, now: Situation, decision: Decision) -> str:
        if self.refuses == ("?",):
            raise ShadowError("no room on cp1")
        return "shop/b: pending: no" if set(decision.nodes) & set(self.refuses) else ""


@dataclass
class Deploys:
    """What was started, and what the record had meanwhile; `ends`: how it ends."""

    record: Record
    ends: Ended = DONE
    started: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    meanwhile: list[Begun | None] = field(default_factory=list)

    def __call__(self, deploy: str, data: Mapping[str, str], named: Callable[[str], object]) -> Deploys:
        self.started.append((deploy, dict(data)))
        self.named = named
        return self

    def run(self) -> Ended:
        self.meanwhile.append(self.record.read().begun)
        self.named(f"r{len(self.started)}")
        self.meanwhile.append(self.record.read().begun)
        return self.ends

    def interrupt(self) -> None: ...


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Record(tmp_path / "daytwo" / "node-autoscaler" / "x.json")


def passing(seen: Seen, deploys: Deploys, **options: Any) -> Passing:
    return Passing(seen, NodeAutoscalerOptions(**options), deploys.record, deploys, lambda: "me/1")


def test_what_is_carried_out_is_on_disk_before_it_begins_and_after_it_has_a_name(record: Record) -> None:
    deploys = Deploys(record)
    found = passing(Seen(waits()), deploys).once()
    assert (
        found is not None and found.line.startswith("wake w2: pod shop/b waits for room") and found.line.endswith("kube-scheduler agrees")
    )
    assert deploys.started == [("power", {"power_on": "w2", "max_unavailable": "1"})]
    assert deploys.meanwhile == [Begun("wake", ("w2",)), Begun("wake", ("w2",), "r1")]
    kept = record.read()
    assert kept.begun is None and kept.woken.keys() == {"w2"} and kept.decisions[-1].state == "done" and kept.decisions[-1].term == "me/1"
    assert record.path.stat().st_mode & 0o777 == 0o600


def test_a_failure_is_kept_and_another_machine_is_next(record: Record) -> None:
    deploys = Deploys(record, Ended(1, "HALTED: NOT ON after 1200 s"))
    one = passing(Seen(waits()), deploys)
    assert one.once() is None
    kept = record.read()
    assert kept.failed.keys() == {"w2"} and kept.failures == 1 and kept.begun is None and "NOT ON" in kept.decisions[-1].result
    one.once()
    assert deploys.started[1][1]["power_on"] == "w3"


def test_while_another_run_holds_the_cluster_nothing_failed(record: Record) -> None:
    deploys = Deploys(record, Ended(1, "not started: run r9 holds this cluster", begun=False))
    assert passing(Seen(waits()), deploys).once() is None
    kept = record.read()
    assert not kept.failed and kept.failures == 0 and kept.begun is None and kept.decisions[-1].state == "put off"


def test_a_killed_loop_is_gone_on_from_and_its_lock_taken_over(record: Record) -> None:
    wake = Decision("wake", "pods wait", ("w2",), ("shop/b",))
    record.write(History().decided(wake, 0).begins(wake).named("r7"))
    deploys, seen = Deploys(record, Ended(1, "not started: its heartbeat is valid for 9 s", begun=False)), Seen(waits())
    one = passing(seen, deploys)
    one.once()
    assert record.read().begun == Begun("wake", ("w2",), "r7"), "it is still to be finished"
    deploys.ends = DONE
    found = one.once()
    assert found is not None and found.kind == "finish" and record.read().begun is None
    assert deploys.started == [("power", {"power_on": "w2", "max_unavailable": "1", "take_over": "r7"})] * 2


def test_a_node_that_is_not_needed_is_taken_away_by_its_host(record: Record) -> None:
    now = situation(node("w1"), node("w2"))
    record.write(History(passed=now.now - 60, not_needed={"w2": now.now - 1800}))
    deploys = Deploys(record)
    found = passing(Seen(now), deploys, spare_nodes=0).once()
    assert found is not None and found.kind == "consolidate"
    assert deploys.started[0][0] == "consolidate" and deploys.started[0][1]["nodes"] == "w2"


@pytest.mark.parametrize(
    ("refuses", "verify", "line"),
    [
        (("w2",), "scheduler", "wake w3: "),
        (("w2", "w3"), "scheduler", "hold: kube-scheduler does not agree with 3 sets of machines: shop/b: pending: no"),
        (
            ("?",),
            "scheduler",
            "hold: pod shop/b waits for room, and no cheaper machines have it; kube-scheduler could not be asked: no room on cp1",
        ),
        (("w2",), "off", "wake w2: "),
    ],
)
def test_the_scheduler_has_the_last_word(record: Record, refuses: tuple[str, ...], verify: Any, line: str) -> None:
    found = passing(Seen(waits(), refuses), Deploys(record), verify=verify).plan()
    assert found.line.startswith(line), found.line
    assert not record.path.exists()


def test_without_an_answer_nothing_is_decided(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("roles.node_autoscaler.passing.show", said.append)
    assert passing(Seen(waits(), broken=True), Deploys(record)).once() is None
    assert said == ["\nWARNING: no decision: nothing answers"]
    record.write(History())
    record.path.write_text("{")
    assert passing(Seen(waits()), Deploys(record)).once() is None


def test_metrics_have_the_same_names_and_labels_in_each_pass(record: Record, tmp_path: Path) -> None:
    path, now = tmp_path / "daytwo.prom", waits(waiting("big", cpu="99"))
    passing(Seen(now), Deploys(record, Ended(1, "no")), metrics=str(path)).once()
    text = path.read_text()
    assert text.endswith("\n") and path.stat().st_mode & 0o777 == 0o644
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    prefix = metrics.PREFIX
    assert values[f'{prefix}_decisions_total{{kind="wake"}}'] == "1" and values[f"{prefix}_failures_total"] == "1"
    assert values[f'{prefix}_nodes{{state="asleep"}}'] == "2" and values[f'{prefix}_nodes{{state="on"}}'] == "1"
    assert values[f"{prefix}_pending_pods"] == "2" and values[f"{prefix}_unplaceable_pods"] == "1"
    assert float(values[f"{prefix}_last_pass_timestamp_seconds"]) == now.now
    empty = metrics.text(situation(node("w1")), Decision("hold", "nothing"), History(failed={"x": Failed(1, 0)}))
    assert [line.rsplit(" ", 1)[0] for line in empty.splitlines()] == [line.rsplit(" ", 1)[0] for line in text.splitlines()]


@pytest.mark.parametrize("text", ["19-07", "Mo-Xx 19:00-07:00"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="hours"):
        NodeAutoscalerOptions(hours=text)
