"""A workload's class is reverted if its roll-out fails, but never if someone else has set another class meanwhile."""

from __future__ import annotations

import pytest

from roles.engine.api.errors import Timeout
from roles.engine.context import Stage
from roles.engine.object_runs import ObjectRun
from roles.engine.objects import Session
from roles.priority_classes import CAPABILITY, Writer, plan_classes, read_classes
from tests.unit.hosts import object_run
from tests.unit.priority_classes.apiserver import CLASSES, LOST, WEB, Cluster, first
from tests.unit.priority_classes.world import cluster

pytestmark = pytest.mark.usefixtures("operator")


def assign(server: Cluster) -> ObjectRun:
    live = cluster(*(server.objects[f"{CLASSES}/{name}"] for name in ("low", "high")), Deployment=[dict(server.objects[WEB])])
    desired = read_classes([("cp1", {"workloads": {"default/deployment/web": "high"}, "force": True, "rollout_timeout": 30}.get)])
    assert desired is not None
    plan = plan_classes(desired, live)
    assert plan.refusals == [] and len(plan.actions) == 1
    writer = Writer(Session(lambda: server.api), force=True, rollout_timeout=30)
    return object_run(Stage(writer.steps(plan.actions)), capability=CAPABILITY, leaving=writer.leaving)


def test_a_roll_out_that_fails_is_undone() -> None:
    server = Cluster("high")
    step = assign(server).steps[0]
    assert (step.outcome, server.has) == ("reverted", "low"), step.why
    assert "reverted: rolled out; its 1 pod has low" in step.why


@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_to_the_write(error: Exception, when: str) -> None:
    server = Cluster()
    server.lose = first(error, when, "APPLY")
    step = assign(server).steps[0]
    assert (step.outcome, server.has) == ("done", "high"), step.why
    assert server.log.count(("APPLY", WEB)) == (1 if when == "after" else 2)


@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_to_the_revert(error: Exception, when: str) -> None:
    server = Cluster("high")
    writes: list[int] = []

    def lose(moment: str, verb: str, path: str) -> Exception | None:
        if verb != "APPLY" or moment != when:
            return None
        writes.append(1)
        return error if len(writes) == 2 else None

    server.lose = lose
    step = assign(server).steps[0]
    assert (step.outcome, server.has) == ("reverted", "low"), step.why


@pytest.mark.parametrize("error", LOST)
def test_an_api_that_stays_away(error: Exception) -> None:
    """The write is applied, then the API stays away: the message says what to check, and how to repair it by hand."""
    server = Cluster()
    gone: list[int] = []

    def lose(when: str, verb: str, path: str) -> Exception | None:
        gone.extend([1] if (when, verb) == ("after", "APPLY") else [])
        return error if gone else None

    server.lose = lose
    step = assign(server).steps[0]
    assert step.outcome == "revert-failed"
    for words in ("STATE UNKNOWN", "kubectl get -n default deployment/web", "back to low: kubectl edit -n default deployment/web"):
        assert words in step.why


def test_what_somebody_else_has_set_meanwhile_stays() -> None:
    server = Cluster("high")

    def meddle(when: str, verb: str, path: str) -> None:
        if verb == "GET" and path == WEB and server.has == "high":
            server.others_set("theirs")

    server.meddle = meddle
    step = assign(server).steps[0]
    assert (step.outcome, server.has) == ("foreign", "theirs"), step.why
    assert "someone else gave it the class theirs meanwhile (owned by kubectl-edit (Update)): left as it is now" in step.why
    assert server.log.count(("APPLY", WEB)) == 1


def test_a_change_by_others_just_before_the_revert() -> None:
    """A change between the read and the write: the write requires the version that was read, and is refused."""
    server = Cluster("high")
    writes: list[int] = []

    def meddle(when: str, verb: str, path: str) -> None:
        if (when, verb) == ("before", "APPLY"):
            writes.append(1)
            if len(writes) == 2:
                server.others_set("theirs")

    server.meddle = meddle
    step = assign(server).steps[0]
    assert (step.outcome, server.has) == ("foreign", "theirs"), step.why


def test_a_status_write_meanwhile_does_not_matter() -> None:
    server = Cluster("high")
    writes: list[int] = []

    def meddle(when: str, verb: str, path: str) -> None:
        if (when, verb) == ("before", "APPLY"):
            writes.append(1)
            if len(writes) == 2:
                server.put(WEB, server.objects[WEB])

    server.meddle = meddle
    step = assign(server).steps[0]
    assert (step.outcome, server.has) == ("reverted", "low") and len(writes) == 3, step.why


def test_a_workload_that_is_gone_needs_no_revert() -> None:
    server = Cluster("high")

    def meddle(when: str, verb: str, path: str) -> None:
        if verb == "GET" and path == WEB and server.log:
            server.objects.pop(WEB, None)

    server.meddle = meddle
    step = assign(server).steps[0]
    assert step.outcome == "foreign" and "it was deleted meanwhile, so there is nothing to revert" in step.why


def test_a_write_that_was_never_applied_needs_no_revert() -> None:
    server = Cluster()
    server.lose = lambda when, verb, path: Timeout("cp1", path, "no answer", "-") if (when, verb) == ("before", "APPLY") else None
    step = assign(server).steps[0]
    assert (step.outcome, server.has) == ("reverted", "low"), step.why
