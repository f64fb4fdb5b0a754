"""A run on PriorityClasses and workloads is undone from its record: each field gets its old value, unless someone else has set it since."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roles.engine.context import Stage
from roles.engine.objects import ObjectPlan, Session
from roles.engine.transaction import ObjectsRecord
from roles.priority_classes import CAPABILITY, CLASS, Writer, plan_classes, plan_undo, read_live
from tests.unit.apiserver import CLASSES, Server
from tests.unit.hosts import object_run, own_record
from tests.unit.priority_classes.world import entry, priority_class, wanted
from tests.unit.rolling import Cluster

PATH = f"{CLASSES}/web"
_runs = itertools.count(1)

pytestmark = pytest.mark.usefixtures("operator")


def carry_out(server: Server, plan: ObjectPlan, force: bool = False) -> ObjectsRecord:
    """Run the plan to its end; returns its record."""
    assert plan.refusals == []
    writer = Writer(Session(lambda: server.api), force=force, rollout_timeout=30)
    run = object_run(Stage(writer.steps(plan.actions)), name=f"r{next(_runs)}", capability=CAPABILITY, leaving=writer.leaving)
    found = own_record(run)
    assert found is not None and not run.halted and {step.outcome for step in run.steps} <= {"done"}, run.halted
    return found


def run(server: Server, **data: Any) -> ObjectsRecord:
    desired = wanted(**data)
    return carry_out(server, plan_classes(desired, live(server)), desired.force)


def live(server: Server) -> Any:
    return Session(lambda: server.api).asked(read_live)


def back(server: Server, record: ObjectsRecord, *, force: bool = False) -> ObjectPlan:
    return plan_undo(record, live(server), force=force, rollout_seconds=30)


def undone(server: Server, record: ObjectsRecord, *, force: bool = False) -> ObjectsRecord:
    return carry_out(server, back(server, record, force=force), force)


def refused(plan: ObjectPlan, *words: str) -> None:
    assert plan.actions == []
    (refusal,) = plan.refusals
    for word in words:
        assert word in refusal, refusal


def says(server: Server, name: str = "web") -> dict[tuple[str, ...], Any]:
    return CLASS.values(server.objects.get(f"{CLASSES}/{name}"))


# ---- classes


def test_a_replaced_class_is_replaced_again() -> None:
    server = Server({PATH: priority_class("web", 1000, description="old")})
    before = says(server)
    record = run(server, priority_classes={"web": 2000}, replace=True)
    (action,) = back(server, record).actions
    assert action.what == "replace" and "pods that name it cannot be created" in action.notes[0]
    undone(server, record)
    assert says(server) == before


def test_a_class_that_is_now_used_is_not_removed() -> None:
    server = classed()
    record = run(server, priority_classes={"new": 7})
    server.others_write("web", named("new"))
    refused(back(server, record, force=True), "used by workloads: Deployment shop/web", "daytwo never removes a class in use")


def test_a_class_that_others_now_own_is_not_removed() -> None:
    server = Server()
    record = run(server, priority_classes={"web": 5})
    server.put(PATH, priority_class("web", 5, "argocd"))
    refused(back(server, record, force=True), "foreign", "it is owned by argocd now", "daytwo removes only classes that it created")


def test_the_default_is_restored() -> None:
    server = Server({f"{CLASSES}/a": priority_class("a", 1, globalDefault=True)})
    record = run(server, priority_classes={"b": {"value": 2, "globalDefault": True}, "a": {"value": 1, "globalDefault": False}})
    assert not server.objects[f"{CLASSES}/a"].get("globalDefault")
    plan = back(server, record)
    assert [(action.what, action.name) for action in plan.actions] == [("remove", "PriorityClass b"), ("update", "PriorityClass a")]
    carry_out(server, plan)
    assert server.objects[f"{CLASSES}/a"]["globalDefault"] and f"{CLASSES}/b" not in server.objects


# ---- workloads


WEB = "/apis/apps/v1/namespaces/shop/deployments/web"


def named(name: str) -> dict[str, Any]:
    return {"spec": {"priorityClassName": name}}


def classed(name: str = "low") -> Cluster:
    return Cluster("web", kind="Deployment", template=named(name) if name else {})


def has(server: Cluster) -> Any:
    return server.objects[WEB]["spec"]["template"]["spec"].get("priorityClassName")


def assigned(server: Cluster, name: str = "high", **more: Any) -> ObjectsRecord:
    return run(server, workloads={"shop/deployment/web": name}, force=True, rollout_timeout=30, **more)


def test_a_workload_gets_its_old_class_by_a_roll_out() -> None:
    server = classed()
    record = assigned(server)
    assert has(server) == "high"
    again = undone(server, record)
    assert has(server) == "low"
    undone(server, again)
    assert has(server) == "high"


def test_a_workload_that_had_no_class_has_none_again() -> None:
    server = classed("")
    record = assigned(server)
    undone(server, record)
    assert "priorityClassName" not in server.objects[WEB]["spec"]["template"]["spec"]


def test_a_class_that_others_gave_it_since_stays() -> None:
    server = classed()
    record = assigned(server)
    server.others_write("web", named("theirs"))
    refused(back(server, record), "foreign", "is 'theirs', and that run set it to 'high' (owned by kubectl-edit (Update))")
    undone(server, record, force=True)
    assert has(server) == "low"


def test_the_old_class_is_gone() -> None:
    server = classed()
    record = assigned(server)
    del server.objects[f"{CLASSES}/low"]
    refused(back(server, record), "PriorityClass low, is gone", "create it first")


def test_a_class_is_created_before_its_workload_and_removed_after_it() -> None:
    """The run created a class, moved the workload to it, and removed its old class."""
    server = classed()
    record = assigned(server, "new", priority_classes={"new": 7, "high": 2}, prune=True)
    assert f"{CLASSES}/low" not in server.objects
    plan = back(server, record)
    assert [(action.what, action.name) for action in plan.actions] == [
        ("create", "PriorityClass low"), ("assign", "Deployment shop/web"), ("remove", "PriorityClass new"),
    ]  # fmt: skip
    carry_out(server, plan)
    assert has(server) == "low" and f"{CLASSES}/new" not in server.objects


def test_a_field_that_others_own_too_cannot_be_removed() -> None:
    server = classed("")
    record = assigned(server)
    server.objects[WEB]["metadata"]["managedFields"].append(
        entry("helm", {"f:spec": {"f:template": {"f:spec": {"f:priorityClassName": {}}}}}, "Update")
    )
    refused(back(server, record), "priorityClassName is also owned by helm (Update), so it stays if daytwo omits it")


# ---- the law


_CLASS = st.fixed_dictionaries(
    {"value": st.integers(-5, 5)},
    optional={
        "description": st.sampled_from(["", "a", "b"]),
        "globalDefault": st.booleans(),
        "preemptionPolicy": st.sampled_from(["Never", "PreemptLowerPriority"]),
        "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
        "annotations": st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(before=st.none() | _CLASS, after=st.none() | _CLASS)
def test_a_run_and_its_undoing_are_the_identity(before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
    server = Server()
    if before is not None:
        run(server, priority_classes={"web": before})
    was = says(server)
    record = run(server, priority_classes={"web": after} if after is not None else {}, prune=True, replace=True)
    for one in record.objects:
        assert {field.path: field.after for field in one.fields if field.after is not None}.items() <= says(server).items()
    made = says(server)
    again = undone(server, record)
    assert says(server) == was
    undone(server, again)
    assert says(server) == made
