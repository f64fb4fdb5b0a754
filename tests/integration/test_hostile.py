"""Pods and processes that bear the names of a node's components, on a real node: each leaves a trace when anybody runs its program, and
nobody does. Nor is the node taken for another kind of node."""

from __future__ import annotations

import base64
import json
import platform
import struct
from collections.abc import Iterator

import pytest

from tests.integration.operator import GATE, data, pyinfra, wait_for
from tests.lab import Lab
from tests.lab.images import REPOSITORY

pytestmark = [pytest.mark.lab, pytest.mark.skipif(platform.machine() != "x86_64", reason="its traps are programs for x86_64")]
NODE = "w1"
FOLDER = "/run/daytwo-hostile"
TRACE = f"{FOLDER}/ran"
POD = "hostile"
UNIT = "hostile-scheduler.service"
# Container -> the name of its process, and the user it runs as.
PROCESSES = {
    "scheduler": ("kube-scheduler", 65534),
    "other": ("k3s-server", 0),
    "kubelet": ("kubelet", 0),
    "apiserver": ("kube-apiserver", 0),
}


def trap() -> bytes:
    """A static program: started without arguments it waits for ever, with any (`--version`) it makes the file TRACE and ends."""
    path = TRACE.encode() + b"\0"
    wait = b"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7"  # again: pause(); goto again
    make = b"\xb8\x55\x00\x00\x00" + b"\x48\x8d\x3d" + struct.pack("<i", 16) + b"\xbe\xb6\x01\x00\x00" + b"\x0f\x05"  # creat(path, 0666)
    end = b"\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05"  # exit(0)
    count = b"\x48\x83\x3c\x24\x01" + b"\x7f" + bytes([len(wait)])  # if (argc > 1) goto make
    code = count + wait + make + end + path
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 120 + len(code), 120 + len(code), 0x1000)
    return head + load + code


def pids(lab: Lab, name: str) -> list[str]:
    """Of processes of the trap, by the name they bear."""
    told = lab.run(NODE, f"for pid in $(pgrep -x {name[:15]}); do [ $(stat -L -c %s /proc/$pid/exe) != {len(trap())} ] || echo $pid; done")
    return told.stdout.split()


def traces(lab: Lab) -> list[str]:
    """Where a trap has sprung: on the node, or in the pod."""
    return lab.run(
        NODE, f"ls {TRACE} /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/trace/ran 2>/dev/null", check=False
    ).stdout.split()


@pytest.fixture(scope="module", autouse=True)
def planted(lab: Lab) -> Iterator[None]:
    """All traps are set, and seen to work."""
    remove(lab)
    names = {name for name, _ in PROCESSES.values()}
    program = base64.b64encode(trap()).decode()
    programs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": POD}, "binaryData": dict.fromkeys(names, program)}
    mounts = [{"name": "programs", "mountPath": "/programs"}, {"name": "trace", "mountPath": FOLDER}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": container,
                    "image": f"{REPOSITORY}/app:1",
                    "imagePullPolicy": "Never",
                    "command": [f"/programs/{name}"],
                    "securityContext": {"runAsUser": uid},
                    "volumeMounts": mounts,
                }
                for container, (name, uid) in PROCESSES.items()
            ],
            "volumes": [{"name": "programs", "configMap": {"name": POD, "defaultMode": 0o555}}, {"name": "trace", "emptyDir": {}}],
        },
    }
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": [programs, pod]}))
    lab.kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=90s")
    # Beside the pod: the main process of a service, of a user without rights.
    lab.run(
        NODE,
        f"mkdir -m 1777 -p {FOLDER} /opt/hostile && base64 -d >/opt/hostile/kube-scheduler && chmod 755 /opt/hostile/kube-scheduler",
        input=program,
    )
    lab.run(NODE, f"systemd-run --quiet --unit={UNIT} --uid=65534 /opt/hostile/kube-scheduler")
    wait_for(lambda: len(pids(lab, "kube-scheduler")) == 2, "both processes that are named kube-scheduler")
    for name in sorted(names):
        for pid in pids(lab, name):
            lab.run(NODE, f"/proc/{pid}/exe --version")
            assert traces(lab) == [TRACE], f"the trap {name} does not work"
            lab.run(NODE, f"rm {TRACE}")
    yield
    remove(lab)


def remove(lab: Lab) -> None:
    lab.kubectl("delete", "pod,configmap", POD, "--ignore-not-found", "--wait=true")
    lab.run(
        NODE, f"systemctl stop {UNIT} 2>/dev/null; systemctl reset-failed {UNIT} 2>/dev/null; rm -rf {FOLDER} /opt/hostile", check=False
    )


def test_looking_runs_none_of_them_and_the_node_is_what_it_is(lab: Lab) -> None:
    told = pyinfra("status", "-y")
    assert told.code == 0, told.all
    assert traces(lab) == []
    assert "unsupported" not in told.all
    (row,) = [
        line.split()
        for line in told.out.splitlines()
        if line.split()[:1] == [NODE] and line.split()[2:3] == ["kubelet"] and "active," in line
    ]
    own = lab.run(NODE, "systemctl show kubelet --property=MainPID --value").stdout.strip()
    assert row[3] == f"v{lab.version}" and row[4] == own
    ignored = told.out[told.out.index(f"{NODE}: not the node's own, and ignored:") :]
    for name, _ in PROCESSES.values():
        for pid in pids(lab, name):
            assert f"PID {pid}: " in ignored, f"nothing is said of {name}"


@pytest.mark.parametrize("deploy", ["audit", "checks"])
def test_no_other_look_runs_them(lab: Lab, deploy: str) -> None:
    told = pyinfra(deploy, "-y")
    assert traces(lab) == [] and "unsupported" not in told.all, told.all


def test_a_plan_asks_the_nodes_own_binaries_and_none_of_them(lab: Lab) -> None:
    told = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true"))
    assert told.code == 0, told.all
    assert "Plan of run" in told.out and traces(lab) == []


def test_a_kubelet_behind_a_shell_is_not_asked_and_no_second_one_starts(lab: Lab) -> None:
    folder = "/etc/systemd/system/kubelet.service.d"
    shell = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'exec /usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS'\n"
    try:
        lab.run(NODE, f"mkdir -p {folder}; cat >{folder}/99-shell.conf; systemctl daemon-reload; systemctl restart kubelet", input=shell)
        wait_for(lambda: lab.run(NODE, "curl -sf http://127.0.0.1:10248/healthz", check=False).stdout == "ok", "the kubelet behind a shell")
        before = lab.run(NODE, "systemctl show kubelet --property=MainPID,NRestarts; journalctl -u kubelet -o cat | wc -l").stdout.split()[
            :2
        ]
        for deploy, wish in (
            ("feature_gates", {"feature_gates": f"{GATE}=true", "components": "kubelet"}),
            ("kubelet_config", {"kubelet_config": "maxPods=111"}),
        ):
            told = pyinfra(deploy, "--dry", *data(**wish), "--limit", NODE)
            assert (
                told.code != 0 and "ExecStart= starts /bin/sh" in told.all and "let ExecStart= name /usr/bin/kubelet itself" in told.all
            ), told.all
        after = lab.run(NODE, "systemctl show kubelet --property=MainPID,NRestarts").stdout.split()
        assert after == before
    finally:
        lab.run(NODE, f"rm -f {folder}/99-shell.conf; systemctl daemon-reload; systemctl restart kubelet")
        wait_for(lambda: lab.run(NODE, "curl -sf http://127.0.0.1:10248/healthz", check=False).stdout == "ok", "the kubelet as it was")
