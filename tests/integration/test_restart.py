"""Workloads restarted on a real cluster: one after another under a budget, undone where new pods do not become Ready, undone by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.operator import Outcome, data, pyinfra
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

# A pod becomes Ready if the ConfigMap said so when it started: pods that run are not affected by its change.
CONTAINER = {
    "name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never",
    "env": [{"name": "STARTS", "valueFrom": {"configMapKeyRef": {"name": "t-c", "key": "starts"}}}],
    "readinessProbe": {"exec": {"command": ["/bin/sh", "-c", 'test "$STARTS" = yes']}, "periodSeconds": 1},
}  # fmt: skip


def make(lab: Lab, name: str) -> None:
    """Two pods, with a budget that lets one of them go, and a roll-out that ends none before a new one is Ready."""
    labels, place = {"app": name, "t-mine": "yes"}, {"namespace": "default", "name": name}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [CONTAINER]}
    spec = {"replicas": 2, "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}, "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": pod}
    items: list[dict[str, Any]] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**place, "labels": labels}, "spec": {**spec, "template": template}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": place,
         "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}},
    ]  # fmt: skip
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def pods(lab: Lab, name: str) -> set[str]:
    return set(lab.kubectl("get", "pods", "-n", "default", "-l", f"app={name}", "-o", "name").split())


def rows(told: Outcome) -> list[str]:
    return re.findall(r"^Deployment default/t-[ab]  +update  +(\S+(?: started)?)  ", told.out, re.MULTILINE)


@pytest.fixture
def workloads(lab: Lab) -> Iterator[None]:
    lab.kubectl("create", "configmap", "t-c", "-n", "default", "--from-literal=starts=yes")
    for name in ("t-a", "t-b"):
        make(lab, name)
    for name in ("t-a", "t-b"):
        lab.kubectl("rollout", "status", f"deployment/{name}", "-n", "default", "--timeout=280s")
    yield
    lab.kubectl("delete", "deployment,poddisruptionbudget,configmap", "t-a", "t-b", "t-c", "-n", "default", "--wait")
    lab.kubectl("delete", "pods", "-n", "default", "-l", "t-mine", "--now", "--wait")
    operator.forget(lab)


def test_restarted_undone_by_name_and_undone_by_itself(lab: Lab, workloads: None) -> None:
    before = pods(lab, "t-a"), pods(lab, "t-b")
    told = pyinfra("restart", *data(workload_selector="default/t-mine=yes"), "-y")
    assert told.code == 0 and rows(told) == ["done", "done"], told.all
    assert told.out.index("[1/2] Deployment default/t-a") < told.out.index("[2/2] Deployment default/t-b")
    after = pods(lab, "t-a"), pods(lab, "t-b")
    assert not any(map(set.intersection, before, after)) and [len(one) for one in after] == [2, 2]

    (run,) = set(re.findall(r"rollback\.py --data run=(\S+)", told.out))
    undone = pyinfra("rollback", *data(run=run), "-y")
    assert undone.code == 0 and rows(undone) == ["done", "done"] and not pods(lab, "t-a") & after[0], undone.all
    assert "restartedAt" not in lab.kubectl("get", "deployment", "t-a", "-n", "default", "-o", "yaml")

    lab.kubectl("patch", "configmap", "t-c", "-n", "default", "-p", '{"data": {"starts": "no"}}')
    served = pods(lab, "t-a")
    told = pyinfra("restart", *data(restart="default/deployment/t-a,default/deployment/t-b", rollout_timeout="10"), "-y")
    assert told.code == 1 and rows(told) == ["reverted", "not started"] and "HALTED" in told.out, told.all
    assert pods(lab, "t-a") == served and "runs and is not ready" in told.out, told.all

    told = pyinfra("restart", *data(restart="default/deployment/t-c"), "--dry")
    assert told.code == 1 and "Deployment default/t-c: it does not exist" in " ".join(told.all.split()), told.all
