"""Workloads under load beside a real kube-controller-manager: their autoscalers, their metrics, and what happens in a round."""

from __future__ import annotations

import contextlib
import random
import urllib.error
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from tests.integration.metrics_api import MetricsApi
from tests.integration.operator import wait_for
from tests.integration.shadow import Shadow

SYNC, WINDOW = 1, 4
FLAGS = (
    f"--horizontal-pod-autoscaler-sync-period={SYNC}s",
    f"--horizontal-pod-autoscaler-downscale-stabilization={WINDOW}s",
    "--leader-elect-retry-period=1s",
)
CONTROLLERS = "deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller"
SHOP = "/api/v1/namespaces/shop"
APPS, HPAS = "/apis/apps/v1/namespaces/shop/deployments", "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
KINDS = {"Service": "/api/v1/namespaces/kube-system/services", "APIService": "/apis/apiregistration.k8s.io/v1/apiservices"}
MERGE = "application/merge-patch+json"


def resource(name: str, target: dict[str, Any], container: str = "") -> dict[str, Any]:
    if container:
        return {"type": "ContainerResource", "containerResource": {"name": name, "container": container, "target": target}}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def percent(number: int) -> dict[str, Any]:
    return {"type": "Utilization", "averageUtilization": number}


def average(amount: str) -> dict[str, Any]:
    return {"type": "AverageValue", "averageValue": amount}


def custom(kind: str, name: str, target: dict[str, Any]) -> dict[str, Any]:
    more = {"describedObject": {"apiVersion": "v1", "kind": "Service", "name": "site"}} if kind == "object" else {}
    return {"type": kind.capitalize(), kind: {"metric": {"name": name}, "target": target, **more}}


VALUE = "Value"
#: What scales each workload. All metrics of one have its name in the paths that the controller asks for.
METRICS: dict[str, list[dict[str, Any]]] = {
    "web": [resource("cpu", percent(50)), custom("pods", "web-hits", average("10")), custom("external", "web-queue", average("30"))],
    "side": [resource("cpu", percent(60), "app")],
    "site": [
        custom("object", "site-requests", {"type": VALUE, "value": "100"}),
        custom("object", "site-share", average("20")),
        custom("external", "site-depth", {"type": VALUE, "value": "50"}),
    ],
    "rough": [resource("cpu", average("50m")), resource("memory", percent(70))],
    "plain": [resource("cpu", percent(50))],
}


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    containers = [{"name": "app", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}]
    if name == "side":
        # Its metric is one container's: the other one needs no request.
        containers.append({"name": "proxy", "image": "none"})
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def running(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


class Load:
    """What happens to the pods, and what they are said to use. There is no kubelet: a new pod gets one of some fates."""

    # Seconds since the start of the pod, and since the last change of its readiness; whether it is Ready.
    FATES: ClassVar[dict[str, tuple[int, int, bool]]] = {
        "old": (3600, 3600, True),
        "young": (40, 30, True),
        "fresh": (10, 5, True),
        "not yet": (10, 8, False),
        "never": (3600, 3595, False),
        "fell": (3600, 600, False),
        "silent": (3600, 3600, True),
        "pending": (0, 0, False),
    }
    WEIGHTS = (10, 2, 2, 1, 1, 1, 2, 1)

    def __init__(self, api: Shadow, metrics: MetricsApi, chance: random.Random) -> None:
        self._api, self._metrics, self._chance = api, metrics, chance
        self.fates: dict[str, str] = {}

    def next(self) -> None:
        """Other values. Sometimes the external metric of one workload is gone."""
        one, metrics = self._chance.choice, self._metrics
        for app in METRICS:
            metrics.cpu[app] = f"{one([5, 20, 45, 50, 54, 56, 60, 72, 80, 130])}m"
        metrics.memory["rough"] = one(["20Mi", "60Mi", "70Mi", "80Mi", "120Mi"])
        metrics.custom["web-hits"] = one(["1", "5", "9", "10", "12", "25", "10500m"])
        metrics.custom["site-requests"] = one(["0", "60", "95", "111", "180", "400"])
        metrics.custom["site-share"] = one(["10", "45", "66", "120"])
        metrics.external["web-queue"] = one(["0", "10", "31", "65", "100", "350"])
        metrics.external["site-depth"] = one(["5", "49", "56", "120"])
        if self._chance.random() < 0.1:
            del metrics.external["web-queue"]

    def settle(self) -> None:
        """Each pod has its fate, each workload its pods. All samples are of now."""
        wait_for(self._settled, "the pods", every=0.1)
        self._metrics.at = datetime.now(UTC)

    def _settled(self) -> bool:
        there = Counter[str]()
        for pod in self._api.items(f"{SHOP}/pods"):
            name = pod["metadata"]["name"]
            with contextlib.suppress(urllib.error.HTTPError):
                if pod["metadata"].get("deletionTimestamp"):
                    self._api.clear(f"{SHOP}/pods/{name}")
                    continue
                if name not in self.fates:
                    self._begin(name)
            there[pod["metadata"]["labels"]["app"]] += 1
        return all(there[name] == count for name, count in replicas(self._api).items())

    def _begin(self, name: str) -> None:
        (fate,) = self._chance.choices(tuple(self.FATES), self.WEIGHTS)
        self.fates[name] = fate
        if fate == "silent":
            self._metrics.silent.add(name)
        if fate == "pending":
            return
        started, changed, ready = self.FATES[fate]
        at = datetime.now(UTC)
        conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": written(at - timedelta(seconds=changed))}]
        status = {"phase": "Running", "startTime": written(at - timedelta(seconds=started)), "conditions": conditions}
        self._api.ask("PATCH", f"{SHOP}/pods/{name}/status", {"status": status}, MERGE)


def written(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def replicas(api: Shadow) -> dict[str, int]:
    return {item["metadata"]["name"]: int(item["spec"]["replicas"]) for item in api.items(APPS)}
