"""Company on a node that would like to be taken for the node's own: nothing of it is run or believed, and it is in nobody's way.

Real pods, a service of an unprivileged user, and a unit that starts the kubelet through a shell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration import operator
from tests.integration.operator import COMPONENTS, GATE, MANIFESTS, data, pyinfra, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

NAMES = ("kube-scheduler", "kubelet", "k3s", "machined")
HOSTILE = "/srv/hostile"
CHANGES = "/var/lib/daytwo/changes"
# In a pod: a process of any name, whose first word names a program that leaves a line each time it is run. (What busybox is called by tells
# which of its programs it is.)
IN_POD = """
b=/bin/busybox; $b mkdir -p /tmp/x; printf '#!/bin/sh\\n/bin/busybox date >>/tmp/was-run\\n' >/tmp/x/busybox; $b chmod 0755 /tmp/x/busybox
$b cp $b /tmp/NAME; exec -a /tmp/x/busybox /tmp/NAME sleep 1000000
"""
# As a user's own, outside all pods.
AS_USER = f"""
mkdir -p {HOSTILE}; printf '#!/bin/sh\\nid >>{HOSTILE}/was-run\\n' >{HOSTILE}/record; chmod 0755 {HOSTILE}/record; chown -R 65534 {HOSTILE}
cp /bin/sleep {HOSTILE}/NAME; chown 65534 {HOSTILE}/NAME
systemd-run --quiet --unit=hostile-NAME --uid=65534 bash -c 'exec -a {HOSTILE}/record {HOSTILE}/NAME 1000000'
"""


def pod(name: str, node: str) -> dict[str, object]:
    command = ["/bin/sh", "-c", IN_POD.replace("NAME", name)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"hostile-{name}-{node}", "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "hostNetwork": True,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": name, "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", "command": command}],
        },
    }


def company(lab: Lab, node: str, name: str) -> list[str]:
    """The PIDs on a node of all hostile processes of a name."""
    told = lab.run(
        node, f"pgrep -x {name[:15]} | while read p; do tr '\\0' ' ' </proc/$p/cmdline | sed \"s/^/$p /\"; echo; done", check=False
    )
    return [line.split()[0] for line in told.stdout.splitlines() if "/tmp/x/busybox" in line or HOSTILE in line]


def runs(lab: Lab, node: str) -> str:
    """What programs of the company have recorded of being run."""
    return lab.run(node, f"cat {HOSTILE}/was-run /proc/[0-9]*/root/tmp/was-run 2>/dev/null", check=False).stdout


@pytest.fixture(scope="module", autouse=True)
def hostile(lab: Lab) -> Iterator[None]:
    nodes = ("cp1", "w1")
    for node in nodes:
        for name in NAMES:
            lab.kubectl("apply", "-f", "-", input=json.dumps(pod(name, node)))
            lab.run(node, AS_USER.replace("NAME", name))
    for node in nodes:
        for name in NAMES:
            wait_for(lambda node=node, name=name: len(company(lab, node, name)) == 2, f"the company named {name} on {node}")  # type: ignore[misc]
    yield
    for node in nodes:
        for name in NAMES:
            lab.kubectl("delete", "pod", f"hostile-{name}-{node}", "--now")
            lab.run(node, f"systemctl stop hostile-{name}")
        lab.run(node, f"rm -rf {HOSTILE}")
    operator.forget(lab)


def test_the_company_would_be_seen_to_run(lab: Lab) -> None:
    """The record works: what the tests below miss is not missed for want of it."""
    (pid, *_) = company(lab, "w1", "k3s")
    lab.run("w1", f"cp -a {HOSTILE}/record /tmp/record; {HOSTILE}/record")
    assert "uid=0" in runs(lab, "w1") and pid
    lab.run("w1", f"rm {HOSTILE}/was-run /tmp/record")


@pytest.mark.parametrize("deploy", ["status", "audit", "checks", "eviction_order"])
def test_looking_at_a_node_runs_nothing_of_its_company(lab: Lab, deploy: str) -> None:
    told = pyinfra(deploy, "-y")
    assert "unsupported" not in told.all and "Traceback" not in told.all, told.all
    for node in ("cp1", "w1"):
        assert runs(lab, node) == ""
    flat = " ".join(told.all.split())
    for node in ("cp1", "w1"):
        for name in NAMES:
            for pid in company(lab, node, name):
                named = rf"process {pid} of user (0|65534) is named {name[:15]}, but is not the node's own \([^)]*\): ignored"
                assert re.search(named, flat), f"{deploy} does not tell of process {pid}, {name} on {node}:\n{told.all}"


def test_the_node_is_shown_as_ever(lab: Lab) -> None:
    told = pyinfra("status", "-y").ended(0)
    for node, component in (("w1", "kubelet"), ("cp1", "kubelet"), *(("cp1", component) for component in COMPONENTS)):
        assert re.search(rf"{node} +\S+ +{component} +v{re.escape(lab.version)} ", told.out), told.out


def test_where_no_api_is_asked_the_nodes_own_kubelet_tells_its_version_and_no_other(lab: Lab, tmp_path: Path) -> None:
    """The API is asked through control-plane nodes of the inventory."""
    inventory = tmp_path / "workers.py"
    inventory.write_text(operator.inventory_of_the_lab("control_plane = []"))
    told = pyinfra("status", "-y", "--limit", "w1", inventory=str(inventory))
    assert re.search(rf"w1 +\S+ +kubelet +v{re.escape(lab.version)} ", told.out), told.all
    assert runs(lab, "w1") == ""


@pytest.fixture
def second_scheduler(lab: Lab) -> Iterator[None]:
    """Another one in a static pod of its own, beside the node's."""
    second = (
        "sed -e 's/^  name: kube-scheduler$/  name: second-scheduler/' -e 's/--leader-elect=true/--leader-elect=false/' -e s/10259/10359/ "
        f"-e 's|^    - kube-scheduler$|&\\n    - --secure-port=10359|' {MANIFESTS}/kube-scheduler.yaml"
    )
    lab.run(
        "cp1",
        f"{second} >/root/second.yaml && cp /root/second.yaml {MANIFESTS}/.second && mv {MANIFESTS}/.second {MANIFESTS}/a-second.yaml",
    )
    try:
        wait_for(lambda: "10359" in lab.run("cp1", "pgrep -a -x kube-scheduler", check=False).stdout, "the second scheduler")
        yield
    finally:
        lab.run("cp1", f"rm -f {MANIFESTS}/a-second.yaml /root/second.yaml")


def plant_records(lab: Lab, node: str, told: str) -> list[str]:
    """Root on a worker adds to the run that changed it: a binding that would have been removed, and a value of kubeadm's ConfigMap. The names
    of the two records."""
    found = re.search(r"Plan of run (\S+):", told)
    assert found, told
    run = found[1]
    plan = json.loads(lab.run(node, f"head -n 1 {CHANGES}/{run}-{node}-kubelet/record.jsonl").stdout)
    head = {key: plan[key] for key in ("event", "format", "run", "number", "who", "from", "command", "data", "at", "undoes")} | {"order": 1}
    binding = {
        "metadata": {"labels": {}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"system:node:{node}"}],
    }
    removed = {
        "event": "plan",
        "run": run,
        "order": 1,
        "object": "ClusterRoleBinding planted",
        "what": "remove",
        "summary": "remove it",
        "path": "/x",
        "uid": "",
        "kind": "ClusterRoleBinding",
        "object_name": "planted",
        "version": "rbac.authorization.k8s.io/v1",
        "fields": [{"path": ["manifest"], "before": binding, "after": None}],
    }
    ended = {"event": "end", "object": removed["object"], "at": plan["at"], "outcome": "done", "why": "", "proof": "", "seconds": 1.0}
    mode = {"path": ["kube-apiserver", "extraArgs", "authorization-mode"], "before": ["AlwaysAllow"], "after": ["Node,RBAC"]}
    records: dict[str, list[dict[str, object]]] = {
        "cluster-objects": [
            {**head, "kind": "objects", "component": "metrics_server", "about": {"proof_timeout": 1}, "node": node, "summary": "remove it"},
            removed,
            ended,
        ],
        "cluster-kubeadm-config": [
            {**head, "kind": "configmap", "component": "kubeadm-config", "node": node, "summary": "kubeadm-config", "fields": [mode]}
        ],
    }
    for number, (name, lines) in enumerate(records.items(), 1000):
        change = f"{CHANGES}/{run}-{name}"
        text = "".join(json.dumps({**line, "change": f"{run}-{name}"}) + "\n" for line in lines)
        files = f"echo state=confirmed >state; echo run={run} >holder; : >reason; echo {number} >number"
        lab.run(node, f"mkdir -m 700 {change} && cd {change} && cat >record.jsonl; {files}", input=text)
    return [f"{run}-{name}" for name in records]


@pytest.mark.usefixtures("second_scheduler")
def test_a_change_is_made_and_proven_beside_processes_of_the_same_name(lab: Lab) -> None:
    """And a second scheduler in a static pod is left as it is."""
    wanted = data(feature_gates=f"{GATE}=true", components="kube-scheduler,kubelet", only="cp1,w1")
    told = pyinfra("feature_gates", "-y", *wanted)
    assert told.code == 0 and "confirmed" in told.out, told.all
    assert re.search(r"cp1: process \d+ is a kube-scheduler of another static pod \(kube-system_second-scheduler-cp1\)", told.out)
    assert operator.effective(lab, "w1", GATE)
    running = lab.run("cp1", "pgrep -a -x kube-scheduler").stdout.splitlines()
    own = [line for line in running if HOSTILE not in line and "/tmp/x" not in line]
    assert [GATE in line for line in sorted(own, key=lambda line: "10359" in line)] == [True, False], own
    again = pyinfra("feature_gates", "-y", *wanted)
    assert again.code == 0 and "confirmed" not in again.plan, again.all
    planted = plant_records(lab, "w1", told.out)
    back = pyinfra("rollback", "-y", brief=True).ended(0)
    for record in planted:
        assert re.search(rf"WARNING: w1: .*{record}: NOT BELIEVED, and not undone: it speaks of the cluster's objects", back.out), back.all
    assert lab.kubectl("get", "clusterrolebinding", "planted", "--ignore-not-found") == ""
    assert "AlwaysAllow" not in lab.kubectl("get", "configmap", "-n", "kube-system", "kubeadm-config", "-o", "yaml")
    lab.run("w1", f"cd {CHANGES} && rm -r {' '.join(planted)}")
    assert not operator.effective(lab, "w1", GATE)
    assert lab.run("cp1", f"cmp /root/second.yaml {MANIFESTS}/a-second.yaml").returncode == 0
    assert runs(lab, "w1") == runs(lab, "cp1") == ""


WELL = "until curl -fs http://127.0.0.1:10248/healthz >/dev/null; do sleep 0.2; done"


def test_a_host_that_claims_another_node_is_refused_and_others_may_leave_it_out(lab: Lab) -> None:
    """Its kubelet has the credential of w1 only, so it changes nothing of the node cp1 meanwhile."""
    claims = "/etc/default/kubelet"
    lab.run("w1", f"echo KUBELET_EXTRA_ARGS=--hostname-override=cp1 >{claims}; systemctl restart kubelet; {WELL}")
    try:
        told = pyinfra("drain", "--dry", *data(nodes="w1"))
        assert told.code == 1 and "w1: its node's name is cp1, and so is that of cp1" in told.all, told.all
        assert "cp1: its node's name" not in told.all, told.all
        told = pyinfra("audit", "-y")
        assert told.code == 2 and "is not what it claims\n      its node's name is cp1" in told.out, told.all
        told = pyinfra("drain", "--dry", "--limit", "w2")
        assert told.code == 0 and "WARNING --limit leaves this host out" in told.out and ": 1 node to drain: w2\n" in told.out, told.all
    finally:
        lab.run("w1", f"rm {claims}; systemctl restart kubelet; {WELL}")


WRAPPED_RUNS = "/run/kubelet-runs"
WRAPPER = "/usr/local/bin/kubelet-wrapper"
WORDS = "--config=/etc/kubernetes-node/kubelet.yaml --kubeconfig=/etc/kubernetes-node/kubeconfig"


@contextmanager
def wrapped(lab: Lab, node: str, command: str) -> Iterator[None]:
    """The kubelet of a node is started by another command, which leaves a line each time."""
    folder = "/etc/systemd/system/kubelet.service.d"
    drop_in = f"{folder}/99-wrapped.conf"
    script = f'#!/bin/sh\necho run >>{WRAPPED_RUNS}\nexec "$@"\n'
    lab.run(node, f"mkdir -p {folder}; rm -f {WRAPPED_RUNS}; cat >{WRAPPER} && chmod 0755 {WRAPPER}", input=script)
    lab.run(node, f"cat >{drop_in}", input=f"[Service]\nExecStart=\nExecStart={command}\n")
    lab.run(node, f"systemctl daemon-reload; systemctl restart kubelet; {WELL}")
    try:
        yield
    finally:
        lab.run(node, f"rm {drop_in} {WRAPPER} {WRAPPED_RUNS}; systemctl daemon-reload; systemctl restart kubelet; {WELL}")


@pytest.mark.parametrize(
    "command",
    [f'/bin/sh -c "echo run >>{WRAPPED_RUNS}; exec /usr/local/bin/kubelet {WORDS}"', f"{WRAPPER} /usr/local/bin/kubelet {WORDS}"],
    ids=["shell", "script"],
)
def test_a_kubelet_through_a_wrapper_is_refused_and_no_second_one_is_started(lab: Lab, command: str) -> None:
    with wrapped(lab, "w2", command):
        before, files = operator.processes(lab, "w2")["kubelet"], operator.files(lab, "w2")
        for told in (
            pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", components="kubelet", only="w2")),
            pyinfra("kubelet_config", "-y", *data(kubelet_config="maxPods=99", only="w2")),
            pyinfra("eviction", "-y", *data(eviction_hard="memory.available=50Mi", only="w2")),
            pyinfra("status", "-y", "--limit", "w2"),
        ):
            assert told.code != 0 and "let ExecStart= start the kubelet itself (ExecStart=/usr/local/bin/kubelet" in told.all, told.all
        assert lab.run("w2", f"cat {WRAPPED_RUNS}").stdout == "run\n"
        assert operator.processes(lab, "w2")["kubelet"] == before and operator.files(lab, "w2") == files
