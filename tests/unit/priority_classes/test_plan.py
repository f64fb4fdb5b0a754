"""Plans: what is created, changed, refused and removed, and in which order."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kube.field_managers import managers
from roles.engine.kube.workloads import class_of
from roles.engine.objects import ObjectPlan
from roles.engine.objects import object_diff as diff
from roles.engine.transaction import ChangedField
from roles.priority_classes import CLASS, WORKLOADS, ObservedClasses, plan_classes
from roles.priority_classes.model import CLASS_OF_PODS
from tests.unit.priority_classes.world import applied, cluster, entry, owned, pod, priority_class, wanted, workload

names = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
fields = st.fixed_dictionaries(
    {"value": st.integers(-(2**31), 10**9)},
    optional={
        "description": st.text(max_size=20),
        "globalDefault": st.just(False),
        "preemptionPolicy": st.sampled_from(["Never", "PreemptLowerPriority"]),
        "labels": st.dictionaries(names, names, max_size=2),
        "annotations": st.dictionaries(names, st.text(max_size=5), max_size=2),
    },
)
data = st.dictionaries(names, fields, max_size=4)


def planned(live: ObservedClasses, **values: Any) -> ObjectPlan:
    return plan_classes(wanted(**values), live)


def whats(plan: ObjectPlan) -> list[tuple[str, str]]:
    assert not plan.refusals, plan.refusals
    return [(action.what, action.name) for action in plan.actions]


@given(data)
def test_what_was_applied_is_not_planned_again(classes: dict[str, Any]) -> None:
    desired = wanted(priority_classes=classes)
    plan = plan_classes(desired, cluster(*(applied(item) for item in desired.classes)))
    assert whats(plan) == [] and len(plan.unchanged) == len(classes)


@given(data, data)
def test_one_run_leads_from_any_state_to_any_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    desired = wanted(priority_classes=after, replace=True, prune=True)
    live = cluster(*(applied(item) for item in wanted(priority_classes=before).classes))
    plan = plan_classes(desired, live)
    assert not plan.refusals and not plan.kept
    left = {name: found for name, found in live.classes.items() if f"PriorityClass {name}" not in {action.name for action in plan.actions}}
    assert set(left) <= set(after)
    written = {action.own_name for action in plan.actions if action.manifest is not None}
    there = {**left, **{item.name: applied(item) for item in desired.classes if item.name in written}}
    assert set(there) == set(after)
    assert whats(plan_classes(desired, cluster(*there.values()))) == []


@given(data, data)
def test_a_class_that_others_created_is_never_removed(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    others = [priority_class(name, found["value"], "helm", "Update") for name, found in theirs.items()]
    system = priority_class("system-node-critical", 2000001000, "daytwo")
    plan = planned(cluster(system, *others), priority_classes=ours, prune=True, replace=True, force=False)
    assert not [action for action in plan.actions if action.what == "remove"]
    assert not [action for action in plan.actions if action.what == "replace" and action.name.split()[1] in theirs]


def test_a_class_is_created() -> None:
    plan = planned(cluster(), priority_classes={"high": {"value": 5, "description": "d"}})
    (action,) = plan.actions
    assert (action.what, action.name, action.path) == ("create", "PriorityClass high", "/apis/scheduling.k8s.io/v1/priorityclasses/high")
    assert action.manifest == wanted(priority_classes={"high": {"value": 5, "description": "d"}}).classes[0].manifest()


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"description": "new"}, "description"),
        ({"description": ""}, "description"),
        ({}, "description, labels"),
        ({"description": "old", "globalDefault": True, "labels": {"team": "x"}}, "globalDefault"),
        ({"description": "old", "labels": {"team": "y"}}, "labels"),
        ({"description": "old", "labels": {"team": "x"}, "annotations": {"a": "b"}}, "annotations"),
    ],
)
def test_what_can_change_is_changed_in_place(fields: dict[str, Any], changed: str) -> None:
    live = cluster(priority_class("high", 5, description="old", labels={"team": "x"}))
    (action,) = planned(live, priority_classes={"high": {"value": 5, **fields}}).actions
    assert action.what == "update" and changed in action.summary
    assert CLASS.versioned and action.before and action.before["metadata"]["resourceVersion"] == "7"


def test_other_fields_that_others_set_stay() -> None:
    found = priority_class("high", 5)
    found |= {"description": "theirs"}
    found["metadata"]["labels"] = {"team": "x"}
    found["metadata"]["managedFields"].append(entry("kubectl", {"f:description": {}, "f:metadata": {"f:labels": {"f:team": {}}}}, "Update"))
    assert whats(planned(cluster(found), priority_classes={"high": 5})) == []


def web(priority: str = "high") -> tuple[ObservedClasses, dict[str, Any]]:
    """A Deployment with its ReplicaSets, a job that is over, a CronJob, and a pod that stands alone."""
    deployment = workload("Deployment", "web", priority)
    new, old = workload("ReplicaSet", "web-2", priority), workload("ReplicaSet", "web-1", "high", replicas=0)
    over = workload("Job", "over", "high")
    over["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    cron = workload("CronJob", "nightly")
    cron["spec"] = {"jobTemplate": {"spec": {"template": {"spec": {"priorityClassName": "high"}}}}}
    sets = [owned(new, deployment), owned(old, deployment)]
    pods = [pod("web-2-a", priority, new, number=5), pod("alone", "high"), pod("done", "high", over, phase="Succeeded")]
    live = cluster(
        priority_class("high", 5), priority_class("low", 1),
        Deployment=[deployment], ReplicaSet=sets, Job=[over], CronJob=[cron], Pod=pods,
    )  # fmt: skip
    return live, deployment


def test_who_uses_a_class() -> None:
    live, deployment = web()
    usage = live.users("high")
    assert usage.workloads == ("CronJob default/nightly", "Deployment default/web")
    assert usage.pods == ("default/alone", "default/web-2-a")
    assert usage.old_revisions == ("ReplicaSet default/web-1",)
    leaving = live.users("high", {deployment["metadata"]["uid"]})
    assert leaving.workloads == ("CronJob default/nightly",) and leaving.pods == ("default/alone",)
    assert not live.users("low").any


def test_the_pods_of_a_workload_are_those_it_controls() -> None:
    live, deployment = web()
    claims, set_ = pod("claims", "high", deployment), workload("StatefulSet", "db")
    there = cluster(ReplicaSet=list(live.of("ReplicaSet")), Pod=[*live.of("Pod"), claims, pod("db-0", "", set_)])
    assert [one["metadata"]["name"] for one in there.pods_of("Deployment", deployment["metadata"]["uid"])] == ["web-2-a"]
    assert [one["metadata"]["name"] for one in there.pods_of("StatefulSet", set_["metadata"]["uid"])] == ["db-0"]


def test_a_pod_that_is_ending_uses_no_class() -> None:
    """The old pods of a roll-out, however long they take, do not keep its old class."""
    ending = pod("web-1-a", "old")
    assert cluster(priority_class("old", 5), Pod=[ending]).users("old").pods == ("default/web-1-a",)
    ending["metadata"]["deletionTimestamp"] = "2026-01-31T10:00:30Z"
    assert not cluster(priority_class("old", 5), Pod=[ending]).users("old").any


@pytest.mark.parametrize(
    ("field", "value", "message"), [("value", 6, "value is 5 and cannot become 6"), ("preemptionPolicy", "Never", "Never")]
)
def test_what_cannot_change_is_refused_with_its_users(field: str, value: Any, message: str) -> None:
    live, _ = web()
    plan = planned(live, priority_classes={"high": {"value": 5, field: value}, "low": 1})
    (text,) = plan.refusals
    assert message in text and "replace=true" in text
    assert all(user in text for user in ("CronJob default/nightly", "Deployment default/web", "default/alone", "default/web-2-a"))


def test_replace_says_which_pods_keep_the_old_number() -> None:
    live, _ = web()
    (action,) = planned(live, priority_classes={"high": 6, "low": 1}, replace=True).actions
    assert action.what == "replace"
    notes = "\n".join(action.notes)
    assert "keep the old number" in notes and "(5, PreemptLowerPriority): default/alone, default/web-2-a" in notes


def test_replace_says_what_is_lost() -> None:
    live = cluster(priority_class("high", 5, description="d", labels={"a": "b"}))
    (action,) = planned(live, priority_classes={"high": 6}, replace=True).actions
    assert "fields of the old class that the data does not have are lost: description, labels" in "\n".join(action.notes)


def test_a_class_of_others_is_replaced_by_force_only() -> None:
    live = cluster(priority_class("high", 5, "helm"))
    (text,) = planned(live, priority_classes={"high": 6}, replace=True).refusals
    assert "that helm created" in text and "force=true" in text
    assert whats(planned(live, priority_classes={"high": 6}, replace=True, force=True)) == [("replace", "PriorityClass high")]


def test_an_omitted_policy_stays_if_others_set_it_and_is_reset_if_daytwo_did() -> None:
    theirs = priority_class("high", 5, "helm", preemptionPolicy="Never")
    assert whats(planned(cluster(theirs), priority_classes={"high": 5})) == []
    ours = priority_class("high", 5, preemptionPolicy="Never")
    (text,) = planned(cluster(ours), priority_classes={"high": 5}).refusals
    assert "preemptionPolicy is Never and cannot become PreemptLowerPriority" in text


def test_a_second_default_names_the_first() -> None:
    live = cluster(priority_class("theirs", 7, "kubectl-create", "Update", globalDefault=True))
    (text,) = planned(live, priority_classes={"ours": {"value": 1, "globalDefault": True}}).refusals
    assert "globalDefault is set on 'theirs' in the cluster already (value 7, set by kubectl-create (Update))" in text


def test_the_default_moves_in_order_and_the_dry_run_omits_it() -> None:
    live = cluster(priority_class("old", 7, globalDefault=True))
    plan = planned(live, priority_classes={"new": {"value": 1, "globalDefault": True}, "old": {"value": 7, "globalDefault": False}})
    assert whats(plan) == [("update", "PriorityClass old"), ("create", "PriorityClass new")]
    first, last = plan.actions[1].trial, plan.actions[1].manifest
    assert first and last and "globalDefault" not in first and last["globalDefault"] is True
    pruned = planned(live, priority_classes={"new": {"value": 1, "globalDefault": True}}, prune=True)
    assert whats(pruned) == [("remove", "PriorityClass old"), ("create", "PriorityClass new")]


def test_a_default_that_is_not_dropped_stays_a_default() -> None:
    live = cluster(priority_class("old", 7, "helm", globalDefault=True))
    (text,) = planned(live, priority_classes={"old": 7, "new": {"value": 1, "globalDefault": True}}).refusals
    assert "old and new would both be globalDefault" in text or "new and old would both be globalDefault" in text


def test_dropped_classes_are_listed_and_removed_with_consent() -> None:
    live = cluster(priority_class("a", 1), priority_class("b", 2, "helm"))
    plan = planned(live, priority_classes={})
    assert whats(plan) == [] and [name for name, _ in plan.kept] == ["PriorityClass a"]
    assert "prune=true" in plan.kept[0][1]
    assert whats(planned(live, priority_classes={}, prune=True)) == [("remove", "PriorityClass a")]


def test_a_used_class_is_not_removed() -> None:
    live, _ = web()
    (text,) = planned(live, priority_classes={"low": 1}, prune=True).refusals
    assert "daytwo never removes a class in use" in text and "Deployment default/web" in text and "default/alone" in text


def test_a_class_is_removed_after_its_last_users_get_another() -> None:
    deployment = workload("Deployment", "web", "high")
    live = cluster(priority_class("high", 5), Deployment=[deployment])
    plan = planned(live, priority_classes={"new": 3}, workloads="default/deploy/web=new", prune=True)
    assert whats(plan) == [("create", "PriorityClass new"), ("assign", "Deployment default/web"), ("remove", "PriorityClass high")]
    assert "daytwo checks again before it removes this one" in "\n".join(plan.actions[2].notes)


def test_only_the_owner_of_its_value_shows_who_created_a_class() -> None:
    assert CLASS.is_ours(priority_class("a", 1))
    assert not CLASS.is_ours(priority_class("a", 1, "daytwo", "Update")), "a manager named daytwo that does not apply"
    described = priority_class("a", 1, "helm")
    described["metadata"]["managedFields"].append(entry("daytwo", {"f:value": {}, "f:description": {}}))
    assert not CLASS.is_ours(described) and managers(described, "f:value") == ["helm", "daytwo"]
    edited = priority_class("a", 1)
    edited["metadata"]["managedFields"].append(entry("kubectl-edit", {"f:description": {}}, "Update"))
    assert CLASS.is_ours(edited)
    stripped = priority_class("a", 1)
    del stripped["metadata"]["managedFields"]
    assert not CLASS.is_ours(stripped)


# ---- workloads


def test_a_workload_gets_its_class_and_the_plan_says_what_that_does() -> None:
    live, _ = web("low")
    plan = planned(live, priority_classes={"high": 5, "low": 1}, workloads="default/deploy/web=high")
    (action,) = plan.actions
    assert action.summary == "class low (1) -> high (5)"
    notes = "\n".join(action.notes)
    assert "recreates its pods, 2 of them" in notes and "waits 300 s" in notes
    assert action.manifest == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-default-Deployment-web"},
        "spec": {"template": {"spec": {"priorityClassName": "high"}}},
    }
    assert whats(planned(live, workloads="default/deploy/web=low")) == []


def test_removing_the_class_applies_only_the_identity() -> None:
    _, deployment = web()
    back = ChangedField(CLASS_OF_PODS, None, "high")
    assert "spec" not in WORKLOADS["Deployment"].restoring(deployment, [back])[0]


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_other_kinds_count_their_pods(kind: str) -> None:
    live = cluster(priority_class("high", 5), **{kind: [workload(kind, "x", replicas=3)]})
    (action,) = planned(live, workloads=f"default/{kind}/x=high").actions
    assert "recreates its pods, 3 of them" in action.notes[0] and action.summary == "class none -> high (5)"


def test_classes_of_kubernetes_own_can_be_given() -> None:
    live = cluster(priority_class("system-node-critical", 2000001000, "kube-apiserver", "Update"), DaemonSet=[workload("DaemonSet", "x")])
    assert whats(planned(live, workloads="default/ds/x=system-node-critical")) == [("assign", "DaemonSet default/x")]


def unwell() -> dict[str, Any]:
    found = workload("Deployment", "x")
    found["status"]["availableReplicas"] = 1
    return found


def with_priority() -> dict[str, Any]:
    found = workload("Deployment", "x")
    found["spec"]["template"]["spec"]["priority"] = 3
    return found


@pytest.mark.parametrize(
    ("item", "kind", "words"),
    [
        (workload("Deployment", "x", paused=True), "Deployment", "it is paused"),
        (workload("StatefulSet", "x", updateStrategy={"type": "OnDelete"}), "StatefulSet", "OnDelete"),
        (workload("DaemonSet", "x", updateStrategy={"type": "OnDelete"}), "DaemonSet", "OnDelete"),
        (workload("StatefulSet", "x", updateStrategy={"rollingUpdate": {"partition": 1}}), "StatefulSet", "partition 1"),
        (unwell(), "Deployment", "not healthy now (2 of 2 pods are new, 1 available)"),
        (with_priority(), "Deployment", "sets priority 3 itself"),
        (workload("Deployment", "xx"), "Deployment", "it does not exist, did you mean 'xx'?"),
    ],
)
def test_impossible_roll_outs_are_refused(item: dict[str, Any], kind: str, words: str) -> None:
    (text,) = planned(cluster(priority_class("high", 5), **{kind: [item]}), workloads=f"default/{kind}/x=high").refusals
    assert words in text and f"{kind} default/x" in text


def test_a_class_that_does_not_exist_or_will_be_removed() -> None:
    live = cluster(priority_class("high", 5), Deployment=[workload("Deployment", "web")])
    (text,) = planned(live, workloads="default/deploy/web=hihg").refusals
    assert "it does not exist, did you mean 'high'?" in text
    (text,) = planned(live, priority_classes={}, workloads="default/deploy/web=high", prune=True).refusals
    assert "this run removes it" in text


def test_only_must_name_something() -> None:
    live, _ = web()
    (text,) = planned(live, priority_classes={"high": 5}, workloads="default/deploy/web=high", only_objects="hihg").refusals
    assert "'hihg' is no class or workload of the data, did you mean 'high'?" in text
    assert (
        whats(planned(live, priority_classes={"high": 5, "x": 1}, workloads="default/deploy/web=high", only_objects="default/deploy/web"))
        == []
    )


def test_a_diff_shows_only_changes() -> None:
    before, after = priority_class("a", 1, description="x"), priority_class("a", 1, description="y")
    after["metadata"] |= {"resourceVersion": "9", "generation": 2}
    after |= {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1"}
    lines = [line for line in diff(before, after, "a").splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert lines == ["-description: x", "+description: y"]
    assert diff(before, {**before}, "a") == ""


def test_the_class_of_a_cron_job_is_deep_in_its_template() -> None:
    live, _ = web()
    assert class_of("CronJob", next(iter(live.of("CronJob")))) == "high"
