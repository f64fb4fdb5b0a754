"""Control-plane flags on a real cluster: a flag and a scheduler's profile, proven, refused, reverted, kept by kubeadm, and undone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from roles.engine.editing import cluster_arguments
from tests.integration import operator
from tests.integration.operator import MANIFESTS, Outcome, data, pyinfra, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
WINDOW = "horizontal-pod-autoscaler-downscale-stabilization"
FOLDER = "/etc/kubernetes/daytwo"
CONFIG = f"{FOLDER}/scheduler-config.yaml"
PROFILE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}}
  plugins:
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}, {name: ImageLocality}]
      enabled: [{name: NodeResourcesFit, weight: 100}]
"""


def deploy(*more: str, dry: bool = False, **values: object) -> Outcome:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return pyinfra("control_plane_flags", "--dry" if dry else "-y", *data(**texts), *more)


def of_config(content: str, **more: str) -> dict[str, object]:
    return {CONFIG: {"content": content, "mode": "0600", **more}}


def argv(lab: Lab, component: str) -> tuple[str, ...]:
    return operator.processes(lab, "cp1")[component][2:]


def stored(lab: Lab) -> str:
    found: str = json.loads(lab.kubectl("get", "configmap", "kubeadm-config", "-n", "kube-system", "-o", "json"))["data"][
        "ClusterConfiguration"
    ]
    return found


def stopped(told: Outcome, *words: str) -> None:
    assert told.code == 1 and "Plan of run" not in told.out, told.all
    for word in words:
        assert word in told.all, told.all


@pytest.fixture(scope="module")
def before(lab: Lab) -> Iterator[tuple[dict[str, str], str]]:
    """The files of the control plane and kubeadm's configuration; the module leaves them so."""
    wait_for(lambda: {MANAGER, SCHEDULER} <= set(operator.processes(lab, "cp1")), "the control plane")
    found = operator.files(lab, "cp1"), stored(lab)
    yield found
    clean = operator.files(lab, "cp1") == found[0] and stored(lab) == found[1]
    if clean:
        operator.forget(lab)
    else:
        lab.reset()


@pytest.fixture(autouse=True)
def settled(lab: Lab) -> None:
    wait_for(lambda: {MANAGER, SCHEDULER, "kube-apiserver"} <= set(operator.processes(lab, "cp1")), "the control plane", 600)


def test_what_is_refused_touches_nothing(lab: Lab, before: tuple[dict[str, str], str]) -> None:
    processes = operator.processes(lab, "cp1")
    stopped(
        deploy(control_plane_flags=f"{MANAGER}:{WINDOW.replace('z', 's')}=2m"),
        f"refuses --{WINDOW.replace('z', 's')}=2m: unknown flag: --{WINDOW.replace('z', 's')}",
        f"did you mean --{WINDOW}",
    )
    # Its form is right; only the rules of the binary say that it is not.
    wrong = {
        MANAGER: {"controllers": ["*", "nope"]},
        "kube-apiserver": {"goaway-chance": 7, "anonymous-auth": False},
        SCHEDULER: {"config": CONFIG},
    }
    stopped(
        deploy(control_plane_flags=wrong, control_plane_files=of_config(PROFILE.replace("Most", "Moist")), allow_flags="controllers"),
        '"nope" is not in the list of known controllers',
        "--goaway-chance can not be less than 0 or greater than 0.02",
        'Unsupported value: "MoistAllocated"',
        "--anonymous-auth=false: requests without credentials",
        "--data allow_flags=anonymous-auth",
    )
    stopped(deploy(control_plane_flags="kube-scheduler:feature-gates=A=true"), "deploys/feature_gates.py")
    stopped(deploy(control_plane_flags="etcd:v=1"), "daytwo does not change etcd's flags")
    # What is right is planned, and each binary could be asked about its rules.
    right = {"kube-apiserver": {"event-ttl": "2h"}, MANAGER: {WINDOW: "2m"}, SCHEDULER: {"v": 3}}
    planned = deploy(control_plane_flags=right, dry=True)
    assert planned.code == 0 and "3 changes on 1 node" in planned.plan and "about its rules" not in planned.out, planned.all
    assert operator.files(lab, "cp1") == before[0] and stored(lab) == before[1]
    assert {name: found[:2] for name, found in operator.processes(lab, "cp1").items()} == {
        name: found[:2] for name, found in processes.items()
    }


@pytest.mark.slow
def test_a_flag_that_parses_and_kills_is_reverted(lab: Lab, before: tuple[dict[str, str], str]) -> None:
    """Nobody can bind this address: only a start shows that."""
    told = deploy(control_plane_flags=f"{SCHEDULER}:bind-address=192.0.2.77", allow_flags="bind-address", confirm_timeout="100")
    assert told.code == 1 and f"HALTED: cp1, {SCHEDULER}: reverted: " in told.out, told.all
    assert "192.0.2.77" in told.out and "kubeadm-config" in told.out
    assert operator.files(lab, "cp1") == before[0] and stored(lab) == before[1]
    assert "--bind-address=127.0.0.1" in argv(lab, SCHEDULER)


def test_a_flag_and_a_profile_are_set_proven_and_kept(lab: Lab, before: tuple[dict[str, str], str], tmp_path: Path) -> None:
    here = tmp_path / "scheduler-config.yaml"
    here.write_text(PROFILE)
    values: dict[str, object] = {
        "control_plane_flags": {MANAGER: {WINDOW: "2m"}, SCHEDULER: {"config": CONFIG}},
        "control_plane_files": {CONFIG: {"file": str(here), "mode": "0600"}},
    }
    told = deploy(**values)
    assert told.code == 0, told.all
    row = re.search(rf"^cp1 +{MANAGER} +--{WINDOW} +absent +2m +confirmed .*$", told.out, re.MULTILINE)
    assert row and f"--{WINDOW}=2m in /proc/PID/cmdline" in row.group(), told.out
    assert "DownscaleStabilizationWindow: 5m0s -> 2m0s" in row.group(), row.group()
    assert f"{CONFIG} in its container" in told.out and "LeastAllocated -> MostAllocated" in told.out
    assert f"--{WINDOW}=2m" in argv(lab, MANAGER) and f"--config={CONFIG}" in argv(lab, SCHEDULER)
    assert lab.run("cp1", f"stat -c '%a %u:%g' {CONFIG}").stdout.strip() == "600 0:0"
    extras = cluster_arguments.read(stored(lab).encode())
    assert extras[MANAGER].flags == {WINDOW: ("2m",)} | cluster_arguments.read(before[1].encode())[MANAGER].flags
    assert extras[SCHEDULER].flags["config"] == (CONFIG,) and extras[SCHEDULER].files == {CONFIG}

    again = deploy(**values)
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all
    checked = pyinfra("checks", "-y", *data(control_plane_flags=json.dumps({MANAGER: {WINDOW: "3m"}})))
    assert re.search(rf"cp1 +control-plane-flags +FAIL +{MANAGER}: its arguments have --{WINDOW}=2m, wanted --{WINDOW}=3m", checked.out)


def placed(lab: Lab) -> list[str]:
    """The nodes of pods that are created one after the other."""
    resources = {"requests": {"cpu": "50m", "memory": "20Mi"}}
    container = {"name": "c", "image": "registry.local/app:1", "imagePullPolicy": "Never", "resources": resources}
    names = [f"packed-{number}" for number in range(4)]
    nodes: list[str] = []

    def node_of(name: str) -> str:
        found: str = lab.kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}")
        return found

    try:
        for name in names:
            spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            lab.kubectl("apply", "-f", "-", input=json.dumps(pod))
            wait_for(partial(node_of, name), f"{name} to have a node")
            nodes.append(node_of(name))
    finally:
        lab.kubectl("delete", "pod", *names, "--now", "--ignore-not-found")
    return nodes


def test_pods_are_packed_by_the_profile(lab: Lab) -> None:
    """With MostAllocated pods follow each other to one node; by default they go to the emptier one."""
    nodes = placed(lab)
    assert len(nodes) == 4 and len(set(nodes)) == 1, nodes


def test_another_content_alone_reaches_the_container(lab: Lab) -> None:
    """The file is mounted alone: without another pod the container would keep the old one."""
    changed = PROFILE + "percentageOfNodesToScore: 50\n"
    told = deploy(control_plane_files=of_config(changed))
    assert told.code == 0, told.all
    assert f"file {CONFIG}" in told.plan and "daytwo/files" in told.plan and "percentageOfNodesToScore: 0 -> 50" in told.out, told.out
    inside = lab.run("cp1", f"cat /proc/$(pidof {SCHEDULER})/root{CONFIG}").stdout
    assert inside == changed


def test_a_content_that_kills_is_reverted_with_its_file(lab: Lab) -> None:
    """The binary accepts it; the scheduler has no right to what it names."""
    now = lab.run("cp1", f"cat {CONFIG} {MANIFESTS}/{SCHEDULER}.yaml").stdout
    told = deploy(
        control_plane_files=of_config(PROFILE.replace("kubernetes/scheduler.conf", "kubernetes/none.conf")), confirm_timeout="100"
    )
    assert told.code == 1 and "reverted: " in told.out, told.all
    assert lab.run("cp1", f"cat {CONFIG} {MANIFESTS}/{SCHEDULER}.yaml").stdout == now
    assert "percentageOfNodesToScore: 50" in lab.run("cp1", f"cat /proc/$(pidof {SCHEDULER})/root{CONFIG}").stdout


def test_all_is_undone_byte_for_byte(lab: Lab, before: tuple[dict[str, str], str]) -> None:
    for _ in range(2):
        told = pyinfra("rollback", "-y")
        assert told.code == 0, told.all
    assert operator.files(lab, "cp1") == before[0] and stored(lab) == before[1]
    assert lab.run("cp1", f"test ! -e {CONFIG}", check=False).returncode == 0
    assert not any(WINDOW in word for word in argv(lab, MANAGER)) and not any("--config" in word for word in argv(lab, SCHEDULER))
    assert len(set(placed(lab))) == 2
