"""VerticalPodAutoscalers beside their real recommender, updater and admission controller, in a control plane without nodes: what daytwo says
that the updater waits for or does next is what it does. There is no kubelet: a resize is one of the pod's spec."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from roles.autoscalers import explain_vertical, planned, read_desired, with_result
from roles.engine.autoscaling import judge_vertical, read_verticals
from roles.engine.objects import ObjectChange, ObjectPlan, Session
from tests.integration import vertical_programs
from tests.integration.load import APPS, CONTROLLERS, FLAGS, KINDS, SHOP, Load, deployment, running
from tests.integration.metrics_api import RESOURCE, MetricsApi, objects, served
from tests.integration.operator import wait_for
from tests.integration.shadow import Shadow, free_ports, shadow
from tests.integration.shadow_writes import ShadowApi, carried_out, undone
from tests.lab import binaries

pytestmark = [pytest.mark.slow, pytest.mark.binaries]

VPAS = "/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers"
ENTRY = {"mode": "InPlaceOrRecreate", "min": {"cpu": "150m"}, "max": {"cpu": "300m", "memory": "64Mi"}}


class Working(random.Random):
    """All pods run since an hour."""

    def choices(self, *_: Any, **__: Any) -> list[Any]:
        return ["old"]


def kubectl(folder: Path, *words: str, input: str | None = None) -> str:
    command = [str(binaries.get(binaries.DEFAULT_VERSION) / "kubectl"), f"--kubeconfig={folder}/kubeconfig", *words]
    return subprocess.run(command, input=input, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def started(folder: Path) -> Iterator[None]:
    """The three programs, on the loopback."""
    own = folder / "vertical"  # the control plane has a server.key too
    own.mkdir()
    for name, content in vertical_programs.certificates("127.0.0.1").items():
        (own / name).write_bytes(content)
    port, *others = free_ports(4)
    flags = vertical_programs.flags("127.0.0.1", port, str(own))
    programs = []
    try:
        for name, address in zip(vertical_programs.NAMES, others, strict=True):
            words = [
                str(binaries.extra(f"vpa-{name}")),
                f"--kubeconfig={folder}/kubeconfig",
                f"--address=127.0.0.1:{address}",
                *flags[name],
            ]
            with (folder / f"{name}.log").open("wb") as log:
                programs.append(subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}))
        wait_for(lambda: vertical_programs.WEBHOOK in kubectl(folder, "get", "mutatingwebhookconfigurations"), "the webhook")
        wait_for(lambda: "vpa-admission-controller" in kubectl(folder, "get", "leases", "-A"), "the admission controller's lease")
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shadow]:
    folder = tmp_path_factory.mktemp("shadow")
    with shadow(folder, binaries.get(binaries.DEFAULT_VERSION), CONTROLLERS, *FLAGS) as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        api.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}}})
        kubectl(folder, "apply", "--server-side", "-f", "-", input=vertical_programs.source("vpa-v1-crd-gen.yaml"))
        kubectl(folder, "wait", "--for=condition=Established", "crd/verticalpodautoscalers.autoscaling.k8s.io", "--timeout=60s")

        def pods(namespace: str, selector: str) -> list[dict[str, Any]]:
            where = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
            return [pod for pod in api.items(f"{where}?labelSelector={selector}") if running(pod)]

        with served(folder, "127.0.0.1", pods) as metrics:
            _workload(api, metrics)
            with started(folder):
                yield api


def _workload(api: Shadow, metrics: MetricsApi) -> None:
    """One pod, on a node."""
    metrics.cpu["web"], metrics.memory["web"] = "20m", "10Mi"
    for item in objects(metrics, "127.0.0.1", RESOURCE):
        api.ask("POST", KINDS[item["kind"]], item)
    item = deployment("web")
    item["spec"]["replicas"], item["spec"]["template"]["spec"]["nodeName"] = 1, "n1"
    api.create(APPS, item)
    Load(api, metrics, Working()).settle()
    metrics.at = None


def action_of(session: Session, entry: Any) -> ObjectChange:
    """The action with its dry run, and with what it means."""
    desired = read_desired([("cp1", {"vertical_autoscalers": {"shop/deployment/web": entry}}.get)])
    assert desired is not None
    plan = ObjectPlan()
    found = planned(desired.entries[0], session.fetch(f"{VPAS}/web"), desired, plan)
    assert found is not None and found.manifest is not None
    manifest = found.manifest
    result = session.asked(lambda api: api.apply(found.path, manifest, dry_run=True))
    made = with_result(found, result, plan)
    world = session.asked(lambda api: read_verticals(api, 36, {"shop"}, [result]))
    assert made is not None, plan
    explained = explain_vertical(made, judge_vertical(world.scenes[0], datetime.now(UTC)), plan, consent=False)
    assert not plan.refusals
    return explained


def requests(api: Shadow) -> dict[str, str]:
    (pod,) = api.items(f"{SHOP}/pods")
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def test_what_the_updater_waits_for_and_does(cluster: Shadow) -> None:
    session = Session(lambda: ShadowApi(cluster), 10)
    proof, created = carried_out(session, action_of(session, ENTRY))
    assert "RecommendationProvided=True; recommended: app cpu 150m (150m to 300m), memory 64.0Mi" in proof
    assert "the updater waits: 1 pod live, and it changes none below 2" in proof
    before = cluster.items(f"{SHOP}/pods")[0]["metadata"]["uid"]
    assert requests(cluster) == {"cpu": "100m", "memory": "100Mi"}
    action = action_of(session, {**ENTRY, "min_replicas": 1})
    assert any("the updater resizes pod web-" in note for note in action.notes), action.notes
    proof, changed = carried_out(session, action)
    assert "was resized in place, without a restart: app cpu 100m to 150m, app memory 100.0Mi to 64.0Mi" in proof
    assert "the requests of 1 pod are within the recommended range" in proof and "NOT PROVEN" not in proof
    assert requests(cluster) == {"cpu": "150m", "memory": "64Mi"}
    assert cluster.items(f"{SHOP}/pods")[0]["metadata"]["uid"] == before
    assert "RecommendationProvided=True" in undone(session, changed)
    assert cluster.ask("GET", f"{VPAS}/web")["spec"]["updatePolicy"] == {"updateMode": "InPlaceOrRecreate"}
    assert "it is gone; pods keep the requests" in undone(session, created)
    assert requests(cluster) == {"cpu": "150m", "memory": "64Mi"}
