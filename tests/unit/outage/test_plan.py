"""The plan of a drain: the fate of each pod, the waves, the refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from roles.drain import DrainOptions
from roles.engine.kube.pods import left_by_drain
from roles.engine.outage import DrainConsents, DrainPlan, Mark, node_fate, plan_drain, plan_text
from roles.engine.outage.cordon import cordon_change
from roles.engine.outage.evicting import eviction
from roles.engine.outage.mark import OUTAGE
from roles.engine.outage.reading import SCHEDULERS
from roles.engine.outage.surge_marks import SURGED_BY, SURGES
from tests.unit.disruption.world import NOW, budget, deployment, hpa, of_status, pod, workload, world
from tests.unit.outage.world import NODES, NONE, asking, fates, node, of_template, plan, single, spread, waves
from tests.unit.storage import claim, mounts, volume

ALL = DrainConsents(allow_local_data=True, allow_unmanaged=True)


def test_each_filter() -> None:
    daemons = workload("DaemonSet", "logs")
    local = {"volumes": [{"name": "cache", "emptyDir": {"medium": "Memory"}}]}
    items = [
        *deployment(2, 2),
        pod("static", annotations={"kubernetes.io/config.mirror": "x"}),
        pod("finished", phase="Succeeded"),
        daemons,
        pod("logs-1", daemons),
        pod("ending", ending=True),
        pod("stuck", deletionTimestamp="2026-03-01T11:50:00Z", finalizers=["example.com/hold"]),
        pod("bare"),
        pod("orphan", workload("ReplicaSet", "gone")),
        pod("orphan-daemon", workload("DaemonSet", "gone")),
        pod("cache", deployment(1, 1, "cache")[1], spec=local),
        pod("custom", {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u-t"}}),
        *(item for item in deployment(1, 1, "cache")[:2]),
    ]
    found = plan(*items)
    assert fates(found) == {
        "web-1-0": "evicted", "web-1-1": "evicted", "static": "stays", "finished": "stays", "logs-1": "stays", "ending": "ending",
        "stuck": "blocks", "bare": "blocks", "orphan": "blocks", "orphan-daemon": "blocks", "cache": "blocks", "custom": "evicted",
    }  # fmt: skip
    text = "\n".join(found.refusals)
    assert "shop/stuck: it is stuck" in text and "example.com/hold" in text
    assert "shop/bare: it has no controller" in text and "allow_unmanaged=true" in text
    assert "shop/orphan: its controller ReplicaSet shop/gone does not exist" in text
    assert "emptyDir (cache)" in text and "allow_local_data=true" in text
    assert any("whether Thing recreates it" in note for one in found.pods for note in one.notes)
    allowed = fates(plan(*items, consents=ALL))
    assert {name for name, fate in allowed.items() if fate == "blocks"} == {"stuck"}
    assert "cache" in plan_text(found) and "Node w1: cordon it" in plan_text(found)


@pytest.mark.parametrize(
    ("kept", "fate"),
    [
        ({}, "stays"),
        ({"ending": True, "deletionGracePeriodSeconds": 30}, "ending"),
        ({"ending": True, "deletionGracePeriodSeconds": 30, "finalizers": ["example.com/hold"]}, "ending"),
        ({"ending": True, "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/hold"]}, "stays"),
        ({"deletionTimestamp": "2026-03-01T11:50:00Z", "deletionGracePeriodSeconds": 30}, "blocks"),
    ],
)
def test_a_finished_pod_that_is_deleted_holds_something_until_its_kubelet_says_so(kept: dict[str, Any], fate: str) -> None:
    made = pod("done", phase="Failed", **kept)
    (one,) = plan(made).pods
    assert (one.fate, left_by_drain(made)) == (fate, fate == "stays")
    assert fate != "blocks" or "its node still has its volumes or cgroup" in one.why


def test_only_a_daemon_set_of_kubernetes_keeps_its_pods() -> None:
    """An owner of another group may have the same kind, and the UID of a real one."""
    daemons = workload("DaemonSet", "logs")
    forged = pod("forged", {**daemons, "apiVersion": "evil.io/v1"})
    (one,) = plan(daemons, forged).pods
    assert one.fate == "evicted"
    orphan, uids = pod("orphan", daemons), {"uid-DaemonSet-logs"}
    assert (left_by_drain(forged), left_by_drain(forged, uids)) == (False, False)
    assert (left_by_drain(orphan), left_by_drain(orphan, uids), left_by_drain(orphan, set())) == (True, True, False)


def test_a_long_grace_period_needs_a_longer_timeout() -> None:
    items = deployment(1, 1)
    items[2]["spec"]["terminationGracePeriodSeconds"] = 3600
    found = plan(*items)
    assert fates(found) == {"web-1-0": "blocks"} and "drain_timeout=3660" in found.refusals[0]
    assert not plan(*items, consents=DrainConsents(drain_timeout=3700)).refusals


MOUNTS = [{"name": "other", "mountPath": "/a"}, {"name": "mounts", "mountPath": "/b", "mountPropagation": "Bidirectional"}]


@pytest.mark.parametrize(
    ("spec", "last"),
    [
        ({"containers": [{"name": "other"}, {"name": "driver", "volumeMounts": MOUNTS}]}, True),
        ({"priorityClassName": "system-node-critical"}, True),
        ({"containers": [{"name": "reader", "volumeMounts": [{**MOUNTS[1], "mountPropagation": "HostToContainer"}]}]}, False),
        ({"priorityClassName": "system-cluster-critical"}, False),
    ],
    ids=["it shares its mounts with the node", "it has the highest priority", "it only sees mounts of the node", "it has a high priority"],
)
def test_drivers_of_volumes_leave_after_what_has_volumes(spec: dict[str, Any], last: bool) -> None:
    """Also if they have the lowest priority number: others may need them to release a volume."""
    first, stored = deployment(1, 1, "driver"), deployment(1, 1, "stored")
    first[-1]["spec"] |= spec
    stored[-1]["spec"] |= {"priority": 5, "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    assert waves(plan(*stored, *first)) == ([["stored-1-0"], ["driver-1-0"]] if last else [["driver-1-0"], ["stored-1-0"]])


def test_waves_of_a_budget_are_cut_over_all_nodes() -> None:
    """Two nodes with two pods each, and a budget that allows one: four waves, not two at once."""
    items = [*spread(deployment(4, 4), "w1", "w1", "w2", "w2"), budget(maxUnavailable=1, status=of_status(4, 3, 4, 1))]
    found = plan(*items, on=("w1", "w2"))
    assert not found.refusals and [len(wave) for wave in found.waves] == [1, 1, 1, 1]
    (share,) = found.budgets
    assert share.leaving_by_node == {"w1": 2, "w2": 2} and share.allowed == 1 and share.waves == (1, 1, 1, 1)
    assert "1+1+1+1" in plan_text(found)


def test_without_a_budget_the_roll_out_of_the_workload_is_the_limit() -> None:
    found = plan(*deployment(8, 8))
    assert [len(wave) for wave in found.waves] == [2, 2, 2, 2]  # 25 % of 8
    assert [len(wave) for wave in plan(*deployment(2, 2)).waves] == [1, 1]
    sts = workload("StatefulSet", "db", 3)
    assert [len(wave) for wave in plan(sts, *(pod(f"db-{i}", sts) for i in range(3))).waves] == [1, 1, 1]
    job = workload("Job", "work")
    assert [len(wave) for wave in plan(job, *(pod(f"work-{i}", job) for i in range(3))).waves] == [3]


def test_lowest_priority_first_and_storage_last() -> None:
    low, high, stored = deployment(2, 2, "low"), deployment(2, 2, "high"), deployment(2, 2, "stored")
    for item in high[2:]:
        item["spec"]["priority"] = 1000
    for item in stored[2:]:
        item["spec"] |= {**mounts("data"), "priority": -5}
    claims, disk = claim("data", "ReadWriteMany"), volume("pv-data", "ReadWriteMany", nfs={"server": "x", "path": "/"})
    found = plan(*stored, *high, *low, claims, disk)
    assert not found.refusals, found.refusals
    assert [name.partition("-")[0] for wave in waves(found) for name in wave] == ["low", "low", "high", "high", "stored", "stored"]


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({"maxUnavailable": 0}, of_status(2, 2, 2, 0), "allows none"),
        ({"minAvailable": 2}, of_status(2, 2, 2, 0), "its pods are at most 2"),
        ({"minAvailable": "1%"}, of_status(1, 1, 1, 0), "its pods are at most 1"),
    ],
)
def test_deadlocks_that_last_are_refused(spec: Mapping[str, Any], status: Mapping[str, Any], words: str) -> None:
    count = 1 if spec == {"minAvailable": "1%"} else 2
    found = plan(*deployment(count, count), budget(status=status, **spec))
    assert set(fates(found).values()) == {"blocks"} and words in found.refusals[0] and "ignore_budgets=shop/web" in found.refusals[0]
    forced = plan(*deployment(count, count), budget(status=status, **spec), consents=DrainConsents(ignore_budgets=("shop/web",)))
    assert set(fates(forced).values()) == {"deleted"} and not forced.refusals


def test_a_pod_that_a_budget_selects_by_accident_is_named_with_its_owner() -> None:
    items, job = spread(deployment(2, 2), "w1", "w2"), workload("Job", "web-migrate")
    by_scale = budget(maxUnavailable=1, status=of_status(2, 1, 2, 0))
    (refusal,) = plan(*items, job, pod("j", job, node="w2", phase="Succeeded", ready=False), by_scale).refusals
    assert "it also selects j (Job shop/web-migrate)" in refusal and "give the pods of Job shop/web-migrate other labels" in refusal
    assert "ignore_budgets" not in refusal and "number of replicas" not in refusal


def test_an_autoscaler_may_lift_what_a_budget_never_allows() -> None:
    """As the audit says: it is refused only if the autoscaler cannot scale out far enough."""
    items = [*deployment(2, 2), budget(minAvailable=2, status=of_status(2, 2, 2, 0))]
    found = plan(*items, hpa(2, 5, "scaler"))
    assert not found.refusals and set(fates(found).values()) == {"evicted"}
    assert all("only when HorizontalPodAutoscaler shop/scaler (2 to 5 pods) has scaled out" in one.blocked_now for one in found.pods)
    assert "no eviction of it can ever succeed" in plan(*items, hpa(2, 2, "scaler")).refusals[0]


def test_two_budgets_never_let_a_pod_go() -> None:
    items = [
        *deployment(3, 3),
        budget(maxUnavailable=1, status=of_status(3, 2, 3, 1)),
        budget("other", maxUnavailable=1, status=of_status(3, 2, 3, 1)),
    ]
    found = plan(*items)
    assert "more than one PodDisruptionBudget" in found.refusals[0] and "ignore_budgets=shop/other,shop/web" in found.refusals[0]
    assert fates(plan(*items, consents=DrainConsents(ignore_budgets=("shop/web",)))) == dict.fromkeys(fates(found), "blocks")
    assert "'shop/wbe' is no PodDisruptionBudget of this cluster, did you mean" in str(
        plan(*items, consents=DrainConsents(ignore_budgets=("shop/wbe",))).refusals
    )


def test_a_budget_that_refuses_for_now_does_not_refuse_the_run() -> None:
    items = [*spread(deployment(3, 3, ready=2), "w1", "w2", "w2"), budget(minAvailable=2, status=of_status(3, 2, 2, 0))]
    found = plan(*items)
    (one,) = found.pods
    assert not found.refusals and one.fate == "evicted" and "needs 2 healthy pods and has 2" in one.blocked_now
    assert "NOT NOW" in plan_text(found)


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "RegistryUnavailable", "SignatureValidationFailed", "PreCreateHookError"])
def test_a_broken_pod_makes_it_last(reason: str) -> None:
    items = [*spread(deployment(3, 3, ready=2), "w1", "w2", "w2"), budget(minAvailable=2, status=of_status(3, 2, 2, 0))]
    items[4]["status"]["containerStatuses"] = [{"name": "c", "state": {"waiting": {"reason": reason}}}]
    found = plan(*items)
    assert f"until someone repairs web-1-2 ({reason})" in found.refusals[0]


def test_pods_that_do_not_come_back_use_the_budget_up() -> None:
    """An integer minAvailable counts pods without a controller: each that leaves is lost."""
    items = [pod(f"bare-{i}") for i in range(3)]
    status = of_status(3, 2, 3, 1)
    found = plan(*items, budget(minAvailable=2, status=status), consents=ALL)
    assert any("do not come back" in text for text in found.refusals)
    items[1]["spec"]["nodeName"] = items[2]["spec"]["nodeName"] = "w2"
    assert not plan(*items, budget(minAvailable=2, status=status), consents=ALL).refusals


def test_a_replacement_without_a_place_is_refused() -> None:
    items = deployment(1, 1)
    items[2]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "w1"}
    found = plan(*items)
    assert "would run nowhere else" in found.refusals[0] and "allow_pending=true" in found.refusals[0]
    (one,) = plan(*items, consents=DrainConsents(allow_pending=True)).pods
    assert one.fate == "evicted" and one.pending
    items[2]["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert "would come back to w1" in plan(*items, consents=DrainConsents(allow_pending=True)).refusals[0]


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController", "Job"])
def test_a_replacement_is_placed_as_its_template_makes_it(kind: str) -> None:
    """The live pod was resized in place: the new one asks for what the template says."""
    owner = workload(kind, "web", 1)
    one = pod("web-0", owner, spec=asking("100m"))
    of_template(owner, asking("8"))
    (refused,) = plan(owner, one).refusals
    assert "cpu: 8000m requested, 4000m left" in refused
    of_template(owner, {"containers": [{"name": "c", "resources": {"limits": {"cpu": "8"}}}]})
    assert "cpu: 8000m requested" in plan(owner, one).refusals[0]
    of_template(owner, asking("3"))
    (placed,) = plan(owner, pod("web-0", owner, spec=asking("8"))).pods
    assert placed.place == "on w2, w3"


def test_what_admission_added_is_added_again_and_what_somebody_changed_is_not() -> None:
    owner = workload("ReplicaSet", "web", 1)
    of_template(owner, asking("1", affinity=apart("tier")), {"app": "web", "tier": "front"})
    sidecar = {"name": "proxy", "resources": {"requests": {"cpu": "3500m"}}}
    one = pod("web-0", owner, spec=asking("1"))
    one["spec"]["containers"].append(sidecar)
    assert "cpu: 4500m requested" in plan(owner, one).refusals[0]
    # Its labels, and those of a pod that keeps away from them.
    others = [pod(f"other-{node}", node=node, spec=asking("1", affinity=apart("tier")), app="other") for node in ("w2", "w3")]
    assert "anti-affinity" in plan(owner, pod("web-0", owner, spec=asking("1")), *others).refusals[0]


def apart(key: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_template_that_is_not_sure_is_named() -> None:
    unread = workload("Rollout", "web", 1, apiVersion="argoproj.io/v1alpha1")
    (one,) = plan(pod("web-0", unread, spec=asking("1"))).pods
    assert one.place == "on w2, w3" and any("does not read the template of Rollout" in note for note in one.notes)
    owner = workload("StatefulSet", "web", 1, status={"updateRevision": "web-2"})
    old = pod("web-0", owner, spec=asking("1", nodeSelector={"kubernetes.io/hostname": "w2"}), labels={"controller-revision-hash": "web-1"})
    of_template(owner, asking("1", nodeSelector={"kubernetes.io/hostname": "w3"}))
    (one,) = plan(owner, old).pods
    assert one.place == "on w3" and any("judged by the newest template" in note for note in one.notes)
    of_template(owner, asking("1", schedulingGates=[{"name": "quota"}]))
    assert any("scheduling gate (quota)" in note for note in plan(owner, old).pods[0].notes)


@pytest.mark.parametrize(
    ("configuration", "words"), [(None, "its configuration could not be read"), ({"profiles": [{"schedulerName": "own"}]}, "no profile")]
)
def test_another_configuration_of_the_scheduler_is_not_judged(configuration: Any, words: str) -> None:
    live = world(*NODES, *deployment(1, 1))
    live = replace(live, objects={**live.objects, SCHEDULERS: [{"host": "cp1", "configuration": configuration}]})
    (one,) = plan_drain(live, ("w1",), NONE, NOW).pods
    assert one.fate == "evicted" and f"kube-scheduler of cp1 runs with --config: {words}" in one.place


def test_nodes_that_cannot_be_drained() -> None:
    assert "'w9' is no node of this cluster" in plan(on=("w9",)).refusals[0]
    assert "not Ready" in plan(nodes=(node("w1", ready=False), node("w2"))).refusals[0]
    assert "no other node is Ready" in plan(*deployment(1, 1), nodes=(node("w1"), node("w2", manager="kubectl-cordon"))).refusals[0]


def test_a_single_node_is_drained_if_no_pod_leaves_or_its_replacement_may_stay_pending() -> None:
    only, daemons = (node("w1"),), workload("DaemonSet", "logs")
    assert not plan(daemons, pod("daemon", daemons), nodes=only).refusals
    # Nothing recreates it, so nothing stays Pending.
    assert not plan(pod("bare"), nodes=only, consents=DrainConsents(allow_unmanaged=True)).refusals
    refused = plan(*deployment(1, 1), nodes=only).refusals
    assert "no other node is Ready" in refused[0] and "allow_pending=true" in refused[0]
    allowed = plan(*deployment(1, 1), nodes=only, consents=DrainConsents(allow_pending=True))
    assert not allowed.refusals and [one.pending for one in allowed.pods] == [True]


def test_whose_cordon_it_is() -> None:
    assert node_fate(node("w1")).cordon == ""
    ours = node_fate(node("w1", manager="daytwo", mark="r1"))
    assert (ours.cordon, ours.by) == ("ours", "r1")
    change = cordon_change(ours, Mark("r2"))
    assert change is not None and [one.path[-1] for one in change.fields] == [OUTAGE]
    theirs = node_fate(node("w1", manager="kubectl-cordon", mark="r1"))
    assert theirs.cordon == "theirs" and "kubectl-cordon" in theirs.by and cordon_change(theirs, Mark("r2")) is None
    both = cordon_change(node_fate(node("w1")), Mark("r2"))
    assert both is not None and len(both.fields) == 2
    assert "that cordon stays" in plan_text(plan(nodes=(node("w1", manager="kubectl-cordon"), node("w2"))))


# ---- surge


def test_a_single_replica_can_be_surged_past_a_budget_that_never_allows_it() -> None:
    items = [*single(), budget(minAvailable=1, status=of_status(1, 1, 1, 0))]
    assert plan(*items).refusals
    found = plan(*items, consents=DrainConsents(surge=True))
    assert not found.refusals and fates(found) == {"web-1-0": "surged"} and not found.waves and len(found.surges) == 1
    assert not found.warnings and any("--data surge=true" in text for text in plan(*single()).warnings)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("hpa", "HorizontalPodAutoscaler scaler"),
        ("recreate", "Recreate"),
        ("claim", "only one node can write to data"),
        ("unhealthy", "not healthy now"),
    ],
)
def test_what_cannot_be_surged(what: str, words: str) -> None:
    items = single()
    if what == "hpa":
        items.append(hpa(1, 3, "scaler"))
    elif what == "recreate":
        items[0]["spec"]["strategy"] = {"type": "Recreate"}
    elif what == "claim":
        items[2]["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    else:
        items[0]["status"]["availableReplicas"] = 0
    found = plan(*items, consents=DrainConsents(surge=("shop/web",)))
    assert any(words in text and "Deployment shop/web" in text for text in found.refusals), found.refusals


def test_surge_by_name_and_what_is_not_there() -> None:
    sts = workload("StatefulSet", "db", 1)
    items = [*single(), sts, pod("db-0", sts, app="db")]
    assert not plan(*items, consents=DrainConsents(surge=True)).refusals
    assert "it is a StatefulSet" in str(plan(*items, consents=DrainConsents(surge=("shop/db",))).refusals)
    assert "surge: shop/x has no pod on these nodes" in plan(*items, consents=DrainConsents(surge=("shop/x",))).refusals


def test_several_replicas_need_no_surge() -> None:
    found = plan(*deployment(3, 3), consents=DrainConsents(surge=("shop/web",)))
    assert "it has 3 replicas, not 1" in str(found.refusals)
    assert not plan(*deployment(3, 3), consents=DrainConsents(surge=True)).surges


def test_a_surge_that_was_left_is_finished() -> None:
    items = spread(deployment(2, 2), "w1", "w2")
    items[0]["metadata"]["annotations"] = {SURGED_BY: "r1"}
    surge = {"uid": items[0]["metadata"]["uid"], "mark": "r1", "node": "w1"}
    assert fates(with_surges(surge, *items)) == {"web-1-0": "surged"}
    # Its owner has set the replicas since.
    items[0]["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    found = with_surges(surge, *items)
    assert fates(found) == {"web-1-0": "evicted"} and not found.refusals and "kubectl has set its replicas" in str(found.warnings)


def with_surges(surge: Mapping[str, Any], *items: dict[str, Any], consents: DrainConsents = NONE) -> DrainPlan:
    live = world(*NODES, *items)
    return plan_drain(replace(live, objects={**live.objects, SURGES: [surge]}), ("w1",), consents, NOW)


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("claim", ["r1", "x", "\x1b[0m", "9" * 5000])
def test_a_mark_on_a_deployment_blocks_no_drain(claim: str, known: bool, replicas: int) -> None:
    """Whoever may write a Deployment may write the mark of a surge; a stale one is in a record, and its replicas have changed since."""
    items = deployment(replicas, replicas)
    items[0]["metadata"]["annotations"] = {SURGED_BY: claim}
    items[0]["status"] = {"updatedReplicas": replicas, "availableReplicas": replicas, "replicas": replicas, "readyReplicas": replicas}
    surge = {"uid": items[0]["metadata"]["uid"] if known else "another", "mark": claim, "node": "w1"}
    for consents in (NONE, DrainConsents(surge=True)):
        found = with_surges(surge, *items, consents=consents)
        assert not found.refusals and all(text.isprintable() and len(text) < 600 for text in found.warnings)
        assert bool(found.surges) == ((replicas == 1 and consents.surge is True) or (known and replicas == 2))


# ---- pods that take long to end


def advised(text: str) -> dict[str, Any]:
    """The data that a way out names, as the model of the keys reads it. Raises ValueError if it cannot be given."""
    keys = dict(re.findall(r"--data (drain_timeout|max_grace)=(\S+?)(?:[,;]|$)", text))
    assert keys, text
    return {name: value for name, value in DrainOptions(**keys) if name in keys}


@pytest.mark.parametrize("seconds", [601, 86340, 86341, 100000, 2**31, 2**63 - 1])
@pytest.mark.parametrize("ending", [False, True])
def test_whatever_grace_period_a_tenant_sets_there_is_a_consent_that_can_be_given(ending: bool, seconds: int) -> None:
    items = deployment(1, 1)
    items[-1]["spec"]["terminationGracePeriodSeconds"] = seconds
    if ending:
        if seconds > 2**40:
            return  # no time of the API is so late
        until = (NOW + timedelta(seconds=seconds)).isoformat()
        items[-1]["metadata"] |= {"deletionTimestamp": until, "deletionGracePeriodSeconds": seconds}
    (refusal,) = plan(*items).refusals
    assert ("drain_timeout=" in refusal) == (seconds <= 86340)
    for name, value in advised(refusal).items():
        consents = DrainOptions(**{name: value})
        found = plan(*items, consents=consents)
        assert not found.refusals and fates(found) == {"web-1-0": "ending" if ending else "evicted"}
        if name == "max_grace":
            assert eviction(items[-1], consents.max_grace)["deleteOptions"]["gracePeriodSeconds"] == value
            assert "by consent" in str([(one.why, one.notes) for one in found.pods])
    assert "gracePeriodSeconds" not in eviction(deployment(1, 1)[-1], 300)["deleteOptions"], "a shorter one stays"


def test_a_second_pod_first_cannot_shorten_what_its_replica_set_removes() -> None:
    items = single()
    items[-1]["spec"]["terminationGracePeriodSeconds"] = 100000
    (refusal,) = plan(*items, consents=DrainConsents(surge=True, max_grace=300)).refusals
    assert "leave its Deployment out of surge" in refusal and not plan(*items, consents=DrainConsents(max_grace=300)).refusals


# ---- webhooks


def hook(resource: str = "pods", **more: Any) -> list[dict[str, Any]]:
    rule = {"apiGroups": [""], "resources": [resource], "operations": ["CREATE"]}
    made = {
        "name": "check.x.io",
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": "shop", "name": "hook"}},
        "rules": [rule],
        **more,
    }
    return [
        {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "check", "uid": "u"}, "webhooks": [made], "spec": {}},
        {"kind": "Service", "metadata": {"name": "hook", "namespace": "shop", "uid": "s"}, "spec": {"selector": {"app": "web"}}},
    ]


def test_a_webhook_without_a_backend() -> None:
    assert "creates no pods" in str(plan(*single(), *hook()).refusals)
    assert not plan(*single(), *hook(), consents=DrainConsents(surge=True)).refusals
    limited = plan(*single(), *hook(namespaceSelector={"matchLabels": {"a": "b"}}))
    assert not limited.refusals and any("webhook check.x.io" in text for text in limited.warnings)
    assert not plan(*single(), *hook("configmaps")).refusals
    assert not any("webhook" in text for text in plan(*single(), *hook(failurePolicy="Ignore")).warnings)
    two = plan(*spread(deployment(2, 2), "w1", "w2"), *hook())
    assert not two.refusals and not two.warnings


def test_all_replicas_on_the_node() -> None:
    assert "all 3 pods of Deployment shop/web" in plan(*deployment(3, 3)).warnings[0]


def test_hostile_names_stay_in_their_line() -> None:
    items = deployment(1, 1)
    items[2]["spec"]["volumes"] = [{"name": "x\n[1/1] all is well\x1b[2J", "emptyDir": {}}]
    text = plan_text(replace(plan(*items)))
    assert "\x1b" not in text and "\n[1/1]" not in text
