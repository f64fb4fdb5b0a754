"""Requests from real use, on containers whose use is known: a steady one, a spiky one, a leaking one, one that is killed for its memory."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.pods import is_over
from roles.engine.kube.resources import View, requests
from roles.right_size import DOCUMENTS
from roles.right_size.report import page
from tests.integration import browser, metrics_api, operator, scaling
from tests.integration.metrics_api import MetricsApi
from tests.integration.operator import Outcome, Started, data, pyinfra, run_of, wait_for
from tests.integration.resizing import identities, kernel, manifest
from tests.lab import Lab, images, loadserver
from tests.unit.right_size.world import container, judged, reads

pytestmark = pytest.mark.lab
slow = pytest.mark.slow

MI = 2**20
NAMESPACE, SHORT = "t-size", "t-size-short"
# What each uses: thousandths of a core, MiB, MiB a second.
STEADY = {"cpu": 60, "memory": 96}
SPIKY = {"cpu": 10, "burst": 100, "every": 24, "for": 12, "memory": 32}
LEAKING = {"memory": 24, "leak": 0.5}
# Much more than its limit.
KILLED, KILLED_AT = {"memory": 80}, 48
# What the load server needs for itself.
OWN = 2
# It has a CPU limit.
LIMITED = {"cpu": 20, "memory": 16}
# Seconds between two reads, and how many there are.
INTERVAL, READS = 6, 15


def deployment(name: str, image: str, node: str, resources: dict[str, Any], *, namespace: str = NAMESPACE, **use: float) -> dict[str, Any]:
    labels = {"app": name}
    spec = {
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [loadserver.container(image, resources, **use)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def of_memory(size: int) -> dict[str, Any]:
    """Request and limit in MiB."""
    return {"requests": {"memory": f"{size}Mi"}, "limits": {"memory": f"{size}Mi"}}


def forged(name: str, limit: str) -> dict[str, Any]:
    """A busy pod that names a Deployment as its controller, of a group that no server has: the garbage collector lets it be."""
    owner = {"apiVersion": "no-such.example/v1", "kind": "Deployment", "name": name, "uid": "11111111-1111-1111-1111-111111111111"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "forged", "namespace": SHORT, "ownerReferences": [{**owner, "controller": True}]},
        "spec": {
            "nodeName": "w1",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "app",
                    "image": f"{images.REPOSITORY}/app:1",
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", "while :; do :; done"],
                    "resources": {"limits": {"cpu": limit}},
                }
            ],
        },
    }


def test_a_request_is_lowered_in_place_and_comes_back(lab: Lab) -> None:
    """A pod that does nothing, and a run that sees just enough of it. What a pod uses that only claims to be its workload's does not
    count."""
    was = {"requests": {"cpu": "500m", "memory": "64Mi"}}
    item = deployment("idle", "", "w1", {}, namespace=SHORT)
    item["spec"]["template"]["spec"] = {**manifest(was), "nodeName": "w1"}
    lab.kubectl("create", "namespace", SHORT)
    try:
        lab.kubectl("create", "-f", "-", input=json.dumps(item))
        lab.kubectl("rollout", "status", "-n", SHORT, "deployment/idle", "--timeout=280s")
        lab.kubectl("create", "-f", "-", input=json.dumps(forged("idle", "200m")))
        lab.kubectl("wait", "-n", SHORT, "pod/forged", "--for=condition=Ready", "--timeout=280s")
        pod = the_pod(lab, "idle", SHORT)
        asked = data(only_objects=f"{SHORT}/deployment/idle", apply="true", template="keep", watch_resized="1", interval="2")
        refused = pyinfra("right_size", *asked, *data(watch="0"), "-y")
        assert refused.code == 1 and "too few rates" in refused.all, refused.all
        told = pyinfra("right_size", *asked, *data(watch="14", min_span="0"), "-y")
        assert told.code == 0 and "0 restarts" in told.all, told.all
        after = the_pod(lab, "idle", SHORT)
        assert after["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "5m" and identities([after]) == identities([pod])
        phase = lab.kubectl("get", "pod", "-n", SHORT, "forged", "-o", "jsonpath={.status.phase}")
        assert phase == "Running", "it was there all the time"
        undo(run_of(told))
        after = the_pod(lab, "idle", SHORT)
        assert after["spec"]["containers"][0]["resources"] == was and identities([after]) == identities([pod])
    finally:
        lab.kubectl("delete", "namespace", SHORT, "--wait=false")


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """Names that try to be a part of the page are only text; those in danger come first, then those that waste most."""
    hostile = '</article><img src=x onerror="document.title=1"><script>document.title=2</script>'
    of = [
        (container(f"wastes{hostile}", 2000), reads(120, 5)),
        (container("fits", 112), reads(120, 5)),
        (replace(container("leaks"), name=hostile), reads(120, 5, memory=lambda at: (20 + at) * MI)),
    ]
    written = tmp_path / "page.html"
    written.write_text(page(judged(*of), made="now", notes=[hostile], problems=[hostile]), encoding="utf-8")
    for dark in (False, True):
        shown = browser.open_page(written, tmp_path, "fits", "leaking", "nothing-has-this", dark=dark)
        assert shown.console == [] and shown.told["requests"] == [] and not shown.told["wide"] and shown.told["title"] == "Right size"
        assert shown.told["all"]["bars"] == 3 and [shown.told["answers"][word]["bars"] for word in ("fits", "leaking")] == [1, 1]
        assert shown.told["answers"]["nothing-has-this"]["bars"] == 0
        assert [text.split()[1][:10] for text in shown.told["bars"]] == ["shop/leaks", "shop/waste", "shop/fits"], shown.told["bars"]


@pytest.fixture(scope="module", autouse=True)
def talking(lab: Lab) -> Iterator[None]:
    """All of this module on nodes whose login shells print."""
    with operator.talking(lab, "w1"):
        yield


@pytest.fixture(scope="module")
def loads(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The four workloads; the samples of this module are in a directory of its own."""
    image = loadserver.load(lab)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        lab.kubectl("create", "namespace", NAMESPACE)
        try:
            items = [
                deployment(
                    "steady", image, "w1", {"requests": {"cpu": "600m", "memory": "384Mi"}, "limits": {"memory": "512Mi"}}, **STEADY
                ),
                deployment("spiky", image, "cp1", {"requests": {"cpu": "40m", "memory": "36Mi"}}, **SPIKY),
                deployment("leaking", image, "w1", {"requests": {"memory": "32Mi"}, "limits": {"memory": "600Mi"}}, **LEAKING),
                deployment("limited", image, "w1", {"requests": {"cpu": "200m", "memory": "24Mi"}, "limits": {"cpu": "400m"}}, **LIMITED),
                deployment("killed", image, "cp1", of_memory(KILLED_AT), **KILLED),
            ]
            items[-1]["spec"]["strategy"] = {"type": "Recreate"}
            lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
            for name in ("steady", "spiky", "leaking", "limited"):
                lab.kubectl("rollout", "status", "-n", NAMESPACE, f"deployment/{name}", "--timeout=280s")
            wait_for(lambda: "OOMKilled" in lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", "app=killed", "-o", "json"), "the OOM kill")
            yield lab
        finally:
            lab.kubectl("delete", "namespace", NAMESPACE, "--wait", "--timeout=280s")


def right_size(*arguments: str, **values: str) -> Outcome:
    return pyinfra("right_size", *data(namespaces=NAMESPACE, **values), *arguments, "-y")


def by_name(told: Outcome) -> dict[str, dict[str, Any]]:
    assert told.code == 0, told.all
    document = json.loads(told.out)
    DOCUMENTS["right_size"].model_validate(document)
    assert not document["problems"]
    return {one["name"]: one for one in document["containers"]}


def near(found: int, truth: float) -> bool:
    return 0.8 * truth <= found <= 1.2 * truth


# The uptime and the CPU time of a container in microseconds, every half second; $1 is its ID.
COUNT = """cd "$(find /sys/fs/cgroup/cpuacct /sys/fs/cgroup -type d -name "*$1*" 2>/dev/null | head -n 1)" || exit 1
while :; do
    read -r up _ </proc/uptime
    if [ -e cpuacct.usage ]; then echo "$up $(($(cat cpuacct.usage) / 1000))"; else echo "$up $(sed -n 's/^usage_usec //p' cpu.stat)"; fi
    sleep 0.5
done"""


@contextlib.contextmanager
def counted(lab: Lab, name: str) -> Iterator[Callable[[float], float]]:
    """What the kernel counts of a workload's container meanwhile, read by other hands than daytwo's: the highest rate over so many
    seconds, in thousandths of a core."""
    pod = the_pod(lab, name)
    identifier = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    words = [
        "ssh",
        "-F",
        str(lab.ssh_config),
        "-o",
        "LogLevel=ERROR",
        pod["spec"]["nodeName"],
        # The shells of these nodes print before what daytwo runs: `sh -c`.
        f"exec sh -c {shlex.quote(COUNT)} sh {identifier}",
    ]
    counting = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    lines: list[str] = []

    def highest(seconds: float) -> float:
        counting.terminate()
        lines.extend(counting.communicate(timeout=60)[0].splitlines()[:-1])
        seen = [(float(at), int(used)) for at, used in (line.split() for line in lines)]
        rates = []
        for at, used in seen:
            later = next((one for one in seen if one[0] >= at + seconds), None)
            if later is not None:
                rates.append((later[1] - used) / 1000 / (later[0] - at))
        assert len(rates) >= 20, lines
        return max(rates)

    try:
        yield highest
    finally:
        counting.kill()
        counting.wait()


def truth(asked: float, counts: float) -> float:
    """What a load server was asked to use; but what the kernel counted, if the machine was too busy to give just that."""
    return asked if abs(counts - asked) <= 0.05 * asked else counts


@dataclass(frozen=True)
class First:
    """What the first report said, and the truth about CPU."""

    found: dict[str, dict[str, Any]]
    steady: float
    spiky: float


@pytest.fixture(scope="module")
def first(loads: Lab) -> First:
    with counted(loads, "steady") as of_steady, counted(loads, "spiky") as of_spiky:
        told = right_size(watch=str(INTERVAL * READS), interval=str(INTERVAL), min_span="0", format="json")
        truths = truth(STEADY["cpu"], of_steady(INTERVAL)), truth(SPIKY["burst"], of_spiky(INTERVAL))
    print(f"highest rates: steady {truths[0]:.1f}m, spiky {truths[1]:.1f}m\n{told.out}")
    return First(by_name(told), *truths)


@slow
def test_each_is_known_for_what_it_is(first: First) -> None:
    found = first.found
    assert list(found)[:2] in (["killed", "leaking"], ["leaking", "killed"]), "those in danger come first"
    steady, spiky, leaking, killed = (found[name] for name in ("steady", "spiky", "leaking", "killed"))

    assert (steady["cpu"]["pattern"], steady["memory"]["pattern"]) == ("steady", "steady"), steady
    assert near(steady["cpu"]["advice"]["request"], first.steady), (first, steady)
    assert near(steady["memory"]["advice"]["request"], STEADY["memory"] * MI), steady
    assert (steady["cpu"]["decision"], steady["memory"]["decision"]) == ("lower", "lower")
    assert steady["seen"]["kernel_peak"] >= STEADY["memory"] * MI and steady["memory"]["advice"]["limit"] >= steady["seen"]["kernel_peak"]

    assert spiky["cpu"]["pattern"] == "spiky" and near(spiky["cpu"]["advice"]["request"], first.spiky), (first, spiky)
    assert spiky["cpu"]["range"]["low"] < spiky["cpu"]["range"]["high"] and near(spiky["cpu"]["range"]["high"], first.spiky)

    assert (leaking["memory"]["pattern"], leaking["memory"]["decision"]) == ("leaking", "fix"), leaking
    assert leaking["memory"]["advice"] == leaking["memory"]["now"] and leaking["critical"]
    assert near(leaking["seen"]["trend"]["rate"], LEAKING["leak"] * MI)

    assert (killed["memory"]["pattern"], killed["memory"]["decision"]) == ("OOM-killed", "raise"), killed
    assert killed["seen"]["kill_limit"] == KILLED_AT * MI and killed["memory"]["advice"]["limit"] == 1.25 * KILLED_AT * MI


@slow
def test_later_runs_know_what_earlier_ones_saw(first: First, tmp_path: Path) -> None:
    """With one node left out: its kubelet answers for its containers, and the page is written too."""
    written = tmp_path / "page.html"
    told = right_size("--limit", "cp1", watch="24", interval="12", format="html", output=str(written)).ended(0)
    flat = " ".join(told.out.split())
    assert "w1: not read over SSH" in flat and "only the kubelet's rates are known" in flat
    assert "not lowered before 7 d were seen" in flat and "keep (later" in flat
    shown = browser.open_page(written, tmp_path, "t-size/steady", "leaking")
    assert shown.console == [] and shown.told["requests"] == [] and not shown.told["wide"]
    assert shown.told["all"]["bars"] == 5 and shown.told["answers"]["t-size/steady"]["bars"] == 1
    assert shown.told["answers"]["leaking"]["bars"] == 1
    before, found = first.found, by_name(right_size(watch="0", format="json"))
    for name in ("steady", "spiky"):
        assert found[name]["seen"]["lives"] == 1 and found[name]["seen"]["reads"] >= before[name]["seen"]["reads"] + 3, (before, found)
    assert found["steady"]["cpu"]["decision"] == "wait" and found["killed"]["seen"]["kills"] >= 1


@slow
def test_nothing_was_changed(first: First, loads: Lab) -> None:
    found = json.loads(loads.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    managers = {entry["manager"] for item in found for entry in item["metadata"].get("managedFields") or ()}
    assert "daytwo" not in managers


# ---- apply

ONE = "t-size/deployment/steady"
BEFORE = {"requests": {"cpu": "600m", "memory": "384Mi"}, "limits": {"memory": "512Mi"}}


def live(lab: Lab, what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "-n", NAMESPACE, what, "-o", "json"))
    return found


def of_template(lab: Lab) -> dict[str, dict[str, str]]:
    """The resources in the template of the steady one."""
    found: dict[str, dict[str, str]] = live(lab, "deployment/steady")["spec"]["template"]["spec"]["containers"][0]["resources"]
    return found


def the_pod(lab: Lab, name: str = "steady", namespace: str = NAMESPACE) -> dict[str, Any]:
    [found] = the_pods(lab, name, namespace)
    return found


def the_pods(lab: Lab, name: str = "steady", namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    items = json.loads(lab.kubectl("get", "pods", "-n", namespace, "-l", f"app={name}", "-o", "json"))["items"]
    return [dict(item) for item in items if "deletionTimestamp" not in item["metadata"]]


def percent(lab: Lab) -> int:
    return int(live(lab, "hpa/steady")["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"])


def ask(lab: Lab, pod: dict[str, Any], **use: float) -> None:
    """The load server of a pod uses that much from now on."""
    wanted = "&".join(f"{name}={value:g}" for name, value in use.items())
    url = f"http://{pod['status']['podIP']}:{loadserver.PORT}/set?{wanted}"
    assert lab.run(pod["spec"]["nodeName"], f"curl -sS --max-time 20 -X POST {shlex.quote(url)}").stdout == "ok\n"


def undo(run: str) -> Outcome:
    told = pyinfra("rollback", "-y", *data(run=run)).ended(0)
    return told


def apply(*, watch_resized: int, **values: str) -> list[str]:
    """From the samples that the reports have kept."""
    return [*data(only_objects=ONE, apply="true", watch_resized=str(watch_resized), watch="0", **values), "-y"]


def fits(resources: dict[str, Any], first: First) -> bool:
    """What a pod or a template has is what the load server was asked to use."""
    requests, limits = resources["requests"], resources["limits"]
    cpu, memory, limit = int(requests["cpu"].rstrip("m")), int(requests["memory"].rstrip("Mi")), int(limits["memory"].rstrip("Mi"))
    return near(cpu, first.steady) and near(memory, STEADY["memory"]) and memory <= limit < 200


@pytest.fixture(scope="module")
def hpa(first: First, loads: Lab) -> Lab:
    """An autoscaler of the steady one."""
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 20}}}
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "steady"}, "maxReplicas": 2, "metrics": [metric]}
    item = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "steady", "namespace": NAMESPACE}}
    loads.kubectl("apply", "-f", "-", input=json.dumps({**item, "spec": spec}))
    return loads


@slow
def test_in_place_without_a_restart_and_back(hpa: Lab, first: First) -> None:
    refused = pyinfra("right_size", *apply(watch_resized=10))
    assert refused.code == 1 and "REFUSED, nothing was written" in refused.all, "the default min_span"
    assert "not lowered before 7 d were seen" in " ".join(refused.all.split()), refused.all

    pod = the_pod(hpa)
    told = pyinfra("right_size", *apply(watch_resized=10, min_span="0", template="keep")).ended(0)
    flat = " ".join(told.out.split())
    assert "0 restarts" in flat and ": the same" in flat and "watched for 10 s" in flat, told.all
    after = the_pod(hpa)
    assert identities([after]) == identities([pod]), "the same container: its ID, restart count and start"
    has = after["spec"]["containers"][0]["resources"]
    assert fits(has, first) and kernel(hpa, after)[1] == str(int(has["limits"]["memory"].rstrip("Mi")) * MI), has
    assert of_template(hpa) == BEFORE and percent(hpa) == round(20 * 600 / int(has["requests"]["cpu"].rstrip("m")))

    undo(run_of(told))
    back = the_pod(hpa)
    assert identities([back]) == identities([pod]) and back["spec"]["containers"][0]["resources"] == BEFORE
    assert kernel(hpa, back)[1] == str(512 * MI) and percent(hpa) == 20


VPA_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "verticalpodautoscalers.autoscaling.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"},
    },
    "spec": {
        "group": "autoscaling.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "verticalpodautoscalers", "singular": "verticalpodautoscaler", "kind": "VerticalPodAutoscaler"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@slow
def test_what_a_vertical_autoscaler_recommends_is_shown_beside(first: First, loads: Lab) -> None:
    """One that nobody serves: its recommendation is planted."""
    loads.kubectl("create", "-f", "-", input=json.dumps(VPA_CRD))
    try:
        loads.kubectl("wait", "--for=condition=Established", f"crd/{VPA_CRD['metadata']['name']}", "--timeout=120s")  # type: ignore[index]
        advice = {
            "containerName": "app",
            "target": {"cpu": "77m", "memory": "131Mi"},
            "lowerBound": {"cpu": "33m", "memory": "99Mi"},
            "upperBound": {"cpu": "1", "memory": "1Gi"},
        }
        item = {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "advisor", "namespace": NAMESPACE},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "steady"},
                "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            },
            "status": {"recommendation": {"containerRecommendations": [advice]}},
        }
        loads.kubectl("create", "-f", "-", input=json.dumps(item))
        refused = pyinfra("right_size", *apply(watch_resized=5, min_span="0"))
        flat = " ".join(refused.all.split())
        assert refused.code == 1 and "REFUSED, nothing was written" in flat and "set its updateMode to Off first" in flat, refused.all
        told = right_size(watch="0", min_span="0")
        flat = " ".join(told.out.split())
        assert "the VerticalPodAutoscaler advisor recommends cpu 77m (33m to 1), memory 131Mi (99Mi to 1Gi)" in flat, told.all
        assert "advisor (InPlaceOrRecreate) sets its requests" in flat, told.all
    finally:
        loads.kubectl("delete", "crd", str(VPA_CRD["metadata"]["name"]))  # type: ignore[index]


@slow
@pytest.mark.parametrize("at", ["watching for", "1 of 1 pods are new"])
def test_killed_in_the_middle_and_undone(hpa: Lab, first: First, at: str) -> None:
    """In the watch; and in the roll-out, when the old pod that was resized in place is still there."""
    hpa.kubectl("patch", "-n", NAMESPACE, "deployment/steady", "-p", '{"spec":{"minReadySeconds":60}}')
    hpa.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/steady", "--timeout=280s")
    pod = the_pod(hpa)
    run = Started("right_size", *apply(watch_resized=5, min_span="0"))
    run.wait_for(at)
    run.process.kill()
    told = run.end()
    assert percent(hpa) > 20 and told.code not in (0, 1), told.all
    found = re.search(r"Plan of run (\S+):", told.out)
    assert found, told.all
    pyinfra("rollback", "-y", *data(run=found.group(1), take_over=found.group(1))).ended(0)
    hpa.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/steady", "--timeout=280s")
    assert of_template(hpa) == BEFORE and percent(hpa) == 20
    back = the_pod(hpa)
    assert back["spec"]["containers"][0]["resources"] == BEFORE and kernel(hpa, back)[1] == str(512 * MI)
    assert identities([back]) == identities([pod]), "the old pod stays, and its container was never restarted"


@slow
def test_the_template_makes_it_last(hpa: Lab, first: First) -> None:
    """And something adds a pod in the watch, as an autoscaler does: it is made by the old template."""
    hpa.kubectl("patch", "-n", NAMESPACE, "deployment/steady", "-p", '{"spec":{"minReadySeconds":0}}')
    pod = the_pod(hpa)
    run = Started("right_size", *apply(watch_resized=10, min_span="0"))
    run.wait_for("watching for")
    hpa.kubectl("scale", "-n", NAMESPACE, "deployment/steady", "--replicas=2")
    told = run.end().ended(0)
    flat = " ".join(told.out.split())
    assert "which recreates all its pods" in flat and "its 2 pods have it, read back" in flat and ": the same" in flat, told.all
    after = the_pods(hpa)
    assert len(after) == 2 and pod["metadata"]["uid"] not in identities(after)
    assert all(fits(one["spec"]["containers"][0]["resources"], first) for one in after)
    assert fits(of_template(hpa), first) and percent(hpa) > 20
    hpa.kubectl("scale", "-n", NAMESPACE, "deployment/steady", "--replicas=1")
    hpa.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/steady", "--timeout=280s")
    undo(run_of(told))
    assert of_template(hpa) == BEFORE and percent(hpa) == 20 and the_pod(hpa)["spec"]["containers"][0]["resources"] == BEFORE


@slow
def test_what_its_cpu_limit_stops_is_put_back(first: First, loads: Lab) -> None:
    pod = the_pod(loads, "limited")
    was = pod["spec"]["containers"][0]["resources"]
    run = Started(
        "right_size",
        *data(only_objects=f"{NAMESPACE}/deployment/limited", apply="true", watch_resized="120", watch="0", min_span="0"),
        "-y",
    )
    run.wait_for("watching for")
    assert the_pod(loads, "limited")["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "100m"}
    ask(loads, pod, cpu=180)
    told = run.end()
    ask(loads, pod, cpu=LIMITED["cpu"])
    assert told.code == 1, told.all
    flat = " ".join(told.out.split())
    assert "reverted" in flat and "its CPU limit stopped it in" in flat, told.all
    after = the_pod(loads, "limited")
    assert identities([after]) == identities([pod]) and after["spec"]["containers"][0]["resources"] == was
    assert live(loads, "deployment/limited")["spec"]["template"]["spec"]["containers"][0]["resources"] == was


@slow
def test_a_quota_without_room_refuses_the_plan(first: First, loads: Lab) -> None:
    pod = the_pod(loads, "spiky")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": NAMESPACE},
        "spec": {"hard": {"requests.cpu": "640m"}},
    }
    loads.kubectl("create", "-f", "-", input=json.dumps(quota))
    try:
        wait_for(lambda: live(loads, "quota/full").get("status", {}).get("used"), "the quota's status")
        refused = pyinfra("right_size", *data(only_objects=f"{NAMESPACE}/deployment/spiky", apply="true", watch="0", min_span="0"), "-y")
        assert refused.code == 1 and "REFUSED, nothing was written" in refused.all and "quota" in refused.all.lower(), refused.all
        assert identities([the_pod(loads, "spiky")]) == identities([pod])
    finally:
        loads.kubectl("delete", "-n", NAMESPACE, "quota/full")


@slow
def test_a_node_without_room_refuses_the_plan(first: First, loads: Lab) -> None:
    """A neighbour requests all but 30m of what the node has left, and the advice wants more than that."""
    pod = the_pod(loads, "spiky")
    room = json.loads(loads.kubectl("get", "node", "cp1", "-o", "json"))["status"]["allocatable"]
    listed = json.loads(loads.kubectl("get", "pods", "--all-namespaces", "--field-selector=spec.nodeName=cp1", "-o", "json"))["items"]
    held = sum(requests(one, View.ALLOCATED).get("cpu", Fraction(0)) for one in listed if not is_over(one))
    left = int((parse_quantity(room["cpu"]) - held) * 1000) - 30
    filler = manifest({"requests": {"cpu": f"{left}m", "memory": "1Mi"}})
    item = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "filler", "namespace": NAMESPACE},
        "spec": {**filler, "nodeName": "cp1"},
    }
    loads.kubectl("create", "-f", "-", input=json.dumps(item))
    try:
        loads.kubectl("wait", "-n", NAMESPACE, "--for=condition=Ready", "pod/filler", "--timeout=120s")
        asked = data(only_objects=f"{NAMESPACE}/deployment/spiky", apply="true", watch="0", min_span="0", template="keep")
        refused = pyinfra("right_size", *asked, "-y")
        assert refused.code == 1 and "REFUSED, nothing was written" in refused.all, refused.all
        assert re.search(r"cp1 has \S+ of cpu for pods, they request \S+, and this would add \S+", " ".join(refused.all.split())), (
            refused.all
        )
        assert identities([the_pod(loads, "spiky")]) == identities([pod])
    finally:
        loads.kubectl("delete", "-n", NAMESPACE, "pod/filler", "--wait")


@slow
def test_what_is_too_small_is_put_back(hpa: Lab, first: First) -> None:
    """The workload needs more than it was ever seen to need, right after its limit was lowered. Another one waits for its turn, and is not
    begun then."""
    pod, waiting = the_pod(hpa), the_pod(hpa, "limited")
    both = f"{ONE},{NAMESPACE}/deployment/limited"
    run = Started("right_size", *data(only_objects=both, apply="true", watch_resized="120", watch="0", min_span="0"), "-y")
    run.wait_for("watching for")
    ask(hpa, pod, memory=300)
    told = run.end().ended(1)
    flat = " ".join(told.out.split())
    # The kernel's count may be there before the pod's status.
    assert "reverted" in flat and "HALTED" in flat and re.search(r"killed (it|a process of it) for its memory", flat), told.all
    assert re.search(r"^Deployment t-size/limited +right size +not started ", told.out, re.MULTILINE), told.all
    assert the_pod(hpa, "limited") == waiting, "one at a time: nothing of it was written"
    after = the_pod(hpa)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"] and after["spec"]["containers"][0]["resources"] == BEFORE
    assert kernel(hpa, after)[1] == str(512 * MI)
    assert of_template(hpa) == BEFORE and percent(hpa) == 20

    again = by_name(right_size(watch="0", min_span="0", format="json"))["steady"]["memory"]
    assert again["pattern"] == "OOM-killed" and again["decision"] == "keep", "it was killed at the lowered limit, and has more by now"
    assert again["advice"]["limit"] == 512 * MI and "of 512Mi" not in again["why"], again


# ---- one that is killed


def ended(lab: Lab, limit: int) -> str:
    """Whether the one that is killed runs with this limit, or was killed at it; "" as long as that is not known."""
    found = [one for one in the_pods(lab, "killed") if one["spec"]["containers"][0]["resources"] == of_memory(limit)]
    states = [state for one in found for state in one["status"].get("containerStatuses") or ()]
    if any((state[key].get("terminated") or {}).get("reason") == "OOMKilled" for state in states for key in ("state", "lastState")):
        return "killed"
    began = [state["state"]["running"]["startedAt"] for state in states if "running" in state["state"]]
    return "runs" if any(time.time() - datetime.fromisoformat(at).timestamp() > RUNS for at in began) else ""


# Seconds: it takes its memory in the first one.
RUNS = 10


@slow
def test_the_advice_for_one_that_is_killed_ends_near_its_need(first: First, loads: Lab) -> None:
    """A container that is killed again and again does not run, so each advice is followed by hand, until it runs."""
    need, limits = KILLED["memory"] + OWN, [KILLED_AT]
    while ended(loads, limits[-1]) != "runs":
        wait_for(lambda: ended(loads, limits[-1]), f"its end at {limits[-1]}Mi")
        if ended(loads, limits[-1]) == "runs":
            break
        memory = by_name(right_size(watch="0", format="json"))["killed"]["memory"]
        assert (memory["pattern"], memory["decision"]) == ("OOM-killed", "raise"), memory
        size = memory["advice"]["limit"] // MI
        assert memory["advice"]["request"] == memory["advice"]["limit"] and 1.25 * limits[-1] <= size <= 1.35 * limits[-1], memory
        limits.append(size)
        containers = [{"name": "app", "resources": of_memory(size)}]
        loads.kubectl(
            "patch", "-n", NAMESPACE, "deployment/killed", "-p", json.dumps({"spec": {"template": {"spec": {"containers": containers}}}})
        )
    assert len(limits) >= 3 and limits[-2] < need <= limits[-1], limits
    found = by_name(right_size(watch="28", interval="2", min_span="0", format="json"))["killed"]
    memory = found["memory"]
    print(f"limits {limits}: {json.dumps(memory)}")
    assert found["seen"]["kill_limit"] == limits[-2] * MI and memory["range"]["high"] > limits[-2] * MI, found
    assert near(memory["target"], need * MI) and near(memory["advice"]["request"], need * MI), found
    assert memory["decision"] in ("keep", "lower") and memory["advice"]["limit"] >= need * MI and not found["critical"], found


# ---- one with an autoscaler that works

SCALED = "t-size-scaled"
# What each of its pods uses; what its metrics API says it does, by CPU in equilibrium, by memory far from it.
SERVED, PODS = {"cpu": 20, "memory": 24}, 3
CPU, MEMORY = 20, 190


def of_scaled(lab: Lab, what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "-n", SCALED, what, "-o", "json"))
    return found


def percents(lab: Lab) -> dict[str, int]:
    metrics = of_scaled(lab, "hpa/served")["spec"]["metrics"]
    return {one["resource"]["name"]: one["resource"]["target"]["averageUtilization"] for one in metrics}


@contextlib.contextmanager
def sampled(lab: Lab) -> Iterator[list[tuple[int, int]]]:
    """How many pods the Deployment shall have, and how many are available, all the time."""
    samples: list[tuple[int, int]] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            found = of_scaled(lab, "deployment/served")
            samples.append((found["spec"]["replicas"], found["status"].get("availableReplicas", 0)))
            over.wait(0.5)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join(timeout=60)


@pytest.fixture
def served_pods(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsApi]:
    """As many pods as the autoscaler may make, which it wants by CPU alone, and would remove at once."""
    image = loadserver.load(lab)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    has = {"requests": {"cpu": "100m", "memory": "16Mi"}}
    item = deployment("served", image, "w1", has, namespace=SCALED, **SERVED)
    item["spec"]["replicas"] = PODS
    targets = [
        {"type": "Resource", "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": percent}}}
        for name, percent in (("cpu", CPU), ("memory", MEMORY))
    ]
    at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    lab.kubectl("create", "namespace", SCALED)
    try:
        lab.kubectl("create", "-f", "-", input=json.dumps(item))
        lab.kubectl("rollout", "status", "-n", SCALED, "deployment/served", "--timeout=280s")
        with metrics_api.served_in(lab, tmp_path) as api:
            api.cpu["served"], api.memory["served"] = "20m", "8Mi"
            metrics_api.register(api, lab, metrics_api.RESOURCE)
            scaling.apply(lab, scaling.hpa(SCALED, "served", "served", *targets, minReplicas=1, maxReplicas=PODS, behavior=at_once))
            wait_for(lambda: len(of_scaled(lab, "hpa/served")["status"].get("currentMetrics") or ()) == 2, "both metrics")
            yield api
            lab.kubectl("delete", "-n", SCALED, "hpa/served")
    finally:
        lab.kubectl("delete", "namespace", SCALED, "--wait=false")


@slow
def test_an_autoscaler_in_equilibrium_never_removes_a_pod(lab: Lab, served_pods: MetricsApi) -> None:
    """The CPU request falls to a quarter and that of memory rises, there and back. By memory alone there would be fewer pods."""
    only = f"{SCALED}/deployment/served"
    with sampled(lab) as samples:
        told = pyinfra(
            "right_size", *data(only_objects=only, apply="true", watch="30", interval="2", min_span="0", watch_resized="35"), "-y"
        ).ended(0)
        has = the_pods(lab, "served", SCALED)[0]["spec"]["containers"][0]["resources"]["requests"]
        cpu, memory = int(has["cpu"].rstrip("m")), int(has["memory"].rstrip("Mi"))
        assert cpu < 50 and memory > 20, has
        assert percents(lab) == {"cpu": round(CPU * 100 / cpu), "memory": round(MEMORY * 16 / memory)}
        followed(served_pods)
        there = len(samples)
        undo(run_of(told))
        assert percents(lab) == {"cpu": CPU, "memory": MEMORY}
        followed(served_pods)
    print(f"{len(samples)} samples, {there} of them on the way there: {Counter(samples)}")
    assert there > 20 and len(samples) > there + 20 and {wanted for wanted, _ in samples} == {PODS}, samples
    assert min(available for _, available in samples) == PODS, samples


def followed(api: MetricsApi) -> None:
    """Until the controller has computed twice with what is there now: each time it asks for both metrics."""
    before = len(api.asked)
    wait_for(lambda: len(api.asked) >= before + 4, "two more looks of the controller")
