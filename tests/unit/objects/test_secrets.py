"""What a run on objects shows and records of them: the fields that were changed, and no secret."""

from __future__ import annotations

import json
from typing import Any

from roles.objects import live as facts
from roles.objects.model import Workload
from roles.objects.plan import Action, assignment
from roles.objects.rollout import complaints
from tests.unit.objects.world import applied, pod, priority_class, wanted, workload

PASSWORD = "hunter2-swordfish"
ITEM = Workload(kind="Deployment", namespace="default", name="web", priority_class="high")


def deployment() -> dict[str, Any]:
    """With a password in its environment, and all of it once more in what kubectl apply notes."""
    found = workload("Deployment", "web", "low")
    found["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "DB_PASSWORD", "value": PASSWORD}]
    noted = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(found)}
    found["metadata"]["annotations"] = {**noted, "example.net/api-token": PASSWORD}
    return found


def test_of_a_workload_its_class_is_recorded_and_nothing_else() -> None:
    found = deployment()
    action = Action("assign", "Deployment default/web", "/x", found, assignment(ITEM, found, "high"), "", workload=ITEM)
    assert action.fields == [{"path": ["spec", "template", "spec", "priorityClassName"], "before": "low", "after": "high"}]


def test_of_a_class_that_is_made_replaced_or_removed_all_is_recorded() -> None:
    (item,) = wanted(priority_classes={"high": {"value": 5, "labels": {"token": PASSWORD, "team": "a"}}}).priority_classes or ()
    made = Action("create", "PriorityClass high", "/x", None, item.manifest(), "").fields
    assert {"path": ["value"], "before": None, "after": 5} in made and PASSWORD not in json.dumps(made)
    assert {"path": ["metadata", "labels", "team"], "before": None, "after": "a"} in made
    old = priority_class("high", 4, description="old")
    replaced = Action("replace", "PriorityClass high", "/x", old, item.manifest(), "").fields
    assert {"path": ["value"], "before": 4, "after": 5} in replaced and {
        "path": ["description"],
        "before": "old",
        "after": None,
    } in replaced
    removed = Action("remove", "PriorityClass high", "/x", old, None, "").fields
    assert {"path": ["value"], "before": 4, "after": None} in removed and not any("uid" in field["path"] for field in removed)


def test_of_an_update_what_stays_is_not_recorded() -> None:
    (item,) = wanted(priority_classes={"high": {"value": 5, "description": "new"}}).priority_classes or ()
    before = applied(item) | {"description": "old"}
    before["metadata"] |= {"labels": {"ours": "x", "theirs": "y"}}
    before["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = {"f:labels": {"f:ours": {}}}
    fields = {tuple(field["path"]): (field["before"], field["after"]) for field in facts.changes(before, item.manifest())}
    assert fields[("description",)] == ("old", "new") and fields[("metadata", "labels", "ours")] == ("x", None)
    assert ("value",) not in fields and ("metadata", "labels", "theirs") not in fields


def test_a_diff_shows_no_secret_and_that_one_was_changed() -> None:
    before, after = deployment(), deployment()
    after["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = PASSWORD + "!"
    said = facts.diff(before, after, "x")
    assert PASSWORD not in said and said.count("<masked sha256:") >= 2 and facts.diff(before, deployment(), "x") == ""
    assert "value: 5" in facts.diff(None, priority_class("high", 5), "x")


def test_reasons_of_the_cluster_show_no_secret() -> None:
    broken = pod("a", "high")
    waiting = {"reason": "CrashLoopBackOff", "message": f"db: password={PASSWORD} refused"}
    broken["status"]["containerStatuses"] = [{"name": "c", "state": {"waiting": waiting}}]
    said = complaints(workload("Deployment", "web"), [broken])
    assert "CrashLoopBackOff" in said[0] and PASSWORD not in said[0]
