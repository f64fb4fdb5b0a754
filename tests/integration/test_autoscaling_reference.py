"""daytwo's computation of an autoscaler against the controller's own code, on thousands of random cases."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from roles.engine.autoscaling import Autoscaler, ScalingController
from roles.engine.autoscaling.decide import Decision, ScalingScene, decide
from roles.engine.autoscaling.limits import Past, ScalingHistory
from roles.engine.autoscaling.model import LiveScale, NoReading, PodSamples, Reading, Sample, Total
from tests.integration.hpa_reference import answers

pytestmark = [pytest.mark.slow, pytest.mark.binaries]

CASES = int(os.environ.get("DAYTWO_AUTOSCALING_CASES", "5000"))
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
# The image of the API server's defaults (pkg/apis/autoscaling/v2/defaults.go), which the controller relies on.
UP = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
    {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]}  # fmt: skip
DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
NEVER_RUNS = "no metrics returned from resource metrics API"


class Case:
    """One random case, in the shapes of both sides."""

    def __init__(self, chance: random.Random, minor: int) -> None:
        self.chance, self.minor = chance, minor
        self.current = chance.choice([0, 1, 1, 2, 2, 3, 4, 5, 7, 10, 12])
        self.gates = {}
        if minor >= 33:
            self.gates["HPAConfigurableTolerance"] = chance.random() < 0.7
        self.gates["HPAScaleToZero"] = chance.random() < 0.5
        self.pods, self.ages = self._pods()
        self.readings: dict[str, dict[str, Any]] = {}
        self.metrics = [self._metric(number) for number in range(chance.choice([1, 1, 1, 2, 3]))]
        self.minimum = chance.choice([0, 1, 1, 1, 2, 3])
        self.maximum = max(self.minimum, 1, chance.choice([1, 2, 3, 5, 8, 10, 20]))
        self.behavior = self._behavior() if chance.random() < 0.6 else None
        self.tolerance = chance.choice([0.1, 0.1, 0.1, 0.0, 0.05, 0.3])
        self.times = {
            "downscale": chance.choice([300, 300, 30, 0]),
            "cpu": chance.choice([300, 300, 60, 0]),
            "readiness": chance.choice([30, 30, 10, 90]),
        }
        self.recommendations, self.ups, self.downs = (self._past(12), self._past(3), self._past(3))
        self.selector = chance.choice(["app=web"] * 12 + [""])
        self.zero = chance.random() < 0.5
        self.existing = chance.choice([self.current, len(self.pods), self.current])

    def _past(self, most: int) -> list[dict[str, int]]:
        ages = [4, 12, 20, 28, 40, 55, 70, 100, 150, 250, 290, 310, 500, 700]
        return [
            {"age": self.chance.choice(ages), "number": self.chance.randint(0 if most > 5 else 1, most)}
            for _ in range(self.chance.choice([0, 1, 2, 5]))
        ]

    def _container(self, name: str) -> dict[str, Any]:
        found = {}
        if self.chance.random() < 0.95:
            found["cpu"] = self.chance.choice(["100m", "100m", "0.25", "1", "1500u", "0"])
        if self.chance.random() < 0.95:
            found["memory"] = self.chance.choice(["100Mi", "64Mi", "1G", "1500m"])
        return {"name": name, "resources": {"requests": found}}

    def _pods(self) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
        chance, pods, ages = self.chance, [], {}
        for number in range(max(0, self.current + chance.choice([0, 0, 0, 0, 1, -1, 3]))):
            name = f"web-{number}"
            spec: dict[str, Any] = {"containers": [self._container("app")]}
            if chance.random() < 0.2:
                spec["containers"].append(self._container("proxy"))
            if chance.random() < 0.1:
                spec["initContainers"] = [{**self._container("mesh"), **({"restartPolicy": "Always"} if chance.random() < 0.6 else {})}]
            if chance.random() < 0.08 and self.minor >= 34:
                spec["resources"] = {"requests": {chance.choice(["cpu", "memory"]): "300m"}}
            if chance.random() < 0.05:
                spec["overhead"] = {"cpu": "50m", "memory": "10Mi"}
            status: dict[str, Any] = {"phase": chance.choice(["Running"] * 8 + ["Pending", "Failed", "Succeeded"])}
            if chance.random() < 0.95:
                status["conditions"] = [{"type": "Ready", "status": chance.choice(["True"] * 5 + ["False", "Unknown"])}]
            started = chance.choice([3600, 3600, 3600, 20, 45, 100, 295, 305, -1])
            changed = chance.choice([started, max(started - 25, 1), max(started - 35, 1), 5, 50])
            ages[name] = [float(started), float(changed), *([0.0] if chance.random() < 0.05 else [])]
            pods.append({"metadata": {"namespace": "shop", "name": name, "labels": {"app": "web"}}, "spec": spec, "status": status})
        return pods, ages

    def _samples(self, unit: int) -> dict[str, Any]:
        if self.chance.random() < 0.06:
            return {"problem": NEVER_RUNS}
        level = self.chance.choice([0.1, 0.3, 0.45, 0.5, 0.55, 0.6, 0.9, 2.0])
        found = {}
        for pod in self.pods:
            if self.chance.random() < 0.93:
                value = int(unit * level * self.chance.choice([1, 1, 1, 0.9, 1.1, 0.5]))
                found[pod["metadata"]["name"]] = {
                    "value": value,
                    "age": self.chance.choice([5, 15, 40]),
                    "window": self.chance.choice([15, 30, 60]),
                }
        if self.chance.random() < 0.03:
            found["gone"] = {"value": unit, "age": 5, "window": 30}
        return {"samples": found}

    def _metric(self, number: int) -> dict[str, Any]:
        chance = self.chance
        kind = chance.choice(["Resource", "Resource", "Resource", "ContainerResource", "Pods", "Object", "External"])
        if kind in ("Resource", "ContainerResource"):
            name = chance.choice(["cpu", "cpu", "memory"])
            unit = 100 if name == "cpu" else 100 * 2**20 * 1000
            target: dict[str, Any] = {"type": "Utilization", "averageUtilization": chance.choice([30, 50, 50, 80, 150])}
            if chance.random() < 0.3:
                target = {"type": "AverageValue", "averageValue": chance.choice(["50m", "100m"] if name == "cpu" else ["50Mi", "100M"])}
            source: dict[str, Any] = {"name": name, "target": target}
            key = name
            if kind == "ContainerResource":
                source["container"] = chance.choice(["app", "app", "proxy"])
                key = f"{name} of {source['container']}"
            self.readings[key] = self._samples(unit)
            return {"type": kind, kind[:1].lower() + kind[1:]: source}
        name = f"metric-{number}"
        if kind == "Pods":
            self.readings[name] = self._samples(10000)
            return {
                "type": kind,
                "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": chance.choice(["5", "5", "2500m"])}},
            }
        capped = kind == "External" and self.minor >= 35 and self.current
        # Counts beyond 32 bits depend on the controller's processor, where it does not cut them.
        total = chance.choice([0, 900, 4000, 9000, 10000, 10500, 25000, 90000, 2**52 if capped else 10**9])
        values = [total] if kind == "Object" else [total, *([chance.randint(0, 5000)] if chance.random() < 0.3 else [])]
        self.readings[name] = {"problem": "no metrics returned from external metrics API"} if chance.random() < 0.07 else {"values": values}
        target = chance.choice([{"type": "Value", "value": "10"}, {"type": "AverageValue", "averageValue": chance.choice(["10", "1500m"])}])
        source = {"metric": {"name": name}, "target": target}
        if chance.random() < 0.2:
            source["metric"] |= {"selector": {"matchLabels": {"queue": "b", "app": "a"}}}
        if kind == "Object":
            source["describedObject"] = {"apiVersion": "v1", "kind": "Service", "name": "web"}
        return {"type": kind, kind.lower(): source}

    def _behavior(self) -> dict[str, Any]:
        chance = self.chance

        def rules(default: dict[str, Any]) -> dict[str, Any]:
            found = dict(default)
            if chance.random() < 0.6:
                found["policies"] = [
                    {
                        "type": chance.choice(["Pods", "Percent"]),
                        "value": chance.choice([1, 2, 4, 10, 50, 100]),
                        "periodSeconds": chance.choice([10, 25, 60, 600]),
                    }
                    for _ in range(chance.choice([1, 2, 3]))
                ]
            found["selectPolicy"] = chance.choice(["Max", "Max", "Min", "Disabled"])
            if chance.random() < 0.6:
                found["stabilizationWindowSeconds"] = chance.choice([0, 25, 60, 200])
            if chance.random() < 0.3:
                found["tolerance"] = chance.choice(["0", "50m", "100m", "200m", "1"])
            return found

        return {"scaleUp": rules(UP), "scaleDown": rules(DOWN)}

    # ---- both sides

    @property
    def hpa(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": self.minimum, "maxReplicas": self.maximum, "metrics": self.metrics,
        }  # fmt: skip
        if self.behavior is not None:
            spec["behavior"] = self.behavior
        status: dict[str, Any] = {"desiredReplicas": 77, "currentReplicas": 0, "currentMetrics": []}
        if self.zero:
            status["conditions"] = [
                {"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero", "message": "", "lastTransitionTime": None}
            ]
        return {"metadata": {"namespace": "shop", "name": "web"}, "spec": spec, "status": status}

    def question(self) -> dict[str, Any]:
        return {
            "hpa": self.hpa, "pods": self.pods, "ages": self.ages, "spec": self.current, "status": self.existing, "selector": self.selector,
            "readings": self.readings, "recommendations": self.recommendations, "ups": self.ups, "downs": self.downs,
            "gates": ",".join(f"{name}={'true' if on else 'false'}" for name, on in self.gates.items()), "tolerance": self.tolerance, **self.times,
        }  # fmt: skip

    def decision(self) -> Decision:
        controller = ScalingController(
            self.minor, self.tolerance, self.times["downscale"], self.times["cpu"], self.times["readiness"], gates=self.gates
        )
        listed = [_past(one) for one in (self.recommendations, self.ups, self.downs)]
        history = ScalingHistory(*listed, recommendations_since=_ago(10**6), changes_since=_ago(10**6))
        if not history.recommendations:
            # The controller has just recorded the count that it found.
            history = replace(history, recommendations=(Past(_ago(0.001), self.current),))
        scale = LiveScale(self.current, self.existing, self.selector)
        readings = [self._reading(one) for one in self.metrics]
        pods = [self._as_read(pod) for pod in self.pods]
        return decide(ScalingScene(Autoscaler.of(self.hpa), scale, "", pods, readings, history=history), controller, NOW)

    def _as_read(self, pod: dict[str, Any]) -> dict[str, Any]:
        ages = self.ages[pod["metadata"]["name"]]
        status = dict(pod["status"])
        if ages[0] >= 0:
            status["startTime"] = _text(ages[0])
        status["conditions"] = [{**one, "lastTransitionTime": _text(ages[1])} for one in status.get("conditions") or ()]
        metadata = {**pod["metadata"], **({"deletionTimestamp": _text(0)} if len(ages) > 2 else {})}
        return {**pod, "metadata": metadata, "status": status}

    def _reading(self, metric: dict[str, Any]) -> Reading:
        source = metric[metric["type"][:1].lower() + metric["type"][1:]]
        key = source.get("name") or source["metric"]["name"]
        found = self.readings[f"{key} of {source['container']}" if "container" in source else key]
        if "problem" in found:
            return NoReading(found["problem"])
        if "values" in found:
            return Total(tuple(found["values"]), NOW)
        return PodSamples({name: Sample(one["value"], _ago(one["age"]), one["window"]) for name, one in found["samples"].items()})


def _ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def _text(seconds: float) -> str:
    return _ago(seconds).isoformat()


def _past(listed: list[dict[str, int]]) -> tuple[Past, ...]:
    return tuple(Past(_ago(one["age"]), one["number"]) for one in listed)


def _without_order(message: str) -> str:
    """The first pod or container without a request is the first of a Go map."""
    return re.sub(r"(missing (pod-level )?request for|container \w+ not found in Pod) .*", "missing", message)


def differences(case: Case, ours: Decision, theirs: dict[str, Any]) -> list[str]:
    """How the two differ."""
    found = []
    status = theirs["status"]
    if not ours.failed and ours.desired != status["desiredReplicas"]:
        found.append(f"desired {ours.desired}, not {status['desiredReplicas']}")
    if bool(ours.failed) != (status["desiredReplicas"] == 77):
        found.append(f"failed {ours.failed!r}, and theirs {theirs['error']!r}")
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    for one in ours.conditions:
        other = conditions.get(one.type) or {}
        if other.get("reason") == "SucceededRescale":
            continue
        if (str(one.status), one.reason) != (other.get("status"), other.get("reason")):
            found.append(f"{one}, not {other.get('status')} {other.get('reason')}")
        elif _without_order(one.message) != _without_order(str(other.get("message"))):
            found.append(f"{one.message!r}, not {other.get('message')!r}")
    for row, other in zip(ours.rows, status.get("currentMetrics") or (), strict=False):
        source = next((value for key, value in other.items() if key != "type" and value), {})
        current = source.get("current") or {}
        if row.valid and row.utilization is not None and current.get("averageUtilization") != row.utilization:
            found.append(f"{row.metric}: {row.utilization} %, not {current}")
        if not row.valid and other.get("type"):
            found.append(f"{row.metric}: invalid ({row.message}), not {current}")
        if row.valid and not other.get("type"):
            found.append(f"{row.metric}: {row.now}, and they have none")
    return found


@pytest.mark.parametrize("version", ["1.36.3", "1.32.5"])
def test_every_decision_is_the_controller_s(version: str) -> None:
    minor = int(version.split(".")[1])
    cases = [Case(random.Random(seed), minor) for seed in range(CASES)]
    wrong, kinds = [], dict[str, int]()
    for seed, (case, theirs) in enumerate(zip(cases, answers(version, [one.question() for one in cases]), strict=True)):
        ours = case.decision()
        for one in ours.conditions:
            kinds[one.reason] = kinds.get(one.reason, 0) + 1
        if found := differences(case, ours, theirs):
            wrong.append(f"seed {seed}: {'; '.join(found)}")
    assert not wrong, f"{len(wrong)} of {CASES} differ:\n" + "\n".join(wrong[:20])
    # The cases reach everything that the controller can say.
    assert {"ScaleUpLimit", "ScaleDownLimit", "TooManyReplicas", "TooFewReplicas", "ScaleUpStabilized", "ScaleDownStabilized"} <= set(kinds)
    assert min(kinds.values()) >= CASES // 500, kinds
