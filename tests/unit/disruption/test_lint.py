"""Each rule of the lint: what it finds, how bad it is, and that it says nothing once its advice is followed."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.disruption import DisruptionObjects, DisruptionRule, budget_states, lint
from roles.engine.disruption.problem import HPA
from roles.engine.findings import Finding
from tests.unit.disruption.world import NOW, budget, deployment, hpa, of_status, pod, reference, workload, world
from tests.unit.placement.cluster import node


def problems(*items: dict[str, Any], **kinds: list[dict[str, Any]]) -> list[Finding]:
    live = world(*items)
    live = DisruptionObjects({**live.objects, **kinds}, live.scales)
    return lint(live, budget_states(live, NOW), NOW)


def rules(*items: dict[str, Any], **kinds: list[dict[str, Any]]) -> dict[str, str]:
    found = problems(*items, **kinds)
    assert {one.rule for one in found} <= set(DisruptionRule)
    return {one.rule: one.severity for one in found}


def spread(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods on two nodes."""
    for number, one in enumerate(item for item in items if "kind" not in item):
        one["spec"]["nodeName"] = f"w{number % 2 + 1}"
    return items


FINE = {"maxUnavailable": 1, "status": of_status(3, 2, 3, 1)}


def test_a_good_budget_has_at_most_a_note_about_waves() -> None:
    assert rules(*spread(deployment(3, 3)), budget(**FINE)) == {"waves": "note"}
    assert rules(*spread(deployment(2, 2)), budget(maxUnavailable=1, status=of_status(2, 1, 2, 1))) == {}


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ({"maxUnavailable": 0}, "allows-none"),
        ({"maxUnavailable": "0%"}, "allows-none"),
        ({"minAvailable": "100%"}, "allows-none"),
        ({}, "allows-none"),
        ({"minAvailable": 3}, "needs-all"),
        ({"minAvailable": "67%"}, "needs-all"),
    ],
)
def test_budgets_that_never_allow_an_eviction_are_critical(spec: dict[str, Any], rule: str) -> None:
    found = rules(*spread(deployment(3, 3)), budget(**spec, status=of_status(3, 3, 3, 0)))
    assert found[rule] == "critical"


def test_a_budget_that_allows_nothing_and_selects_nothing_is_a_warning() -> None:
    assert rules(budget(maxUnavailable=0, status=of_status(0, 0, 0, 0))) == {"allows-none": "warning", "selects-nothing": "warning"}


def test_one_replica_with_one_percent() -> None:
    found = problems(*deployment(1, 1), budget(minAvailable="1%", status=of_status(1, 1, 1, 0)))
    (one,) = (problem for problem in found if problem.rule == "needs-all")
    assert one.objects == ("PodDisruptionBudget shop/web", "Deployment shop/web")
    assert "run 2 replicas" in one.way_out


def test_the_minimum_of_an_autoscaler() -> None:
    many = [*spread(deployment(4, 4)), budget(minAvailable=2, status=of_status(4, 2, 4, 2))]
    assert rules(*many, **{HPA: [hpa(2, 10)]}) == {"needs-autoscaler-minimum": "warning"}
    assert rules(*many, **{HPA: [hpa(3, 10)]}) == {}
    # Now at its minimum: the autoscaler may still scale out, so it is no deadlock forever.
    few = [*spread(deployment(2, 2)), budget(minAvailable=2, status=of_status(2, 2, 2, 0))]
    assert "needs-all" not in rules(*few, **{HPA: [hpa(2, 10)]})
    assert rules(*few, **{HPA: [hpa(1, 2)]})["needs-all"] == "critical"
    # A percentage grows with the scale: 90% of 5 is 5 again, of 10 it is 9.
    percent = [*spread(deployment(2, 2)), budget(minAvailable="90%", status=of_status(2, 2, 2, 0))]
    assert rules(*percent, **{HPA: [hpa(2, 5)]})["needs-all"] == "critical"
    assert "needs-all" not in rules(*percent, **{HPA: [hpa(2, 10)]})


def test_two_budgets() -> None:
    found = problems(*spread(deployment(3, 3)), budget(**FINE), budget("other", **FINE))
    (one,) = (problem for problem in found if problem.rule == "two-budgets")
    assert (one.severity, one.objects) == ("critical", ("PodDisruptionBudget shop/other", "PodDisruptionBudget shop/web"))
    assert "3 pods" in one.why and "500" in one.why
    # A finished pod needs no eviction.
    assert "two-budgets" not in rules(pod("a", phase="Succeeded", ready=False), budget(**FINE), budget("other", **FINE))


def test_selectors() -> None:
    assert rules(budget(maxUnavailable=1, no_selector=True, status=of_status(0, 0, 0, 0)))["selects-nothing"] == "warning"
    assert rules(*spread(deployment(3, 3)), budget(selector={}, **FINE))["selects-everything"] == "warning"
    job = workload("Job")
    stopped = rules(*spread(deployment(3, 3)), job, pod("j", job), budget(maxUnavailable=1, status=of_status(3, 2, 3, 0)))
    assert stopped["no-scale"] == "critical"
    assert rules(pod("a"), budget(maxUnavailable=1, status=of_status(0, 0, 1, 0)))["no-scale"] == "critical"
    assert rules(*spread(deployment(2, 2)), pod("a"), budget(maxUnavailable=1, status=of_status(2, 1, 3, 2)))["no-scale"] == "warning"


def test_pods_of_others_are_named_with_their_owner() -> None:
    """The way out is for who creates them, not for the workload that is meant."""
    job = workload("Job", "web-migrate")
    web = spread(deployment(3, 3))
    (one,) = (
        one for one in problems(*web, job, pod("j", job), budget(maxUnavailable=1, status=of_status(3, 2, 3, 0))) if one.rule == "no-scale"
    )
    assert one.objects[1] == "Job shop/web-migrate" and "it also selects j (Job shop/web-migrate)" in one.why
    assert "give the pods of Job shop/web-migrate other labels" in one.way_out
    # A number counts all pods, whoever created them: the budget is weaker than it looks.
    by_number = budget(minAvailable=2, status=of_status(4, 2, 4, 2))
    (one,) = (one for one in problems(*web, job, pod("j", job), by_number) if one.rule == "foreign-pods")
    assert one.severity == "warning" and "beside Deployment shop/web" in one.why
    finished = pod("j", job, phase="Succeeded", ready=False)
    assert (
        "a finished pod can be deleted"
        in next(one for one in problems(*web, job, finished, by_number) if one.rule == "foreign-pods").way_out
    )
    assert "foreign-pods" not in rules(*web, by_number)
    # A budget of a Job alone is meant for it.
    assert "foreign-pods" not in rules(job, pod("j", job), budget(minAvailable=1, status=of_status(1, 1, 1, 0)))


def test_status_behind_the_spec() -> None:
    stale = of_status(3, 2, 3, 1, observed=1)
    assert rules(*spread(deployment(3, 3)), budget(maxUnavailable=1, generation=2, status=stale))["not-computed"] == "warning"


def test_status_that_does_not_fit_its_pods() -> None:
    wrong = of_status(3, 2, 2, 0)
    old = spread(deployment(3, 3))
    found = problems(*old, budget(maxUnavailable=1, status=wrong))
    assert any("currentHealthy 2, not 3" in one.why for one in found if one.rule == "not-computed")
    # Something happened a moment ago: the status may be on its way.
    old[2]["status"]["conditions"][0]["lastTransitionTime"] = "2026-03-01T11:59:30Z"
    assert "not-computed" not in rules(*old, budget(maxUnavailable=1, status=wrong))


def test_a_failure_that_is_over_and_evictions_that_never_came() -> None:
    failed = of_status(3, 2, 3, 0) | {"conditions": [{"type": "DisruptionAllowed", "reason": "SyncFailed", "message": "odd"}]}
    found = problems(*spread(deployment(3, 3)), budget(maxUnavailable=1, status=failed))
    assert any("could not compute it (odd)" in one.why for one in found if one.rule == "not-computed")
    late = of_status(3, 2, 3, 1, disruptedPods={"web-1-0": "2026-03-01T11:50:00Z"})
    found = problems(*spread(deployment(3, 3)), budget(maxUnavailable=1, status=late))
    assert any("web-1-0" in one.why and "disruptedPods" in one.why for one in found if one.rule == "not-computed")


def test_none_left_names_what_is_missing() -> None:
    items = spread(deployment(3, 3, ready=2))
    found = problems(*items, budget(maxUnavailable=1, status=of_status(3, 2, 2, 0)))
    (one,) = (problem for problem in found if problem.rule == "none-left")
    assert one.severity == "warning" and "web-1-2 is not Ready" in one.why
    assert one.objects == ("PodDisruptionBudget shop/web", "Pod shop/web-1-2")
    absent = problems(*spread(deployment(3, 2)), budget(maxUnavailable=1, status=of_status(3, 2, 2, 0)))
    assert any("missing: 1 of 3" in one.why for one in absent)


def crashing(items: list[dict[str, Any]], reason: str = "CrashLoopBackOff") -> list[dict[str, Any]]:
    items[-1]["status"]["containerStatuses"] = [{"name": "c", "state": {"waiting": {"reason": reason}}}]
    return items


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"])
def test_a_failing_pod_that_the_budget_holds_is_a_deadlock(reason: str) -> None:
    items = crashing(spread(deployment(3, 3, ready=1)), reason)
    held = {"maxUnavailable": 1, "status": of_status(3, 2, 1, 0)}
    found = problems(*items, budget(**held))
    (one,) = (problem for problem in found if problem.rule == "unhealthy-deadlock")
    assert one.severity == "critical" and f"web-1-2 ({reason})" in one.why and "not set, which means IfHealthyBudget" in one.why
    assert "none-left" not in {problem.rule for problem in found}, "one finding is enough"
    # As advised: the failing pod can go, and what is left is a budget that waits.
    assert rules(*items, budget(**held, unhealthyPodEvictionPolicy="AlwaysAllow")) == {"none-left": "warning"}


def test_no_node_left() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    items = spread(deployment(2, 2))
    for one in items[2:]:
        one["spec"]["affinity"] = affinity
    fine = budget(maxUnavailable=1, status=of_status(2, 1, 2, 1))
    assert rules(*items, fine, Node=[node("w1"), node("w2")]) == {"no-node-left": "warning"}
    assert rules(*items, fine, Node=[node("w1"), node("w2"), node("w3")]) == {}
    tainted = node("w3", taints=[("dedicated", "", "NoSchedule")])
    for third in (node("w3", cordoned=True), node("w3", ready=False), tainted):
        assert rules(*items, fine, Node=[node("w1"), node("w2"), third]) == {"no-node-left": "warning"}


def test_volumes() -> None:
    def claimed(name: str, claim: str) -> dict[str, Any]:
        return pod(name, app="x", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]})

    def claim(name: str, volume: str, mode: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"volumeName": volume, "accessModes": [mode]}}

    def volume(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": spec}

    found = problems(
        claimed("local", "a"), claimed("once", "b"), claimed("many", "c"), pod("path", app="x", spec={"volumes": [{"hostPath": {"path": "/d"}}]}),
        PersistentVolumeClaim=[claim("a", "A", "ReadWriteOnce"), claim("b", "B", "ReadWriteOnce"), claim("c", "C", "ReadWriteMany")],
        PersistentVolume=[volume("A", local={"path": "/x"}), volume("B", csi={}), volume("C", nfs={})],
    )  # fmt: skip
    assert [(one.severity, one.objects) for one in found if one.rule == "tied-to-node"] == [
        ("warning", ("Pod shop/local",)), ("note", ("Pod shop/path",)), ("note", ("Pod shop/once",)),
    ]  # fmt: skip


def test_workloads_without_a_budget() -> None:
    found = problems(*spread(deployment(2, 2)), *deployment(1, 1, "one"), Node=[node("w1"), node("w2")])
    assert [(one.severity, one.objects) for one in found if one.rule == "unprotected"] == [
        ("note", ("Deployment shop/web",)), ("note", ("Deployment shop/one",)),
    ]  # fmt: skip
    together = problems(*deployment(2, 2), budget(maxUnavailable=1, status=of_status(2, 1, 2, 1)), Node=[node("w1"), node("w2")])
    assert any(one.severity == "warning" and "all its 2 pods are on node w1" in one.why for one in together)
    assert "unprotected" not in rules(*deployment(2, 2), budget(maxUnavailable=2, status=of_status(2, 0, 2, 2)), Node=[node("w1")]), (
        "one node only"
    )


def test_static_pods_and_daemonsets_are_left_alone() -> None:
    owner = workload("DaemonSet")
    mirror = pod("m", app="x", annotations={"kubernetes.io/config.mirror": "1"}, ownerReferences=[reference(workload("Node"))])
    everything = {"tolerations": [{"operator": "Exists"}], "volumes": [{"hostPath": {"path": "/"}}]}
    mirror["spec"] |= everything
    assert rules(owner, pod("d", owner, app="x", spec=everything), mirror) == {}


def test_pods_that_end_slowly_or_never() -> None:
    assert rules(pod("a", app="x", spec={"terminationGracePeriodSeconds": 601})) == {"slow-to-end": "note"}
    assert rules(pod("a", app="x", spec={"terminationGracePeriodSeconds": 600})) == {}
    stuck = pod("a", app="x", deletionTimestamp="2026-03-01T11:50:00Z", finalizers=["x.io/hold"])
    (one,) = problems(stuck)
    assert (one.severity, "x.io/hold" in one.why, "600 s" in one.why) == ("warning", True, True)
    # It should be gone for 1 s: it is on its way.
    assert rules(pod("a", app="x", ending=True)) == {}


def test_webhooks() -> None:
    def hook(policy: str = "Fail", resource: str = "configmaps", group: str = "", operation: str = "CREATE") -> list[dict[str, Any]]:
        rule = {"apiGroups": [group], "resources": [resource], "operations": [operation]}
        one: dict[str, Any] = {"name": "h.x.io", "failurePolicy": policy, "rules": [rule]}
        one["clientConfig"] = {"service": {"namespace": "shop", "name": "hook"}}
        return [{"metadata": {"name": "hooks"}, "webhooks": [one]}]

    service = {"metadata": {"name": "hook", "namespace": "shop"}, "spec": {"selector": {"app": "hook"}}}
    backends = [pod("h1", app="hook"), pod("h2", app="hook")]
    seen: dict[str, Any] = {"Service": [service], "ValidatingWebhookConfiguration": hook()}
    (one,) = problems(*backends, **seen)
    assert (one.rule, one.severity, one.objects[0]) == ("webhook-backend", "warning", "ValidatingWebhookConfiguration hooks")
    assert "all its 2 pods are on node w1" in one.why and "creation of pods" not in one.why
    (own,) = problems(*backends, **{**seen, "ValidatingWebhookConfiguration": hook(resource="pods")})
    assert "creation of pods" in own.why
    # A rule matches by group, resource and operation (apiserver/pkg/admission/plugin/webhook/predicates/rules: Matcher.Matches).
    for other in (hook(resource="*", group="apps"), hook(resource="pods", operation="DELETE")):
        (one,) = problems(*backends, **{**seen, "ValidatingWebhookConfiguration": other})
        assert "creation of pods" not in one.why
    assert problems(*backends, **{**seen, "ValidatingWebhookConfiguration": hook("Ignore")}) == []
    assert problems(backends[0], pod("h2", app="hook", node="w2"), **seen) == []


@pytest.mark.parametrize(
    ("toleration", "comes_back"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, False),
        ({"key": "node.kubernetes.io/unschedulable", "value": "x"}, False),
        ({"key": "node.kubernetes.io/unschedulable"}, True),
    ],
)
def test_pods_that_tolerate_the_cordon(toleration: dict[str, str], comes_back: bool) -> None:
    owner = workload("ReplicaSet", replicas=1)
    found = rules(owner, pod("a", owner, spec={"tolerations": [toleration]}))
    assert ("comes-back" in found) is comes_back
