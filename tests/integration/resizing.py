"""Pods resized in place on a lab of any minor: what tests make, ask and find, and the stories that are told on each minor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.operator import Outcome, Started, data, end_started, pyinfra, refused, run_of, says, wait_for
from tests.lab import Lab, images

GATE = "InPlacePodVerticalScaling"
MI = 2**20
# A label on every pod that is made here.
MINE = "t-resize"
SMALL = {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}


def minor(lab: Lab) -> int:
    return int(lab.version.split(".")[1])


def resize(*arguments: str, **values: str) -> Outcome:
    return pyinfra("resize", *data(**values), *arguments, "-y")


def manifest(resources: dict[str, Any], *, fill: int = 0, policy: str = "") -> dict[str, Any]:
    """A pod's spec; `fill` MiB of memory are used that cannot be reclaimed."""
    container: dict[str, Any] = {"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", "resources": resources}
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": [container]}
    if policy:
        container["resizePolicy"] = [{"resourceName": name, "restartPolicy": policy} for name in ("cpu", "memory")]
    if fill:
        spec["volumes"] = [{"name": "fill", "emptyDir": {"medium": "Memory"}}]
        container["volumeMounts"] = [{"name": "fill", "mountPath": "/fill"}]
        wait = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
        container["command"] = ["/bin/sh", "-c", f"dd if=/dev/zero of=/fill/data bs=1M count={fill} 2>/dev/null; {wait}"]
    return spec


def make_pod(lab: Lab, name: str, node: str, resources: dict[str, Any], app: str = "t-one", **more: Any) -> None:
    labels = {"app": app, MINE: "yes"}
    spec = {**manifest(resources, **more), "nodeName": node}
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec}
    lab.kubectl("create", "-f", "-", input=json.dumps(item))
    lab.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=280s")


def make_workload(lab: Lab, replicas: int, resources: dict[str, Any], kind: str = "Deployment") -> None:
    """t-web; of a DaemonSet one pod on each worker, whatever `replicas` is."""
    labels = {"app": "t-web", MINE: "yes"}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": "t-web"}},
        "template": {"metadata": {"labels": labels}, "spec": manifest(resources)},
    }
    spec |= {} if kind == "DaemonSet" else {"replicas": replicas}
    spec |= {"serviceName": "t-web"} if kind == "StatefulSet" else {}
    item = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "t-web", "namespace": "default"}, "spec": spec}
    lab.kubectl("apply", "-f", "-", input=json.dumps(item))
    lab.kubectl("rollout", "status", f"{kind.lower()}/t-web", "--timeout=280s")


def pods(lab: Lab, app: str = "t-web", ending: bool = False) -> list[dict[str, Any]]:
    """By name; `ending`: with those that were deleted and are still there."""
    found = json.loads(lab.kubectl("get", "pods", "-n", "default", "-l", f"app={app}", "-o", "json"))["items"]
    there = [item for item in found if ending or "deletionTimestamp" not in item["metadata"]]
    return sorted(there, key=lambda item: str(item["metadata"]["name"]))


def identities(items: list[dict[str, Any]]) -> dict[str, tuple[str, int, str]]:
    """Container id, restart count and start time by the pod's UID."""
    found = {}
    for item in items:
        state = item["status"]["containerStatuses"][0]
        found[item["metadata"]["uid"]] = (state["containerID"], state["restartCount"], state["state"]["running"]["startedAt"])
    return found


def kernel(lab: Lab, item: dict[str, Any]) -> tuple[str, str]:
    """What the container's own files say on its node: of its CPU share and its memory limit, for cgroup v1 and v2."""
    name = item["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    told = lab.run(
        item["spec"]["nodeName"],
        f"for top in cpu memory ''; do find /sys/fs/cgroup/$top -type d -name '*{name}*' 2>/dev/null | head -n 1 | while read -r d; do "
        'for f in cpu.shares cpu.weight memory.limit_in_bytes memory.max; do [ ! -e $d/$f ] || echo "$f $(cat $d/$f)"; done; done; done',
    ).stdout
    files = dict(line.split(" ", 1) for line in told.splitlines())
    if "cpu.shares" in files:
        return files["cpu.shares"], files["memory.limit_in_bytes"]
    return files["cpu.weight"], files["memory.max"]


def has(lab: Lab, items: list[dict[str, Any]], cpu: int, memory: int) -> bool:
    """Every container's kernel files hold it to `cpu` (milli-CPU requested) and `memory` (MiB at most)."""
    shares = cpu * 1024 // 1000
    return all(kernel(lab, item)[1] == str(memory * MI) and kernel(lab, item)[0] in _cpu_files(shares) for item in items)


def _cpu_files(shares: int) -> set[str]:
    # cpu.weight is near shares/26 by the old formula, and 39 (1024 shares: 100) and the like by the new one: not told apart here.
    return {str(shares)} | {str(weight) for weight in range(max(1, shares // 30), shares // 8 + 2)}


def asked(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = item["spec"]["containers"][0]["resources"]
    return found


def no_resize_left(item: dict[str, Any]) -> bool:
    """No condition and no word of a resize, and the status is the spec."""
    status = item["status"]
    left = [one["type"] for one in status.get("conditions", ()) if one["type"].startswith("PodResize") and one["status"] == "True"]
    return not left and not status.get("resize") and status["containerStatuses"][0].get("resources") == asked(item)


def drift(*arguments: str) -> Outcome:
    return pyinfra("resize_drift", *arguments, "-y")


def resized(audit: Outcome) -> list[dict[str, Any]]:
    """What an audit finds of pods unlike their template."""
    assert audit.code in (0, 2), audit.all
    return [one for one in json.loads(audit.out)["findings"] if one["kind"] == "resize"]


@pytest.fixture(scope="module")
def nothing_left(lab: Lab) -> Iterator[None]:
    """Whatever tests that were killed have left is gone; and no record of this module's runs is left on a node."""
    clean(lab)
    yield
    operator.forget(lab)


@pytest.fixture(autouse=True)
def as_found(lab: Lab, nothing_left: None) -> Iterator[None]:
    """Whatever a test makes or stops is gone or runs again after it."""
    yield
    end_started(lab)
    for node in lab.nodes:
        lab.run(node, "pkill -CONT -x kube-apiserver; systemctl is-active -q kubelet || systemctl start kubelet", check=False)
    wait_for(lambda: lab.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API")
    clean(lab)
    wait_for(lambda: "daytwo-resize-" not in lab.kubectl("get", "namespaces"), "nothing of a check to be left", 60)


def clean(lab: Lab) -> None:
    lab.kubectl("delete", "deployment,statefulset,daemonset", "t-web", "-n", "default", "--wait")
    lab.kubectl("delete", "pods", "-n", "default", "-l", MINE, "--now", "--wait")
    wait_for(lambda: not json.loads(lab.kubectl("get", "pods", "-n", "default", "-l", MINE, "-o", "json"))["items"], "the pods to be gone")


def can_resize(lab: Lab) -> None:
    """Where the gate is off by default, it has been turned on by the first test."""
    if minor(lab) < 33 and f'{GATE}",stage="ALPHA"}} 1' not in lab.kubectl("get", "--raw", "/metrics"):
        pytest.skip("the gate is off here; test_the_whole_story turns it on")


def the_whole_story(lab: Lab) -> None:
    """Refused with its reason where the gate is off, and the gate turned on; each node shown to do it; three pods up and down again without
    a restart, their drift listed; then their template says so too, and the drift is gone. (The drift, and what a template does, are of the
    API's objects alone, the same in each minor: shown on the newer one.)"""
    newer = minor(lab) >= 33
    if not newer:
        off = ["cp1 kube-apiserver", "cp1 kube-scheduler", *(f"{node} kubelet" for node in lab.nodes)]
        refused(pyinfra("pod_resize_check", "-y"), f"the feature gate {GATE} is off", *off, f"feature_gates={GATE}=true")
        make_workload(lab, 1, SMALL)
        refused(resize(deployment="default/t-web", cpu="300m"), f"the feature gate {GATE} is off", "cp1 kube-apiserver")
        lab.kubectl("delete", "deployment", "t-web", "--wait")
        told = pyinfra("feature_gates", *data(feature_gates=f"{GATE}=true", **consent()), "-y").ended(0)

    told = pyinfra("pod_resize_check", *data(verbose="true"), "-y").ended(0)
    for node in lab.nodes:
        for stage in ("keep, up", "keep, down", "restart, up", "restart, down"):
            assert re.search(rf"^{node} +{stage} +done  ", told.out, re.MULTILINE), told.all
    says(
        told,
        "0 restarts",
        "restarted, as its resizePolicy says",
        "allocated on the node: cpu",
        f"{len(lab.nodes)} of {len(lab.nodes)} nodes can resize",
    )

    make_workload(lab, 3, SMALL)
    before = pods(lab)
    assert len(before) == 3 and has(lab, before, 100, 200)
    told = resize(deployment="default/t-web", cpu="300m", memory="600Mi").ended(0)
    after = pods(lab)
    assert identities(after) == identities(before), "no container was restarted"
    assert has(lab, after, 300, 600) and all(map(no_resize_left, after))
    for item in after:
        assert re.search(rf"^pod default/{item['metadata']['name']}  +resize  +done  ", told.out, re.MULTILINE), told.all
    says(told, "stays as it is (template=keep)", f"deploys/rollback.py --data run={run_of(told)}")

    if newer:
        listed_as_drift(told_of=after)

    told = resize(deployment="default/t-web", cpu="100m", memory="200Mi", max_in_flight="3").ended(0)
    back = pods(lab)
    assert identities(back) == identities(before) and has(lab, back, 100, 200) and all(map(no_resize_left, back))
    if not newer:
        return
    assert drift().code == 0 and not resized(pyinfra("audit", *data(format="json"), "-y"))

    told = resize(deployment="default/t-web", cpu="300m", memory="600Mi", template="update").ended(0)
    says(told, "recreates all its pods, 3 of them", "rolled out; its 3 pods have it, read back")
    new = pods(lab, ending=True)
    assert len(new) == 3 and not set(identities(new)) & set(identities(before)), "a new template makes new pods, and no old one is left"
    assert has(lab, new, 300, 600) and drift().code == 0


def listed_as_drift(told_of: list[dict[str, Any]]) -> None:
    told = drift().ended(2)
    says(told, "Deployment default/t-web", "cpu 100m/-, memory 200Mi/200Mi", "cpu 300m/-, memory 600Mi/600Mi")
    document = json.loads(drift("--data", "format=json").out)
    (found,) = document["drift"]
    assert found["name"] == "t-web" and found["template"]["requests"] == {"cpu": "100m", "memory": "200Mi"}
    assert sorted(one["pod"] for one in found["pods"]) == [f"default/{item['metadata']['name']}" for item in told_of]
    (found,) = resized(pyinfra("audit", *data(format="json"), "-y"))
    assert found["name"] == "Deployment default/t-web" and "3 pods have cpu 300m/-, memory 600Mi/600Mi" in found["value"], found


def consent() -> dict[str, str]:
    """To turn the gate on in a version where that can restart containers all over the cluster."""
    return {"allow_hazards": GATE}


def more_than_the_node_has(lab: Lab) -> None:
    """Newer API servers say so themselves, before anything is written; with older ones the kubelet does, and the pod is put back."""
    can_resize(lab)
    make_pod(lab, "t-one", lab.workers[0], SMALL)
    (before,) = pods(lab, "t-one")
    told = resize(selector="default/app=t-one", cpu="100", resize_timeout="60")
    if minor(lab) >= 35:
        refused(told, "the API refuses it", "node didn't have enough allocatable resources: cpu, requested: 100000")
    else:
        assert told.code == 1, told.all
        says(told, "Infeasible", "; reverted: ", "HALTED")
        assert re.search(r"^pod default/t-one  +resize  +reverted  ", told.out, re.MULTILINE), told.all
    (after,) = pods(lab, "t-one")
    assert asked(after) == asked(before) and identities([after]) == identities([before])
    assert has(lab, [after], 100, 200) and no_resize_left(after)


def an_infeasible_that_comes_late(lab: Lab) -> None:
    """Before 1.33 a kubelet that has not yet seen that a pod is put back can write again what it said before: here, while it is held."""
    can_resize(lab)
    if minor(lab) >= 33:
        pytest.skip("a status says here of which spec it is")
    node = lab.workers[0]
    make_pod(lab, "t-one", node, SMALL)
    (before,) = pods(lab, "t-one")
    started = Started("resize", *data(selector="default/app=t-one", cpu="100", resize_timeout="60"), "-y")
    started.wait_for("t-one: Infeasible")
    with lab.frozen(node, "kubelet"):
        back = "; reverting"
        started.wait_for(back)
        wait_for(lambda: asked(pods(lab, "t-one")[0]) == asked(before), "the pod's spec to be as it was")
        lab.kubectl(
            "patch", "pod", "t-one", "-n", "default", "--subresource=status", "--type=merge", "-p", '{"status":{"resize":"Infeasible"}}'
        )
        wait_for(lambda: "t-one: Infeasible\n" in started.out.partition(back)[2], "the run to have seen it")
    told = started.end().ended(1)
    assert re.search(r"^pod default/t-one  +resize  +reverted  ", told.out, re.MULTILINE), told.all
    (after,) = pods(lab, "t-one")
    assert asked(after) == asked(before) and identities([after]) == identities([before])
    assert has(lab, [after], 100, 200) and no_resize_left(after)
