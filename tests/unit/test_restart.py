"""Restarts of workloads: what a plan refuses, one after another, undone where new pods do not become Ready, undone by name."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.context import Stage
from roles.engine.disruption import PDB, DisruptionObjects
from roles.engine.kube import uid
from roles.engine.object_runs import ObjectRun
from roles.engine.objects import ObjectPlan, Session
from roles.restart import CAPABILITY, Restarter, RestartOptions, RestartWorld, plan_restart, plan_undo, read_world
from roles.restart.plan import RESTARTED_AT
from tests.unit.disruption.world import NOW, budget, pod, workload
from tests.unit.hosts import object_run, own_record
from tests.unit.rolling import Cluster, made

SURGES = {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}
QUOTA = {"metadata": {"namespace": "shop", "name": "q"}, "status": {"hard": {"pods": "2"}, "used": {"pods": "2"}}}


def world(item: dict[str, Any], *, quotas: Any = (), unready: int = 0, **rule: Any) -> RestartWorld:
    """The workload with its pods, of which some are not Ready, and a budget if there is a rule."""
    between = workload("ReplicaSet", "web-1", 2, item)
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    owner = between if item["kind"] == "Deployment" else item
    pods = [pod(f"web-{n}", owner, ready=n >= unready, status=waiting if n < unready else {}) for n in range(item["spec"]["replicas"])]
    budgets = [budget(**rule)] if rule else []
    return RestartWorld(DisruptionObjects({item["kind"]: [item], "ReplicaSet": [between], "Pod": pods, PDB: budgets}), quotas, (), NOW)


def plan(item: dict[str, Any], there: RestartWorld, **data: Any) -> ObjectPlan:
    return plan_restart(RestartOptions(restart=f"shop/{item['kind'].lower()}/web", **data), there)


def test_the_plan_sets_the_annotation_of_kubectl_and_says_what_follows() -> None:
    (change,) = plan(made(), world(made(), maxUnavailable=1, selector={"matchLabels": {"app": "web"}})).actions
    assert [(one.path, one.before, one.after) for one in change.fields] == [(RESTARTED_AT, None, "2026-03-01T12:00:00Z")]
    assert change.notes[0].startswith("recreates its pods, 2 of them") and change.notes[1].startswith("waits 300 s")


def test_nothing_matched_is_refused_and_no_pods_are_nothing_to_restart() -> None:
    there = world(made(replicas=0))
    assert plan(made(), there).unchanged == [("Deployment shop/web", "it has no pods (0 replicas): there is nothing to restart")]
    (why,) = plan_restart(RestartOptions(restart="shop/deploy/wep"), there).refusals
    assert "it does not exist" in why and "web" in why
    assert "no Deployment, StatefulSet, DaemonSet there" in plan_restart(RestartOptions(workload_selector="shop/app=x"), there).refusals[0]
    assert [one.own_name for one in plan_restart(RestartOptions(workload_selector="shop/a=b"), select(world(made()))).actions] == ["web"]


def select(there: RestartWorld) -> RestartWorld:
    return RestartWorld(there.live, (), [uid(one) for one in there.live.of("Deployment")], NOW)


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("Deployment", {"spec": {"paused": True}}, "it is paused"),
        ("DaemonSet", {"spec": {"updateStrategy": {"type": "OnDelete"}}}, "OnDelete"),
        ("StatefulSet", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}, "partition 1"),
        ("Deployment", {"status": {"updatedReplicas": 1}}, "a roll-out of it is in progress"),
        ("Deployment", {"owner": workload("Argo", "boss", apiVersion="argoproj.io/v1")}, "owns it"),
    ],
)
def test_what_would_not_roll_is_refused_whatever_the_consent(kind: str, more: dict[str, Any], words: str) -> None:
    item = made(kind, **more)
    assert any(words in why for why in plan(item, world(item), allow_unhealthy=True).refusals)


def test_pods_that_are_broken_already_need_consent() -> None:
    item = made(status={"availableReplicas": 1})
    (why,) = plan(item, world(item, unready=1)).refusals
    assert "web-0: ImagePullBackOff" in why and "allow_unhealthy=true" in why
    assert plan(item, world(item, unready=1), allow_unhealthy=True).refusals == []


@pytest.mark.parametrize(
    ("rule", "more", "unready", "words"),
    [
        ({"maxUnavailable": 1}, {}, 0, ""),
        ({"minAvailable": 2}, {}, 0, ""),
        (
            {"minAvailable": 2},
            {"strategy": {"type": "Recreate"}},
            0,
            "takes away 2 pods at a time, and its PodDisruptionBudget shop/web allows 0",
        ),
        ({"minAvailable": 1}, {"strategy": {"rollingUpdate": {"maxUnavailable": 2}}}, 0, "allows 1; lower maxUnavailable to 1"),
        ({"minAvailable": 2}, SURGES, 1, "is broken already"),
        ({}, {}, 0, ""),
    ],
)
def test_budgets_are_kept(rule: dict[str, Any], more: dict[str, Any], unready: int, words: str) -> None:
    item = made(spec=more)
    found = plan(item, world(item, unready=unready, **rule), allow_unhealthy=True).refusals
    assert words in found[0] if words else found == [], found


def test_a_quota_without_room_for_the_pod_that_comes_first() -> None:
    item = made(spec=SURGES)
    (why,) = plan(item, world(item, quotas=[QUOTA])).refusals
    assert "ResourceQuota shop/q allows 2 pods, 2 pods are used" in why
    item = made(spec={"strategy": {"rollingUpdate": {"maxUnavailable": 1}}})
    assert plan(item, world(item, quotas=[QUOTA])).refusals == []


# ---- runs

pytestmark = pytest.mark.usefixtures("operator")


def seen(server: Cluster) -> RestartWorld:
    return Session(lambda: server.api).asked(lambda api: read_world(api, ["shop"]))


def run(server: Cluster, plan: ObjectPlan, name: str = "r1") -> ObjectRun:
    assert plan.refusals == []
    writer = Restarter(Session(lambda: server.api), force=True, seconds=30, say=lambda text: None)
    return object_run(Stage(writer.steps(plan.actions)), name=name, capability=CAPABILITY)


def both(server: Cluster) -> ObjectPlan:
    return plan_restart(RestartOptions(restart="shop/sts/a,shop/sts/b"), seen(server))


def test_one_after_another_and_undone_by_name() -> None:
    server = Cluster("a", "b")
    done = run(server, both(server))
    assert [step.outcome for step in done.steps] == ["done", "done"] and not done.halted, done.halted
    assert server.writes == ["a", "b"]
    assert done.steps[0].how == "rolled out; its 1 pod has it, read back"
    record = own_record(done)
    assert record is not None
    undone = run(server, plan_undo(record, seen(server), force=False, seconds=30), "r2")
    assert [step.outcome for step in undone.steps] == ["done", "done"] and server.writes[2:] == ["a", "b"], undone.halted
    assert not any("annotations" in one["spec"]["template"]["metadata"] for one in seen(server).live.of("StatefulSet"))
    assert plan_undo(record, seen(server), force=False, seconds=30).unchanged[0][1] == "already has the values from before that run"


def test_one_whose_new_pod_does_not_become_ready_is_undone_and_the_run_halts() -> None:
    """The controller of a StatefulSet recreates no pod while a broken one is left: daytwo deletes that one."""
    server = Cluster("a", "b", fails="a")
    first, second = run(server, both(server)).steps
    assert (first.outcome, second.outcome) == ("reverted", "not started"), first.why
    assert "not rolled out within 30 s" in first.why and "reverted: rolled out; its 1 pod has it, read back" in first.why
    assert server.writes == ["a", "a"] and ("DELETE", "/api/v1/namespaces/shop/pods/a-0") in server.log


def test_a_budget_that_has_changed_meanwhile_is_kept() -> None:
    server = Cluster("a", "b")
    found = both(server)
    server.put(
        "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/b", budget("b", selector={"matchLabels": {"app": "b"}}, minAvailable=1)
    )
    first, second = run(server, found).steps
    assert (first.outcome, second.outcome) == ("done", "failed") and "PodDisruptionBudget shop/b allows 0" in second.why
    assert server.writes == ["a"]
