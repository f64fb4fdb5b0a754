"""Pods and their templates: what is drift, what is an update, and what is not drift."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roles.engine.objects import workload_rollout
from roles.pod_resize import compliance, templates
from tests.unit.pod_resize.world import SMALL, container, owned, pod, workload

LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}


def cluster(kind: str = "Deployment", *pods: dict[str, Any], **more: Any) -> dict[str, list[dict[str, Any]]]:
    """One workload and its pods; a Deployment's pods through a ReplicaSet of the same template."""
    item = workload(kind, "web", **more)
    if kind != "Deployment":
        return {kind: [item], "Pod": [owned(one, item) for one in pods]}
    middle = owned(workload("ReplicaSet", "web-7c9"), item)
    return {kind: [item], "ReplicaSet": [middle], "Pod": [owned(one, middle) for one in pods]}


def large(name: str = "web-1", **more: Any) -> dict[str, Any]:
    return pod(name, container("app", LARGE), **more)


def test_pods_that_differ() -> None:
    for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"):
        found = compliance.find(cluster(kind, large("web-1"), pod("web-2")))
        assert [(one.workload, one.container, one.pods) for one in found] == [(f"{kind} shop/web", "app", (("shop/web-1", LARGE),))], kind


def test_in_text_and_in_json() -> None:
    (found,) = compliance.find(cluster("StatefulSet", large("web-1"), large("web-2")))
    template, has = "cpu 100m/-, memory 200Mi/200Mi", "cpu 300m/-, memory 600Mi/600Mi"
    assert found.lines() == [["StatefulSet shop/web", "app", template, has, "shop/web-1, shop/web-2"]]
    assert found.report().model_dump(mode="json") == {
        "kind": "StatefulSet",
        "namespace": "shop",
        "name": "web",
        "container": "app",
        "template": SMALL,
        "pods": [{"pod": "shop/web-1", "resources": LARGE}, {"pod": "shop/web-2", "resources": LARGE}],
    }


def test_pods_that_do_not_differ() -> None:
    same = {"requests": {"cpu": "0.1", "memory": "209715200"}, "limits": {"memory": "204800Ki"}}
    over, going = large("web-2", phase="Succeeded"), large("web-3", metadata={"deletionTimestamp": "now"})
    assert compliance.find(cluster("Deployment", pod("web-1", container("app", same)), over, going)) == []
    assert compliance.find({}) == [] == compliance.find(cluster("Deployment", pod("web-1", container("app"), container("injected", LARGE))))
    assert compliance.find({"Deployment": [workload()], "Pod": [large()]}) == [], "a pod without a controller"


def test_an_omitted_request_equals_the_limit() -> None:
    said = workload("StatefulSet", "web", container("app", {"limits": {"cpu": "1"}}))
    has = pod("web-0", container("app", {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}))
    assert compliance.find({"StatefulSet": [said], "Pod": [owned(has, said)]}) == []


def test_values_of_a_limit_range() -> None:
    said = workload("StatefulSet", "web", container("app", {}))
    note = {"annotations": {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container app"}}
    assert compliance.find({"StatefulSet": [said], "Pod": [owned(pod(metadata=note), said)]}) == []
    assert compliance.find({"StatefulSet": [said], "Pod": [owned(pod(), said)]}) != []


def test_a_roll_out_is_not_drift() -> None:
    there = cluster("Deployment", pod("web-1"))
    there["Deployment"] = [workload("Deployment", "web", container("app", LARGE))]
    assert compliance.find(there) == [], "created by a ReplicaSet of the old template"
    old = pod("web-0", metadata={"labels": {"controller-revision-hash": "1"}})
    said = workload("StatefulSet", "web", container("app", LARGE), status={"updateRevision": "2"})
    assert compliance.find({"StatefulSet": [said], "Pod": [owned(old, said)]}) == []
    rolling = workload("DaemonSet", "web", container("app", LARGE), status={"desiredNumberScheduled": 2, "updatedNumberScheduled": 1})
    assert compliance.find({"DaemonSet": [rolling], "Pod": [owned(pod(), rolling)]}) == []


@given(st.lists(st.booleans(), max_size=6))
def test_as_many_as_differ(differ: list[bool]) -> None:
    pods = [large(f"web-{number}") if one else pod(f"web-{number}") for number, one in enumerate(differ)]
    found = compliance.find(cluster("StatefulSet", *pods))
    assert sum(len(one.pods) for one in found) == sum(differ) and len(found) == any(differ)


# ---- the template


def test_an_update() -> None:
    item = workload()
    found = templates.update("Deployment", item, "/path", {"app": LARGE}, 300)
    assert found is not None and found.name == "Deployment shop/web"
    resources = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
    assert found.patch() == {
        "metadata": {"uid": "u-web"},
        "spec": {"template": {"spec": {"containers": [{"name": "app", "resources": resources}]}}},
    }
    assert "requests.cpu 100m, not 300m" in found.changed(item)
    assert found.changed(workload("Deployment", "web", container("app", LARGE))) == ""
    assert found.is_new(large()) and not found.is_new(pod())
    assert templates.update("Deployment", item, "/path", {"app": SMALL}, 300) is None


def test_the_revert_removes_what_was_added() -> None:
    after = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}
    item = workload("Deployment", "web", container("app", {"requests": {"cpu": "100m"}}))
    found = templates.update("Deployment", item, "/path", {"app": after}, 300)
    assert found is not None
    assert found.back().patch()["spec"]["template"]["spec"]["containers"] == [{"name": "app", "resources": {"limits": {"cpu": None}}}]


def test_what_cannot_roll_out() -> None:
    assert workload_rollout.rollout_problems("Deployment", workload()) == []
    assert "paused" in workload_rollout.rollout_problems("Deployment", workload(spec={"paused": True}))[0]
    owned = workload()
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "u", "controller": True}
    ]
    assert (
        "Rollout shop/web owns it, and its controller (argoproj.io) writes its template"
        in workload_rollout.rollout_problems("Deployment", owned)[0]
    )
    assert "not healthy now" in workload_rollout.rollout_problems("Deployment", workload(status={"availableReplicas": 0}))[0]
