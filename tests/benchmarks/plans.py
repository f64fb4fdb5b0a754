"""What plans cost in CPU, by the size of the cluster: from the objects as they were read, without the reading. Workloads of several pods
have a budget each, all in one namespace."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

from roles.engine.disruption import DisruptionObjects, budget_states, lint
from roles.engine.outage import DrainConsents, plan_drain
from roles.engine.outage.lint_places import with_places
from roles.engine.packing import plan, read
from roles.engine.placement import forecast
from tests.benchmarks.packing.clusters import cluster
from tests.benchmarks.summary import table
from tests.benchmarks.world import ROOT, say

PAGE = ROOT / "docs" / "scale.md"
PODS_PER_NODE, NAMESPACE = 20, "d"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Measured = dict[str, float]


def objects(nodes: int, seed: int = 1, spread: float = 0.0) -> tuple[dict[str, Any], DisruptionObjects]:
    """A cluster as the planner of consolidation reads it, and as a drain reads it: with a Deployment for each workload, and a budget that
    lets one pod of it go."""
    made = cluster(seed, nodes, PODS_PER_NODE, 0, spread)
    replicas = Counter(pod["metadata"]["labels"]["app"] for pod in made["pods"])
    first = {pod["metadata"]["labels"]["app"]: pod for pod in reversed(made["pods"])}
    kinds: dict[str, list[dict[str, Any]]] = {"Deployment": [], "ReplicaSet": [], "PodDisruptionBudget": []}
    for app, count in replicas.items():
        template = {
            "metadata": {"labels": {"app": app}},
            "spec": {key: one for key, one in first[app]["spec"].items() if key != "nodeName"},
        }
        spec = {"replicas": count, "selector": {"matchLabels": {"app": app}}, "template": template}
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app, "uid": f"deployment-{app}", "controller": True}
        kinds["Deployment"].append(_object(app, f"deployment-{app}", spec, {"replicas": count, "readyReplicas": count}))
        kinds["ReplicaSet"].append(_object(app, f"owner-{app}", spec, {"replicas": count}, ownerReferences=[owner]))
        if count > 1:
            status = {"expectedPods": count, "desiredHealthy": count - 1, "currentHealthy": count, "disruptionsAllowed": 1}
            rule = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}
            kinds["PodDisruptionBudget"].append(_object(app, f"budget-{app}", rule, {**status, "observedGeneration": 1}))
    names = ("StatefulSet", "ReplicationController", "DaemonSet", "Job", "Service", "PersistentVolumeClaim", "PersistentVolume")
    none: dict[str, list[dict[str, Any]]] = {name: [] for name in (*names, "CSIDriver", "CSINode", "VolumeAttachment", "Namespace")}
    return made, DisruptionObjects({**none, **kinds, "Node": made["nodes"], "Pod": made["pods"]})


def _object(name: str, uid: str, spec: object, status: object, **more: object) -> dict[str, Any]:
    return {"metadata": {"namespace": NAMESPACE, "name": name, "uid": uid, "generation": 1, **more}, "spec": spec, "status": status}


def jobs(nodes: int) -> dict[str, Callable[[], object]]:
    """What is measured, by its name in the table."""
    made, read_objects = objects(nodes)

    def fresh() -> DisruptionObjects:
        """What one plan has found out is not there for the next one."""
        return DisruptionObjects(read_objects.objects)

    def audit() -> None:
        live = fresh()
        states = budget_states(live, NOW)
        with_places(lint(live, states, NOW), live, states, NOW)

    def forecasts() -> None:
        there: dict[str, list[Any]] = {}
        for pod in made["pods"]:
            there.setdefault(pod["spec"]["nodeName"], []).append(pod)
        for node in made["nodes"]:
            forecast(there.get(node["metadata"]["name"], ()), node, {}, {})

    return {
        "drain of 1": lambda: plan_drain(fresh(), ["w0"], DrainConsents(), NOW),
        "drain of 10": lambda: plan_drain(fresh(), [f"w{number}" for number in range(10)], DrainConsents(), NOW),
        "states of budgets": lambda: budget_states(fresh(), NOW),
        "audit of budgets": audit,
        "all forecasts": forecasts,
        "consolidation": lambda: plan(read(made)),
    }


def measure(sizes: Sequence[int], runs: int) -> list[Measured]:
    """By size: numbers of nodes, pods and budgets, and CPU seconds of each job, of its quickest run: others share the machine's caches."""
    # As config.py does for a run.
    gc.set_threshold(50_000, 20, 50)
    rows = []
    for size in sizes:
        _, live = objects(size)
        row: Measured = {"nodes": size, "pods": len(live.of("Pod")), "budgets": len(live.of("PodDisruptionBudget"))}
        for name, job in jobs(size).items():
            row[name] = min(_seconds(job) for _ in range(runs))
            say(f"{size} nodes, {name}: {row[name]:.2f} s CPU")
        rows.append(row)
    return rows


def _seconds(job: Callable[[], object]) -> float:
    begun = process_time()
    job()
    return process_time() - begun


def lines(rows: Sequence[Measured]) -> list[str]:
    """The table in Markdown."""
    return table(list(rows[0]), [[f"{value:.2f}" if isinstance(value, float) else value for value in row.values()] for row in rows])


def write(rows: Sequence[Measured], page: Path = PAGE) -> None:
    """The table into docs/scale.md."""
    before, mark, rest = page.read_text(encoding="utf-8").partition("<!-- table: plans -->\n")
    _, end, after = rest.partition("<!-- end -->")
    page.write_text(before + mark + "\n".join(lines(rows)) + "\n" + end + after, encoding="utf-8")
