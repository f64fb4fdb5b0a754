"""Every runbook, done as it stands on a real cluster; what it says is seen, is seen.

What a runbook is for (a gate that is on, a node that is lost) is planted here by hands that know nothing of daytwo, or by a run that is
disturbed. Each test leaves the nodes as they were.
"""

from __future__ import annotations

import copy
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration import operator, reading, scaling
from tests.integration.draining import workload
from tests.integration.metrics_api import RESOURCE, MetricsApi, register, served_in
from tests.integration.operator import MANIFESTS, Started, data, end_started, pyinfra, wait_for
from tests.integration.reading import Desk, Reading
from tests.integration.sleeping import sleeps
from tests.lab import Lab, bmc, loadserver

pytestmark = pytest.mark.lab

NODES = ("cp1", "w1", "w2")
GATE = "ReduceDefaultCrashLoopBackOffDecay"
CONFIG = "/var/lib/kubelet/config.yaml"
HOME = "/var/lib/daytwo"
# What kubeadm keeps of a cluster's configuration, in kube-system.
KEPT_BY_KUBEADM = ("kubeadm-config", "kubelet-config")
# All that any runbook here changes on a node.
KEPT = f"{CONFIG} /etc/default /etc/kubernetes /etc/kubernetes-node /etc/systemd/system"


@pytest.fixture(scope="module", autouse=True)
def kept(lab: Lab) -> Iterator[dict[str, dict[str, str]]]:
    """The files of each node, and their sums, as they are before the first runbook."""
    operator.forget(lab)
    for node in NODES:
        lab.run(node, f"tar -C / -cpf /root/runbooks.tar $(ls -d {KEPT} 2>/dev/null | sed 's|^/||')")
    yield {node: operator.files(lab, node) for node in NODES}
    for node in NODES:
        lab.run(node, "rm -f /root/runbooks.tar")


@pytest.fixture(scope="module", autouse=True)
def config_maps(lab: Lab) -> dict[str, str]:
    """The data of kubeadm's ConfigMaps as they are before the first runbook, in JSON."""
    return {name: lab.kubectl("get", "configmap", "-n", "kube-system", name, "-o", "jsonpath={.data}") for name in KEPT_BY_KUBEADM}


@pytest.fixture(autouse=True)
def as_found(lab: Lab, kept: dict[str, dict[str, str]], config_maps: dict[str, str]) -> Iterator[None]:
    """What a runbook has left on the nodes and in kubeadm's ConfigMaps is put back behind daytwo's back, and its records are taken
    away."""
    yield
    end_started(lab)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: put_files_back(lab, node, kept[node]), NODES))
    wait_for(lambda: lab.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API", 600)
    for name, before in config_maps.items():
        lab.kubectl("patch", "configmap", "-n", "kube-system", name, "--type=merge", "-p", f'{{"data":{before}}}')
    with ThreadPoolExecutor() as pool:
        left = dict(zip(NODES, pool.map(lambda node: left_and_forgotten(lab, node), NODES), strict=True))
    assert left == {node: ("", files) for node, files in kept.items()}


def left_and_forgotten(lab: Lab, node: str) -> tuple[str, dict[str, str]]:
    """The changes that are in flight on a node, none of which is to be left; and its files, once daytwo's records are gone."""
    flying = lab.run(node, f"ls {HOME}/active 2>/dev/null", check=False).stdout
    operator.forget(lab, node)
    return flying, operator.files(lab, node)


def put_files_back(lab: Lab, node: str, kept: dict[str, str]) -> None:
    lab.run(node, f"for change in {HOME}/active/*/change.sh; do test ! -e $change || sh $change revert; done")
    now = operator.files(lab, node)
    changed = [path for path in {*now, *kept} if now.get(path) != kept.get(path)]
    new = [path for path in changed if path not in kept]
    old = [path for path in changed if path in kept]
    if new:
        lab.run(node, f"rm -f {' '.join(new)}")
    if old:
        names = " ".join(path.lstrip("/") for path in old)
        lab.run(node, f"mkdir /root/back && tar -C /root/back -xpf /root/runbooks.tar {names} && cp -a /root/back/. / && rm -r /root/back")
    if any(not path.startswith(MANIFESTS) for path in changed):
        lab.run(node, "systemctl daemon-reload && systemctl restart kubelet")
        wait_for(lambda: kubelet_serves(lab, node), f"{node}'s kubelet")


@pytest.fixture
def desk(lab: Lab, tmp_path: Path) -> Desk:
    return Desk.made(lab, tmp_path)


def kubelet_serves(lab: Lab, node: str) -> bool:
    return lab.run(node, "curl -s http://127.0.0.1:10248/healthz", check=False).stdout == "ok"


def open_book(desk: Desk, name: str, **names: str) -> Reading:
    """A runbook; `names` are the nodes that it calls otherwise."""
    return Reading(desk, reading.read(name), nodes=names)


def turn_on_by_hand(lab: Lab, node: str, gate: str = GATE) -> None:
    """A gate as somebody once wrote it into the kubelet's configuration."""
    lab.run(node, f"printf 'featureGates:\\n  {gate}: true\\n' >>{CONFIG} && systemctl restart kubelet")
    wait_for(lambda: kubelet_serves(lab, node), f"{node}'s kubelet")


def test_turn_a_gate_on(desk: Desk) -> None:
    open_book(desk, "gate-on").all()


def test_turn_a_gate_off(lab: Lab, desk: Desk) -> None:
    turn_on_by_hand(lab, "w1")
    open_book(desk, "gate-off").all()


PREFLIGHT = """#!/bin/sh
# No feature gates on our nodes.
if grep -q feature-gates /etc/default/kubelet 2>/dev/null; then
    echo "kubelet-preflight: /etc/default/kubelet sets feature gates"
    exit 1
fi
"""


def test_a_roll_out_halted(lab: Lab, desk: Desk) -> None:
    dropin = "/etc/systemd/system/kubelet.service.d/20-preflight.conf"
    script = "/usr/local/sbin/kubelet-preflight"
    lab.run("w2", f"cat >{script} && chmod 755 {script} && mkdir -p $(dirname {dropin})", input=PREFLIGHT)
    lab.run("w2", f"printf '[Service]\\nExecStartPre={script}\\n' >{dropin} && systemctl daemon-reload")
    try:
        open_book(desk, "roll-out-halted").all()
    finally:
        lab.run("w2", f"rm -rf {script} $(dirname {dropin}); systemctl daemon-reload")


def test_a_node_did_not_come_back(lab: Lab, desk: Desk) -> None:
    book = open_book(desk, "node-did-not-come-back")
    wish = data(feature_gates=f"{GATE}=true", components="kubelet")
    run = Started("feature_gates", "-y", *wish, *data(only="w1"))
    run.wait_for("w1 kubelet: waiting until it is healthy")
    lab.kill("w1")
    run.wait_for("reconnecting, the node continues")
    run.send(signal.SIGINT)
    run.wait_for("halting: ")
    run.send(signal.SIGINT)
    assert run.end(100).code == 130
    book.section("While it is away")
    lab.start("w1")
    wait_for(lambda: "state=reverted" in lab.run("w1", f"cat {HOME}/changes/*/state").stdout, "the change on w1 to be put back", 600)
    book.section("When it is back", "Continue")

    # A file that cannot be put back: what holds it became read-only in mid-change, while the new kubelet fails.
    lab.run(
        "w2",
        "mkdir -p /run/small && mount -t tmpfs -o size=64k none /run/small && cp -a /etc/default/. /run/small/ && mount --bind /run/small /etc/default",
    )
    try:
        bad = Started(
            "feature_gates",
            "-y",
            *data(feature_gates="NoSuchGate=true", allow_unknown_gates="true", components="kubelet", only="w2"),
            hold="wait",
        )
        bad.wait_for("w2 kubelet: held\n")
        lab.run("w2", f"mount -o remount,ro /etc/default && touch {HOME}/go")
        assert bad.end().code == 1
        assert "revert-failed" in bad.out, bad.out
        book.all()
    finally:
        lab.run("w2", f"umount /etc/default; umount /run/small; rm -f {HOME}/go; systemctl restart kubelet")


def test_an_api_server_down_after_an_edit(lab: Lab, desk: Desk) -> None:
    manifest = f"{MANIFESTS}/kube-apiserver.yaml"
    lab.run(
        "cp1",
        f"sed 's/- kube-apiserver$/&\\n    - --feature-gates=HPAScaleToZeroo=true/' {manifest} >/root/edited && chmod 600 /root/edited",
    )
    # Its grace period of 30 s is nothing that a reader waits for.
    lab.run("cp1", f"old=$(pidof kube-apiserver); mv /root/edited {manifest}; kill -9 $old")
    said = "cat $(ls -t /var/log/pods/kube-system_kube-apiserver-*/kube-apiserver/*.log | head -n 1) | grep -q 'unrecognized feature gate'"
    wait_for(
        lambda: lab.run("cp1", said, check=False).returncode == 0 and not lab.run("cp1", "pidof kube-apiserver", check=False).stdout,
        "the API server to be gone",
    )
    book = open_book(desk, "api-server-down")
    book.all()


def test_what_could_we_turn_off(desk: Desk) -> None:
    open_book(desk, "turn-off").all()


def test_turn_it_off_for_the_night(desk: Desk) -> None:
    open_book(desk, "turn-off-for-the-night").all()


def test_a_reclaimable_machine_is_taken_back(desk: Desk) -> None:
    (desk.project / "inventories/prod.py").write_text(operator.inventory_of_the_lab("lent = [one for one in workers if one[0] == 'w2']"))
    open_book(desk, "reclaimable-machine").all()


@pytest.mark.slow  # the loop that wakes a machine is in test_node_autoscaler.py
def test_wake_a_machine_for_a_deployment(lab: Lab, desk: Desk) -> None:
    sleeps(lab, "w2")
    with (desk.project / "inventories/group_data/all.py").open("a") as data_of_all:
        data_of_all.write(f"\nwatts = 120\npower = {bmc.programs('w2')!r}\n")
    lab.kubectl("create", "namespace", "shop")
    try:
        web = workload("web", nodeSelector={"kubernetes.io/hostname": "w2"})
        lab.kubectl("create", "-f", "-", input=json.dumps({**web, "metadata": {**web["metadata"], "namespace": "shop"}}))
        wait_for(lambda: "Unschedulable" in lab.kubectl("get", "pods", "-n", "shop", "-o", "json"), "the scheduler to refuse it")
        open_book(desk, "wake-for-a-deployment").all()
    finally:
        lab.kubectl("delete", "namespace", "shop")
        lab.kubectl("delete", "lease", "daytwo-node-autoscaler", "-n", "kube-system", "--ignore-not-found")


def test_change_a_control_plane_flag(desk: Desk) -> None:
    open_book(desk, "control-plane-flag").all()


def test_roll_back(desk: Desk) -> None:
    pyinfra("kubelet_config", "-y", *data(kubelet_config="maxPods=120", only="w1"), brief=True).ended(0)
    open_book(desk, "roll-back").all()


def test_before_an_upgrade(lab: Lab, desk: Desk) -> None:
    turn_on_by_hand(lab, "w1", "PodLifecycleSleepAction")
    open_book(desk, "before-an-upgrade").all()


def test_set_eviction_thresholds(desk: Desk) -> None:
    open_book(desk, "eviction-thresholds").all()


def test_switch_to_the_static_cpu_manager(lab: Lab, desk: Desk, shop: None) -> None:
    """With pods on the node; at the way back one of them has a CPU for itself."""
    lab.kubectl("create", "poddisruptionbudget", "web", "-n", "shop", "--selector=app=web", "--max-unavailable=1")
    whole: dict[str, Any] = json.loads(json.dumps(WEB).replace('"web"', '"whole"'))
    whole["spec"]["replicas"] = 1
    whole["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "50Mi"}}
    # The scheduler may see the cordon of w2 only after the pod.
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["w1"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
    whole["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": preferred}
    book = open_book(desk, "static-cpu-manager")
    try:
        book.section("When", "Before you start", "Commands")
        lab.kubectl("cordon", "w2")
        lab.kubectl("apply", "-f", "-", input=json.dumps(whole))
        lab.kubectl("rollout", "status", "deployment/whole", "-n", "shop", "--timeout=280s")
        lab.kubectl("uncordon", "w2")
        book.all()
        pods = json.loads(lab.kubectl("get", "pods", "-n", "shop", "-o", "json"))["items"]
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}, "a pod that was not admitted again stays, as Failed"
    finally:
        lab.kubectl("uncordon", "w2")
        lab.kubectl("uncordon", "w1")
        # After a failure the old files are put back, and the old kubelet needs a checkpoint of its own policy.
        state = "/var/lib/kubelet/cpu_manager_state"
        lab.run("w1", f'grep -q \'"policyName":"none"\' {state} || {{ systemctl stop kubelet; rm -f {state}; systemctl start kubelet; }}')


WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "web",
                        "image": "registry.local/app:1",
                        "imagePullPolicy": "Never",
                        "resources": {"requests": {"cpu": "50m", "memory": "50Mi"}, "limits": {"cpu": "100m", "memory": "100Mi"}},
                    }
                ],
            },
        },
    },
}


@pytest.fixture
def shop(lab: Lab) -> Iterator[None]:
    """A namespace with a Deployment of two pods."""
    lab.kubectl("create", "namespace", "shop")
    lab.kubectl("apply", "-f", "-", input=json.dumps(WEB))
    lab.kubectl("rollout", "status", "deployment/web", "-n", "shop", "--timeout=280s")
    yield
    lab.kubectl("delete", "namespace", "shop", "--wait", "--timeout=280s")


def test_introduce_priority_classes(lab: Lab, desk: Desk, shop: None) -> None:
    try:
        open_book(desk, "priority-classes").all()
    finally:
        lab.kubectl("delete", "priorityclass", "batch", "web")


def test_budgets_that_block(lab: Lab, desk: Desk, shop: None) -> None:
    lab.kubectl("create", "poddisruptionbudget", "web", "-n", "shop", "--selector=app=web", "--min-available=2")
    wait_for(lambda: "observedGeneration" in lab.kubectl("get", "pdb", "-n", "shop", "web", "-o", "json"), "the budget's status")
    open_book(desk, "budgets-that-block").all()


def test_drain_a_node(lab: Lab, desk: Desk, shop: None) -> None:
    cache = {**WEB["spec"]["template"]["spec"], "nodeName": "w2", "volumes": [{"name": "cache", "emptyDir": {}}]}  # type: ignore[index]
    template = {"metadata": {"labels": {"app": "cache"}}, "spec": cache}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "cache"}}, "template": template}
    item = {**WEB, "metadata": {"name": "cache", "namespace": "shop"}, "spec": spec}
    lab.kubectl("apply", "-f", "-", input=json.dumps(item))
    lab.kubectl("rollout", "status", "deployment/cache", "-n", "shop", "--timeout=280s")
    try:
        open_book(desk, "drain-a-node").all()
    finally:
        lab.kubectl("uncordon", "w1")


def test_resize_in_place(desk: Desk, shop: None) -> None:
    open_book(desk, "resize").all()


@pytest.mark.slow
def test_right_size_a_namespace(lab: Lab, desk: Desk) -> None:
    """Two pods whose use is known."""
    resources = {"requests": {"cpu": "400m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    container = {**loadserver.container(loadserver.load(lab), resources, cpu=20, memory=64), "name": "web"}
    item: dict[str, Any] = copy.deepcopy(WEB)
    item["spec"]["template"]["spec"]["containers"] = [container]
    lab.kubectl("create", "namespace", "shop")
    try:
        lab.kubectl("apply", "-f", "-", input=json.dumps(item))
        lab.kubectl("rollout", "status", "deployment/web", "-n", "shop", "--timeout=280s")
        open_book(desk, "right-size").all()
    finally:
        lab.kubectl("delete", "namespace", "shop", "--wait", "--timeout=280s")


def test_reboot_the_clusters_nodes(lab: Lab, desk: Desk) -> None:
    lab.run("w1", "echo x >/run/reboot-required; echo linux-image-amd64 >/run/reboot-required.pkgs")
    before, book = lab.boot_id("w1"), open_book(desk, "reboot")
    book.section("Before you start", "What needs it")
    lab.hang_up("w1")
    assert lab.boot_id("w1") != before
    run = Started("reboot", "-y", *data(only="w2", allow_unneeded="true", reboot_timeout="20"))
    run.wait_for("; rebooting")
    lab.kill("w2")
    assert run.end().code == 1
    lab.start("w2")
    book.all()


def test_an_air_gapped_node(lab: Lab, desk: Desk) -> None:
    """The twin plays the node as well: between the two it is put back to what it was, and forgets the change."""
    book = open_book(desk, "air-gapped-node", far="w1")
    book.section("On the twin")
    lab.run("w1", f"tar -C / -xpf /root/runbooks.tar {CONFIG.lstrip('/')} && systemctl restart kubelet && rm -rf {HOME}")
    wait_for(lambda: kubelet_serves(lab, "w1"), "w1's kubelet")
    medium = desk.project / "change.tgz"
    lab.run("w1", "base64 -d >/root/change.tgz", input=reading.encoded(medium))
    book.all()
    lab.run("w1", "rm /root/change.tgz")


@pytest.mark.slow
def test_the_metrics_api_from_nothing(lab: Lab, desk: Desk) -> None:
    """By hand there is what a network plugin and kube-proxy do elsewhere, and the image, which nodes here cannot pull."""
    lab.connect_pods()
    lab.load_extra("metrics-server")
    try:
        open_book(desk, "metrics-api").all()
    finally:
        lab.kubectl("delete", "apiservice", "v1beta1.metrics.k8s.io")


SCALED = {"shop/deployment/web": {"max": 4, "cpu": "60%"}}


@pytest.fixture
def measured(lab: Lab, tmp_path: Path) -> Iterator[MetricsApi]:
    """A namespace shop whose Deployment web has a sidecar, and a metrics API of the test's own."""
    lab.kubectl("create", "namespace", "shop")
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", "shop", check=False), "the service account")
    web = scaling.workload("shop", "web", scaling.container("app", "100m"), scaling.container("proxy", None))
    scaling.apply(lab, web)
    lab.kubectl("rollout", "status", "-n", "shop", "deployment/web", "--timeout=280s")
    try:
        with served_in(lab, tmp_path) as api:
            api.cpu["web"] = "30m"
            register(api, lab, RESOURCE)
            yield api
    finally:
        lab.kubectl("delete", "namespace", "shop")


@pytest.mark.slow
def test_an_autoscaler_shows_unknown(lab: Lab, desk: Desk, measured: MetricsApi) -> None:
    of_eighty = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    scaling.apply(lab, scaling.hpa("shop", "web", "web"), scaling.hpa("shop", "more", "web", of_eighty, maxReplicas=6))
    handled = 'jsonpath={.items[*].status.conditions[?(@.type=="ScalingActive")].reason}'
    wait_for(lambda: lab.kubectl("get", "hpa", "-n", "shop", "-o", handled).split() == ["AmbiguousSelector"] * 2, "the controller")
    open_book(desk, "autoscaler-unknown").all()


@pytest.mark.slow
def test_from_no_metrics_api_to_four_pods_and_back(lab: Lab, desk: Desk) -> None:
    """Both runbooks in one, with metrics-server itself, and a load that is one: a program that uses CPU when it is asked to."""
    lab.connect_pods()
    lab.load_extra("metrics-server")
    metrics = open_book(desk, "metrics-api")
    metrics.section(*(name for name in metrics.book.sections if name not in ("When to stop", "Way back")))
    used = loadserver.container(loadserver.load(lab), {"requests": {"cpu": "50m", "memory": "16Mi"}}, cpu=10)
    lab.kubectl("create", "namespace", "shop")
    try:
        wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", "shop", check=False), "the service account")
        scaling.apply(lab, scaling.workload("shop", "web", used))
        lab.kubectl("rollout", "status", "-n", "shop", "deployment/web", "--timeout=280s")
        wait_for(lambda: "asks for 1" in scaling.autoscalers(SCALED, "--dry").out, "samples that count", every=2)
        (pod,) = json.loads(lab.kubectl("get", "pods", "-n", "shop", "-o", "json"))["items"]

        def asked(cpu: int) -> None:
            lab.run("cp1", f"curl -fsS -X POST 'http://{pod['status']['podIP']}:{loadserver.PORT}/set?cpu={cpu}'")

        book = open_book(desk, "scale-on-cpu")
        book.section("When", "Before you start", "Commands", "What you should see")
        asked(600)
        book.section("With load")
        asked(5)
        book.all()
    finally:
        lab.kubectl("delete", "namespace", "shop")
    metrics.all()
