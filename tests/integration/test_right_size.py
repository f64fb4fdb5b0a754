"""Requests from real use, on containers whose use is known: a steady one, a spiky one, a leaking one, one that is killed for its memory."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.operator import Outcome, Started, data, pyinfra, wait_for
from tests.lab import Lab, loadserver

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MI = 2**20
NAMESPACE = "t-size"
# What each uses: thousandths of a core, MiB, MiB a second.
STEADY = {"cpu": 150, "memory": 96}
SPIKY = {"cpu": 30, "burst": 300, "every": 20, "for": 10, "memory": 32}
LEAKING = {"memory": 24, "leak": 1}
KILLED = {"memory": 56}


def deployment(name: str, image: str, node: str, resources: dict[str, Any], **use: float) -> dict[str, Any]:
    labels = {"app": name}
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [loadserver.container(image, resources, **use)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


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
                deployment("spiky", image, "w2", {"requests": {"cpu": "50m", "memory": "36Mi"}}, **SPIKY),
                deployment("leaking", image, "w1", {"requests": {"memory": "32Mi"}, "limits": {"memory": "600Mi"}}, **LEAKING),
                deployment("killed", image, "w2", {"requests": {"memory": "48Mi"}, "limits": {"memory": "48Mi"}}, **KILLED),
            ]
            lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
            for name in ("steady", "spiky", "leaking"):
                lab.kubectl("rollout", "status", "-n", NAMESPACE, f"deployment/{name}", "--timeout=280s")
            wait_for(lambda: "OOMKilled" in lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", "app=killed", "-o", "json"), "the OOM kill")
            yield lab
        finally:
            lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def right_size(*arguments: str, **values: str) -> Outcome:
    return pyinfra("right_size", *data(namespaces=NAMESPACE, **values), *arguments, "-y")


def by_name(told: Outcome) -> dict[str, dict[str, Any]]:
    assert told.code == 0, told.all
    document = json.loads(told.out)
    assert not document["problems"]
    return {one["name"]: one for one in document["containers"]}


def near(found: int, truth: float) -> bool:
    return 0.8 * truth <= found <= 1.2 * truth


def test_each_is_known_for_what_it_is(loads: Lab) -> None:
    found = by_name(right_size(watch="45", interval="3", min_span="0", format="json"))
    assert list(found)[:2] in (["killed", "leaking"], ["leaking", "killed"]), "those in danger come first"
    steady, spiky, leaking, killed = (found[name] for name in ("steady", "spiky", "leaking", "killed"))

    assert (steady["cpu"]["pattern"], steady["memory"]["pattern"]) == ("steady", "steady"), steady
    assert near(steady["cpu"]["advice"]["request"], STEADY["cpu"]) and near(steady["memory"]["advice"]["request"], STEADY["memory"] * MI), (
        steady
    )
    assert (steady["cpu"]["decision"], steady["memory"]["decision"]) == ("lower", "lower")
    assert steady["seen"]["kernel_peak"] >= STEADY["memory"] * MI and steady["memory"]["advice"]["limit"] >= steady["seen"]["kernel_peak"]

    assert spiky["cpu"]["pattern"] == "spiky" and near(spiky["cpu"]["advice"]["request"], SPIKY["burst"]), spiky
    assert spiky["cpu"]["range"]["low"] < spiky["cpu"]["range"]["high"] and near(spiky["cpu"]["range"]["high"], SPIKY["burst"])

    assert (leaking["memory"]["pattern"], leaking["memory"]["decision"]) == ("leaking", "fix"), leaking
    assert leaking["memory"]["advice"] == leaking["memory"]["now"] and leaking["critical"]
    assert 0.7 * MI <= leaking["seen"]["trend"]["rate"] <= 1.3 * MI

    assert (killed["memory"]["pattern"], killed["memory"]["decision"]) == ("OOM-killed", "raise"), killed
    assert near(killed["memory"]["advice"]["limit"], (KILLED["memory"] + 2) * MI) and killed["seen"]["kill_limit"] == 48 * MI


def test_later_runs_know_what_earlier_ones_saw(loads: Lab, tmp_path: Path) -> None:
    """With one node left out: its kubelet answers for its containers, and the page is written too."""
    page = tmp_path / "page.html"
    told = right_size("--limit", "cp1,w1", watch="24", interval="12", format="html", output=str(page))
    assert told.code == 0, told.all
    flat = " ".join(told.out.split())
    assert "w2: not read over SSH" in flat and "only the kubelet's rates are known" in flat
    assert "not lowered before 7 d were seen" in flat and "keep (later" in flat
    text = page.read_text()
    assert "Right size" in text and "t-size/" in text
    found = by_name(right_size(watch="0", format="json"))
    # 16 reads, 3 over the kubelet or the kernel, and one now.
    assert found["steady"]["seen"]["reads"] >= 20 and found["steady"]["cpu"]["decision"] == "wait"
    assert found["spiky"]["seen"]["lives"] == 1 and found["spiky"]["seen"]["reads"] >= 19
    assert found["killed"]["seen"]["kills"] >= 1


def test_nothing_was_changed(loads: Lab) -> None:
    found = json.loads(loads.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    managers = {entry["manager"] for item in found for entry in item["metadata"].get("managedFields") or ()}
    assert "daytwo" not in managers


# ---- apply

STEADY_ONE = "t-size/deployment/steady"


def live(lab: Lab, what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "-n", NAMESPACE, what, "-o", "json"))
    return found


def requested(lab: Lab) -> dict[str, str]:
    """By the template of the steady one."""
    found: dict[str, str] = live(lab, "deployment/steady")["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return found


def the_pod(lab: Lab) -> dict[str, Any]:
    items = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", "app=steady", "-o", "json"))["items"]
    [found] = [item for item in items if "deletionTimestamp" not in item["metadata"]]
    return dict(found)


def percent(lab: Lab) -> int:
    return int(live(lab, "hpa/steady")["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"])


def test_the_advice_is_applied_and_undone(loads: Lab) -> None:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 20}}}
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "steady"}, "maxReplicas": 2, "metrics": [metric]}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "steady", "namespace": NAMESPACE}}
    loads.kubectl("apply", "-f", "-", input=json.dumps({**hpa, "spec": spec}))
    told = right_size(only=STEADY_ONE, apply="true", soak="10", watch="0", min_span="0")
    assert told.code == 0, told.all
    flat = " ".join(told.out.split())
    assert "0 restarts" in flat and ": the same" in flat and "watched for 10 s" in flat, "resized in place, proven in its cgroup"
    now = requested(loads)
    assert near(int(now["cpu"].removesuffix("m")), STEADY["cpu"]) and near(int(now["memory"].removesuffix("Mi")), STEADY["memory"])
    assert percent(loads) == round(20 * 600 / int(now["cpu"].removesuffix("m")))
    found = re.search(r"rollback\.py --data run=(\S+)", told.out)
    assert found, told.all
    undone = pyinfra("rollback", "-y", *data(run=found.group(1)))
    assert undone.code == 0, undone.all
    assert requested(loads) == {"cpu": "600m", "memory": "384Mi"} and percent(loads) == 20


def test_what_is_too_small_is_put_back(loads: Lab) -> None:
    """The workload needs more than it was ever seen to need, right after its limit was lowered."""
    pod = the_pod(loads)
    run = Started("right_size", *data(only=STEADY_ONE, apply="true", soak="90", watch="0", min_span="0", template="keep"), "-y")
    run.wait_for("watching for")
    ask = f"exec 3<>/dev/tcp/{pod['status']['podIP']}/{loadserver.PORT}; printf 'POST /set?memory=300 HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    loads.run("w1", f"bash -c {shlex.quote(ask)}")
    told = run.end()
    assert told.code == 1, told.all
    flat = " ".join(told.out.split())
    assert "reverted" in flat and "HALTED" in flat and ("killed it for its memory" in flat or "it was restarted" in flat), told.all
    after = the_pod(loads)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["resources"]["limits"]["memory"] == "512Mi"
