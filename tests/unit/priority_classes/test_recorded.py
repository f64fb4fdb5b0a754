"""What a record keeps and a run shows of a change of objects: the changed fields, and no secrets of other fields."""

from __future__ import annotations

import json
from typing import Any

from roles.engine.objects import ObjectChange, object_diff, workload_rollout
from roles.engine.transaction.object_record import planned
from roles.priority_classes import plan_classes
from tests.unit.priority_classes.world import cluster, pod, priority_class, wanted, workload

SECRET = "hunter2-of-the-shop"


def fields_of(change: ObjectChange) -> list[dict[str, Any]]:
    return [{"path": list(one.path), "before": one.before, "after": one.after} for one in change.fields]


def _with_secrets() -> dict[str, object]:
    item = workload("Deployment", "web", "old", namespace="shop")
    env = [{"name": "DB_PASSWORD", "value": SECRET}, {"name": "PLAIN", "value": SECRET}]
    item["spec"]["template"]["spec"]["containers"][0]["env"] = env
    item["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": {"env": env}})}
    return item


def test_of_a_workload_the_one_field_that_changes_is_kept() -> None:
    live = cluster(priority_class("web", 5), priority_class("old", 4), Deployment=[_with_secrets()])
    plan = plan_classes(wanted(workloads={"shop/deployment/web": "web"}), live)
    (action,) = plan.actions
    event = planned("r1", 1, action.name, action.what, action.summary, fields_of(action), {"path": action.path})
    path = ["spec", "template", "spec", "priorityClassName"]
    assert event["fields"] == [{"path": path, "before": "old", "after": "web"}]
    assert SECRET not in json.dumps(event)
    assert json.loads(json.dumps(event)) == event


def test_of_a_class_the_fields_that_change_are_kept() -> None:
    plan = plan_classes(wanted(priority_classes={"web": {"value": 5, "description": "new"}}), cluster(priority_class("web", 5)))
    assert fields_of(plan.actions[0]) == [{"path": ["description"], "before": None, "after": "new"}]


def test_of_a_created_or_removed_class_all_fields_are_kept() -> None:
    live = cluster(priority_class("web", 5, description="old", labels={"team": "shop"}))
    (gone,) = plan_classes(wanted(priority_classes={}, prune=True), live).actions
    fields = {".".join(field["path"]): (field["before"], field["after"]) for field in fields_of(gone)}
    assert fields == {
        "value": (5, None), "preemptionPolicy": ("PreemptLowerPriority", None), "description": ("old", None),
        "metadata.labels.team": ("shop", None),
    }  # fmt: skip
    (replaced,) = plan_classes(wanted(priority_classes={"web": {"value": 6, "description": "old"}}, replace=True), live).actions
    fields = {".".join(field["path"]): (field["before"], field["after"]) for field in fields_of(replaced)}
    assert fields["value"] == (5, 6) and fields["description"] == ("old", "old") and fields["metadata.labels.team"] == ("shop", None)


def test_a_field_that_looks_like_a_secret_is_masked() -> None:
    desired = wanted(priority_classes={"web": {"value": 5, "annotations": {"api-token": SECRET}}})
    (action,) = plan_classes(desired, cluster(priority_class("web", 5))).actions
    event = planned("r1", 1, action.name, action.what, action.summary, fields_of(action), {"path": action.path})
    assert SECRET not in json.dumps(event) and event["fields"][0]["masked"] and "<masked sha256:" in event["fields"][0]["after"]


def test_secrets_of_an_object_are_masked_in_its_diff() -> None:
    before = _with_secrets()
    after = json.loads(json.dumps(before))
    after["spec"]["template"]["spec"]["priorityClassName"] = "web"
    after["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "another"
    shown = object_diff(before, after, "web")
    assert "priorityClassName: web" in shown and SECRET not in shown and "another" not in shown and "<masked sha256:" in shown
    assert object_diff(priority_class("a", 1), priority_class("a", 2), "a").count("value: ") == 2


def test_texts_of_containers_are_masked_where_they_are_read() -> None:
    ended = pod("web-1", "web")
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": f"cannot log in: password={SECRET}"}}
    ended["status"]["containerStatuses"] = [{"name": "c", "state": state}]
    (line,) = workload_rollout.complaints(workload("Deployment", "web"), [ended])
    assert "cannot log in: password=<masked sha256:" in line and SECRET not in line
