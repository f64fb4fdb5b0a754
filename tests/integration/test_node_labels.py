"""Labels and taints of a node on a real cluster: set, left alone, refused, evicting, undone; others write the same node meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.operator import Outcome, data, pyinfra, refused, run_of, wait_for
from tests.lab import Lab, images

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("forgotten")]

WORKER = "w1"
POD = "t-evicted"


def run(*arguments: str, dry: bool = False, **values: str) -> Outcome:
    return pyinfra("node_labels", "--limit", WORKER, *data(**values), *arguments, "--dry" if dry else "-y")


def rollback(*arguments: str, **values: str) -> Outcome:
    return pyinfra("rollback", *data(**values), *arguments, "-y")


def get(lab: Lab, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", *what, "-o", "json", "--show-managed-fields"))
    return found


def labels(lab: Lab) -> dict[str, str]:
    return dict(get(lab, "node", WORKER)["metadata"]["labels"])


def taints(lab: Lab) -> set[str]:
    return {f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in get(lab, "node", WORKER)["spec"].get("taints") or ()}


def row(told: Outcome, outcome: str) -> str:
    """The node's row in the table at the end."""
    rows = [line for line in told.out.splitlines() if line.startswith(f"Node {WORKER}  ")]
    assert rows and re.search(rf"  {outcome}  ", rows[-1]), told.all
    return rows[-1]


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    """Whatever a test sets is gone after it."""
    before, tainted = labels(lab), taints(lab)
    yield
    lab.kubectl("uncordon", WORKER)
    wait_for(lambda: "node.kubernetes.io/unschedulable=:NoSchedule" not in taints(lab), "the controller to take its taint out")
    for key in sorted(set(labels(lab)) - set(before)):
        lab.kubectl("label", "node", WORKER, f"{key}-")
    for taint in sorted(taints(lab) - tainted):
        lab.kubectl("taint", "node", WORKER, taint.replace("=:", ":") + "-")
    lab.kubectl("delete", "pod", POD, "-n", "default", "--now", "--wait", "--ignore-not-found")
    wait_for(lambda: (labels(lab), taints(lab)) == (before, tainted), "the node to be as found")


def test_set_read_back_left_alone_and_undone(lab: Lab) -> None:
    lab.kubectl("label", "node", WORKER, "t-theirs=1")
    lab.kubectl("taint", "node", WORKER, "t-theirs=:PreferNoSchedule")
    before, tainted = labels(lab), taints(lab)
    wish = {"node_labels": "t-rack=a1,node-role.kubernetes.io/t-gpu=", "node_taints": "t-dedicated=gpu:NoSchedule"}

    told = run(dry=True, **wish)
    assert told.code == 0 and "t-rack: a1" in told.out and "t-dedicated" in told.out, told.all
    assert (labels(lab), taints(lab)) == (before, tainted), "a dry run writes nothing"

    told = run(**wish)
    assert told.code == 0 and "field manager daytwo" in told.out, told.all
    row(told, "done")
    assert "NOT PROVEN" not in told.out
    assert labels(lab) == {**before, "t-rack": "a1", "node-role.kubernetes.io/t-gpu": ""}
    assert taints(lab) == {*tainted, "t-dedicated=gpu:NoSchedule"}
    owned = {
        entry["operation"]: entry["fieldsV1"]
        for entry in get(lab, "node", WORKER)["metadata"]["managedFields"]
        if entry["manager"] == "daytwo"
    }
    assert set(owned["Apply"]["f:metadata"]["f:labels"]) == {"f:t-rack", "f:node-role.kubernetes.io/t-gpu"}
    assert "f:taints" in owned["Update"]["f:spec"] and "f:spec" not in owned["Apply"]

    again = run(**wish)
    assert again.code == 0 and "0 changes" in again.out, again.all
    row(again, "no change")

    # Somebody cordons the node: the controller writes the list, and its taint survives the undoing.
    lab.kubectl("cordon", WORKER)
    wait_for(lambda: "node.kubernetes.io/unschedulable=:NoSchedule" in taints(lab), "the controller's taint")
    back = rollback(run=run_of(told)).ended(0)
    row(back, "done")
    assert labels(lab) == before and taints(lab) == {*tainted, "node.kubernetes.io/unschedulable=:NoSchedule"}

    redone = rollback(run=run_of(back))
    assert redone.code == 0 and labels(lab)["t-rack"] == "a1" and "t-dedicated=gpu:NoSchedule" in taints(lab), redone.all


def test_what_others_own_needs_force_and_can_be_undone(lab: Lab) -> None:
    lab.kubectl("label", "node", WORKER, "t-theirs=1")
    lab.kubectl("taint", "node", WORKER, "t-theirs=1:NoSchedule")
    refused(run(node_labels="t-theirs=2"), "t-theirs", "kubectl-label", "force=true")
    refused(run(node_labels="t-theirs=absent"), "t-theirs is owned by kubectl-label", "force=true")
    refused(run(node_taints="t-theirs=absent"), "the list of taints is owned by", "force=true")
    told = run(node_labels="t-theirs=absent", node_taints="t-theirs=2:NoSchedule", force="true")
    assert told.code == 0 and "t-theirs" not in labels(lab) and "t-theirs=2:NoSchedule" in taints(lab), told.all

    lab.kubectl("label", "node", WORKER, "t-theirs=3")
    refused(rollback(run=run_of(told)), "foreign", "metadata.labels.t-theirs is '3'", "kubectl-label")
    forced = rollback(run=run_of(told), force="true")
    assert forced.code == 0 and labels(lab)["t-theirs"] == "1" and "t-theirs=1:NoSchedule" in taints(lab), forced.all


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"node_labels": "t_=x"}, "is not a valid key"),
        ({"node_labels": f"t-x={'x' * 64}"}, "is not a valid value of a label"),
        ({"node_labels": "kubernetes.io/hostname=x"}, "managed by the kubelet"),
        ({"node_taints": "node.kubernetes.io/unschedulable=:NoSchedule"}, "managed by a controller"),
        ({"node_taints": "t-x=y:Never"}, "effects are NoSchedule, PreferNoSchedule, NoExecute"),
    ],
)
def test_what_the_plan_refuses(lab: Lab, values: dict[str, str], words: str) -> None:
    before = labels(lab), taints(lab)
    refused(run(**values), words)
    assert (labels(lab), taints(lab)) == before


def test_pods_go_only_with_consent(lab: Lab) -> None:
    spec = {
        "nodeName": WORKER,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never"}],
    }
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": "default"}, "spec": spec}
    lab.kubectl("apply", "-f", "-", input=json.dumps(item))
    lab.kubectl("wait", f"pod/{POD}", "-n", "default", "--for=condition=Ready", "--timeout=120s")

    told = run(node_taints="t-empty=:NoExecute")
    refused(told, f"default/{POD} at once", "allow_evictions=true")
    assert get(lab, "pod", POD, "-n", "default")["status"]["phase"] == "Running"

    told = run(node_taints="t-empty=:NoExecute", allow_evictions="true")
    assert told.code == 0 and f"default/{POD}" in told.out.partition("evicted: ")[2].splitlines()[0], told.all
    row(told, "done")
    wait_for(lambda: not get(lab, "pods", "-n", "default", f"--field-selector=metadata.name={POD}")["items"], "the pod to be gone")
    back = rollback(run=run_of(told))
    assert back.code == 0 and "t-empty=:NoExecute" not in taints(lab), back.all
