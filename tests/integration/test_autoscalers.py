"""Autoscalers on a real cluster: applied, proven and undone; problems planted, named, and gone after the advice; scaled out and in under a
load that the test sets, each count as daytwo computes it. The metrics come from APIs of the test's own. (Further problems are in
test_autoscaler_preflight.py.)"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.metrics_api import CUSTOM, EXTERNAL, RESOURCE, MetricsApi, register, served_in
from tests.integration.operator import Outcome, data, pyinfra, wait_for
from tests.integration.scaling import apply, autoscalers, container, hpa, kind, problems, status, workload
from tests.lab import Lab

pytestmark = pytest.mark.lab

NAMESPACE = "t-scale"
ENTRY = {"min": 1, "max": 4, "cpu": "60%", "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}


def deployment(name: str, cpu: str | None = "100m", **more: Any) -> dict[str, Any]:
    return workload(NAMESPACE, name, container("app", cpu), **more)


def get(lab: Lab, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "-n", NAMESPACE, *what, "-o", "json"))
    return found


def scale(*arguments: str, entry: dict[str, Any] | str = ENTRY, target: str = "web") -> Outcome:
    return autoscalers({f"{NAMESPACE}/deployment/{target}": entry}, *arguments)


def made(lab: Lab, *items: dict[str, Any]) -> None:
    """Deployments, with all their pods."""
    apply(lab, *items)
    for item in items:
        lab.kubectl("rollout", "status", "-n", NAMESPACE, f"deployment/{item['metadata']['name']}", "--timeout=280s")


@pytest.fixture(scope="module")
def metrics(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsApi]:
    lab.kubectl("create", "namespace", NAMESPACE)
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", NAMESPACE, check=False), "the namespace's service account")
    made(lab, deployment("web"))
    with served_in(lab, tmp_path_factory.mktemp("metrics")) as api:
        yield api
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    operator.forget(lab)


def undone(done: Outcome) -> Outcome:
    found = re.search(r"Undo: pyinfra \S+ deploys/rollback.py --data run=(\S+)", done.out)
    assert found, done.all
    return pyinfra("rollback", *data(run=found[1]), "-y")


@pytest.mark.slow
def test_problems_are_named_and_gone_after_the_advice(lab: Lab, metrics: MetricsApi) -> None:
    """No metrics API; a container without a request; two autoscalers on the same pods; a target that is not there."""
    made(lab, deployment("bare", None), deployment("other"))
    apply(lab, *(hpa(NAMESPACE, name, target) for name, target in (("bare", "bare"), ("one", "other"), ("two", "other"), ("lost", "gone"))))
    refused = scale("--dry")
    assert refused.code == 1 and "metrics-api" in refused.all and "metrics-server" in refused.all, refused.all
    metrics.cpu |= {"web": "30m", "bare": "30m", "other": "30m"}
    register(metrics, lab, RESOURCE)
    refused = scale("--dry", target="bare")
    assert refused.code == 1 and "missing-request" in refused.all and "container app of pod bare-" in refused.all, refused.all
    both = "AmbiguousSelector"
    wait_for(
        lambda: all(both in json.dumps(get(lab, "hpa", name)["status"]) for name in ("one", "two")), "the controller's conditions", every=2
    )
    code, found = status(NAMESPACE)
    assert code == 2
    assert "shop" not in found and not found["bare"]["works"]
    assert "missing-request" in problems(found["bare"]) and "no-target" in problems(found["lost"])
    assert all(
        "two-autoscalers" in problems(found[name]) and f"{NAMESPACE}/{other}" in problems(found[name])["two-autoscalers"]["why"]
        for name, other in (("one", "two"), ("two", "one"))
    )
    # The controller says the same.
    for name in ("bare", "one", "two", "lost"):
        ours = {one["type"]: one["reason"] for one in found[name]["conditions"]}
        theirs = {one["type"]: one["reason"] for one in get(lab, "hpa", name)["status"]["conditions"]}
        assert ours.items() <= theirs.items(), (name, ours, theirs)
    # The advice: set the request; keep one; remove what has no target.
    lab.kubectl("set", "resources", "-n", NAMESPACE, "deployment/bare", "--requests=cpu=100m")
    lab.kubectl("delete", "hpa", "-n", NAMESPACE, "two", "lost")
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/bare", "--timeout=280s")

    def well() -> bool:
        code, found = status(NAMESPACE)
        return code == 0 and all(set(problems(one)) <= {"starts-slowly", "no-sample"} for one in found.values())

    wait_for(well, "autoscalers that work", every=2)
    lab.kubectl("delete", "hpa", "-n", NAMESPACE, "--all")


def test_an_autoscaler_is_applied_proven_and_undone(lab: Lab, metrics: MetricsApi) -> None:
    """The heart of the deploy, short enough for each run of the tests."""
    metrics.cpu["web"] = "30m"
    register(metrics, lab, RESOURCE)
    done = scale()
    assert done.code == 0 and "desiredReplicas 1, and daytwo computes 1" in done.out, done.all
    assert "ScalingActive=True ValidMetricFound" in done.out and "field manager daytwo" in done.out
    assert get(lab, "hpa", "web")["spec"]["maxReplicas"] == 4
    undo = undone(done)
    assert undo.code == 0 and "it is gone" in undo.out, undo.all
    assert get(lab, "hpa")["items"] == []


@pytest.mark.slow
def test_an_autoscaler_follows_the_load_and_its_changes_are_undone(lab: Lab, metrics: MetricsApi) -> None:
    metrics.cpu["web"] = "30m"
    metrics.custom["hits"], metrics.external["queue"] = "5", "7"
    register(metrics, lab, RESOURCE, CUSTOM, EXTERNAL)
    metrics.custom["visits"] = "2"
    entry = {
        **ENTRY,
        "containers": {"app": {"cpu": "60%"}},
        "pods": {"hits": "10"},
        "object": {"visits": {"on": "service/site", "average": "30"}},
        "external": {"queue": {"average": "30"}},
    }
    apply(
        lab,
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "site", "namespace": NAMESPACE}, "spec": {"ports": [{"port": 80}]}},
    )
    # A sample counts when all of its window is after the pod became Ready.
    wait_for(lambda: "cpu 30%/60%: asks for 1" in scale("--dry", entry=entry).out, "samples that count")
    plan = scale("--dry", entry=entry)
    assert plan.code == 0 and "stays at 1" in plan.out, plan.all
    assert "cpu of app 30%/60%: asks for 1" in plan.out and "visits 2/30 a pod: asks for 1" in plan.out, plan.all
    created = scale(entry=entry)
    assert created.code == 0 and "desiredReplicas 1, and daytwo computes 1" in created.out, created.all
    shown = [one["type"] for one in get(lab, "hpa", "web")["status"]["currentMetrics"] if one]
    assert sorted(shown) == ["ContainerResource", "External", "Object", "Pods", "Resource"], shown
    again = scale(entry=entry)
    assert again.code == 0 and "as wanted" in again.out, again.all
    compliant(entry)

    def follows(cpu: str, hits: str, count: int) -> None:
        """The load changes: the count that daytwo computes before the controller acts is the one that it sets."""
        metrics.cpu["web"], metrics.custom["hits"] = cpu, hits
        _, found = status(NAMESPACE)
        computed = found["web"]
        seen = get(lab, "hpa", "web")["status"]["desiredReplicas"]
        assert computed["lowest"] <= count <= computed["highest"] or seen == count, (computed, seen)
        wait_for(lambda: get(lab, "deployment", "web")["spec"]["replicas"] == count, f"{count} replicas")

    follows("230m", "5", 4)
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/web", "--timeout=280s")
    follows("10m", "1", 1)
    changed = scale(entry={**entry, "max": 6, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}})
    assert changed.code == 0 and "desiredReplicas 1, and daytwo computes 1" in changed.out, changed.all
    after = get(lab, "hpa", "web")["spec"]
    assert (after["maxReplicas"], after["behavior"]["scaleDown"]["stabilizationWindowSeconds"]) == (6, 5)
    undo = undone(changed).ended(0)
    back = get(lab, "hpa", "web")["spec"]
    assert (back["maxReplicas"], back["behavior"]["scaleDown"]["stabilizationWindowSeconds"]) == (4, 0)
    undo = undone(created)
    assert undo.code == 0 and "it is gone" in undo.out, undo.all
    assert get(lab, "hpa")["items"] == []
    told = checked(entry)
    assert told.code == 2 and re.search(rf"autoscalers +FAIL +{NAMESPACE}/web: does not exist", told.out), told.all


def checked(entry: dict[str, Any]) -> Outcome:
    return pyinfra("checks", *data(autoscalers=json.dumps({f"{NAMESPACE}/deployment/web": entry})), "-y")


def compliant(entry: dict[str, Any]) -> None:
    """The checks agree, and name what differs."""
    good = checked(entry)
    assert good.code == 0 and re.search(rf"autoscalers +pass +{NAMESPACE}/web", good.out), good.all
    other = checked({**entry, "max": 5})
    assert other.code == 2 and f"{NAMESPACE}/web: maxReplicas differs" in other.out, other.all


@pytest.mark.slow
def test_replicas_leave_the_annotation_of_kubectl_apply(lab: Lab, metrics: MetricsApi) -> None:
    """An apply without replicas would set the count to 1; after daytwo has settled it, it stays."""
    item = deployment("kept", "100m", replicas=3)
    plain = {**item, "spec": {key: value for key, value in item["spec"].items() if key != "replicas"}}
    metrics.cpu["kept"] = "60m"
    register(metrics, lab, RESOURCE)
    lab.kubectl("apply", "-f", "-", input=json.dumps(item))
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/kept", "--timeout=280s")
    plan = scale("--dry", target="kept")
    assert "replicas-owner" in plan.out and "edit-last-applied" in plan.out, plan.all
    done = scale(*data(settle_replicas="true"), target="kept")
    assert done.code == 0 and "the annotation is as written" in done.out, done.all
    lab.kubectl("apply", "-f", "-", input=json.dumps(plain))
    assert get(lab, "deployment", "kept")["spec"]["replicas"] == 3


IDLE = "t-idle"
#: Who holds a workload at 0 pods: the CRD, and what it owns there.
SCALED_OBJECTS, KNATIVE = "scaledobjects.keda.sh", "podautoscalers.autoscaling.internal.knative.dev"


def disabled(lab: Lab) -> int:
    """How many autoscalers the controller has found without pods."""
    items = json.loads(lab.kubectl("get", "hpa", "-n", IDLE, "-o", "json"))["items"]
    return sum("ScalingDisabled" in json.dumps(one.get("status")) for one in items)


def audited() -> set[tuple[str, str]]:
    """Name and severity of the audit's findings about what is idle."""
    found = json.loads(pyinfra("audit", *data(format="json")).out)["findings"]
    return {(one["name"], one["severity"]) for one in found if IDLE in str(one["name"])}


def made_by(lab: Lab, kind_: str, api: str, name: str, *items: dict[str, Any]) -> None:
    """An object of a controller that is not here, and what that controller would have made: owned by it."""
    owner = {"apiVersion": api, "kind": kind_, "metadata": {"name": name, "namespace": IDLE}, "spec": {"scaleTargetRef": {"name": name}}}
    made = json.loads(lab.kubectl("create", "-o", "json", "-f", "-", input=json.dumps(owner)))
    ref = {"apiVersion": api, "kind": kind_, "name": name, "uid": made["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    apply(lab, *({**item, "metadata": {**item["metadata"], "ownerReferences": [ref]}} for item in items))


@pytest.mark.slow
def test_a_workload_that_is_idle_on_purpose(lab: Lab, metrics: MetricsApi) -> None:
    """A service that its controller holds at 0 pods works: a note names the object to change, and nothing says to scale by hand."""
    register(metrics, lab, RESOURCE, EXTERNAL)
    lab.kubectl("create", "namespace", IDLE)
    try:
        apply(lab, kind("ScaledObject", "keda.sh", "v1alpha1", "scaledobjects"))
        apply(lab, kind("PodAutoscaler", "autoscaling.internal.knative.dev", "v1alpha1", "podautoscalers"))
        lab.kubectl("wait", "--for=condition=Established", f"crd/{SCALED_OBJECTS}", f"crd/{KNATIVE}")
        queue = {"name": "s0-rabbitmq", "selector": {"matchLabels": {"scaledobject.keda.sh/name": "queue"}}}
        external = {"type": "External", "external": {"metric": queue, "target": {"type": "AverageValue", "averageValue": "5"}}}
        for name in ("queue", "serving", "asleep", "forgotten"):
            apply(lab, workload(IDLE, name, container("app", "100m")))
            lab.kubectl("scale", "-n", IDLE, f"deployment/{name}", "--replicas=0")
        lab.kubectl("annotate", "-n", IDLE, "deployment/asleep", "downscaler/original-replicas=2")
        keda = hpa(IDLE, "keda-hpa-queue", "queue", external, minReplicas=1, maxReplicas=10)
        made_by(lab, "ScaledObject", "keda.sh/v1alpha1", "queue", keda)
        made_by(lab, "PodAutoscaler", "autoscaling.internal.knative.dev/v1alpha1", "serving", hpa(IDLE, "serving", "serving"))
        apply(lab, *(hpa(IDLE, name, name) for name in ("asleep", "forgotten")))
        wait_for(lambda: disabled(lab) == 4, "the controller", every=2)
        whose = {"keda-hpa-queue": f"ScaledObject {IDLE}/queue", "serving": f"PodAutoscaler {IDLE}/serving", "asleep": "kube-downscaler"}
        code, found = status(IDLE)
        said = {name: problems(one)["disabled-at-zero"] for name, one in found.items() if one["works"]}
        assert code == 0 and set(said) == {*whose, "forgotten"}, found
        for name, owner in whose.items():
            one = said[name]
            assert one["severity"] == "note" and owner in one["why"] and owner in one["way_out"] and "kubectl scale" not in one["way_out"]
            assert {*problems(found[name])} == {"disabled-at-zero"}
        assert said["forgotten"]["severity"] == "warning" and "kubectl scale" in said["forgotten"]["way_out"]
        kept = {(f"HorizontalPodAutoscaler {IDLE}/{name}", "note") for name in whose}
        assert audited() == {*kept, (f"HorizontalPodAutoscaler {IDLE}/forgotten", "warning")}
        # A second autoscaler of the same workload would stop both: the one that people wrote goes, not the controller's.
        refused = autoscalers({f"{IDLE}/deployment/queue": ENTRY}, "--dry")
        assert refused.code == 1 and f"autoscaler {IDLE}/keda-hpa-queue" in " ".join(refused.all.split()), refused.all
        # Without that one the audit has nothing but notes.
        lab.kubectl("delete", "hpa", "-n", IDLE, "forgotten")
        assert audited() == kept
    finally:
        lab.kubectl("delete", "crd", SCALED_OBJECTS, KNATIVE, "--ignore-not-found")
        lab.kubectl("delete", "namespace", IDLE, "--wait=false")
        operator.forget(lab)
