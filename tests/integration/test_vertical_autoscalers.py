"""VerticalPodAutoscalers on a real cluster, with their real recommender, updater and admission controller: refused where the kind is not
installed, applied and proven, a pod resized in place, conflicts named, undone. The metrics come from an API of the test's own, or from the
metrics-server that the lab has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator, vertical_programs
from tests.integration.metrics_api import RESOURCE, register, served_in
from tests.integration.operator import data, pyinfra, run_of, wait_for
from tests.integration.vertical_workloads import BOUNDS, IN_PLACE, NAMESPACE, apply, deployment, vertical
from tests.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

KEY = f"{NAMESPACE}/deployment/db"


def the_pod(lab: Lab) -> dict[str, Any]:
    (found,) = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", "app=db", "-o", "json"))["items"]
    return dict(found)


def running_with(pod: dict[str, Any]) -> tuple[str, int, dict[str, str]]:
    """Container ID, restarts, and the requests that the container runs with."""
    (one,) = pod["status"]["containerStatuses"]
    return one["containerID"], one["restartCount"], one["resources"]["requests"]


def status() -> tuple[int, dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The exit status, the horizontal and the vertical ones by name."""
    done = pyinfra("autoscaler_status", *data(format="json", namespaces=NAMESPACE), "-y")
    found = json.loads(done.out[done.out.index("{") : done.out.rindex("}") + 1])
    return done.code, *({one["name"]: one for one in found[kind]} for kind in ("autoscalers", "vertical_autoscalers"))  # type: ignore[return-value]


def rules(found: dict[str, Any]) -> dict[str, str]:
    return {one["rule"]: one["severity"] for one in found["problems"]}


@pytest.fixture(scope="module")
def metrics(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    lab.kubectl("create", "namespace", NAMESPACE)
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", NAMESPACE, check=False), "the namespace's service account")
    apply(lab, deployment("db"))
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/db", "--timeout=280s")
    if lab.kubectl("get", "apiservice", "v1beta1.metrics.k8s.io", check=False):
        yield  # a metrics-server that was put there by hand
    else:
        with served_in(lab, tmp_path_factory.mktemp("metrics")) as api:
            for name in ("db", "two"):
                api.cpu[name], api.memory[name] = "20m", "10Mi"
            register(api, lab, RESOURCE)
            yield
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    operator.forget(lab)


def test_without_the_kind_it_is_refused(lab: Lab, metrics: None) -> None:
    refused = vertical("--dry", db=IN_PLACE)
    assert refused.code == 1 and "does not have VerticalPodAutoscalers" in refused.all and "install the CRDs" in refused.all, refused.all
    gone = vertical("--dry", db="absent")
    assert gone.code == 0 and "absent, as wanted" in gone.out, gone.all


@pytest.fixture(scope="module")
def programs(lab: Lab, metrics: None) -> Iterator[None]:
    with vertical_programs.running(lab):
        yield


def test_a_pod_is_resized_in_place(lab: Lab, programs: None) -> None:
    container, restarts, requests = running_with(the_pod(lab))
    assert (restarts, requests["cpu"]) == (0, "50m")
    # The updater's default: it changes no pod that is the only one.
    waits = vertical(db=IN_PLACE)
    assert waits.code == 0 and "RecommendationProvided=True" in waits.out and "app cpu 150m (150m to 300m)" in waits.out, waits.all
    assert "the updater waits: 1 pod live, and it changes none below 2" in waits.out, waits.all
    code, _, found = status()
    assert code == 0 and found["db"]["state"] == "waits" and rules(found["db"]) == {"updater-waits": "warning"}, found
    assert running_with(the_pod(lab)) == (container, 0, requests)
    done = vertical(db={**IN_PLACE, "min_replicas": 1})
    assert done.code == 0 and "was resized in place, without a restart: app cpu 50m to 150m" in done.out, done.all
    assert "NOT PROVEN" not in done.out, done.all
    after = running_with(the_pod(lab))
    assert after[:2] == (container, 0) and after[2]["cpu"] == "150m", after
    again = vertical(db={**IN_PLACE, "min_replicas": 1})
    assert again.code == 0 and "as wanted" in again.out, again.all
    # A new pod gets it from the admission controller.
    lab.kubectl("delete", "pod", "-n", NAMESPACE, "-l", "app=db")
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/db", "--timeout=280s")
    wait_for(lambda: running_with(the_pod(lab))[2]["cpu"] == "150m", "a new pod's request")
    code, _, found = status()
    assert code == 0 and found["db"]["state"] == "done" and found["db"]["works"] and not rules(found["db"]), found
    undo = pyinfra("rollback", *data(run=run_of(done)), "-y").ended(0)
    spec = json.loads(lab.kubectl("get", "vpa", "-n", NAMESPACE, "db", "-o", "json"))["spec"]
    assert spec["updatePolicy"] == {"updateMode": "InPlaceOrRecreate"}
    undo = pyinfra("rollback", *data(run=run_of(waits)), "-y")
    assert undo.code == 0 and "it is gone; pods keep the requests" in undo.out, undo.all
    assert running_with(the_pod(lab))[2]["cpu"] == "150m"


def test_conflicts_are_named(lab: Lab, programs: None) -> None:
    horizontal = json.dumps({KEY: {"max": 3, "cpu": "60%"}})
    both = pyinfra("autoscalers", *data(autoscalers=horizontal, vertical_autoscalers=json.dumps({KEY: IN_PLACE})), "--dry", "-y")
    words = "vertical-autoscaler: VerticalPodAutoscaler t-vertical/db (mode InPlaceOrRecreate) changes the cpu request"
    assert words in both.out, both.all
    assert "HorizontalPodAutoscaler t-vertical/db scales the same pods by a percentage of their cpu request" in both.out, both.all
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "db"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    hpa = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    made = [
        ("autoscaling/v2", "HorizontalPodAutoscaler", "db", hpa),
        ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "first", {"targetRef": reference, "updatePolicy": {"updateMode": "Initial"}}),
    ]
    apply(
        lab,
        *(
            {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
            for api, kind, name, spec in made
        ),
    )
    # One beside another: only the oldest counts.
    refused = vertical("--dry", db=IN_PLACE)
    assert (
        refused.code == 1 and "two-vertical-autoscalers" in refused.all and f"only the oldest counts, {NAMESPACE}/first" in refused.all
    ), refused.all
    _, horizontal_ones, vertical_ones = status()
    assert rules(horizontal_ones["db"])["vertical-autoscaler"] == rules(vertical_ones["first"])["vertical-autoscaler"] == "warning"
    audit = pyinfra("audit", *data(format="json"), "-y")
    assert f"vertical-autoscaler: VerticalPodAutoscaler {NAMESPACE}/first, HorizontalPodAutoscaler {NAMESPACE}/db" in audit.out, audit.all
    lab.kubectl("delete", "vpa,hpa", "-n", NAMESPACE, "--all")
    # What the bounds lead to is refused by the namespace.
    limits = {"limits": [{"type": "Container", "max": {"cpu": "100m"}}]}
    apply(lab, {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small", "namespace": NAMESPACE}, "spec": limits})
    refused = vertical("--dry", db=IN_PLACE)
    assert refused.code == 1 and f"LimitRange {NAMESPACE}/small allows at most 100m" in refused.all, refused.all
    lab.kubectl("delete", "limitrange", "-n", NAMESPACE, "small")


def budget(least: int) -> dict[str, Any]:
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": "two"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "two", "namespace": NAMESPACE}, "spec": spec}


def requested(lab: Lab) -> dict[str, str]:
    """What each pod of the workload `two` requests, by its name."""
    items = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", "app=two", "-o", "json"))["items"]
    alive = [one for one in items if "deletionTimestamp" not in one["metadata"]]
    return {one["metadata"]["name"]: one["spec"]["containers"][0]["resources"]["requests"]["cpu"] for one in alive}


def test_pods_are_evicted_as_the_budget_allows(lab: Lab, programs: None) -> None:
    """Mode Recreate: new pods get what is recommended, and no pod more is missing than the budget allows."""
    apply(lab, deployment("two", 2), budget(2))
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/two", "--timeout=280s")
    before = requested(lab)
    assert set(before.values()) == {"50m"}
    recreate = {"mode": "Recreate", **BOUNDS}
    held = vertical(*data(proof_timeout="60"), two=recreate)
    assert held.code == 3 and "NOT PROVEN that the updater runs: the updater evicts pod two-" in held.out, held.all
    assert requested(lab) == before
    undo = pyinfra("rollback", *data(run=run_of(held)), "-y").ended(0)
    apply(lab, budget(1))
    started = operator.Started("autoscalers", *data(vertical_autoscalers=json.dumps({f"{NAMESPACE}/deployment/two": recreate})), "-y")
    available = []

    def replaced() -> bool:
        """Both pods are new, and have what is recommended."""
        available.append(int(lab.kubectl("get", "deployment", "-n", NAMESPACE, "two", "-o", "jsonpath={.status.availableReplicas}") or 0))
        now = requested(lab)
        return len(now) == 2 and set(now.values()) == {"150m"} and not set(now) & set(before)

    wait_for(replaced, "two new pods")
    done = started.end()
    assert done.code == 0 and "NOT PROVEN" not in done.out, done.all
    # The proof comes with the first one: the updater then waits until it runs.
    assert re.search(r"RecommendationProvided=True; .*pod two-\S+ is new", " ".join(done.out.split())), done.all
    after = requested(lab)
    assert min(available) >= 1, available
    undo = pyinfra("rollback", *data(run=run_of(done)), "-y")
    assert undo.code == 0 and requested(lab) == after, undo.all
