"""After a lost answer, the object shows whether the write was applied; a deleted class is always restored."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from roles.engine.api import Forbidden, NoApi
from roles.engine.api.errors import Invalid
from roles.engine.context import Stage
from roles.engine.object_runs import ObjectRun
from roles.engine.objects import Session
from roles.priority_classes import CAPABILITY, Writer, plan_classes
from tests.unit.apiserver import LOST, Server, first
from tests.unit.hosts import object_run, unrecorded
from tests.unit.priority_classes.world import cluster, priority_class, wanted

PATH = "/apis/scheduling.k8s.io/v1/priorityclasses/web"

pytestmark = pytest.mark.usefixtures("operator")


def run(server: Server, **data: Any) -> ObjectRun:
    """The finished run."""
    desired = wanted(**data)
    plan = plan_classes(desired, cluster(*(copy.deepcopy(item) for item in server.objects.values())))
    assert plan.refusals == [] and len(plan.actions) == 1
    writer = Writer(Session(lambda: server.api), force=desired.force, rollout_timeout=30)
    return object_run(Stage(writer.steps(plan.actions)), capability=CAPABILITY, leaving=writer.leaving)


def old() -> dict[str, Any]:
    return priority_class("web", 1000, description="what customers see")


def theirs(value: int) -> dict[str, Any]:
    made = priority_class("web", value, "argocd")
    made["metadata"]["uid"] = "uid-of-theirs"
    return made


def replacing(server: Server) -> ObjectRun:
    return run(server, priority_classes={"web": 2000}, replace=True)


def as_before(server: Server) -> bool:
    found = server.objects[PATH]
    return (found["value"], found.get("description"), found["preemptionPolicy"]) == (1000, "what customers see", "PreemptLowerPriority")


@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_lost_in_the_deletion(error: Exception, when: str) -> None:
    """Whether the deletion was applied or not, the replacement finishes."""
    server = Server({PATH: old()})
    server.lose = first(error, when, "DELETE")
    step = replacing(server).steps[0]
    assert (step.outcome, server.objects[PATH]["value"]) == ("done", 2000), step.why
    assert server.log.count(("DELETE", PATH)) == (1 if when == "after" else 2), "an applied request is not repeated"


@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_lost_in_the_creation(error: Exception, when: str) -> None:
    server = Server({PATH: old()})
    server.lose = first(error, when, "APPLY")
    step = replacing(server).steps[0]
    assert (step.outcome, server.objects[PATH]["value"]) == ("done", 2000), step.why


@pytest.mark.parametrize("error", LOST)
def test_no_deletion_is_ever_answered(error: Exception) -> None:
    server = Server({PATH: old()})
    server.lose = lambda when, verb, path: error if (when, verb) == ("before", "DELETE") else None
    step = replacing(server).steps[0]
    assert step.outcome == "reverted" and "the old class was not deleted, as read back" in step.why and as_before(server)


@pytest.mark.parametrize("error", [*LOST, Invalid("cp1", PATH, "422", "-")])
def test_no_creation_is_ever_answered_or_it_is_refused(error: Exception) -> None:
    """The new class does not exist, so the old one is recreated."""
    server = Server({PATH: old()})
    server.refuse = lambda verb, path, manifest: error if manifest.get("value") == 2000 else None
    step = replacing(server).steps[0]
    assert step.outcome == "reverted" and "the old class was recreated and read back: value 1000" in step.why and as_before(server)


@pytest.mark.parametrize("error", LOST)
def test_an_api_that_stays_away_after_the_deletion(error: Exception, tmp_path: Path) -> None:
    """The state stays unknown: the message says what to check, and the command that recreates the class."""
    server = Server({PATH: old()})
    gone: list[int] = []

    def lose(when: str, verb: str, path: str) -> Exception | None:
        if (when, verb) == ("after", "DELETE"):
            gone.append(1)
        return error if gone else None

    server.lose = lose
    made = replacing(server)
    step = made.steps[0]
    assert step.outcome == "revert-failed" and made.halted
    for words in ("STATE UNKNOWN", "kubectl get priorityclass web", "| kubectl create -f -", '"value": 1000'):
        assert words in step.why
    events = [json.loads(line) for line in made.record.path.read_text().splitlines()]
    (kept,) = [event for event in events if event["event"] == "plan"]
    before = {field["path"][0]: field["before"] for field in kept["fields"]}
    assert before["value"] == 1000 and before["description"] == "what customers see"
    assert events.index(kept) < [event["event"] for event in events].index("end")


def test_an_error_of_our_own_leaves_no_class_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({PATH: old()})

    def broken(self: Writer, change: Any, of: str) -> str:
        raise KeyError("metadata")

    monkeypatch.setattr(Writer, "proven", broken)
    step = replacing(server).steps[0]
    assert step.outcome == "reverted" and as_before(server)


def test_an_error_of_our_own_in_the_deletion_leaves_no_class_deleted() -> None:
    server = Server({PATH: old()})
    server.lose = first(KeyError("metadata"), "after", "DELETE")
    step = replacing(server).steps[0]
    assert step.outcome == "reverted" and as_before(server), step.why


def test_what_others_created_meanwhile_is_not_deleted() -> None:
    server = Server({PATH: old()})

    server.at("after", "DELETE", lambda: server.put(PATH, theirs(5)))
    step = replacing(server).steps[0]
    assert step.outcome == "foreign" and "argocd created a class of that name meanwhile (value 5" in step.why
    assert server.objects[PATH]["value"] == 5 and server.log.count(("DELETE", PATH)) == 1
    assert '"value": 1000' in step.why, "and how to restore the old one"


def test_a_class_of_others_with_the_same_value_is_not_ours() -> None:
    """daytwo's apply only became a co-owner; a later failure must not delete the class."""
    server = Server({PATH: old()})

    def meddle(when: str, verb: str, path: str) -> None:
        if (when, verb) == ("after", "DELETE"):
            server.put(PATH, theirs(2000))
        if (when, verb) == ("after", "APPLY"):
            server.objects[PATH]["description"] = "of a webhook"

    server.meddle = meddle
    step = run(server, priority_classes={"web": {"value": 2000, "description": "new"}}, replace=True).steps[0]
    assert step.outcome == "foreign" and server.log.count(("DELETE", PATH)) == 1, step.why


def test_a_class_that_changed_while_its_deletion_was_lost_is_not_deleted() -> None:
    server = Server({PATH: old()})
    server.lose = first(NoApi("no answer"), "before", "DELETE")

    server.at("before", "DELETE", lambda: server.put(PATH, {**server.objects[PATH], "description": "theirs"}))
    step = replacing(server).steps[0]
    assert step.outcome == "failed" and "changed after daytwo read it" in step.why and server.objects[PATH]["description"] == "theirs"


def test_an_update_after_a_faster_change_by_others() -> None:
    server = Server({PATH: old()})
    server.lose = first(NoApi("no answer"), "before", "APPLY")

    server.at("before", "APPLY", lambda: server.put(PATH, {**server.objects[PATH], "description": "theirs"}))
    step = run(server, priority_classes={"web": {"value": 1000, "description": "new"}}).steps[0]
    assert step.outcome == "foreign" and "left as it is now" in step.why and server.objects[PATH]["description"] == "theirs"


def test_a_removal_that_is_never_answered_is_unknown() -> None:
    server = Server({PATH: old()})
    gone: list[int] = []

    def lose(when: str, verb: str, path: str) -> Exception | None:
        gone.extend([1] if verb == "DELETE" else [])
        return NoApi("no answer") if gone else None

    server.lose = lose
    step = run(server, priority_classes={}, prune=True).steps[0]
    assert step.outcome == "unknown" and "STATE UNKNOWN" in step.why and "kubectl get priorityclass web" in step.why


def test_a_refused_request_is_not_repeated() -> None:
    server = Server({PATH: old()})
    server.refuse = lambda verb, path, manifest: Forbidden("cp1", path, "403", "-")
    step = replacing(server).steps[0]
    assert step.outcome == "failed" and server.log == [("DELETE", PATH)] and as_before(server)


def test_a_403_of_a_restarted_server_is_temporary() -> None:
    server = Server({PATH: old()})
    answers: list[Exception] = [Forbidden("cp1", PATH, "403", "-"), NoApi("no answer")]
    server.lose = lambda when, verb, path: answers.pop() if (when, verb) == ("before", "DELETE") and answers else None
    assert replacing(server).steps[0].outcome == "done"


def test_quitting_during_a_replacement_says_how_to_recreate_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({PATH: old()})
    texts: list[str] = []
    original = Writer.proven

    def proven(self: Writer, change: Any, of: str) -> str:
        texts.append(self.leaving())
        return original(self, change, of)

    monkeypatch.setattr(Writer, "proven", proven)
    made = replacing(server)
    assert '"value": 1000' in texts[0] and "kubectl create" in texts[0]
    assert "kubectl create" not in made._leaving(), "not after its end"


def test_a_record_that_fails_later_stops_the_run_before_the_next_write(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({PATH: old()})
    unrecorded(monkeypatch, "plan")
    made = replacing(server)
    assert server.log == [] and made.steps[0].outcome == "failed" and "No space left" in made.halted
