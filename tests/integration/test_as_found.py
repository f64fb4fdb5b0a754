"""Nodes as they are found: a control plane with company beside its manifests, a worker as kubespray lays one out.
Every deploy that changes nodes works on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.integration import operator
from tests.integration.operator import COMPONENTS, GATE, data, pyinfra, wait_for
from tests.lab import Lab, images, layouts

pytestmark = pytest.mark.lab

PLANE, WORKER = "cp1", "w1"
# One of each: what a plan says of the directory, however much there is.
WARNING = (
    rf"{layouts.MANIFESTS}: daytwo does not understand these files as manifests, and leaves them as they are: README \(.*empty\.yaml \(is empty.*, "
    r"gone\.yaml \(is a link.*old \(is a directory\), several\.yaml \(.*several YAML documents"
)
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
    status = pyinfra("status", "-y").ended(0)
    assert re.search(rf"^{WORKER} +plain +kubelet .* {layouts.KUBESPRAY_CONFIG}$", status.out, re.MULTILINE), status.out
    assert re.search(rf"^{WORKER} +{layouts.KUBESPRAY_ENVIRONMENT} ", status.out, re.MULTILINE), status.out
    assert re.search(rf"^{PLANE}: {WARNING}", status.out, re.MULTILINE), status.out
    for name in COMPONENTS:
        assert re.search(rf"^{PLANE} .*{name} .*{layouts.MANIFESTS}/{name}\.yaml$", status.out, re.MULTILINE), status.out
    audit = pyinfra("audit", "-y", "--data", "format=json", "--limit", WORKER, "--limit", PLANE)
    assert audit.code in (0, 2) and "Traceback" not in audit.all, audit.all
    assert '"failures": []' in audit.out and f'"{layouts.KUBESPRAY_CONFIG}"' in audit.out, audit.out
    checks = pyinfra("checks", "-y", "--limit", WORKER, "--limit", PLANE)
    rows = {found[:2]: found[2] for found in re.findall(r"^(\w+) +([a-z-]+) +(pass|FAIL|UNKNOWN|skip)\b", checks.out, re.MULTILINE)}
    # What lies there is named; that the control plane is well is seen all the same.
    failed = {which for which, outcome in rows.items() if outcome in ("FAIL", "UNKNOWN")}
    assert failed == {(PLANE, "manifests-clean"), (PLANE, "manifests-pods")}, checks.out
    assert {rows[PLANE, check] for check in ("control-plane-runs", *(f"{name}-healthy" for name in COMPONENTS))} == {"pass"}, checks.out
    assert {node: operator.files(lab, node) for node in (PLANE, WORKER)} == before


def _containers(lab: Lab) -> dict[str, tuple[int, str]]:
    """Of each static pod of the control-plane node: how often its container was started again, and which one it is."""
    told = lab.kubectl("get", "pods", "-n", "kube-system", "--field-selector", f"spec.nodeName={PLANE}", "-o", "json")
    states = {item["metadata"]["name"]: item["status"]["containerStatuses"][0] for item in json.loads(told)["items"]}
    return {name: (state["restartCount"], state["containerID"]) for name, state in states.items()}


def test_a_gate_is_changed_in_the_components_own_file_and_put_back(lab: Lab) -> None:
    """Nobody is locked out by the company, and no file or container is touched but the component's own."""
    before, others = operator.files(lab, PLANE), _containers(lab)
    wish = data(feature_gates=f"{GATE}=true", only=PLANE, components="kube-scheduler")
    on = pyinfra("feature_gates", "-y", *wish).ended(0)
    assert re.search(rf"^{PLANE} +kube-scheduler +{GATE} .* confirmed .*gates in /metrics", on.out, re.MULTILINE), on.out
    assert len(re.findall(WARNING, on.plan)) == 1, on.plan
    changed = operator.files(lab, PLANE)
    assert {path for path in {*before, *changed} if before.get(path) != changed.get(path)} == {layouts.SCHEDULER}
    assert operator.gates_of(operator.processes(lab, PLANE)["kube-scheduler"]) == f"{GATE}=true"
    again = pyinfra("feature_gates", "-y", *wish)
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all

    pyinfra("rollback", "-y", brief=True).ended(0)
    assert operator.files(lab, PLANE) == before
    now = _containers(lab)
    assert {name for name in {*others, *now} if others.get(name) != now.get(name)} == {f"kube-scheduler-{PLANE}"}


def test_a_backup_of_a_manifest_keeps_only_that_component_from_a_change(lab: Lab) -> None:
    """It is a second file of the same pod, with the same content: which one counts is not clear, and nobody guesses."""
    backup = f"{layouts.SCHEDULER}~"
    lab.run(PLANE, f"cp -a {layouts.SCHEDULER} /root/new-manifest && mv /root/new-manifest {backup}")
    try:
        before = operator.files(lab, PLANE)
        refused = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true", only=PLANE))
        assert refused.code == 1 and "both define a kube-scheduler" in refused.all and "Traceback" not in refused.all, refused.all
        plan = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true", only=PLANE, components="kubelet,kube-apiserver"))
        assert plan.code == 0 and "kube-scheduler is left as it is" in plan.plan, plan.all
        # The API server's manifest ends in a document marker, and the new line stands in front of it.
        assert re.search(rf"^ *\+ +- --feature-gates={GATE}=true$", plan.plan, re.MULTILINE), plan.plan
        assert operator.files(lab, PLANE) == before
    finally:
        lab.run(PLANE, f"rm {backup}")
    # The kubelet may have ended the pod with its file; the one that stays makes it again.
    wait_for(lambda: layouts.company_is_whole(lab, PLANE), "the scheduler to be back")


def test_its_pods_are_listed_resized_and_given_a_class(lab: Lab) -> None:
    """The deploys that are about pods and API objects, on the worker; what they made is gone at the end."""
    told = pyinfra("pod_resize_check", "-y", "--limit", WORKER).ended(0)
    assert re.search(rf"^{WORKER} +restart, down +done  ", told.out, re.MULTILINE), told.all
    try:
        assert pyinfra("priority_classes", "-y", *data(priority_classes="t-found=7")).code == 0
        lab.kubectl("create", "-f", "-", input=json.dumps(_pod()))
        lab.kubectl("wait", "--for=condition=Ready", "pod/t-found", "--timeout=120s")
        order = pyinfra("eviction_order", "-y", "--limit", WORKER, *data(format="json")).ended(0)
        (node,) = json.loads(order.out)["nodes"]
        assert node["node"] == WORKER and "t-found" in json.dumps(node["pods"]), order.out
        resized = pyinfra("resize", "-y", *data(selector="default/app=t-found", cpu="60m")).ended(0)
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


def test_gates_fields_and_thresholds_of_the_worker_are_changed_undone_and_nothing_is_left(lab: Lab) -> None:
    before, files, kubelet = _configz(lab), operator.files(lab, WORKER), _kubelet(lab)[2:]
    gate = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", only=WORKER, components="kubelet")).ended(0)
    assert re.search(rf"^{WORKER} +kubelet +{GATE} .* confirmed .*gates in /metrics", gate.out, re.MULTILINE), gate.out
    assert operator.gates_of(_kubelet(lab)) == f"{GATE}=true"
    gated = operator.files(lab, WORKER)
    # `webhook:` has no value in this file; the field goes into it.
    pyinfra("kubelet_config", "-y", *data(kubelet_config=f"{FIELD}=4m0s", only=WORKER)).ended(0)
    assert _configz(lab)["authorization"]["webhook"]["cacheAuthorizedTTL"] == "4m0s"  # type: ignore[index]
    pyinfra("eviction", "-y", *data(eviction_hard="memory.available<61Mi", only=WORKER)).ended(0)
    changed = operator.files(lab, WORKER)
    assert {path for path in {*gated, *changed} if gated.get(path) != changed.get(path)} == {layouts.KUBESPRAY_CONFIG}
    runs = re.findall(rf"^(r\S+) .*{WORKER} +kubelet +confirmed", pyinfra("changes", "-y", "--limit", WORKER).out, re.MULTILINE)
    assert len(runs) >= 3, runs
    for run in list(dict.fromkeys(reversed(runs)))[:3]:
        pyinfra("rollback", "-y", *data(run=run), "--limit", WORKER, brief=True).ended(0)
    assert _configz(lab) == before and operator.files(lab, WORKER) == files and _kubelet(lab)[2:] == kubelet
    gone = pyinfra("uninstall", "-y", "--limit", WORKER)
    assert gone.code == 0 and f"{WORKER}: removed" in gone.out, gone.all
