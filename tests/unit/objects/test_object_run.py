"""A run on API objects: its order, its halt, and its record on the host of the cluster's lock, from which it is undone by name."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from roles.engine.context import ClusterStep, Stage, StepContext
from roles.engine.object_runs import ObjectRun
from roles.engine.runs import Ended as DeployEnded
from roles.engine.runs import locked_run
from roles.engine.transaction.object_record import CANNOT_UNDO, parse
from roles.history import plan, rollback
from tests.unit.hosts import COUNT, RecordHost, object_run, own_record

FIELDS = [{"path": ["value"], "before": None, "after": 5}]


class Ended(Exception):
    def __init__(self, outcome: str) -> None:
        super().__init__("in its words")
        self.outcome = outcome


def step(name: str, log: list[str] | None = None, error: Exception | None = None) -> ClusterStep:
    def write(context: StepContext) -> str:
        context.begin(FIELDS)
        if log is not None:
            log.append(name)
        if error is not None:
            raise error
        return "read back"

    return ClusterStep(name, "value 5", "", write, "", action="create", about={"path": f"/{name}", "uid": f"u-{name}"})


def drive(host: RecordHost, *stages: Stage[ClusterStep], run: str = "r20260101-000000-aaaa", undoes: str = "") -> ObjectRun:
    return object_run(*stages, host=host, name=run, undoes=undoes, about={"pace": 1})


def one(host: RecordHost, *steps: ClusterStep, **more: str) -> ObjectRun:
    return drive(host, Stage(steps), **more)


def test_the_node_and_the_operator_have_the_same_record(host: RecordHost) -> None:
    run = one(host, step("a"), step("b"))
    (found,) = host.history()
    assert (found.run, found.state, found.component, found.number) == (run.info.id, "confirmed", "x", 1)
    assert found.of_objects and found.of_cluster and found.problem is None and not found.in_flight
    assert found.plan["summary"] == "create a, create b" and found.run_number == (COUNT, 7)
    record = parse(run.info.id, found.events)
    assert record is not None and record.about == {"pace": 1} and record.change == found.id
    assert [(changed.name, changed.action, changed.path, changed.uid, changed.outcome) for changed in record.objects] == [
        ("a", "create", "/a", "u-a", "done"), ("b", "create", "/b", "u-b", "done"),
    ]  # fmt: skip
    kept = own_record(run)
    assert kept is not None and kept.objects == record.objects and kept.about == record.about
    assert plan.newest({"cp1": [found]}) == (run.info.id,)


def test_it_is_on_the_node_before_anything_is_written(host: RecordHost) -> None:
    seen: list[tuple[str, int]] = []
    first = step("a")
    carried_out = first.write

    def write(context: StepContext) -> str:
        done = carried_out(context)
        (found,) = host.history()
        seen.append((found.state, len(found.events)))
        return done

    first.write = write
    one(host, first)
    assert seen == [("staged", 2)]


@pytest.mark.parametrize("number", [1, 2])
def test_without_a_record_nothing_is_written(host: RecordHost, number: int) -> None:
    host.full, log = number, list[str]()
    run = one(host, step("a", log), step("b", log))
    assert log == ([] if number == 1 else ["a"]) and "No space left" in run.halted


def test_an_end_that_the_node_does_not_record_is_shown_and_the_run_can_still_be_undone(host: RecordHost) -> None:
    host.full = 2
    run = one(host, step("a"))
    (found,) = host.history()
    assert run.steps[0].outcome == "done" and not run.halted and found.state == "staged"
    assert plan.changes_to_undo({"cp1": [found]}, [run.info.id]) == [found]


def test_the_first_failure_halts_and_what_was_done_can_be_undone(host: RecordHost) -> None:
    log: list[str] = []
    run = one(host, step("a", log), step("b", log, Ended("foreign")), step("c", log))
    assert log == ["a", "b"] and [found.outcome for found in run.steps] == ["done", "foreign", "not started"]
    assert run.halted == "b: foreign: in its words"
    (found,) = host.history()
    assert found.state == "confirmed"
    assert plan.newest({"cp1": [found]}) == (run.info.id,)


@pytest.mark.parametrize(("outcome", "state"), [("reverted", "reverted"), ("gone", "reverted"), ("unknown", "staged")])
def test_a_run_that_changed_nothing_is_not_the_newest_to_undo(host: RecordHost, outcome: str, state: str) -> None:
    run = one(host, step("a", error=Ended(outcome)))
    (found,) = host.history()
    assert found.state == state and plan.newest({"cp1": [found]}) == ()
    assert len(plan.changes_to_undo({"cp1": [found]}, [run.info.id])) == (state == "staged"), "what may be applied can be undone by name"


def test_an_undo_counts_only_when_all_of_it_is_done(host: RecordHost) -> None:
    first = one(host, step("a"), step("b"))
    (found,) = host.history()
    one(host, step("b"), step("a", error=Ended("reverted")), run="r20260101-000001-bbbb", undoes=found.id)
    assert plan.newest({"cp1": host.history()}) == (first.info.id,), "an unfinished undo does not count; it is run again"
    one(host, step("a"), run="r20260101-000002-cccc", undoes=found.id)
    assert plan.newest({"cp1": host.history()}) == ()


def test_an_internal_error_is_reported_as_one(host: RecordHost) -> None:
    run = one(host, step("a", error=KeyError("metadata")))
    assert (
        run.steps[0].outcome == "failed" and "did not expect this, which is a defect: KeyError: 'metadata', in tests/" in run.steps[0].why
    )


def test_many_at_once_and_then_the_last(host: RecordHost) -> None:
    log: list[str] = []
    run = drive(host, Stage(tuple(step(name, log) for name in "abcd"), at_once=3), Stage((step("last", log),)))
    assert log[-1] == "last" and sorted(log[:-1]) == list("abcd") and not run.halted
    (found,) = host.history()
    record = parse(run.info.id, found.events)
    assert record is not None and {changed.outcome for changed in record.objects} == {"done"} and len(record.objects) == 5


def test_the_last_does_not_start_if_one_has_failed(host: RecordHost) -> None:
    log: list[str] = []
    stage = Stage((step("a", log), step("b", log, Ended("reverted"))), at_once=2)
    run = drive(host, stage, Stage((step("last", log),)))
    assert "last" not in log and run.steps[-1].outcome == "not started"


def test_nothing_to_do_involves_no_host(host: RecordHost) -> None:
    run = one(host)
    assert not run.involves("cp1") and host.history() == []


OTHER, THIRD = "r20260101-000000-bbbb", "r20260101-000000-cccc"
BACK = "pyinfra INVENTORY deploys/rollback.py --data run="


def test_its_last_line_counts_what_came_of_it_and_has_the_next_command(host: RecordHost, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = _last_lines(monkeypatch, lambda: one(host, step("a"), step("b")))
    assert [(re.sub(r"[0-9]+ s", "N s", text), halted) for text, halted in ended] == [
        (f"DONE: 2 done in N s. Undo: {BACK}r20260101-000000-aaaa", False)
    ]
    ((text, halted),) = _last_lines(monkeypatch, lambda: one(host, step("a"), step("b", error=Ended("failed")), step("c"), run=OTHER))
    assert halted and re.fullmatch(
        r"HALTED: 1 done, 1 failed, 1 not started in \d+ s\. Continue: fix the cause, then repeat this command: it keeps what is done\."
        rf" Undo: {re.escape(BACK + OTHER)}",
        text,
    )
    ((text, halted),) = _last_lines(monkeypatch, lambda: one(host, step("a", error=Ended("failed")), run=THIRD))
    assert halted and "Undo" not in text, "nothing is done"
    ((text, _),) = _last_lines(monkeypatch, lambda: object_run(Stage((step("a"),)), host=host, name="r2", about={CANNOT_UNDO: True}))
    assert "Undo" not in text


def test_an_undo_without_a_step_does_not_say_that_all_is_as_asked(host: RecordHost) -> None:
    """What was recreated since stays, and its row says so."""
    ended = rollback.__wrapped__(None, drive(host))  # type: ignore[attr-defined]
    assert ended == DeployEnded("NOTHING TO DO: each row says why")


def _last_lines(monkeypatch: pytest.MonkeyPatch, drive: Callable[[], ObjectRun]) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    monkeypatch.setattr(locked_run, "conclude", lambda line, *, halted: found.append((line, halted)))
    drive()
    return found
