"""Nodes as they are found, in the large cluster: a control plane with company beside its manifests, a worker as kubespray lays one out.
Every deploy that changes nodes works on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.integration import operator
from tests.integration.operator import GATE, data, pyinfra, wait_for
from tests.lab import Lab, images, layouts

pytestmark = pytest.mark.wide

PLANE, WORKER = "cp2", "w5"
FIELD = "authorization.webhook.cacheAuthorizedTTL"


@pytest.fixture(scope="module", autouse=True)
def laid_out(lab: Lab) -> Iterator[None]:
    lease = _renewed(lab)
    layouts.kubespray(lab, WORKER)
    layouts.keep_company(lab, PLANE)
    wait_for(lambda: _renewed(lab) != lease and "--node-ip=" in " ".join(_kubelet(lab)), f"the kubelet of {WORKER} in its new layout")
    wait_for(lambda: layouts.company_is_whole(lab, PLANE), f"the company of {PLANE} to run")
    yield
    layouts.take_back(lab, PLANE)
    wait_for(lambda: layouts.company_is_gone(lab, PLANE), f"the manifests of {PLANE} to be as before")
    operator.forget(lab)
    lab.reset(WORKER)


def _renewed(lab: Lab) -> str:
    return lab.kubectl("get", "lease", "-n", "kube-node-lease", WORKER, "-o", "jsonpath={.spec.renewTime}", check=False)


def _kubelet(lab: Lab) -> tuple[str, ...]:
    return operator.processes(lab, WORKER).get("kubelet", ())


def _configz(lab: Lab) -> dict[str, object]:
    told: dict[str, object] = json.loads(lab.kubectl("get", "--raw", f"/api/v1/nodes/{WORKER}/proxy/configz"))["kubeletconfig"]
    return told


def test_what_looks_sees_both(lab: Lab) -> None:
    before = {node: operator.files(lab, node) for node in (PLANE, WORKER)}
    status = pyinfra("status", "-y")
    assert status.code == 0, status.all
    assert re.search(rf"^{WORKER} +plain +kubelet .* {layouts.KUBESPRAY_CONFIG}$", status.out, re.MULTILINE), status.out
    assert re.search(rf"^{WORKER} +{layouts.KUBESPRAY_ENVIRONMENT} ", status.out, re.MULTILINE), status.out
    assert f"{PLANE}: {layouts.MANIFESTS}: daytwo does not understand these files as manifests" in status.out
    audit = pyinfra("audit", "-y", "--data", "format=json", "--limit", WORKER, "--limit", PLANE)
    assert audit.code in (0, 2) and "Traceback" not in audit.all, audit.all
    assert '"failures": []' in audit.out and f'"{layouts.KUBESPRAY_CONFIG}"' in audit.out, audit.out
    checks = pyinfra("checks", "-y", "--limit", WORKER, "--limit", PLANE)
    failed = set(re.findall(r"^(\w+) +([a-z-]+) +(?:FAIL|UNKNOWN)\b", checks.out, re.MULTILINE))
    assert failed == {(PLANE, "manifests-clean"), (PLANE, "manifests-pods")}, checks.out
    assert {node: operator.files(lab, node) for node in (PLANE, WORKER)} == before


def test_gates_on_both_are_changed_and_put_back(lab: Lab) -> None:
    before = {node: operator.files(lab, node) for node in (PLANE, WORKER)}
    old = {node: operator.processes(lab, node) for node in (PLANE, WORKER)}
    # The kubelet of one, the scheduler of the other.
    limits = {WORKER: "kubelet", PLANE: "kube-scheduler"}
    for node, component in limits.items():
        on = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", only=node, components=component))
        assert on.code == 0, on.all
        assert re.search(rf"^{node} +{component} +{GATE} .* confirmed .*gates in /metrics", on.out, re.MULTILINE), on.out
        assert operator.gates_of(operator.processes(lab, node)[component]) == f"{GATE}=true"
        absent = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=absent", only=node, components=component), brief=True)
        assert absent.code == 0, absent.all
        assert operator.processes(lab, node)[component][2:] == old[node][component][2:]
    assert operator.files(lab, PLANE) == before[PLANE]


def test_its_pods_are_listed_resized_and_given_a_class(lab: Lab) -> None:
    """The deploys that are about pods and API objects, on the worker; what they made is gone at the end."""
    told = pyinfra("pod_resize_check", "-y", "--limit", WORKER)
    assert told.code == 0, told.all
    assert re.search(rf"^{WORKER} +restart, down +done  ", told.out, re.MULTILINE), told.all
    try:
        assert pyinfra("priority_classes", "-y", *data(priority_classes="t-found=7")).code == 0
        lab.kubectl("create", "-f", "-", input=json.dumps(_pod()))
        lab.kubectl("wait", "--for=condition=Ready", "pod/t-found", "--timeout=120s")
        order = pyinfra("eviction_order", "-y", "--limit", WORKER, *data(format="json"))
        assert order.code == 0, order.all
        (node,) = json.loads(order.out)["nodes"]
        assert node["node"] == WORKER and "t-found" in json.dumps(node["pods"]), order.out
        resized = pyinfra("resize", "-y", *data(selector="default/app=t-found", cpu="60m"))
        assert resized.code == 0, resized.all
        assert re.search(r"^pod default/t-found +resize +done  ", resized.out, re.MULTILINE), resized.all
        assert lab.kubectl("get", "pod", "t-found", "-o", "jsonpath={.status.containerStatuses[0].resources.requests.cpu}") == "60m"
        # A pod of no workload has no template to be unlike.
        assert pyinfra("resize_drift", "-y").code == 0
    finally:
        lab.kubectl("delete", "pod", "t-found", "--now", "--wait")
        lab.kubectl("delete", "priorityclass", "t-found")


def _pod() -> dict[str, object]:
    container = {
        "name": "app",
        "image": f"{images.REPOSITORY}/app:1",
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "50m", "memory": "20Mi"}, "limits": {"memory": "40Mi"}},
    }
    spec = {"nodeName": WORKER, "priorityClassName": "t-found", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t-found", "labels": {"app": "t-found"}}, "spec": spec}


def test_fields_and_thresholds_of_the_worker_are_changed_undone_and_nothing_is_left(lab: Lab) -> None:
    before, files = _configz(lab), operator.files(lab, WORKER)
    # `webhook:` has no value in this file; the field goes into it.
    fields = pyinfra("kubelet_config", "-y", *data(kubelet_config=f"{FIELD}=4m0s", only=WORKER))
    assert fields.code == 0, fields.all
    assert _configz(lab)["authorization"]["webhook"]["cacheAuthorizedTTL"] == "4m0s"  # type: ignore[index]
    thresholds = pyinfra("eviction", "-y", *data(eviction_hard="memory.available<61Mi", only=WORKER))
    assert thresholds.code == 0, thresholds.all
    changed = operator.files(lab, WORKER)
    assert {path for path in {*files, *changed} if files.get(path) != changed.get(path)} == {layouts.KUBESPRAY_CONFIG}
    runs = re.findall(rf"^(r\S+) .*{WORKER} +kubelet +confirmed", pyinfra("changes", "-y", "--limit", WORKER).out, re.MULTILINE)
    assert len(runs) >= 2, runs
    for _ in range(2):
        back = pyinfra("rollback", "-y", "--limit", WORKER, brief=True)
        assert back.code == 0, back.all
    assert _configz(lab) == before and operator.files(lab, WORKER) == files
    gone = pyinfra("uninstall", "-y", "--limit", WORKER)
    assert gone.code == 0 and f"{WORKER}: removed" in gone.out, gone.all
