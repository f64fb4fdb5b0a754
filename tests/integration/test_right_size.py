"""Requests from real use, on containers whose use is known: a steady one, a spiky one, a leaking one, one that is killed for its memory."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.operator import Outcome, Started, data, pyinfra, wait_for
from tests.lab import Lab, loadserver

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MI = 2**20
NAMESPACE = "t-size"
# What each uses: thousandths of a core, MiB, MiB a second.
STEADY = {"cpu": 60, "memory": 96}
SPIKY = {"cpu": 10, "burst": 100, "every": 24, "for": 12, "memory": 32}
LEAKING = {"memory": 24, "leak": 0.5}
KILLED = {"memory": 56}
# Seconds between two reads, and how many there are.
INTERVAL, READS = 6, 13


def deployment(name: str, image: str, node: str, resources: dict[str, Any], **use: float) -> dict[str, Any]:
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
                deployment("spiky", image, "cp1", {"requests": {"cpu": "40m", "memory": "36Mi"}}, **SPIKY),
                deployment("leaking", image, "w1", {"requests": {"memory": "32Mi"}, "limits": {"memory": "600Mi"}}, **LEAKING),
                deployment("killed", image, "cp1", {"requests": {"memory": "48Mi"}, "limits": {"memory": "48Mi"}}, **KILLED),
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
    words = ["ssh", "-F", str(lab.ssh_config), "-o", "LogLevel=ERROR", pod["spec"]["nodeName"], f"sh -c {shlex.quote(COUNT)} sh {identifier}"]
    counting = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    lines: list[str] = []

    def highest(seconds: float) -> float:
        counting.terminate()
        lines.extend(counting.communicate(timeout=60)[0].splitlines()[:-1])
        reads = [(float(at), int(used)) for at, used in (line.split() for line in lines)]
        rates = []
        for at, used in reads:
            later = next((one for one in reads if one[0] >= at + seconds), None)
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


def test_each_is_known_for_what_it_is(loads: Lab) -> None:
    with counted(loads, "steady") as of_steady, counted(loads, "spiky") as of_spiky:
        told = right_size(watch=str(INTERVAL * (READS - 1)), interval=str(INTERVAL), min_span="0", format="json")
        steady_cpu, spiky_cpu = truth(STEADY["cpu"], of_steady(INTERVAL)), truth(SPIKY["burst"], of_spiky(INTERVAL))
    print(f"highest rates: steady {steady_cpu:.1f}m, spiky {spiky_cpu:.1f}m\n{told.out}")
    found = by_name(told)
    assert list(found)[:2] in (["killed", "leaking"], ["leaking", "killed"]), "those in danger come first"
    steady, spiky, leaking, killed = (found[name] for name in ("steady", "spiky", "leaking", "killed"))

    assert steady["memory"]["pattern"] == "steady", steady
    assert near(steady["cpu"]["advice"]["request"], steady_cpu) and near(steady["memory"]["advice"]["request"], STEADY["memory"] * MI), (
        steady_cpu,
        steady,
    )
    assert (steady["cpu"]["decision"], steady["memory"]["decision"]) == ("lower", "lower")
    assert steady["seen"]["kernel_peak"] >= STEADY["memory"] * MI and steady["memory"]["advice"]["limit"] >= steady["seen"]["kernel_peak"]

    assert spiky["cpu"]["pattern"] == "spiky" and near(spiky["cpu"]["advice"]["request"], spiky_cpu), (spiky_cpu, spiky)
    assert spiky["cpu"]["range"]["low"] < spiky["cpu"]["range"]["high"] and near(spiky["cpu"]["range"]["high"], spiky_cpu)

    assert (leaking["memory"]["pattern"], leaking["memory"]["decision"]) == ("leaking", "fix"), leaking
    assert leaking["memory"]["advice"] == leaking["memory"]["now"] and leaking["critical"]
    assert 0.7 * LEAKING["leak"] * MI <= leaking["seen"]["trend"]["rate"] <= 1.3 * LEAKING["leak"] * MI

    assert (killed["memory"]["pattern"], killed["memory"]["decision"]) == ("OOM-killed", "raise"), killed
    assert near(killed["memory"]["advice"]["limit"], (KILLED["memory"] + 2) * MI) and killed["seen"]["kill_limit"] == 48 * MI


def test_later_runs_know_what_earlier_ones_saw(loads: Lab, tmp_path: Path) -> None:
    """With one node left out: its kubelet answers for its containers, and the page is written too."""
    page = tmp_path / "page.html"
    told = right_size("--limit", "cp1", watch="24", interval="12", format="html", output=str(page))
    assert told.code == 0, told.all
    flat = " ".join(told.out.split())
    assert "w1: not read over SSH" in flat and "only the kubelet's rates are known" in flat
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


def the_pod(lab: Lab, name: str = "steady") -> dict[str, Any]:
    items = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", f"app={name}", "-o", "json"))["items"]
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
