"""The cgroup driver on a real kubelet and containerd: refused, changed with the runtime, undone with it; and swap."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.operator import Started, data, pyinfra, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

NODE = "w1"
RUNTIME = "/etc/containerd/config.toml"
NAME = "stays"
FIELDS = "cgroupDriver=cgroupfs,failSwapOn=true,memorySwap.swapBehavior=NoSwap"


def configz(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/configz"))["kubeletconfig"]
    return found


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
    files, running = operator.files(lab, NODE), lab.run(NODE, f"cat {RUNTIME}").stdout
    yield
    Started.end_all()
    lab.kubectl("delete", "daemonset", NAME)
    if lab.run(NODE, f"cat {RUNTIME}").stdout != running:
        runtime_has(lab, True)
    assert operator.files(lab, NODE) == files
    operator.forget(lab)


@pytest.mark.slow
def test_the_kubelet_follows_its_runtime_there_and_back(lab: Lab) -> None:
    before, files = configz(lab), operator.files(lab, NODE)
    assert before["cgroupDriver"] == "systemd", before
    (old, cgroups), version = container(lab), lab.run(NODE, "containerd --version").stdout.split()[2].removeprefix("v")
    assert "/kubepods.slice/" in cgroups, cgroups

    # The runtime has another driver: nothing is drained, nothing written.
    line = lab.run(NODE, f"grep -n SystemdCgroup {RUNTIME}").stdout.partition(":")[0]
    refused = pyinfra("kubelet_config", "-y", *data(kubelet_config=FIELDS, only=NODE))
    words = " ".join(refused.all.split())
    assert refused.code == 1 and f"{RUNTIME}:{line}: SystemdCgroup = true; the runtime first: `deploys/drain.py" in words, refused.all
    if version.startswith("1."):
        assert f"containerd {version} runs with another driver (runc systemd), and while the kubelet had cgroupfs" in words, refused.all
    assert operator.files(lab, NODE) == files

    runtime_has(lab, False)
    done = pyinfra("kubelet_config", "-y", *data(kubelet_config=FIELDS, only=NODE))
    assert done.code == 0, done.all
    assert f"containerd {version} has cgroupfs, processes of pods only in kubepods" in done.out, done.out
    assert "1 pods created again" in done.out, done.out
    now = configz(lab)
    assert (now["cgroupDriver"], now["failSwapOn"], now["memorySwap"]) == ("cgroupfs", True, {"swapBehavior": "NoSwap"})
    new, cgroups = container(lab)
    assert new != old and "/kubepods/besteffort/" in cgroups and "kubepods.slice" not in cgroups, cgroups
    assert not json.loads(lab.kubectl("get", "node", NODE, "-o", "json"))["spec"].get("unschedulable")
    # A pod that comes now starts: kubelet and runtime agree.
    lab.run_pod("later", NODE)
    lab.kubectl("delete", "pod", "later", "--now")

    # Back only with the runtime.
    run = re.search(r"Plan of run (\S+):", done.out)
    assert run
    refused = pyinfra("rollback", "-y", *data(run=run.group(1)))
    assert refused.code == 1 and "cgroupDriver systemd: containerd" in " ".join(refused.all.split()), refused.all
    runtime_has(lab, True)
    # The kubelet keeps a pod whose empty cgroup of that driver is still there, and the node would revert: it must be another pod.
    lab.kubectl("delete", "pod", "-l", f"app={NAME}", "--now")
    undone = pyinfra("rollback", "-y", *data(run=run.group(1)))
    assert undone.code == 0 and re.search(r"containerd \S+ has systemd, ", undone.out), undone.all
    assert configz(lab) == before and operator.files(lab, NODE) == files
    wait_for(lambda: pod(lab) and "/kubepods.slice/" in container(lab)[1], "the pod in the old driver's cgroups")


def test_limited_swap_is_refused_where_the_kubelet_would_not_start(lab: Lab) -> None:
    if lab.run(NODE, "test -f /sys/fs/cgroup/cgroup.controllers", check=False).returncode == 0:
        pytest.skip("this machine has cgroup v2")
    files = operator.files(lab, NODE)
    refused = pyinfra("kubelet_config", "-y", *data(kubelet_config="memorySwap.swapBehavior=LimitedSwap", only=NODE))
    assert refused.code == 1 and "LimitedSwap: the node has cgroup v1" in " ".join(refused.all.split()), refused.all
    assert operator.files(lab, NODE) == files
