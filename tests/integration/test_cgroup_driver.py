"""The cgroup driver on a real kubelet and containerd: both changed in one transaction, struck in its middle, undone; and swap."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.operator import Started, data, end_started, pyinfra, run_of, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

NODE = "w1"
HOME = "/var/lib/daytwo"
RUNTIME = "/etc/containerd/config.toml"
KILL, POWER = "killed", "power cut"
NAME = "stays"
FIELDS = "cgroupDriver=cgroupfs,failSwapOn=true,memorySwap.swapBehavior=NoSwap"


def configz(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/configz"))["kubeletconfig"]
    return found


def toml(lab: Lab) -> str:
    return lab.run(NODE, f"cat {RUNTIME}").stdout


def runtime_has(lab: Lab, systemd: bool) -> None:
    """As an operator does it by hand."""
    lab.run(NODE, f"sed -i 's/SystemdCgroup = .*/SystemdCgroup = {str(systemd).lower()}/' {RUNTIME} && systemctl restart containerd")


def pod(lab: Lab) -> dict[str, Any]:
    """The pod of the DaemonSet on the node; {} if there is none."""
    items = json.loads(lab.kubectl("get", "pods", "-l", f"app={NAME}", "-o", "json"))["items"]
    return next((item for item in items if item["status"].get("containerStatuses")), {})


def container(lab: Lab) -> tuple[str, str]:
    """The ID of the pod's container, and the cgroups of its process, as the kernel has them."""
    found = pod(lab)["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    return found, lab.run(NODE, f"cat /proc/[0-9]*/cgroup 2>/dev/null | grep {found} | sort -u").stdout


@pytest.fixture(scope="module", autouse=True)
def a_pod_that_a_drain_leaves(lab: Lab) -> Iterator[None]:
    template = {
        "metadata": {"labels": {"app": NAME}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never"}],
        },
    }
    spec = {"selector": {"matchLabels": {"app": NAME}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": NAME, "namespace": "default"}, "spec": spec}
    lab.kubectl("apply", "-f", "-", input=json.dumps(made))
    lab.kubectl("rollout", "status", f"daemonset/{NAME}", "--timeout=280s")
    files, running = operator.files(lab, NODE), toml(lab)
    yield
    lab.kubectl("delete", "daemonset", NAME)
    if toml(lab) != running:
        runtime_has(lab, True)
    assert operator.files(lab, NODE) == files
    operator.forget(lab)


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    """Each test begins and ends with the driver systemd on both sides, on a node that takes pods."""
    files, running = operator.files(lab, NODE), toml(lab)
    assert "SystemdCgroup = true" in running and configz(lab)["cgroupDriver"] == "systemd"
    yield
    lab.run(NODE, f"rm -rf {HOME}/held {HOME}/go")
    if end_started(lab):
        lab.kubectl("uncordon", NODE)
    assert (operator.files(lab, NODE), toml(lab)) == (files, running)


def is_in(lab: Lab, directory: str, other: str) -> bool:
    """The DaemonSet's pod runs, in this driver's cgroups only."""
    found = pod(lab)
    if not found or not found["status"]["containerStatuses"][0].get("ready"):
        return False
    cgroups = container(lab)[1]
    return f"/{directory}/" in cgroups and f"/{other}/" not in cgroups


def starts_pods(lab: Lab) -> None:
    """Kubelet and runtime agree: a pod that comes now starts."""
    lab.run_pod("later", NODE)
    lab.kubectl("delete", "pod", "later", "--now")


def change(**more: str) -> operator.Outcome:
    return pyinfra("kubelet_config", "-y", *data(kubelet_config=FIELDS, only=NODE, **more))


@pytest.mark.slow
def test_kubelet_and_runtime_change_together_there_and_back(lab: Lab) -> None:
    before, files = configz(lab), operator.files(lab, NODE)
    (old, cgroups), version = container(lab), lab.run(NODE, "containerd --version").stdout.split()[2].removeprefix("v")
    assert "/kubepods.slice/" in cgroups, cgroups

    # A restart of the runtime would apply what somebody has just written: nothing is drained, nothing changed.
    line = lab.run(NODE, f"grep -n SystemdCgroup {RUNTIME}").stdout.partition(":")[0]
    since = lab.run(NODE, f"stat -c %Y {RUNTIME}").stdout.strip()
    lab.run(NODE, f"touch {RUNTIME}")
    refused = change()
    words = " ".join(refused.all.split())
    assert refused.code == 1 and f"daytwo does not change it: {RUNTIME} was written after the runtime had started" in words, refused.all
    assert f"{RUNTIME}:{line}: SystemdCgroup = true" in words and "the runtime first: `deploys/drain.py" in words, refused.all
    lab.run(NODE, f"touch -d @{since} {RUNTIME}")

    done = change().ended(0)
    assert "the files are placed, systemctl restart containerd.service, systemctl start" in done.out, done.out
    assert f"containerd {version} has cgroupfs, processes of pods only in kubepods" in done.out and "1 pod created again" in done.out, (
        done.out
    )
    now = configz(lab)
    assert (now["cgroupDriver"], now["failSwapOn"], now["memorySwap"]) == ("cgroupfs", True, {"swapBehavior": "NoSwap"})
    assert "SystemdCgroup = false" in toml(lab)
    assert is_in(lab, "kubepods", "kubepods.slice") and container(lab)[0] != old
    assert not json.loads(lab.kubectl("get", "node", NODE, "-o", "json"))["spec"].get("unschedulable")
    starts_pods(lab)
    again = change()
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all

    # The undo of the run takes the runtime back with it.
    undone = pyinfra("rollback", "-y", *data(run=run_of(done)))
    assert undone.code == 0 and re.search(r"containerd \S+ has systemd, ", undone.out), undone.all
    assert configz(lab) == before and operator.files(lab, NODE) == files
    assert is_in(lab, "kubepods.slice", "kubepods")
    starts_pods(lab)


@pytest.mark.slow
def test_the_kubelet_follows_a_runtime_that_was_changed_by_hand(lab: Lab) -> None:
    before, files = configz(lab), operator.files(lab, NODE)
    runtime_has(lab, False)
    done = change()
    assert done.code == 0 and f"+++ {RUNTIME}" not in done.out and "has cgroupfs, processes of pods only in kubepods" in done.out, done.all
    assert is_in(lab, "kubepods", "kubepods.slice")
    # The kubelet goes back only with its runtime.
    undone = pyinfra("rollback", "-y", *data(run=run_of(done)))
    assert undone.code == 0 and f"+++ {RUNTIME}" in undone.out and re.search(r"containerd \S+ has systemd, ", undone.out), undone.all
    assert configz(lab) == before and operator.files(lab, NODE) == files
    assert is_in(lab, "kubepods.slice", "kubepods")
    starts_pods(lab)


# The steps of such a change, in their order; with "restart" the runtime already has its new driver and the kubelet does not run.
CASES = [(step, fault) for step in ("end-pods", "place 2", "restart-runtime", "restart", "wait", "applied") for fault in (KILL, POWER)]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "fault"), CASES)
def test_a_change_that_is_struck_leaves_both_as_they_were(lab: Lab, step: str, fault: str) -> None:
    before, files, running = configz(lab), operator.files(lab, NODE), toml(lab)
    run = Started("kubelet_config", "-y", *data(kubelet_config=FIELDS, only=NODE, confirm_timeout="150"), hold=step)
    try:
        run.wait_for("held\n")
        found = re.search(r"Plan of run (\S+):", run.out)
        assert found, run.out
        name = f"{found.group(1)}-{NODE}-kubelet"
        if fault == KILL:
            lab.run(NODE, f"systemctl kill --kill-whom=main --signal=KILL daytwo-{name}.service")
        else:
            lab.kill(NODE)
            lab.start(NODE)
        ended = run.end()
    finally:
        run.process.kill()
    assert ended.code == 1, ended.all
    wait_for(lambda: lab.run(NODE, f"ls -A {HOME}/active").stdout == "", "the node to come to rest")
    state = lab.run(NODE, f"cat {HOME}/changes/{name}/state").stdout
    assert "state=reverted" in state, f"{state}\n{ended.out}"
    assert (operator.files(lab, NODE), toml(lab)) == (files, running), f"{step}, {fault}"
    wait_for(lambda: is_in(lab, "kubepods.slice", "kubepods"), "the pod in the old driver's cgroups")
    assert configz(lab) == before
    lab.kubectl("uncordon", NODE)
    starts_pods(lab)


@pytest.mark.slow
def test_a_runtime_that_does_not_start_with_its_new_file_is_reverted(lab: Lab) -> None:
    before, files, folder = configz(lab), operator.files(lab, NODE), "/etc/systemd/system/containerd.service.d"
    refuses = f"[Service]\nExecStartPre=/bin/grep -q 'SystemdCgroup = true' {RUNTIME}\n"
    lab.run(NODE, f"mkdir -p {folder} && cat >{folder}/refuses.conf && systemctl daemon-reload", input=refuses)
    try:
        told = change()
    finally:
        lab.run(NODE, f"rm {folder}/refuses.conf; systemctl daemon-reload")
    assert told.code == 1 and "reverted: containerd.service does not start" in told.out, told.all
    assert configz(lab) == before and operator.files(lab, NODE) == files
    wait_for(lambda: is_in(lab, "kubepods.slice", "kubepods"), "the pod in the old driver's cgroups")
    assert not json.loads(lab.kubectl("get", "node", NODE, "-o", "json"))["spec"].get("unschedulable")
    starts_pods(lab)


def test_a_driver_that_was_edited_by_hand_stops_another_change_of_the_kubelet(lab: Lab) -> None:
    """Its restart would bring the driver, and no pod would start."""
    path = "/var/lib/kubelet/config.yaml"
    lab.run(NODE, f"cp -a {path} /root/kept.yaml && sed -i 's/^cgroupDriver: .*/cgroupDriver: cgroupfs/' {path}")
    try:
        told = pyinfra("kubelet_config", "-y", *data(kubelet_config="podPidsLimit=4321", only=NODE, drain="never"))
    finally:
        lab.run(NODE, f"mv /root/kept.yaml {path}")
    words = " ".join(told.all.split())
    assert told.code == 1 and "cgroupDriver is cgroupfs in its files, but the kubelet runs with systemd" in words, told.all
    assert "revert the file" in words


def test_limited_swap_is_refused_where_the_kubelet_would_not_start(lab: Lab) -> None:
    if lab.run(NODE, "test -f /sys/fs/cgroup/cgroup.controllers", check=False).returncode == 0:
        pytest.skip("this machine has cgroup v2")
    files = operator.files(lab, NODE)
    refused = pyinfra("kubelet_config", "-y", *data(kubelet_config="memorySwap.swapBehavior=LimitedSwap", only=NODE))
    assert refused.code == 1 and "LimitedSwap: the node has cgroup v1" in " ".join(refused.all.split()), refused.all
    assert operator.files(lab, NODE) == files


@pytest.mark.slow
def test_fail_swap_on_there_and_back(lab: Lab) -> None:
    """The lab's kubelets have false, which is not their default; refused where swap is on, by what the node's kernel tells."""
    before, files = configz(lab), operator.files(lab, NODE)
    assert before["failSwapOn"] is False
    lab.run(
        NODE, "cat /proc/swaps >/root/swaps && echo '/swapfile file 1048572 0 -2' >>/root/swaps && mount --bind /root/swaps /proc/swaps"
    )
    try:
        refused = pyinfra("kubelet_config", "-y", *data(kubelet_config="failSwapOn=true", only=NODE))
    finally:
        lab.run(NODE, "umount /proc/swaps; rm /root/swaps")
    assert refused.code == 1 and "/proc/swaps lists 1 area(s): with failSwapOn a kubelet does not start" in refused.all, refused.all
    assert operator.files(lab, NODE) == files

    runs = []
    for fields, then in (
        ("failSwapOn=true", (True, before["memorySwap"])),
        ("failSwapOn=false,memorySwap.swapBehavior=NoSwap", (False, {"swapBehavior": "NoSwap"})),
    ):
        done = pyinfra("kubelet_config", "-y", *data(kubelet_config=fields, only=NODE))
        assert done.code == 0 and re.search(rf"^{NODE} +failSwapOn .*confirmed .*/configz", done.out, re.MULTILINE), done.all
        assert (configz(lab)["failSwapOn"], configz(lab)["memorySwap"]) == then
        runs.append(run_of(done))
    for run in reversed(runs):
        pyinfra("rollback", "-y", *data(run=run)).ended(0)
    assert configz(lab) == before and operator.files(lab, NODE) == files
