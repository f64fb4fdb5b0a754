"""Autoscalers on a real cluster: problems planted, named, and gone after the advice; applied, scaled out and in under a load that the test
sets, each count as daytwo computes it; undone. The metrics come from APIs of the test's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.metrics_api import CUSTOM, EXTERNAL, RESOURCE, MetricsApi, register, served_in
from tests.integration.operator import Outcome, data, pyinfra, wait_for
from tests.lab import Lab, images

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAMESPACE = "t-scale"
ENTRY = {"min": 1, "max": 4, "cpu": "60%", "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}


def deployment(name: str, cpu: str | None, **more: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never"}
    if cpu is not None:
        container["resources"] = {"requests": {"cpu": cpu, "memory": "8Mi"}}
    labels = {"app": name}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}},
        **more,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def hpa(name: str, target: str, *metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        "maxReplicas": 4,
        "metrics": list(metrics),
        **more,
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}


def apply(lab: Lab, *items: dict[str, Any]) -> None:
    lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))


def get(lab: Lab, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "-n", NAMESPACE, *what, "-o", "json"))
    return found


def scale(*arguments: str, entry: dict[str, Any] | str = ENTRY, target: str = "web") -> Outcome:
    return pyinfra("autoscalers", *data(autoscalers=json.dumps({f"{NAMESPACE}/deployment/{target}": entry})), *arguments, "-y")


def status(lab: Lab) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and the autoscalers by name."""
    done = pyinfra("autoscaler_status", *data(format="json", namespaces=NAMESPACE), "-y")
    found = json.loads(done.out[done.out.index("{") : done.out.rindex("}") + 1])
    return done.code, {one["name"]: one for one in found["autoscalers"]}


@pytest.fixture(scope="module")
def metrics(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsApi]:
    lab.kubectl("create", "namespace", NAMESPACE)
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", NAMESPACE, check=False), "the namespace's service account")
    apply(lab, deployment("web", "100m"), deployment("bare", None), deployment("other", "100m"))
    for name in ("web", "bare", "other"):
        lab.kubectl("rollout", "status", "-n", NAMESPACE, f"deployment/{name}", "--timeout=280s")
    with served_in(lab, tmp_path_factory.mktemp("metrics")) as api:
        yield api
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    operator.forget(lab)


def rules(found: dict[str, Any]) -> dict[str, str]:
    return {one["rule"]: one["why"] for one in found["problems"]}


def test_problems_are_named_and_gone_after_the_advice(lab: Lab, metrics: MetricsApi) -> None:
    """No metrics API; a container without a request; two autoscalers on the same pods; a target that is not there."""
    apply(lab, hpa("bare", "bare", CPU), hpa("one", "other", CPU), hpa("two", "other", CPU), hpa("lost", "gone", CPU))
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
    code, found = status(lab)
    assert code == 2
    assert "shop" not in found and not found["bare"]["works"]
    assert "missing-request" in rules(found["bare"]) and "no-target" in rules(found["lost"])
    assert all(
        "two-autoscalers" in rules(found[name]) and f"{NAMESPACE}/{other}" in rules(found[name])["two-autoscalers"]
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
        code, found = status(lab)
        return code == 0 and all(not rules(one) or set(rules(one)) <= {"starts-slowly", "no-sample"} for one in found.values())

    wait_for(well, "autoscalers that work", every=2)
    lab.kubectl("delete", "hpa", "-n", NAMESPACE, "--all")


def test_an_autoscaler_is_applied_proven_follows_the_load_and_is_undone(lab: Lab, metrics: MetricsApi) -> None:
    metrics.cpu["web"] = "30m"
    metrics.custom["hits"], metrics.external["queue"] = "5", "7"
    register(metrics, lab, RESOURCE, CUSTOM, EXTERNAL)
    entry = {**ENTRY, "pods": {"hits": "10"}, "external": {"queue": {"average": "30"}}}
    # A sample counts when all of its window is after the pod became Ready.
    wait_for(lambda: "cpu 30%/60%: asks for 1" in scale("--dry", entry=entry).out, "samples that count")
    plan = scale("--dry", entry=entry)
    assert plan.code == 0 and "stays at 1" in plan.out and "cpu 30%/60%: asks for 1" in plan.out, plan.all
    done = scale(entry=entry)
    assert done.code == 0 and re.search(r"desiredReplicas 1, and daytwo computes 1", done.out), done.all
    assert "ScalingActive=True ValidMetricFound" in done.out and "field manager daytwo" in done.out
    again = scale(entry=entry)
    assert again.code == 0 and "as wanted" in again.out, again.all

    def follows(cpu: str, count: int) -> None:
        """The load changes: the count that daytwo computes before the controller acts is the one that it sets."""
        metrics.cpu["web"] = cpu
        _, found = status(lab)
        computed = found["web"]
        seen = get(lab, "hpa", "web")["status"]["desiredReplicas"]
        assert computed["lowest"] <= count <= computed["highest"] or seen == count, (computed, seen)
        wait_for(lambda: get(lab, "deployment", "web")["spec"]["replicas"] == count, f"{count} replicas")

    follows("230m", 4)
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/web", "--timeout=280s")
    follows("10m", 1)
    undo = pyinfra("rollback", *data(run=_run_of(done)), "-y")
    assert undo.code == 0 and "it is gone" in undo.out, undo.all
    assert get(lab, "hpa")["items"] == []


def _run_of(done: Outcome) -> str:
    found = re.search(r"To undo it: deploys/rollback.py --data run=(\S+)", done.out)
    assert found, done.out
    return found[1]


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
