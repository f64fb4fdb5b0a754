"""Each problem is found where it is, names its objects and a way out, and is gone after the advice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from roles.engine.autoscaling import Autoscaler, ScalingController, ScalingRule, ScalingWorld, judge, turns
from roles.engine.autoscaling.decide import ScalingScene, decide
from roles.engine.autoscaling.model import Idle, LiveScale, NoReading, Reading
from roles.engine.autoscaling.owners import LAST_APPLIED, replicas_owner, without_replicas
from roles.engine.autoscaling.parse import NOT_REGISTERED
from roles.engine.autoscaling.problems import problems
from roles.engine.autoscaling.read import Target
from roles.engine.findings import Finding
from roles.engine.placement import ClusterView
from tests.unit.autoscaling.world import (
    IN_ALL,
    KCM,
    NOW,
    ago,
    average,
    container,
    external,
    hpa,
    owned_by,
    pod,
    pods,
    samples,
    text,
    utilization,
)
from tests.unit.placement.cluster import node

GONE = NoReading("no metrics returned from resource metrics API")
SEEN = {"conditions": [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}]}


def target(*containers: Mapping[str, Any], **metadata: Any) -> Target:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": list(containers or [container()])}}
    return Target("/p", {"metadata": {"namespace": "shop", "name": "web", **metadata}, "spec": {"template": template}})


def found(
    item: Mapping[str, Any] | None = None,
    readings: Sequence[Reading] | None = None,
    of: Sequence[Mapping[str, Any]] | None = None,
    *,
    current: int = 2,
    scale: LiveScale | None = None,
    of_target: Target | None = None,
    controller: ScalingController = KCM,
    world: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Finding]:
    autoscaler = Autoscaler.of({**hpa(), "status": SEEN} if item is None else {"status": SEEN, **item})
    all_pods = pods(current) if of is None else of
    scene = ScalingScene(
        autoscaler, scale or LiveScale(current, current, "app=web"), "", all_pods, readings or [samples(50, 50, 50)], **more
    )
    seen = ScalingWorld((scene,), {autoscaler.key: of_target or target()}, **(world or {}))
    listed = problems(scene, decide(scene, controller, NOW), controller, seen, NOW)
    assert all(
        one.rule in ScalingRule and one.why and one.way_out and one.objects[0] == "HorizontalPodAutoscaler shop/web" for one in listed
    )
    return {one.rule: one for one in listed}


def with_status(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "status": SEEN}


def test_an_autoscaler_that_is_well_has_none() -> None:
    assert found() == {}


def test_a_target_that_is_not_there() -> None:
    scene = ScalingScene(Autoscaler.of(hpa()), None, 'deployments.apps "web" not found')
    (one,) = problems(scene, decide(scene, KCM, NOW), KCM, ScalingWorld((scene,)), NOW)
    assert (one.rule, one.severity, one.objects[1]) == ("no-target", "critical", "Deployment shop/web")
    assert "not found" in one.why


def test_two_autoscalers_name_each_other() -> None:
    one = found(shared_with=("shop/other",))["two-autoscalers"]
    assert one.objects == ("HorizontalPodAutoscaler shop/web", "HorizontalPodAutoscaler shop/other")
    assert "kubectl delete hpa -n shop other" in one.way_out


def test_an_empty_selector() -> None:
    assert "is empty" in found(scale=LiveScale(2, 2, ""))["no-selector"].why
    assert "cannot be read (x)" in found(selector_problem="x")["no-selector"].why


@pytest.mark.parametrize(
    ("item", "group", "name"),
    [(hpa(), "metrics.k8s.io", "cpu"), (hpa(external(IN_ALL)), "external.metrics.k8s.io", "external metric queue")],
)
def test_a_metrics_api_that_does_not_serve_is_named_once(item: dict[str, Any], group: str, name: str) -> None:
    listed = found(with_status(item), [GONE], world={"metrics_apis": {group: "not available"}})
    assert set(listed) == {"metrics-api"}
    assert group in listed["metrics-api"].why and name in listed["metrics-api"].why and listed["metrics-api"].severity == "critical"
    assert "kubectl get apiservice" in listed["metrics-api"].way_out
    (missing,) = found(with_status(item), [GONE], world={"metrics_apis": {group: NOT_REGISTERED}}).values()
    assert missing.way_out.startswith("install ") and "kubectl" not in missing.way_out
    assert ("metrics_server" in missing.way_out) is (group == "metrics.k8s.io")


def test_a_metric_that_nobody_has() -> None:
    one = found(with_status(hpa(external(IN_ALL))), [NoReading("no metrics returned from external metrics API")])["no-metric"]
    assert "external metric queue" in one.why and "kubectl get --raw /apis/external.metrics.k8s.io/v1beta1" in one.way_out


def test_a_container_without_the_request() -> None:
    bare = container("proxy", cpu=None)
    listed = found(of=pods(2, container(), bare), of_target=target(container(), bare))
    one = listed["missing-request"]
    assert one.severity == "critical"
    assert "container proxy of pod web-0, pod web-1, the template has no cpu request" in one.why
    assert ": kubectl set resources deployment/web -n shop --containers=proxy --requests=cpu=100m to begin with;" in one.way_out
    assert "deploys/right_size.py --data only_objects=shop/deployment/web computes it, or measure one container" in one.way_out
    # Each way out works: another target, another kind of metric.
    assert "missing-request" not in found(with_status(hpa(average())), of=pods(2, container(), bare))
    assert "missing-request" not in found(with_status(hpa(utilization(container="app"))), of=pods(2, container(), bare))
    # The pods are new and the template is not: the next roll-out would stop it, unless a limit range fills it in.
    assert "missing-request" not in found(of_target=target(bare))
    assert found(of=[], current=0, of_target=target(bare))["missing-request"].severity == "warning"


def test_a_limit_is_a_request_in_a_template() -> None:
    limited = {"name": "app", "resources": {"limits": {"cpu": "1"}}}
    assert "missing-request" not in found(of=[], current=0, of_target=target(limited))


def test_pod_level_requests_are_requests() -> None:
    level = {"requests": {"cpu": "1"}}
    bare = pods(2, container(cpu=None), resources=level)
    assert "missing-request" not in found(of=bare)
    assert "missing-request" in found(of=bare, controller=ScalingController(33))


def test_a_container_that_is_not_there() -> None:
    one = found(with_status(hpa(utilization(container="gone"))))["no-container"]
    assert "has no container gone" in one.why and "app" in one.way_out


def test_pods_without_a_sample() -> None:
    one = found(readings=[samples(50, None)])["no-sample"]
    assert (one.severity, "no sample of web-1" in one.why) == ("warning", True)
    one = found(readings=[samples(50, 50)], of=pods(2, phase="Pending"))["no-sample"]
    assert (one.severity, "none of its pods counts" in one.why) == ("critical", True)
    # Pods that are Ready count soon, by themselves.
    one = found(readings=[samples(50, 50)], of=pods(2, started=20, changed=15))["no-sample"]
    assert (one.severity, "web-0, web-1 became Ready a moment ago" in one.why) == ("warning", True)


def test_an_autoscaler_that_no_controller_looks_at() -> None:
    assert found({**hpa(), "status": {}})["not-handled"].severity == "critical"
    # A new one gets the time of two syncs, each of 15 s.
    for age, severity in ((1, "note"), (29, "note"), (31, "critical")):
        item = hpa()
        item["metadata"] = {**item["metadata"], "creationTimestamp": (NOW - timedelta(seconds=age)).isoformat()}
        assert found({**item, "status": {}})["not-handled"].severity == severity


def test_zero_replicas() -> None:
    one = found(of=[], current=0)["disabled-at-zero"]
    assert one.severity == "warning" and "kubectl scale -n shop deployment/web --replicas=1" in one.way_out


KEDA = {"ownerReferences": [owned_by("ScaledObject", "web", "keda.sh/v1alpha1")]}


def kept(*metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An autoscaler that KEDA writes."""
    item = hpa(*metrics, **more)
    return with_status({**item, "metadata": {**item["metadata"], **KEDA}})


def test_zero_replicas_on_purpose() -> None:
    """The normal state of an idle service is a note, which names who keeps it so; no replicas by hand."""
    for listed in (found(kept(external(IN_ALL)), [GONE], of=[], current=0), found(of=[], current=0, of_target=target(**KEDA))):
        assert {rule: one.severity for rule, one in listed.items()} == {"disabled-at-zero": "note"}
        one = listed["disabled-at-zero"]
        assert "ScaledObject shop/web owns the" in one.why and "change ScaledObject shop/web" in one.way_out
        assert "kubectl scale" not in one.way_out and one.objects[-1] == "ScaledObject shop/web"
    slept = found(of=[], current=0, of_target=target(annotations={"downscaler/original-replicas": "2"}))["disabled-at-zero"]
    assert slept.severity == "note" and "kube-downscaler" in slept.why and "kubectl scale" not in slept.way_out


def test_a_second_autoscaler_of_a_workload_that_is_idle() -> None:
    """No pod shows yet that both select it: the first one would stop both. Whose the other is says who scales the workload."""
    keda = kept(external(IN_ALL))
    keda["metadata"] = {**keda["metadata"], "name": "keda-hpa-web"}
    scenes = tuple(ScalingScene(Autoscaler.of(with_status(item)), LiveScale(0, 0, "app=web"), "", [], [GONE]) for item in (hpa(), keda))
    world = ScalingWorld(scenes, {one.autoscaler.key: target() for one in scenes})
    listed = {one.rule: one for one in problems(scenes[0], decide(scenes[0], KCM, NOW), KCM, world, NOW)}
    one = listed["two-autoscalers"]
    assert one.severity == "critical" and one.objects[1] == "HorizontalPodAutoscaler shop/keda-hpa-web"
    assert "autoscaler shop/keda-hpa-web also scales Deployment shop/web" in one.why and "kubectl delete hpa -n shop web" in one.way_out
    idle = listed["disabled-at-zero"]
    assert (idle.severity, "kubectl scale" in idle.way_out) == ("note", False)
    assert "ScaledObject shop/web owns another autoscaler of it" in idle.why and "change ScaledObject shop/web" in idle.way_out


def test_an_autoscaler_with_an_owner_is_changed_there() -> None:
    assert "change the autoscaler in ScaledObject shop/web" in found(kept(maximum=2), [samples(90, 90)])["at-maximum"].way_out
    assert "ScaledObject" not in found(with_status(hpa(maximum=2)), [samples(90, 90)])["at-maximum"].way_out
    # Of two, the one that people wrote goes.
    one = found(kept(), shared_with=("shop/other",))["two-autoscalers"]
    assert "kubectl delete hpa -n shop other" in one.way_out
    bare = container("app", cpu=None)
    of_operator = target(bare, ownerReferences=[owned_by("Shop", "main", "shop.example/v1")])
    one = found(of=pods(2, bare), of_target=of_operator)["missing-request"]
    assert "of container app in Shop shop/main, whose controller writes Deployment shop/web" in one.way_out and "kubectl" not in one.way_out


JOB = ("Job", "web-migrate")
HASHED = {"pod-template-hash": "5d4f"}


def test_pods_of_others_are_named_with_their_owner() -> None:
    """A pod that the target does not control is its own controller's to change, also when it is over."""
    bare = container("migrate", cpu=None)
    listed = found(of=[*pods(2), pod("web-migrate-x2x", bare, owner=JOB, phase="Succeeded", ready="False")])
    one = listed["missing-request"]
    assert one.severity == "critical" and one.objects[1] == "Job shop/web-migrate"
    assert "the pod is of Job shop/web-migrate, and the selector of Deployment shop/web matches it" in one.why
    assert "give the pods of Job shop/web-migrate other labels" in one.way_out and "ttlSecondsAfterFinished" in one.way_out
    assert "template" not in one.way_out and "ContainerResource" not in one.way_out
    assert listed["foreign-pods"].severity == "warning" and "(app=web)" in listed["foreign-pods"].why
    one = found(with_status(hpa(utilization(container="app"))), of=[*pods(2), pod("j", bare, owner=JOB)])["no-container"]
    assert one.severity == "critical" and "Job shop/web-migrate" in one.way_out and "name one" not in one.way_out


@pytest.mark.parametrize(
    ("one", "whose"),
    [
        (pod("x", labels=HASHED), None),
        # A ReplicaSet whose name says nothing may be of any Deployment.
        (pod("x", owner=("ReplicaSet", "odd")), None),
        (pod("x", owner=("ReplicaSet", "web-api-5d4f"), labels=HASHED), "ReplicaSet shop/web-api-5d4f"),
        (pod("x", owner=("StatefulSet", "web")), "StatefulSet shop/web"),
        (pod("x", owner=("DaemonSet", "web")), "DaemonSet shop/web"),
        (pod("x", owner=None), "Pod shop/x"),
    ],
)
def test_whose_a_pod_is(one: dict[str, Any], whose: str | None) -> None:
    listed = found(of=[*pods(2), one], readings=[samples(50, 50)]).get("foreign-pods")
    assert (listed.objects[1] if listed else None) == whose


@pytest.mark.parametrize(
    ("kind", "one", "whose"),
    [
        ("Game", pod("x", owner=("Game", "y")), None),
        ("Game", pod("x", owner=None), None),
        ("Game", pod("x", owner=JOB), "Job shop/web-migrate"),
        ("Game", pod("x", owner=("DaemonSet", "agent")), "DaemonSet shop/agent"),
        ("Rollout", pod("x", owner=("ReplicaSet", "web-5d4f"), labels={"rollouts-pod-template-hash": "5d4f"}), None),
        ("Rollout", pod("x", owner=("ReplicaSet", "api-5d4f"), labels={"rollouts-pod-template-hash": "5d4f"}), "ReplicaSet shop/api-5d4f"),
        ("Rollout", pod("x", owner=JOB), "Job shop/web-migrate"),
        ("DeploymentConfig", pod("x", owner=("ReplicationController", "web-3")), None),
        ("DeploymentConfig", pod("x", owner=("Pod", "web-3-deploy")), "Pod shop/web-3-deploy"),
    ],
)
def test_a_target_of_another_kind(kind: str, one: dict[str, Any], whose: str | None) -> None:
    """It may control any pod but those of what is never scaled."""
    item = hpa(scaleTargetRef={"apiVersion": "example.com/v1", "kind": kind, "name": "web"})
    listed = found(with_status(item), of=[one], readings=[samples(50)]).get("foreign-pods")
    assert (listed.objects[1] if listed else None) == whose


def test_a_container_that_a_webhook_adds() -> None:
    """The template has no such container: no request can be set there as for its own."""
    proxy = container("istio-proxy", cpu=None)
    one = found(of=pods(2, container("app"), proxy), of_target=target(container("app")))["missing-request"]
    assert "the template of Deployment shop/web has no such container: an admission webhook adds it" in one.way_out
    assert "by the annotation sidecar.istio.io/proxyCPU" in one.way_out and "set requests.cpu of container" not in one.way_out
    assert "ContainerResource" in one.way_out
    other = found(of=pods(2, container("app"), container("agent", cpu=None)), of_target=target(container("app")))["missing-request"]
    assert "set its request in the configuration of that webhook" in other.way_out
    assert (
        "set requests.cpu of container app in the template"
        in found(of=pods(2, container("app", cpu=None)), of_target=target(container("app", cpu=None)))["missing-request"].way_out
    )


def test_equal_bounds_never_scale() -> None:
    assert "fixed" in found(with_status(hpa(minimum=2, maximum=2)))


def test_more_is_asked_for_than_allowed() -> None:
    one = found(with_status(hpa(maximum=2)), [samples(90, 90)])["at-maximum"]
    assert (one.severity, "ask for 4 pods, and maxReplicas is 2" in one.why) == ("note", True)


def vpa(mode: str | None = "Recreate", **policy: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    if mode is not None:
        spec["updatePolicy"] = {"updateMode": mode}
    if policy:
        spec["resourcePolicy"] = {"containerPolicies": [{"containerName": "*", **policy}]}
    return {"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}


@pytest.mark.parametrize(
    ("one", "conflict"),
    [
        (vpa(), True),
        (vpa(None), True),
        (vpa("Off"), False),
        (vpa("Initial"), True),
        (vpa(controlledResources=["memory"]), False),
        (vpa(mode="Recreate", controlledResources=["cpu"]), True),
        (vpa(mode="InPlaceOrRecreate"), True),
    ],
)
def test_a_vertical_autoscaler_on_the_same_resource(one: dict[str, Any], conflict: bool) -> None:
    listed = found(world={"vpas": [one]})
    assert ("vertical-autoscaler" in listed) == conflict
    # An average value does not depend on the request.
    assert "vertical-autoscaler" not in found(with_status(hpa(average())), world={"vpas": [one]})


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}}


def test_a_quota_that_ends_before_the_maximum() -> None:
    one = found(world={"quotas": [quota({"requests.cpu": "500m"}, {"requests.cpu": "200m"})]})["quota"]
    assert "3 more fit, and maxReplicas 10 needs 8 more" in one.why
    assert "quota" not in found(world={"quotas": [quota({"requests.cpu": "1"}, {"requests.cpu": "200m"})]})
    assert "quota" in found(world={"quotas": [quota({"pods": "9"}, {"pods": "2"})]})
    assert "quota" not in found(world={"quotas": [quota({"pods": "9"}, {"pods": "2"}, scopes=["BestEffort"])]})
    assert "quota" in found(world={"quotas": [quota({"pods": "9"}, {"pods": "2"}, scopes=["NotBestEffort", "NotTerminating"])]})


def limited(*limits: dict[str, Any]) -> dict[str, Any]:
    return {"limit_ranges": [{"metadata": {"namespace": "shop", "name": "l"}, "spec": {"limits": list(limits)}}]}


def test_a_new_pod_has_what_is_filled_in_when_it_is_created() -> None:
    """A limit counts as the request, and the default of a limit range too: a template has neither."""
    only_limit = target({"name": "app", "resources": {"limits": {"cpu": "1"}}})
    tight = {"quotas": [quota({"requests.cpu": "1500m"}, {"requests.cpu": "0"})]}
    assert "each pod takes 1000m requests.cpu: 1 more fit" in found(of_target=only_limit, world=tight)["quota"].why
    bare = target({"name": "app"})
    by_default = limited({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "750m"}})
    assert "each pod takes 750m requests.cpu: 2 more fit" in found(of_target=bare, world=tight | by_default)["quota"].why
    # Without any value, a quota of CPU refuses each new pod.
    refused = found(of_target=bare, world=tight)["quota"]
    assert "refuses new pods: it limits requests.cpu, and container app has none" in refused.why and "LimitRange" in refused.way_out


def test_a_limit_range_of_pods_and_of_ratios() -> None:
    """The pod's containers together, and init containers too."""
    two = target(container("app"), container("proxy"))
    assert "the pod has no limit of cpu" in found(of_target=two, world=limited({"type": "Pod", "max": {"cpu": "150m"}}))["limit-range"].why
    assert "the pod requests 200m cpu" in found(of_target=two, world=limited({"type": "Pod", "min": {"cpu": "1"}}))["limit-range"].why
    wide = target({"name": "app", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}})
    ratio = limited({"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}})
    assert "at most 4 times the request" in found(of_target=wide, world=ratio)["limit-range"].why
    assert "limit-range" not in found(of_target=wide, world=limited({"type": "Container", "maxLimitRequestRatio": {"cpu": "10"}}))


def test_no_pod_has_started() -> None:
    """Nothing to measure yet: the pods are the reason, and not the metrics API."""
    waiting = [{**one, "status": {"phase": "Pending"}} for one in pods(2)]
    listed = found(readings=[GONE], of=waiting)
    assert "is Pending" in listed["no-sample"].why and "kubectl describe pod -n shop" in listed["no-sample"].way_out
    assert "no-metric" not in listed and "no-metric" in found(readings=[GONE], of=pods(2))


def test_a_limit_range_that_refuses_new_pods() -> None:
    rule = {"metadata": {"namespace": "shop", "name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "50m"}}]}}
    assert "container app has 100m cpu, and at most 50m cpu" in found(world={"limit_ranges": [rule]})["limit-range"].why
    rule = {"metadata": {"namespace": "shop", "name": "l"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": "200m"}}]}}
    assert "at least 200m cpu" in found(world={"limit_ranges": [rule]})["limit-range"].why


def test_memory_is_noted_and_early_pods_too() -> None:
    assert found(with_status(hpa(average("memory", "100Mi"))))["memory"].severity == "note"
    early = [pod("web-0"), pod("web-1", started=10, changed=5)]
    assert "web-1" in found(of=early)["starts-slowly"].why


# ---- who owns replicas


def owned(**entries: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "web", **entries}, "spec": {}}


def entry(manager: str, operation: str = "Update", subresource: str = "") -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": {"f:spec": {"f:replicas": {}}}}


def test_kubectl_apply_resets_the_count() -> None:
    applied = json.dumps({"metadata": {"name": "web"}, "spec": {"replicas": 3, "paused": False}})
    item = owned(annotations={LAST_APPLIED: applied}, managedFields=[entry("kubectl-client-side-apply")])
    one = replicas_owner(item)
    assert one is not None and one.resets and one.last_applied == 3
    assert "the first apply without replicas sets it to 1" in one.why("Deployment shop/web")
    assert "kubectl apply edit-last-applied -n shop deployment/web" in one.way_out("Deployment shop/web")
    text = without_replicas(item)
    assert text is not None and json.loads(text) == {"metadata": {"name": "web"}, "spec": {"paused": False}}
    item["metadata"]["annotations"][LAST_APPLIED] = text
    after = replicas_owner(item)
    assert after is not None and not after.resets and without_replicas(item) is None


def test_a_server_side_applier_resets_or_conflicts() -> None:
    one = replicas_owner(owned(managedFields=[entry("argocd", "Apply")]))
    assert one is not None and one.resets and "sets the count to 1, unless another manager owns it" in one.why("x")
    one = replicas_owner(owned(managedFields=[entry("argocd", "Apply"), entry("kube-controller-manager", "Update", "scale")]))
    assert one is not None and "conflicts with the autoscaler" in one.why("x")
    one = replicas_owner(owned(managedFields=[entry("kubectl-create"), entry("kube-controller-manager", "Update", "scale")]))
    assert one is not None and not one.resets
    for odd in ("[" * 200_000, '{"spec": {"replicas": ' + "9" * 5000 + "}}", '{"spec": []}', '{"spec": {"replicas": true}}'):
        one = replicas_owner(owned(annotations={LAST_APPLIED: odd}))
        assert one is not None and one.last_applied is None and not one.resets
    assert replicas_owner(None) is None and replicas_owner(owned(annotations={LAST_APPLIED: "{"})) is not None


def test_the_owner_is_a_problem_of_the_autoscaler() -> None:
    listed = found(of_target=target(managedFields=[entry("argocd", "Apply")]))
    assert listed["replicas-owner"].objects[1] == "Deployment shop/web"


# ---- room, and what would change the count


@pytest.mark.parametrize(("cpu", "fits"), [("2", True), ("500m", False)])
def test_the_maximum_must_fit_the_nodes(cpu: str, fits: bool) -> None:
    there = [{**one, "spec": {**one["spec"], "nodeName": "w1"}} for one in pods(2)]
    scene = ScalingScene(Autoscaler.of(with_status(hpa())), LiveScale(2, 2, "app=web"), "", there, [samples(50, 50)])
    world = ScalingWorld((scene,), {"shop/web": target()})
    (judged,) = judge(world, KCM, NOW, ClusterView([node("w1", cpu=cpu)], there))
    rooms = [one for one in judged.problems if one.rule == "no-room"]
    assert (rooms == []) == fits and judged.works
    if rooms:
        assert "needs 8 more pods, and the nodes have room for 3" in rooms[0].why


def test_the_way_out_of_a_maximum_without_room_names_who_writes_the_autoscaler() -> None:
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "u1", "controller": True}
    item = with_status(hpa())
    item["metadata"]["ownerReferences"] = [owner]
    scene = ScalingScene(Autoscaler.of(item), LiveScale(2, 2, "app=web"), "", pods(2), [samples(50, 50)])
    (judged,) = judge(ScalingWorld((scene,), {"shop/web": target()}), KCM, NOW, ClusterView([node("w1", cpu="300m")], []))
    (room,) = [one for one in judged.problems if one.rule == "no-room"]
    assert room.way_out.endswith("; change the autoscaler in ScaledObject shop/web, whose controller writes it")


def room(count: int, **spec: Any) -> list[str]:
    """What is said of room for 10 pods of 100m, 2 of which run on the first of some nodes of 300m."""
    there = [{**one, "spec": {**one["spec"], "nodeName": "w1"}} for one in pods(2)]
    scene = ScalingScene(Autoscaler.of(with_status(hpa())), LiveScale(2, 2, "app=web"), "", there, [samples(50, 50)])
    has = target()
    assert has.item is not None
    has.item["spec"]["template"]["spec"].update(spec)
    named = [node(f"w{number}", cpu="300m") for number in range(1, count + 1)]
    (judged,) = judge(ScalingWorld((scene,), {"shop/web": has}), KCM, NOW, ClusterView(named, there))
    return [one.why for one in judged.problems if one.rule == "no-room"]


def test_several_nodes_have_room_for_like_pods() -> None:
    """Each pod fits somewhere if it comes first; all of them do not."""
    (why,) = room(3)
    assert "needs 8 more pods, and the nodes have room for 7: 3 x cpu" in why
    assert room(4) == []
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    (why,) = room(5, affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}})
    assert "room for 5: 5 x a pod is there that" in why
    # Pods that are spread over the nodes need not be on one of them.
    spread = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname", "maxSkew": 1}
    assert room(9, topologySpreadConstraints=[{**spread, "whenUnsatisfiable": "DoNotSchedule"}]) == []


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}


def waiting(name: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    """A pod that has no node."""
    made = pod(name, phase="Pending", started=None, ready=None)
    return {**made, "status": {**made["status"], "conditions": list(conditions)}}


def test_pods_without_a_node_need_room_too() -> None:
    """The autoscaler has created all of its pods, and the node has no room for half of them."""
    there = [{**one, "spec": {**one["spec"], "nodeName": "w1"}} for one in pods(2)]
    all_pods = [*there, waiting("web-2", UNSCHEDULABLE), waiting("web-3", UNSCHEDULABLE)]
    scene = ScalingScene(Autoscaler.of(with_status(hpa(maximum=4))), LiveScale(4, 4, "app=web"), "", all_pods, [samples(200, 200)])
    world = ScalingWorld((scene,), {"shop/web": target()})

    def rules(cpu: str) -> dict[str, Finding]:
        (judged,) = judge(world, KCM, NOW, ClusterView([node("w1", cpu=cpu)], all_pods))
        return {one.rule: one for one in judged.problems}

    full = rules("200m")
    assert set(full) == {"no-room", "no-node", "at-maximum"} and full["no-room"].severity == "warning"
    assert "maxReplicas 4 needs 2 more pods on nodes (2 of them exist, without one), and the nodes have room for 0" in full["no-room"].why
    # The scheduler has not looked again since there is room.
    assert set(rules("2")) == {"no-node", "at-maximum"}


def test_a_pod_that_no_node_takes_is_not_one_that_starts_slowly() -> None:
    listed = found(of=[*pods(2), waiting("web-2", UNSCHEDULABLE), waiting("web-3")], current=4)
    one = listed["no-node"]
    assert one.severity == "warning" and "web-2" in one.why and "web-3" not in one.why and "1 Insufficient cpu" in one.why
    assert "kubectl describe pod -n shop web-2" in one.way_out and "cpu-initialization-period" not in one.way_out
    slow = listed["starts-slowly"]
    assert "web-3" in slow.why and "web-2" not in slow.why and "kubectl describe pod -n shop web-3" in slow.way_out
    alone = found(of=[*pods(2), waiting("web-2", UNSCHEDULABLE)], current=3)
    assert "starts-slowly" not in alone
    ends = {**waiting("web-2", UNSCHEDULABLE)}
    ends["metadata"] = {**ends["metadata"], "deletionTimestamp": text(NOW)}
    assert "no-node" not in found(of=[*pods(2), ends])


@pytest.mark.parametrize("field", ["stopped", "left_out"])
def test_an_old_autoscaler_that_nobody_handles_any_more(field: str) -> None:
    """Its conditions are of a time when it was handled."""
    controller = replace(KCM, **{field: Idle("nobody leads", "start it")})
    one = found(controller=controller)["not-handled"]
    assert (one.severity, one.why, one.way_out) == ("critical", "nobody leads", "start it")
    scene = ScalingScene(Autoscaler.of(with_status(hpa())), LiveScale(2, 2, "app=web"), "", pods(2), [samples(50, 50)])
    (judged,) = judge(ScalingWorld((scene,), {"shop/web": target()}), controller, NOW)
    assert not judged.works


def test_turns_say_when_the_count_changes() -> None:
    scene = ScalingScene(Autoscaler.of(with_status(hpa(minimum=1))), LiveScale(3, 3, "app=web"), "", pods(3), [samples(50, 50, 50)])
    (judged,) = judge(ScalingWorld((scene,), {"shop/web": target()}), KCM, NOW)
    (row,) = judged.decision.rows
    assert str(turns(row, judged, KCM)) == "up above 55%, down below 33.3%"
    alone = ScalingScene(Autoscaler.of(with_status(hpa(average()))), LiveScale(1, 1, "app=web"), "", pods(1), [samples(50)])
    (judged,) = judge(ScalingWorld((alone,), {"shop/web": target()}), KCM, NOW)
    assert str(turns(judged.decision.rows[0], judged, KCM)) == "up above 110m"
    assert judged.differs == ""


def test_a_count_that_the_controller_set_and_daytwo_does_not_compute() -> None:
    item = {**hpa(), "status": {**SEEN, "desiredReplicas": 9}}
    scene = ScalingScene(Autoscaler.of(item), LiveScale(3, 3, "app=web"), "", pods(3), [samples(90, 90, 90)])
    (judged,) = judge(ScalingWorld((scene,), {"shop/web": target()}), KCM, NOW)
    assert judged.differs == "the controller set 9 when it last looked, and daytwo computes now: scales from 3 to 6"
    assert text(ago(0)) == "2026-03-01T12:00:00Z"
