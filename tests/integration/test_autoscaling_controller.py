"""daytwo's computation of an autoscaler beside a real kube-controller-manager, in a control plane without nodes: a load that goes up and
down, seen through the real API, with metrics APIs of the test's own. Each count that the controller sets is one that daytwo computes."""

from __future__ import annotations

import contextlib
import os
import random
import time
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from roles.autoscalers import KINDS as AUTOSCALERS
from roles.autoscalers import planned, read_desired, with_result
from roles.engine.autoscaling import JudgedAutoscaler, ScalingController, judge, read_autoscalers
from roles.engine.autoscaling.controller import leader, read_lease
from roles.engine.objects import ObjectChange, ObjectPlan, Session, Undone
from tests.integration.metrics_api import CUSTOM, EXTERNAL, RESOURCE, VERSIONS, MetricsApi, objects, served
from tests.integration.operator import wait_for
from tests.integration.shadow import Shadow, shadow
from tests.integration.shadow_writes import SYNC, ShadowApi, carried_out, undone, writer_of
from tests.lab import binaries

pytestmark = [pytest.mark.slow, pytest.mark.binaries]

STEPS = int(os.environ.get("DAYTWO_AUTOSCALING_STEPS", "60"))
FLAGS = (
    f"--horizontal-pod-autoscaler-sync-period={SYNC}s",
    "--horizontal-pod-autoscaler-downscale-stabilization=4s",
    "--leader-elect-retry-period=1s",
)
CONTROLLERS = "deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller"
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"
PODS, HPAS = "/api/v1/namespaces/shop/pods", "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
KINDS = {"Service": "/api/v1/namespaces/kube-system/services", "APIService": "/apis/apiregistration.k8s.io/v1/apiservices"}


def deployment() -> dict[str, Any]:
    labels = {"app": "web"}
    container = {"name": "app", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def autoscaler() -> dict[str, Any]:
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}},
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 12, "metrics": metrics}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec,
    }


def make_ready(api: Shadow) -> None:
    """There is no kubelet: new pods run since an hour, and ending ones are gone."""
    old = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds").replace("+00:00", "Z")
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": old}]
    for pod in api.items(PODS):
        path = f"{PODS}/{pod['metadata']['name']}"
        try:
            if pod["metadata"].get("deletionTimestamp"):
                api.clear(path)
            elif (pod.get("status") or {}).get("phase") != "Running":
                status = {"status": {"phase": "Running", "startTime": old, "conditions": ready}}
                api.ask("PATCH", f"{path}/status", status, "application/merge-patch+json")
        except urllib.error.HTTPError as error:
            assert error.code == 404


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shadow, MetricsApi]]:
    folder: Path = tmp_path_factory.mktemp("shadow")
    with shadow(folder, binaries.get(binaries.DEFAULT_VERSION), CONTROLLERS, *FLAGS) as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})

        def pods(namespace: str, selector: str) -> list[dict[str, Any]]:
            found = api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")
            return [one for one in found if (one.get("status") or {}).get("phase") == "Running"]

        with served(folder, "127.0.0.1", pods) as metrics:
            metrics.cpu["web"], metrics.custom["hits"], metrics.external["queue"] = "30m", "5", "7"
            for item in objects(metrics, "127.0.0.1", RESOURCE, CUSTOM, EXTERNAL):
                api.ask("POST", KINDS[item["kind"]], item)
            for group, version in VERSIONS.items():
                path = f"{KINDS['APIService']}/{version}.{group}"
                wait_for(lambda path=path: '"status": "True"' in str(api.ask("GET", path)).replace("'", '"'), f"{group}")  # type: ignore[misc]
            yield api, metrics


def looked(api: Shadow) -> JudgedAutoscaler:
    reading = ShadowApi(api)
    lease = read_lease(reading)
    now = datetime.now(UTC)
    controller = ScalingController(36, downscale_stabilization=4, sync_period=SYNC, leads_since=leader(lease)[1])
    (found,) = judge(read_autoscalers(reading, controller, now), controller, now)
    return found


def replicas(api: Shadow) -> int:
    return int(api.ask("GET", DEPLOYMENT)["spec"]["replicas"])


def next_count(api: Shadow, current: int) -> int:
    """What the controller sets next; `current` if it leaves it for two syncs. Nobody makes pods ready meanwhile."""
    until = time.monotonic() + 2.5 * SYNC
    while time.monotonic() < until:
        if (found := replicas(api)) != current:
            return found
        time.sleep(0.05)
    return current


def test_each_count_is_one_that_daytwo_computes(cluster: tuple[Shadow, MetricsApi]) -> None:
    api, metrics = cluster
    api.create("/apis/apps/v1/namespaces/shop/deployments", deployment())
    api.create(HPAS, autoscaler())
    chance, wrong, samples, exact, counts = random.Random(36), list[str](), 0, 0, set[int]()
    wait_for(lambda: (make_ready(api), looked(api).autoscaler.status.condition("ScalingActive"))[1], "the controller")
    for step in range(STEPS):
        metrics.cpu["web"] = f"{chance.choice([5, 20, 45, 50, 54, 60, 80, 130])}m"
        metrics.custom["hits"] = str(chance.choice([1, 5, 9, 10, 12, 25]))
        metrics.external["queue"] = str(chance.choice([0, 10, 31, 65, 100, 350]))
        for _ in range(3):
            make_ready(api)
            found = looked(api)
            decision = found.decision
            if decision.failed or decision.current != replicas(api):
                continue  # the controller was in the middle of it
            said = next_count(api, decision.current)
            samples, exact = samples + 1, exact + (decision.desired is not None)
            counts.add(said)
            if not decision.lowest <= said <= decision.highest:
                wrong.append(f"step {step}: {said}, and {decision.text}: {[(row.now, row.proposal, row.groups) for row in decision.rows]}")
    print(f"{samples} samples, {exact} of them exact, counts {sorted(counts)}, {len(wrong)} differ")
    assert not wrong, f"{len(wrong)} of {samples} differ:\n" + "\n".join(wrong)
    assert len(counts) > 3 and exact > samples / 4, (counts, exact, samples)


# ---- written, proven, undone


def action_of(session: Session, entry: Any) -> ObjectChange:
    desired = read_desired([("cp1", {"autoscalers": {"shop/deployment/web": entry}}.get)])
    assert desired is not None
    (wanted,) = desired.entries
    plan = ObjectPlan()
    found = planned(wanted, session.fetch(f"{HPAS}/web"), desired, plan)
    assert found is not None and not plan.refusals
    if found.manifest is None:
        return found
    result = session.asked(lambda api: writer_of(session).result(found, api))
    made = with_result(found, result, plan) if result is not None else None
    assert made is not None, plan
    return made


def test_written_proven_and_undone(cluster: tuple[Shadow, MetricsApi]) -> None:
    api, metrics = cluster
    session = Session(lambda: ShadowApi(api), 10)
    with contextlib.suppress(urllib.error.HTTPError):
        api.create("/apis/apps/v1/namespaces/shop/deployments", deployment())
    with contextlib.suppress(urllib.error.HTTPError):
        api.ask("DELETE", f"{HPAS}/web")
    metrics.cpu["web"] = "50m"

    def two() -> bool:
        # Also after a last word of the controller, for the autoscaler that is gone.
        api.ask("PATCH", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 2}}, "application/merge-patch+json")
        make_ready(api)
        return len([pod for pod in api.items(PODS) if pod.get("status", {}).get("phase") == "Running"]) == 2

    wait_for(two, "2 pods")
    entry = {"min": 1, "max": 4, "cpu": "50%"}
    proof, created = carried_out(session, action_of(session, entry))
    print(proof)
    assert "field manager daytwo" in proof and "desiredReplicas 2, and daytwo computes 2" in proof
    proof, changed = carried_out(
        session, action_of(session, {**entry, "max": 6, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 10}}})
    )
    assert "desiredReplicas 2" in proof
    # Undone, each field is as before, also the behavior that was not set.
    assert "NOT PROVEN" not in undone(session, changed)
    found = api.ask("GET", f"{HPAS}/web")["spec"]
    assert found["maxReplicas"] == 4 and "behavior" not in found
    # For the API server a patch of daytwo's is another manager's; the next apply takes the field back, and nobody else has it.
    kind, field = AUTOSCALERS["HorizontalPodAutoscaler"], ("spec", "metrics")
    patch = {
        "spec": {
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 90}}}]
        }
    }
    session.asked(lambda api: api.patch(f"{HPAS}/web", patch))
    assert kind.owners(api.ask("GET", f"{HPAS}/web"), field) == ["daytwo (Update)"]
    carried_out(session, action_of(session, entry))
    assert kind.owners(api.ask("GET", f"{HPAS}/web"), field) == ["daytwo"]
    proof, removed = carried_out(session, action_of(session, "absent"))
    assert "it is gone" in proof
    assert "field manager daytwo" in undone(session, removed)
    assert api.ask("GET", f"{HPAS}/web")["spec"]["maxReplicas"] == 4
    assert "it is gone" in undone(session, created)
    # What the controller cannot handle is reverted.
    broken = action_of(session, {"max": 4, "pods": {"nobody-has-it": "5"}})
    with pytest.raises(Undone, match=r"FailedGetPodsMetric|unable to get metric"):
        carried_out(session, broken, seconds=4)
    assert session.fetch(f"{HPAS}/web") is None
