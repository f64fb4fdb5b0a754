"""Placement against the real scheduler, in a shadow control plane: generated clusters, each pod in its turn. A false "fits" is a defect."""

from __future__ import annotations

import json
import urllib.error
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.engine.kube.pods import node_of
from roles.engine.placement import ClusterView, Placement, place_all
from roles.engine.shadow import Move
from tests.integration.operator import wait_for
from tests.integration.shadow import Shadow, asked, shadow
from tests.lab import binaries
from tests.unit.placement.cluster import Cluster, cluster_of

pytestmark = [pytest.mark.slow, pytest.mark.binaries]

CLUSTERS = 60
PODS = "/api/v1/namespaces/x/pods"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shadow]:
    with shadow(tmp_path_factory.mktemp("shadow"), binaries.get(binaries.DEFAULT_VERSION)) as found:
        found.create("/api/v1/namespaces", {"metadata": {"name": "x"}})
        yield found


def written(pod: dict[str, Any], on: str) -> dict[str, Any]:
    """A pod as the API takes it; on no node: for the scheduler."""
    made = json.loads(json.dumps({"metadata": pod["metadata"], "spec": pod["spec"]}))
    del made["metadata"]["uid"]
    made["spec"].pop("nodeName", None)
    made["spec"].pop("priority", None)
    if pod["spec"]["priority"]:
        made["spec"]["priorityClassName"] = f"of-{pod['spec']['priority']}"
    if on:
        made["spec"]["nodeName"] = on
    for container in made["spec"]["containers"]:
        container["image"] = "none"
    return made


def created(api: Shadow, one: Cluster) -> None:
    for node in one.nodes:
        made = json.loads(json.dumps(node))
        if made["metadata"]["name"] == "w0":
            made["spec"] = {"unschedulable": True, "taints": [*made["spec"]["taints"], CORDON]}
        api.create("/api/v1/nodes", made)
    for pod in (*one.resident, *one.moving):
        api.create(PODS, written(pod, pod["spec"]["nodeName"]))


def scheduled(api: Shadow, name: str) -> str | None:
    """The node; "" if the scheduler has found none; None if it has not said so yet."""
    found = api.ask("GET", f"{PODS}/{name}")
    said = any(one["type"] == "PodScheduled" for one in found["status"].get("conditions") or ())
    return str(found["spec"].get("nodeName") or "") if said else None


def moved(api: Shadow, one: Cluster, found: list[Placement]) -> Iterator[tuple[Placement, str]]:
    """Each pod leaves its node and is created again; the node that it gets."""
    for pod, placement in zip(one.moving, found, strict=True):
        name = pod["metadata"]["name"]
        api.clear(f"{PODS}/{name}")
        api.create(PODS, written(pod, ""))
        wait_for(lambda name=name: scheduled(api, name) is not None, f"the scheduler to have judged {name}", every=0.02)  # type: ignore[misc]
        yield placement, scheduled(api, name) or ""


def cleared(api: Shadow) -> None:
    for path in (PODS, "/api/v1/nodes"):
        api.clear(path)

    def gone() -> bool:
        for pod in api.items(PODS):
            try:
                api.clear(f"{PODS}/{pod['metadata']['name']}")
            except urllib.error.HTTPError as error:
                assert error.code == 404
        return not api.items(PODS) and not api.items("/api/v1/nodes")

    wait_for(gone, "an empty cluster", every=0.05)


def test_every_pod_that_fits_is_scheduled(api: Shadow) -> None:
    api.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "of-10"}, "value": 10, "preemptionPolicy": "PreemptLowerPriority"},
    )
    told: Counter[str] = Counter()
    wrong = []
    for seed in range(CLUSTERS):
        one = cluster_of(seed)
        created(api, one)
        there = ClusterView(api.items("/api/v1/nodes"), api.items("/api/v1/pods"), namespaces=api.items("/api/v1/namespaces"))
        moving = [next(pod for pod in there.pods if pod["metadata"]["name"] == own["metadata"]["name"]) for own in one.moving]
        found = place_all(moving, there, ["w0"])
        ended = list(moved(api, one, found))
        for each in found:
            if each.fits and each.after_others:  # the scheduler tries again when a partner has come
                name = each.pod.removeprefix("x/")
                wait_for(lambda name=name: scheduled(api, name), f"seed {seed}: {each}", seconds=60, every=0.1)  # type: ignore[misc]
        preempted = {pod["metadata"]["name"] for pod in api.items(PODS) if pod["metadata"].get("deletionTimestamp")}
        wrong += [f"seed {seed}: {each} was preempted" for each in found if each.fits and each.pod.removeprefix("x/") in preempted]
        for placement, node in ended:
            told[f"{placement.outcome}{' after others' if placement.after_others else ''}: {'scheduled' if node else 'left over'}"] += 1
            if (placement.fits and not placement.after_others and not node) or (
                node and not placement.after_others and placement.nodes[node].state == "no"
            ):
                wrong.append(f"seed {seed}: {placement}; in fact: {node or 'left over'}; {[(str(each), on) for each, on in ended]}")
        cleared(api)
    print(f"placement and the scheduler, {CLUSTERS} clusters: {dict(told)}")
    assert not wrong, "\n".join(wrong)
    assert told["fits: scheduled"] > CLUSTERS / 4 and told["nowhere: left over"] > CLUSTERS / 4, told


def test_no_question_changes_the_next_one(tmp_path: Path) -> None:
    """Five nodes, each with seven pods and room for one more: of the pods of any node four find room, as often as one asks."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    nodes = [
        {
            "metadata": {"name": f"w{one}", "uid": f"w{one}", "labels": {"kubernetes.io/hostname": f"w{one}"}},
            "status": {"allocatable": room},
        }
        for one in range(5)
    ]
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "500m"}}}
    pods = [
        {
            "metadata": {"name": f"p{one}", "uid": f"p{one}", "namespace": "x"},
            "spec": {"nodeName": f"w{one % 5}", "containers": [container]},
        }
        for one in range(35)
    ]
    objects = {"Namespace": [{"metadata": {"name": "x"}}], "Node": nodes, "Pod": pods}
    with asked(tmp_path, binaries.get(binaries.DEFAULT_VERSION), objects) as found:
        for number in range(20):
            node = f"w{number % 5}"
            moves = [[Move(pod, pod) for pod in pods if node_of(pod) == node]]
            verdict = found.ask(moves, cordon=[node]) if number % 2 else found.ask(moves, remove=[node])
            assert (len(verdict.of("placed")), len(verdict.of("pending"))) == (4, 3), verdict.pods
            assert node not in {one.node for one in verdict.pods} and not verdict.agrees
