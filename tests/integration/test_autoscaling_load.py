"""A long run beside a real kube-controller-manager, in a control plane without nodes: five autoscalers with all types of metrics, behavior,
and pods that are unready, new or without a sample, under a generated load. Each count that the controller sets is compared with daytwo's.

    DAYTWO_AUTOSCALING_MINUTES=15 .venv/bin/python -m pytest tests/integration/test_autoscaling_load.py -s
"""

from __future__ import annotations

import os
import random
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from roles.engine.api import errors
from roles.engine.autoscaling import JudgedAutoscaler, ScalingController, judge, read_autoscalers
from roles.engine.autoscaling.controller import leader, read_lease
from roles.engine.autoscaling.decide import Decision
from tests.integration.load import APPS, CONTROLLERS, FLAGS, HPAS, KINDS, METRICS, SHOP, SYNC, WINDOW, Load, deployment, replicas, running
from tests.integration.metrics_api import CUSTOM, EXTERNAL, RESOURCE, VERSIONS, MetricsApi, objects, served
from tests.integration.operator import wait_for
from tests.integration.shadow import Shadow, shadow
from tests.lab import binaries

pytestmark = [pytest.mark.slow, pytest.mark.binaries]

MINUTES = float(os.environ.get("DAYTWO_AUTOSCALING_MINUTES", "2"))


BEHAVIOR: dict[str, dict[str, Any]] = {
    "side": {
        "scaleUp": {"stabilizationWindowSeconds": 3, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 5}], "tolerance": "200m"},
        "scaleDown": {"stabilizationWindowSeconds": 6, "policies": [{"type": "Percent", "value": 50, "periodSeconds": 10}]},
    },
    "rough": {
        "scaleUp": {
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 3}, {"type": "Pods", "value": 1, "periodSeconds": 3}],
            "selectPolicy": "Min",
        },
        "scaleDown": {"stabilizationWindowSeconds": 0, "tolerance": "50m"},
    },
}


class Reading:
    """The reading half of an Api."""

    host = "shadow"

    def __init__(self, api: Shadow) -> None:
        self._api = api

    def get_json(self, path: str, timeout: float = 0.0, *, wait: float = 0.0) -> dict[str, Any]:
        try:
            return self._api.ask("GET", path)
        except urllib.error.HTTPError as error:
            raise errors.by_status(self.host, path, error.code, error.read()) from None


def autoscaler(name: str) -> dict[str, Any]:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1, "maxReplicas": 12, "metrics": METRICS[name],
        **({"behavior": BEHAVIOR[name]} if name in BEHAVIOR else {}),
    }  # fmt: skip
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shadow, MetricsApi]]:
    folder: Path = tmp_path_factory.mktemp("shadow")
    with shadow(folder, binaries.get(binaries.DEFAULT_VERSION), CONTROLLERS, *FLAGS) as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        api.create(f"{SHOP}/services", {"metadata": {"name": "site"}, "spec": {"ports": [{"port": 80}]}})

        def pods(namespace: str, selector: str) -> list[dict[str, Any]]:
            return [pod for pod in api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}") if running(pod)]

        with served(folder, "127.0.0.1", pods) as metrics:
            for item in objects(metrics, "127.0.0.1", RESOURCE, CUSTOM, EXTERNAL):
                api.ask("POST", KINDS[item["kind"]], item)
            for group, version in VERSIONS.items():
                path = f"{KINDS['APIService']}/{version}.{group}"
                wait_for(lambda path=path: '"status": "True"' in str(api.ask("GET", path)).replace("'", '"'), f"{group}")  # type: ignore[misc]
            yield api, metrics


# ---- the load, and the pods


# ---- one comparison


@dataclass(frozen=True)
class Sample:
    """One look at one autoscaler. `later`: what daytwo computes from the same readings for the end of the wait."""

    name: str
    judged: JudgedAutoscaler
    later: Decision
    said: int
    condition: str

    @property
    def kind(self) -> str:
        now, later = self.judged.decision, self.later
        if now.failed and self.said == now.current:
            active = now.condition("ScalingActive")
            return "no count" if active is not None and self.condition in ("", f"{active.status} {active.reason}") else "differs"
        if now.desired == self.said:
            return "equal"
        if now.lowest <= self.said <= now.highest:
            return "in range"
        return "at a limit in time" if later.lowest <= self.said <= later.highest else "differs"

    def __str__(self) -> str:
        found = self.judged.decision
        rows = "; ".join(f"{row.metric.title} {row.now} asks for {row.proposal}" for row in found.rows)
        return f"{self.name}: {self.kind}: the controller set {self.said}, daytwo: {found.text} [{rows}] {' '.join(found.unknown)} {self.condition}"


def looked(api: Shadow) -> tuple[dict[str, JudgedAutoscaler], dict[str, Decision]]:
    """What daytwo computes for now; and for a few seconds later, from the same readings."""
    reading: Any = Reading(api)
    lease = read_lease(reading)
    now = datetime.now(UTC)
    controller = ScalingController(36, downscale_stabilization=WINDOW, sync_period=SYNC, leads_since=leader(lease)[1])
    world = read_autoscalers(reading, controller, now)
    later = judge(world, controller, now + timedelta(seconds=3 * SYNC))
    return ({one.autoscaler.name: one for one in judge(world, controller, now)}, {one.autoscaler.name: one.decision for one in later})


def answers(api: Shadow, metrics: MetricsApi, before: dict[str, int]) -> dict[str, int]:
    """What the controller sets next for each workload: its first other count; or the same one, if a whole sync has left it."""
    first: dict[str, int] = {}
    since = len(metrics.asked)

    def done() -> bool:
        found = replicas(api)
        asked = metrics.asked[since:]
        for name, count in before.items():
            if name not in first and found[name] != count:
                first[name] = found[name]
            # A sync that had begun, a whole one, and the first question of the next one.
            elif name not in first and sum(name in path for path in asked) > 2 * len(METRICS[name]):
                first[name] = count
        return len(first) == len(before)

    wait_for(done, "two looks of the controller at each autoscaler", every=0.05)
    return first


def one_look(api: Shadow, metrics: MetricsApi, load: Load) -> tuple[list[Sample], int]:
    """The samples, and how many were left out as the controller was in the middle of a change."""
    load.settle()
    judged, later = looked(api)
    before = replicas(api)
    usable = {name: count for name, count in before.items() if judged[name].decision.current == count}
    said = answers(api, metrics, usable)
    found = []
    for name, count in said.items():
        status = (api.ask("GET", f"{HPAS}/{name}").get("status") or {}).get("conditions") or ()
        active = next((f"{one['status'] == 'True'} {one.get('reason')}" for one in status if one["type"] == "ScalingActive"), "")
        found.append(Sample(name, judged[name], later[name], count, active if count == usable[name] else ""))
    return found, len(before) - len(usable)


def test_each_count_under_a_generated_load(cluster: tuple[Shadow, MetricsApi]) -> None:
    api, metrics = cluster
    load = Load(api, metrics, random.Random(36))
    load.next()
    for name in METRICS:
        api.create(APPS, deployment(name))
        api.create(HPAS, autoscaler(name))
    wait_for(lambda: len(replicas(api)) == len(METRICS), "the workloads")
    load.settle()
    wait_for(lambda: all("conditions" in (item.get("status") or {}) for item in api.items(HPAS)), "the controller")
    samples, left_out, until = list[Sample](), 0, time.monotonic() + MINUTES * 60
    while time.monotonic() < until:
        load.next()
        for _ in range(2):
            found, skipped = one_look(api, metrics, load)
            samples, left_out = samples + found, left_out + skipped
            for one in found:
                if one.kind not in ("equal", "no count"):
                    print(f"{time.monotonic() - until + MINUTES * 60:.0f} s: {one}")
    report(samples, left_out, load)
    wrong = [str(one) for one in samples if one.kind == "differs"]
    assert not wrong, f"{len(wrong)} of {len(samples)} differ:\n" + "\n".join(wrong)
    kinds = Counter(one.kind for one in samples)
    # The others are in a range: what decides is in the controller's memory only. In 15 minutes, 93 of 100 were exact.
    assert kinds["equal"] + kinds["no count"] >= 0.8 * len(samples) and len({one.said for one in samples}) > 5, kinds


def report(samples: list[Sample], left_out: int, load: Load) -> None:
    kinds = ("equal", "no count", "in range", "at a limit in time", "differs")
    print(f"\n{'autoscaler':12}{'samples':>9}" + "".join(f"{kind:>20}" for kind in kinds))
    for name in (*METRICS, ""):
        chosen = [one for one in samples if not name or one.name == name]
        found = Counter(one.kind for one in chosen)
        print(f"{name or 'all':12}{len(chosen):>9}" + "".join(f"{found[kind]:>20}" for kind in kinds))
    changes = sum(one.said != one.judged.decision.current for one in samples)
    print(f"{changes} changes of a count, counts {sorted({one.said for one in samples})}, left out in the middle of a change: {left_out}")
    print(f"pods: {dict(Counter(load.fates.values()))}")
